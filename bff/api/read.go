package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const maxLookup = 100

type listInput struct {
	Limit  uint32 `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Cursor string `query:"cursor" maxLength:"512" doc:"From the page before, of the same user, type, since and until."`
	Type   uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Since  string `query:"since" format:"date-time" doc:"Nothing before it. In a query a + is written as %2B."`
	Until  string `query:"until" format:"date-time" doc:"Nothing after it."`
	Detail string `query:"detail" enum:"record,summary" default:"record" doc:"With summary all objects are in summaries, and items is empty: one small form, also of what was last played more than 90 days ago where the server keeps summaries."`
}

func (a *api) list(ctx context.Context, in *listInput) (*page, error) {
	req, err := listRequest(ctx, in.Type, in.Since, in.Until)
	if err != nil {
		return nil, err
	}
	brief := in.Detail == "summary"
	req.Limit, req.Cursor, req.Summaries, req.Brief = in.Limit, in.Cursor, brief, brief
	resp, err := a.page(ctx, req)
	if err != nil {
		return nil, err
	}
	return &page{
		Items: codec.NewRecords(resp.Items), Summaries: codec.NewSummaries(resp.Summaries), Cursor: resp.Cursor, HasMore: resp.HasMore,
	}, nil
}

type searchInput struct {
	Text   string `query:"q" minLength:"1" maxLength:"128" required:"true" doc:"Words, at most 128 characters. The id or the metadata of what is found has each of them, in whatever case and with or without accents." example:"low tide"`
	Limit  uint32 `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Cursor string `query:"cursor" maxLength:"512" doc:"From the page before, of the same user, q and type."`
	Type   uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
}

// search costs one request per thousand records searched.
func (a *api) search(ctx context.Context, in *searchInput) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	req := &historyv1.SearchRequest{Uid: uidOf(ctx), Text: in.Text, Limit: in.Limit, Cursor: in.Cursor, Type: in.Type}
	resp, err := a.cfg.Service.Search(ctx, req)
	if err != nil {
		return nil, err
	}
	a.pay(ctx, float64(resp.GetSearched()/1000))
	return &found{Items: codec.NewRecords(resp.GetItems()), Cursor: resp.GetCursor(), HasMore: resp.GetHasMore(), Searched: resp.GetSearched()}, nil
}

func listRequest(ctx context.Context, typ uint32, since, until string) (*historyv1.ListRequest, error) {
	req := &historyv1.ListRequest{Uid: uidOf(ctx), Type: typ}
	var err error
	if req.SinceMs, err = queryTime("query.since", since); err != nil {
		return nil, err
	}
	if req.UntilMs, err = queryTime("query.until", until); err != nil {
		return nil, err
	}
	return req, nil
}

func (a *api) point(ctx context.Context, in *pointInput) (*codec.Record, error) {
	object, err := objectIn(in.Type, in.ID)
	if err != nil {
		return nil, err
	}
	resp, err := a.points(ctx, []*historyv1.Object{object}, false)
	if err != nil {
		return nil, err
	}
	if record := codec.NewRecords(resp.Items)[0]; record != nil {
		return record, nil
	}
	return nil, errNotFound
}

type viewingsInput struct {
	Type uint32 `path:"type" minimum:"1" maximum:"4294967295" format:"int64"`
	ID   string `path:"id" maxLength:"256" doc:"Percent-encoded."`
}

// objectIn returns the object named by a path.
func objectIn(typ uint32, id string) (*historyv1.Object, error) {
	err := history.Object{ID: id, Type: typ}.Validate()
	if wrong, ok := errors.AsType[*history.FieldError](err); ok {
		err = history.Invalid("path"+strings.TrimPrefix(wrong.Field, "object"), wrong.Reason)
	}
	return &historyv1.Object{Id: id, Type: typ}, err
}

