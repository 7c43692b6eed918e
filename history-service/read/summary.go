package read

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// summaries reads up to q.Limit+1 visible summaries.
func (r *Reader) summaries(ctx context.Context, uid string, q history.Query, border int64) (found []history.Summary, err error) {
	for limit := q.Limit; len(found) <= limit; {
		q.Limit = limit + 1
		page, err := r.summaryPage(ctx, uid, q)
		if err != nil {
			return nil, err
		}
		shown, err := r.withoutRecord(ctx, uid, page, border)
		if err != nil {
			return nil, err
		}
		if found = append(found, shown...); !page.More {
			break
		}
		q.After = page.Items[len(page.Items)-1].Place()
	}
	return found, nil
}

// summaryPage reads the namespaces with summaries of the query concurrently. The merged page stops at the earliest page
// end.
func (r *Reader) summaryPage(ctx context.Context, uid string, q history.Query) (all history.SummaryPage, err error) {
	pages, err := fromEach(ctx, r.summarized(uid, q.Type), func(ctx context.Context, namespace string) (history.SummaryPage, error) {
		return r.cfg.Summaries.Summaries(ctx, namespace, q)
	})
	if err != nil {
		return all, err
	}
	var end history.Cursor
	for _, p := range pages {
		all.Items = append(all.Items, p.Items...)
		all.User.MergeCleared(p.User.Cleared)
		if !p.More {
			continue
		}
		if last := p.Items[len(p.Items)-1].Place(); !all.More || last.Compare(end) < 0 {
			all.More, end = true, last
		}
	}
	slices.SortFunc(all.Items, history.LatestFirst)
	if all.More {
		all.Items = slices.DeleteFunc(all.Items, func(s history.Summary) bool { return s.Place().Compare(end) > 0 })
	}
	return all, nil
}

// withoutRecord drops summaries of objects with a record since the border in any namespace. It removes cleared and
// deleted activity from the rest.
func (r *Reader) withoutRecord(ctx context.Context, uid string, page history.SummaryPage, border int64) (shown []history.Summary, err error) {
	if len(page.Items) == 0 {
		return nil, nil
	}
	keys := make([]history.Key, len(page.Items))
	for i, s := range page.Items {
		keys[i] = history.Key{UID: uid, Object: s.Object}
	}
	load := func(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
		return r.sinceBorder(ctx, keys, border)
	}
	entries, err := r.byNamespace(ctx, keys, load)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		s, left := page.Items[i].After(removedAt(keys[i].Object, &e))
		if left && (e.Record == nil || e.Record.Version.Time() < border) {
			shown = append(shown, s)
		}
	}
	return shown, nil
}

// removedAt returns the time up to which everything of an object is deleted or cleared.
func removedAt(o history.Object, e *history.Entry) int64 {
	at := e.User.ClearedAt(o.Type)
	if e.Record != nil {
		at = max(at, e.Record.RemovedAt)
	}
	return at
}

// sinceBorder loads keys of one namespace, and gets those without a cached record since the border from the
// archive. Reads go summaries, cache, archive: records dropped from the cache are then in the archive.
func (r *Reader) sinceBorder(ctx context.Context, keys []history.Key, border int64) ([]history.Entry, error) {
	read := r.entries
	if r.divided() { // needs the default namespace's clear marks, which may exist only in the archive
		read = r.known
	}
	entries, err := read(ctx, keys)
	if err != nil {
		return nil, err
	}
	var asked []history.Key
	var into []*history.Entry
	for i := range entries {
		e := &entries[i]
		if (e.Record == nil || e.Record.Version.Time() < border) && !e.User.Complete() && !keys[i].IsUser() {
			asked, into = append(asked, keys[i]), append(into, e)
		}
	}
	if len(asked) == 0 {
		return entries, nil
	}
	archived, err := r.cfg.Archive.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	for n, e := range into {
		if errors.Is(archived[n].Err, history.ErrUnavailable) {
			return nil, archived[n].Err
		}
		e.User.MergeCleared(archived[n].User.Cleared)
		e.Record = united(e.Record, archived[n].Record)
	}
	return entries, nil
}

// summaryTTL returns the lifetime of summaries in milliseconds, 0 if none are kept.
func (r *Reader) summaryTTL(ctx context.Context) (int64, error) {
	if r.cfg.Summaries == nil {
		return 0, nil
	}
	return r.cfg.Summaries.SummaryTTL(ctx)
}

// past returns the summaries of some keys of a user, read from the namespaces concurrently.
func (r *Reader) past(ctx context.Context, uid string, keys []history.Key) (map[history.Object]history.Summary, error) {
	found := make(map[history.Object]history.Summary)
	if ttl, err := r.summaryTTL(ctx); err != nil || ttl == 0 {
		return found, err
	}
	objects := make([]history.Object, len(keys))
	for i, k := range keys {
		objects[i] = k.Object
	}
	parts, err := fromEach(ctx, r.summarized(uid, 0), func(ctx context.Context, namespace string) ([]history.Summary, error) {
		return r.cfg.Summaries.SummariesOf(ctx, namespace, objects)
	})
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Concat(parts...) {
		found[s.Object] = s
	}
	return found, nil
}

// fromEach asks for all namespaces concurrently, and returns the answers in their order.
func fromEach[T any](ctx context.Context, namespaces []string, ask func(ctx context.Context, namespace string) (T, error)) ([]T, error) {
	all := make([]T, len(namespaces))
	g, asking := errgroup.WithContext(ctx)
	for i, namespace := range namespaces {
		g.Go(func() (err error) {
			all[i], err = ask(asking, namespace)
			return err
		})
	}
	return all, g.Wait()
}

// summarized returns the namespaces of a type, 0 for all, that have summaries.
func (r *Reader) summarized(uid string, typ uint32) []string {
	return slices.DeleteFunc(r.namespaces(uid, typ), func(s string) bool { return !r.cfg.Rules.Summarized(s) })
}

// briefly counts each record into what its object's summary has of the time before.
func (r *Reader) briefly(keys []history.Key, entries []history.Entry, past map[history.Object]history.Summary) *historyv1.PointsResponse {
	resp := &historyv1.PointsResponse{Summaries: make([]*historyv1.Summary, len(keys))}
	for i, e := range entries {
		o := keys[i].Object
		s, known := past[o].After(removedAt(o, &e))
		if rec := e.Record.Visible(o, &e.User); rec != nil {
			s, known = s.With(o, rec, r.cfg.Rules)
		}
		if resp.Summaries[i] = new(historyv1.Summary); known {
			resp.Summaries[i] = view.Summary(s)
		}
	}
	return resp
}
