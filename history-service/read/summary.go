package read

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// summaryMargin is how long before its end a record gives way to its summary where both are asked for: clocks differ.
const summaryMargin = time.Hour

// listAll reads a page of records, and behind the last of them the summaries of what is older. What is on which side of that border
// depends on the time alone, and both stand in one order. So a page that begins behind the one before repeats nothing and passes over
// nothing, though records grow old in between: those come as summaries.
func (r *Reader) listAll(ctx context.Context, req *historyv1.ListRequest, q history.Query) (*historyv1.ListResponse, error) {
	border := r.cfg.Now().Add(summaryMargin).UnixMilli() - history.ArchiveLife
	var p readerPage
	if behind := q.After != (history.Cursor{}) && q.After.Version.Time() < border; !behind && (q.Until == 0 || q.Until >= border) {
		recent := q
		recent.Since = max(q.Since, border)
		var err error
		if p, err = r.pages(ctx, req.GetUid(), recent, req.GetRecords()); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	if p.more || q.Since >= border {
		return r.listed(req, p)
	}
	resp, err := r.listed(req, p)
	if err != nil {
		return nil, err
	}
	old, end := q, p.end
	if len(p.items) > 0 {
		end = endOf(p.items)
	}
	if old.Limit -= len(p.items); old.Until == 0 || old.Until >= border {
		old.Until = border - 1
	}
	found, err := r.summaries(ctx, req.GetUid(), old, border)
	if err != nil {
		return nil, fmt.Errorf("list: summaries: %w", err)
	}
	if resp.HasMore = len(found) > old.Limit; resp.HasMore {
		if found = found[:old.Limit]; old.Limit > 0 {
			end = found[old.Limit-1].Place()
		}
		resp.Cursor = encodeCursor(req, end)
	}
	for _, s := range found {
		resp.Summaries = append(resp.Summaries, view.Summary(s))
	}
	return resp, nil
}

// summaries reads on until there is one more than asked for, or no more.
func (r *Reader) summaries(ctx context.Context, uid string, q history.Query, border int64) (found []history.Summary, err error) {
	for limit := q.Limit; len(found) <= limit; {
		q.Limit = limit + 1
		page, err := r.cfg.Summaries.Summaries(ctx, uid, q)
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

// withoutRecord returns the summaries of objects that have no record which is not older than the border. The cache is read
// after the summaries, and the archive after the cache: what has left the cache by then is in it.
func (r *Reader) withoutRecord(ctx context.Context, uid string, page history.SummaryPage, border int64) (shown []history.Summary, err error) {
	if len(page.Items) == 0 {
		return nil, nil
	}
	keys := make([]history.Key, len(page.Items))
	for i, s := range page.Items {
		keys[i] = history.Key{UID: uid, Object: s.Object}
	}
	entries, err := r.entries(ctx, keys)
	if err != nil {
		return nil, err
	}
	var asked []history.Key
	var at []int
	for i, e := range entries {
		if !hides(e.Record, page.Items[i], border) && !e.User.Complete() {
			asked, at = append(asked, keys[i]), append(at, i)
		}
	}
	if len(asked) > 0 {
		archived, err := r.cfg.Archive.Get(ctx, asked)
		if err != nil {
			return nil, err
		}
		for n, e := range archived {
			if errors.Is(e.Err, history.ErrUnavailable) {
				return nil, e.Err
			}
			i := at[n]
			entries[i].User.MergeCleared(e.User.Cleared)
			if hides(e.Record, page.Items[i], border) {
				entries[i].Record = e.Record
			}
		}
	}
	for i, e := range entries {
		s, left := page.Items[i].After(e.User.ClearedAt(keys[i].Object.Type))
		if left && !hides(e.Record, s, border) {
			shown = append(shown, s)
		}
	}
	return shown, nil
}

// hides reports whether a summary is not shown because of what there is of its object: a record of its own, or a delete.
func hides(r *history.Record, s history.Summary, border int64) bool {
	return r != nil && (r.Version.Time() >= border || r.Deleted() && r.Reset >= s.Version.Time())
}
