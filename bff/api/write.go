package api

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// heartbeats stores the valid heartbeats and returns a status for each. It fails only if none was processed.
func (a *api) heartbeats(ctx context.Context, in *upload) (*results, error) {
	var batch *codec.Batch
	err := a.read(in, func(body []byte) (err error) {
		batch, err = codec.DecodeBatch(uidOf(ctx), body)
		return err
	})
	if err != nil {
		return nil, err
	}
	a.spend(ctx, len(batch.Heartbeats))
	resp, err := a.apply(ctx, batch)
	if err != nil {
		return nil, err
	}
	list, err := batch.Results(resp)
	if err != nil {
		return nil, err
	}
	a.metrics.heartbeats(list)
	flag, first := batch.Today(resp)
	return &results{Results: list, FirstFlag: flag, FirstOfDay: first, NowMS: resp.GetNowMs()}, nil
}

func (a *api) apply(ctx context.Context, batch *codec.Batch) (*historyv1.ApplyResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	return a.cfg.Service.Apply(ctx, batch.Request())
}

const maxDelete = 1000

type clearInput struct {
	Type  uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Until string `query:"until" format:"date-time" doc:"Nothing after it; now by default. In a query a + is written as %2B."`
}

func (a *api) deleteOne(ctx context.Context, in *deleteInput) (*deleted, error) {
	tag, err := in.tag()
	if err != nil {
		return nil, err
	}
	object, err := objectIn(in.Type, in.ID)
	if err != nil {
		return nil, err
	}
	n, err := a.delete(ctx, &historyv1.DeleteRequest{Objects: []*historyv1.Object{object}, IfMatch: tag})
	return &deleted{Deleted: &n}, err
}