func (a *api) viewings(ctx context.Context, in *viewingsInput) (*viewings, error) {
	object, err := objectIn(in.Type, in.ID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	req := &historyv1.ViewingsRequest{Uid: uidOf(ctx), Object: object}
	resp, err := a.cfg.Service.Viewings(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case !resp.GetFound():
		return nil, errNotFound
	}
	out := &viewings{Items: make([]codec.Viewing, 0, len(resp.GetSessions()))}
	for _, s := range resp.GetSessions() {
		out.Items = append(out.Items, codec.NewViewing(s))
	}
	return out, nil
}

type lookupInput struct {
	upload
	Detail string `query:"detail" enum:"record,summary" default:"record" doc:"With summary each entry has a summary of all ages in place of a record: whether the user ever played the object, where the server keeps summaries."`
}

func (a *api) lookup(ctx context.Context, in *lookupInput) (*lookup, error) {
	objects, err := a.objects(ctx, &in.upload, maxLookup)
	if err != nil {
		return nil, err
	}
	resp, err := a.points(ctx, objects, in.Detail == "summary")
	if err != nil {
		return nil, err
	}
	out := &lookup{Items: make([]lookupEntry, len(objects))}
	for i, r := range codec.NewRecords(resp.Items) {
		out.Items[i].Record = r
	}
	for i, s := range codec.NewSummaries(resp.Summaries) {
		if resp.Summaries[i].Object != nil {
			out.Items[i].Summary = &s
		}
	}
	return out, nil
}

// points returns an item of each object, or if brief a summary; one without an object if it is missing.
func (a *api) points(ctx context.Context, objects []*historyv1.Object, brief bool) (*historyv1.PointsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Points(ctx, &historyv1.PointsRequest{Uid: uidOf(ctx), Objects: objects, Brief: brief})
	if err != nil {
		return nil, err
	}
	items, summaries := len(objects), 0
	if brief {
		items, summaries = summaries, items
	}
	if len(resp.Items) != items || len(resp.Summaries) != summaries { // must not look like missing records
		return nil, fmt.Errorf("%d points and %d summaries for %d objects", len(resp.Items), len(resp.Summaries), len(objects))
	}
	return resp, nil
}

func (a *api) objects(ctx context.Context, in *upload, limit int) (objects []*historyv1.Object, err error) {
	err = a.read(in, func(body []byte) (err error) {
		objects, err = codec.DecodeObjects(body, limit)
		return err
	})
	a.spend(ctx, len(objects))
	return objects, err
}

func queryTime(field, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return codec.ParseTime(field, []byte(text))
}

type pointInput struct {
	Type uint32 `path:"type" minimum:"1" maximum:"4294967295" format:"int64"`
	ID   string `path:"id" maxLength:"256" doc:"Percent-encoded."`

	IfNoneMatch string `header:"If-None-Match" doc:"Etags, in quotes, of records that need not be sent again: then the answer is 304."`
}

// known reports whether the caller has the record already. A proxy may have made the etag weak, which is fine
// for reads.
func (in *pointInput) known(r *codec.Record) bool {
	for tag := range strings.SplitSeq(in.IfNoneMatch, ",") {
		tag = strings.TrimSpace(tag)
		if text, ok := unquote(strings.TrimPrefix(tag, "W/")); tag == "*" || ok && text == r.ETag {
			return true
		}
	}
	return false
}

type taggedReply struct {
	Status int
	ETag   string `header:"ETag" doc:"That of the record, in quotes."`
	Body   *codec.Record
}

// tagged registers an operation that returns one record with its etag, or 304 if the caller has it.
func tagged(a *api, h huma.API, op huma.Operation, fn func(context.Context, *pointInput) (*codec.Record, error)) {
	a.metrics.route(op.Method + " " + op.Path)
	op.Responses = map[string]*huma.Response{"304": {Description: "The caller has the record already"}, "default": failedResponse()}
	huma.Register(h, op, func(ctx context.Context, in *pointInput) (*taggedReply, error) {
		r, err := fn(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		out := &taggedReply{Status: http.StatusOK, ETag: `"` + r.ETag + `"`, Body: r}
		if in.known(r) {
			out.Status, out.Body = http.StatusNotModified, nil
		}
		return out, nil
	})
}

type changesInput struct {
	Since string `query:"since" maxLength:"4096" doc:"The token of the answer before. Without one the answer is a resync."`
	Limit uint32 `query:"limit" minimum:"1" maximum:"100" default:"100" doc:"How many objects to tell of at most."`
}

func (a *api) changes(ctx context.Context, in *changesInput) (*changes, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Changes(ctx, &historyv1.ChangesRequest{Uid: uidOf(ctx), Since: in.Since, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	if resp.GetToken() == "" { // must not look like "no changes"
		return nil, errors.New("changes: an answer without a token")
	}
	return &changes{
		Items: codec.NewRecords(resp.GetItems()), Removed: codec.NewObjects(resp.GetRemoved()), Resync: resp.GetResync(),
		Token: resp.GetToken(), HasMore: resp.GetHasMore(), Settings: newSettings(resp.GetSettings()),
	}, nil
}

type continueInput struct {
	Limit  uint32 `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Type   uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Series string `query:"series" maxLength:"1024" default:"series" doc:"The entry of meta that names what an object is a part of. Of each series one part is listed: the one that was left last while it is in progress, else the one after the part that was completed last, by the entries season and episode."`
}

func (a *api) continueWatching(ctx context.Context, in *continueInput) (*continueList, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Continue(ctx, &historyv1.ContinueRequest{Uid: uidOf(ctx), Limit: in.Limit, Type: in.Type, Series: in.Series})
	if err != nil { // must not look like an empty list
		return nil, err
	}
	return &continueList{Items: codec.NewRecords(resp.GetItems())}, nil
}

const pageSize = 100

func (a *api) page(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	return a.cfg.Service.List(ctx, req)
}

// pages reads all pages from a request on, until an error. Each page after the first costs one request.
func (a *api) pages(ctx context.Context, req *historyv1.ListRequest) iter.Seq2[*historyv1.ListResponse, error] {
	return func(yield func(*historyv1.ListResponse, error) bool) {
		for {
			resp, err := a.page(ctx, req)
			if err == nil && resp.HasMore && resp.Cursor == req.Cursor {
				err = errors.New("list: cursor did not advance")
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(resp, nil) || !resp.HasMore {
				return
			}
			req.Cursor = resp.Cursor
			a.cfg.Limit.Spend(payerOf(ctx), 1)
		}
	}
}

// pagePatience limits the time to send one page of an export. The whole export has no limit.
const pagePatience = 30 * time.Second

type exportInput struct {
	Type  uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Since string `query:"since" format:"date-time" doc:"Nothing before it. In a query a + is written as %2B."`
	Until string `query:"until" format:"date-time" doc:"Nothing after it."`
}

func (a *api) exports(h huma.API) {
	op := operation(http.MethodGet, "/v1/export", "All of a user's history, newest first, a record in each line", nil)
	op.Description = "Each line has all of a record, so that POST /v1/import can bring it back; summaries have none. It has each record that was there when it began, once, as it was then or later, but for what is deleted meanwhile. A late report, of a time before it began, may move a record past it: GET /v1/changes has what changed meanwhile. An answer that is cut off is not whole."
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: lines(h.OpenAPI(), codec.ExportLine{})}}
	a.metrics.route(op.Method + " " + op.Path)
	huma.Register(h, op, func(ctx context.Context, in *exportInput) (*huma.StreamResponse, error) {
		body, err := a.export(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return &huma.StreamResponse{Body: body}, nil
	})
}

// export reads the first page before the response, so an error can still set the status.
func (a *api) export(ctx context.Context, in *exportInput) (func(huma.Context), error) {
	req, err := listRequest(ctx, in.Type, in.Since, in.Until)
	if err != nil {
		return nil, err
	}
	req.Records = true // pages are as large as the service gives: older ones give 20
	first, err := a.page(ctx, req)
	if err == nil {
		err = wantRecords(first)
	}
	if err != nil {
		return nil, err
	}
	return func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", ndjson)
		if acceptsOnly(r, octets, ndjson) {
			w.Header().Set("Content-Type", octets)
		}
		w.Header().Set("Content-Disposition", `attachment; filename="history.ndjson"`)
		x := exporter{uid: uidOf(ctx), w: w, sent: make(map[uint64]struct{})}
		defer func() { counts(ctx, len(x.sent)) }()
		if err := x.sendPages(first, a.rest(ctx, req, first)); err != nil {
			a.cfg.Logger.WarnContext(ctx, "export cut off", "error", err, "request_id", requestID(ctx))
			panic(http.ErrAbortHandler)
		}
	}, nil
}

func (a *api) rest(ctx context.Context, req *historyv1.ListRequest, first *historyv1.ListResponse) iter.Seq2[*historyv1.ListResponse, error] {
	if !first.HasMore {
		return func(func(*historyv1.ListResponse, error) bool) {}
	}
	req.Cursor = first.Cursor
	return a.pages(ctx, req)
}

// wantRecords fails for a page without records, from an older service.
func wantRecords(page *historyv1.ListResponse) error {
	if items, records := len(page.GetItems()), len(page.GetRecords()); items != records {
		return fmt.Errorf("export: %d records for %d items", records, items)
	}
	return nil
}

// exporter writes each object once; objects played meanwhile come again in later pages.
type exporter struct {
	uid  string
	w    http.ResponseWriter
	sent map[uint64]struct{} // hashes of objects
}

func (x *exporter) sendPages(first *historyv1.ListResponse, rest iter.Seq2[*historyv1.ListResponse, error]) error {
	if err := x.sendLines(first); err != nil {
		return err
	}
	for page, err := range rest {
		if err == nil {
			err = wantRecords(page)
		}
		if err == nil {
			err = x.sendLines(page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) sendLines(page *historyv1.ListResponse) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for i, it := range page.GetItems() {
		hash := xxhash.Sum64String(fmt.Sprint(it.GetObject().GetType(), " ", it.GetObject().GetId()))
		if _, sent := x.sent[hash]; sent {
			continue
		}
		x.sent[hash] = struct{}{}
		if err := lines.Encode(codec.NewExportLine(x.uid, it, page.GetRecords()[i])); err != nil {
			return err
		}
	}
	rc := http.NewResponseController(x.w)
	_ = rc.SetWriteDeadline(time.Now().Add(pagePatience)) // fails only for a writer without deadlines
	if _, err := x.w.Write(text.Bytes()); err != nil {
		return err
	}
	return rc.Flush()
}
