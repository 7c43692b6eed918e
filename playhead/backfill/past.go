package backfill

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
)

// PastKeeper is an archive with summaries.
type PastKeeper interface {
	SummaryTTL(ctx context.Context) (int64, error)
	SummarizePast(ctx context.Context, uid string, past []*history.PastViewing) error
}

// pastItem is an expired viewing and its item.
type pastItem struct {
	item    int
	viewing history.PastViewing
}

// addExpired adds an expired item, with [Archive.OlderDeletesUnknown]. One that is within the retention had expired when
// that became longer. It becomes part of a record, dated after that moment like a restored one, since readers take
// earlier records for expired. Beyond the retention only a single viewing counts; [folding.putPast] settles it.
func (f *folding) addExpired(i int, it *Item, r *history.Record) Result {
	k := f.keys[i]
	c, life := f.contents[k], f.rules.Life(k.UID)
	removed := c.user.ClearedAt(k.Object.Type)
	ours := c.now != nil && c.now.Restored && c.now.RemovedAt >= life.Since && c.now.RemovedAt <= life.Since+history.MaxLift
	if c.now != nil && !ours {
		removed = max(removed, c.now.RemovedAt)
	}
	if r = r.After(removed); r == nil {
		return Result{Outcome: Deleted}
	}
	switch {
	case r.PlayedAt() <= f.now-life.Keep:
		if it.Event == nil {
			return Result{Outcome: Expired}
		}
		p := pastItem{i, history.Past(k.Object, r, f.rules.Of(k.Object.Type))}
		p.viewing.Title = it.Event.Meta.Get("title")
		if f.past == nil {
			f.past = make(map[string][]pastItem)
		}
		f.past[k.UID] = append(f.past[k.UID], p)
		return Result{Outcome: Summarised}
	case ours:
		r = r.Restore(c.now.RemovedAt)
	case c.now == nil || c.now.Deleted():
		r = r.Restore(history.RestoredAt(r.PlayedAt(), life.Since))
	}
	return c.add(r)
}

// putPast adds the expired viewings to summaries, and notes those that find no place.
func (f *folding) putPast(ctx context.Context) error {
	keeper, _ := f.archive.Store.(PastKeeper)
	for uid, items := range f.past {
		var ttl int64
		if keeper != nil && f.rules.Summarized(uid) {
			var err error
			if ttl, err = keeper.SummaryTTL(ctx); err != nil {
				return fmt.Errorf("summaries: %w", err)
			}
		}
		var past []*history.PastViewing
		for i := range items {
			if v := &items[i].viewing; v.Last > f.now-ttl {
				past = append(past, v)
			}
		}
		if len(past) > 0 {
			if err := keeper.SummarizePast(ctx, uid, past); err != nil {
				return err
			}
		}
		for _, p := range items {
			if !p.viewing.Kept {
				f.results[p.item] = Result{Outcome: Expired}
			}
		}
	}
	return nil
}