// deleteSome deletes objects or a range. A range without a start is a clear, which also covers later reports
// from before its end.
func (a *api) deleteSome(ctx context.Context, in *upload) (*deleted, error) {
	var what *codec.Deletion
	err := a.read(in, func(body []byte) (err error) {
		what, err = codec.DecodeDeletion(body, maxDelete)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(what.Objects) == 0 && what.SinceMs == 0:
		out, err := a.clear(ctx, what.Type, what.UntilMs)
		return &deleted{Until: out}, err
	case len(what.Objects) == 0:
		return a.deleteRange(ctx, what)
	}
	a.spend(ctx, len(what.Objects))
	n, err := a.delete(ctx, &historyv1.DeleteRequest{Objects: what.Objects})
	return &deleted{Deleted: &n}, err
}

// maxPasses limits repeated passes over a range.
const maxPasses = 8

// deleteRange deletes the records of a range, newest first, as of the end of the range; newer reports stay.
// After DeleteFor it returns a continuation.
//
// A late report may move a record past the current page, still inside the range. So a range deleted in one call
// is scanned until nothing more is found.
func (a *api) deleteRange(ctx context.Context, what *codec.Deletion) (*deleted, error) {
	end := time.Now().Add(a.cfg.DeleteFor)
	req := &historyv1.ListRequest{
		Uid: uidOf(ctx), Limit: pageSize, Type: what.Type, SinceMs: what.SinceMs, UntilMs: what.UntilMs, Cursor: what.Cursor, Summaries: true,
	}
	out, whole := &deleted{Deleted: new(uint32)}, what.Cursor == ""
	for range maxPasses {
		gone, err := a.deletePages(ctx, req, end)
		*out.Deleted += gone
		switch {
		case err != nil && *out.Deleted == 0:
			return nil, err
		case err != nil, req.Cursor != "": // keeps the partial result
			out.Next = &deleteBody{Type: req.Type, Since: codec.FormatTime(req.SinceMs), Until: codec.FormatTime(req.UntilMs), Cursor: req.Cursor}
			return out, nil
		case gone == 0 || !whole:
			return out, nil
		}
	}
	return out, nil
}

// deletePages deletes pages of a range until end and returns the number of objects. req.Cursor then marks where
// to continue. An open range gets an end: the time of its newest record.
func (a *api) deletePages(ctx context.Context, req *historyv1.ListRequest, end time.Time) (n uint32, err error) {
	for {
		page, err := a.page(ctx, req)
		switch {
		case err != nil:
			return n, err
		case page.GetHasMore() && page.GetCursor() == req.Cursor:
			return n, errors.New("list: cursor did not advance")
		case req.UntilMs == 0 && len(page.GetItems()) > 0:
			req.UntilMs = page.GetItems()[0].GetEventTimeMs()
			continue
		}
		gone, err := a.deletePage(ctx, page, req.UntilMs)
		if n += gone; err != nil {
			return n, err
		}
		if req.Cursor = page.GetCursor(); !page.GetHasMore() {
			req.Cursor = ""
			return n, nil
		}
		if !time.Now().Before(end) {
			return n, nil
		}
		a.cfg.Limit.Spend(uidOf(ctx), 1)
	}
}

func (a *api) deletePage(ctx context.Context, page *historyv1.ListResponse, until int64) (n uint32, err error) {
	objects := make([]*historyv1.Object, len(page.GetItems()))
	for i, it := range page.GetItems() {
		objects[i] = it.Object
	}
	if len(objects) > 0 {
		if n, err = a.delete(ctx, &historyv1.DeleteRequest{Objects: objects, AtMs: until}); err != nil {
			return 0, err
		}
	}
	gone, err := a.deleteSummaries(ctx, page.GetSummaries(), until)
	return n + gone, err
}

// deleteSummaries deletes objects known only by summaries.
func (a *api) deleteSummaries(ctx context.Context, summaries []*historyv1.Summary, until int64) (n uint32, err error) {
	if len(summaries) == 0 {
		return 0, nil
	}
	objects := make([]*historyv1.Object, len(summaries))
	for i, s := range summaries {
		objects[i] = s.Object
	}
	_, err = a.delete(ctx, &historyv1.DeleteRequest{Objects: objects, AtMs: until, Summarized: true})
	if err != nil {
		return 0, err
	}
	return uint32(len(objects)), nil //nolint:gosec // a page
}

func (a *api) delete(ctx context.Context, req *historyv1.DeleteRequest) (n uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	req.Uid = uidOf(ctx)
	resp, err := a.cfg.Service.Delete(ctx, req)
	counts(ctx, int(resp.GetDeleted()))
	return resp.GetDeleted(), err
}

func (a *api) dismiss(ctx context.Context, in *upload) (*dismissed, error) {
	req := &historyv1.DismissRequest{Uid: uidOf(ctx)}
	err := a.read(in, func(body []byte) error {
		objects, dismissed, err := codec.DecodeDismissal(body, maxDelete)
		req.Objects, req.Offer = objects, !dismissed
		return err
	})
	if err != nil {
		return nil, err
	}
	a.spend(ctx, len(req.Objects))
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Dismiss(ctx, req)
	return &dismissed{Found: resp.GetFound()}, err
}

func (a *api) mark(ctx context.Context, in *upload) (*marked, error) {
	var req *historyv1.MarkRequest
	err := a.read(in, func(body []byte) (err error) {
		req, err = codec.DecodeMark(uidOf(ctx), body, maxDelete)
		return err
	})
	if err != nil {
		return nil, err
	}
	a.spend(ctx, len(req.Objects))
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Mark(ctx, req)
	if err != nil {
		return nil, err
	}
	results, err := codec.NewMarked(req, resp)
	return &marked{Results: results}, err
}

func (a *api) deleteAll(ctx context.Context, in *clearInput) (*cleared, error) {
	until, err := queryTime("query.until", in.Until)
	if err != nil {
		return nil, err
	}
	out, err := a.clear(ctx, in.Type, until)
	return &cleared{Until: out}, err
}

func (a *api) clear(ctx context.Context, typ uint32, until int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Clear(ctx, &historyv1.ClearRequest{Uid: uidOf(ctx), Type: typ, UntilMs: until})
	return codec.FormatTime(resp.GetClearedMs()), err
}

func (a *api) getSettings(ctx context.Context, _ *struct{}) (*settings, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.GetSettings(ctx, &historyv1.GetSettingsRequest{Uid: uidOf(ctx)})
	return newSettings(resp.GetSettings()), err
}

func (a *api) putSettings(ctx context.Context, in *upload) (*settings, error) {
	var recording bool
	err := a.read(in, func(body []byte) (err error) {
		recording, err = codec.DecodeSettings(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline) // may read the archive
	defer cancel()
	resp, err := a.cfg.Service.PutSettings(ctx, &historyv1.PutSettingsRequest{Uid: uidOf(ctx), Recording: recording})
	return newSettings(resp.GetSettings()), err
}

type deleteInput struct {
	Type uint32 `path:"type" minimum:"1" maximum:"4294967295" format:"int64"`
	ID   string `path:"id" maxLength:"256" doc:"Percent-encoded."`

	IfMatch string `header:"If-Match" doc:"The etag, in quotes, of the only record that is to be removed: for another one, or none, the answer is 412 (one of which only earlier reports came since, or the first seconds of a session, is the same), but not where it is deleted already: this may be the same call again."`
}

// tag returns the etag that the record must have, 0 for any. A caller knows one etag, so lists and * are
// refused.
func (in *deleteInput) tag() (uint64, error) {
	if in.IfMatch == "" {
		return 0, nil
	}
	text, quoted := unquote(in.IfMatch)
	tag, ok := codec.ParseETag(text)
	if !quoted || !ok {
		return 0, history.Invalid("header.If-Match", "want the etag of a record, in quotes")
	}
	return tag, nil
}
