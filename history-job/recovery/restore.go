package recovery

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
)

// giving is a set of contents to restore.
type giving struct {
	contents map[history.Key]*history.Record
	given    []history.Key
	left     []history.Announcement // unanswered by a store
}

func (g *giving) leave(k history.Key) {
	g.left = append(g.left, history.Announcement{Key: k, Record: g.contents[k]})
	delete(g.contents, k)
}

// restore handles announcements with a content. The cache had the content when it was announced, so only a lost one
// is written back. It returns the keys to archive, and the contents that a store does not answer for.
func (r *Recovery) restore(ctx context.Context, all []history.Announcement) (keys []history.Key, left []history.Announcement, err error) {
	g := giving{contents: make(map[history.Key]*history.Record)}
	keys = make([]history.Key, 0, len(all))
	for _, a := range all {
		if a.Record == nil {
			keys = append(keys, a.Key)
			continue
		}
		k := r.cfg.Rules.Home(a.Key) // its type may have moved to another class since
		g.contents[k] = history.Merge(g.contents[k], a.Record)
	}
	for len(g.contents) > 0 {
		if err := r.writeLost(ctx, &g); err != nil {
			return nil, nil, err
		}
	}
	return append(keys, g.given...), g.left, nil
}

// writeLost writes the contents that the cache lacks and removes them from contents. A write that hits a conflict
// stays.
func (r *Recovery) writeLost(ctx context.Context, g *giving) error {
	writes, err := r.lostWrites(ctx, g)
	if err != nil || len(writes) == 0 {
		return err
	}
	given := len(g.given)
	err = r.cfg.Archiver.RetryEach(ctx, "restore", len(writes), func(ctx context.Context) (int, error) {
		var last error
		left := writes[:0:0]
		for i, out := range r.stores.Cache.Write(ctx, writes) {
			if out.Err != nil {
				left, last = append(left, writes[i]), out.Err
			}
			if out.Status == history.Applied {
				g.given = append(g.given, writes[i].Key)
				delete(g.contents, writes[i].Key)
			}
		}
		writes = left
		return len(writes), last
	})
	for _, w := range writes {
		g.leave(w.Key)
	}
	r.metrics.restored.Add(float64(len(g.given) - given))
	return err
}

// lostWrites returns a write for each content that adds to the cached record. It removes the others from contents.
func (r *Recovery) lostWrites(ctx context.Context, g *giving) ([]history.Write, error) {
	keys := slices.Collect(maps.Keys(g.contents))
	entries, err := r.cfg.Archiver.Load(ctx, keys)
	if err != nil {
		return nil, err
	}
	dropped, err := r.getDropped(ctx, keys, entries)
	if err != nil {
		return nil, err
	}
	var writes []history.Write
	for i, e := range entries {
		k := keys[i]
		if e.Err != nil {
			g.leave(k)
			continue
		}
		cut := func(r *history.Record) *history.Record { return e.User.Cut(r, k.Object.Type) }
		held := history.Merge(cut(e.Record), cut(dropped[k]))
		merged := history.Merge(held, cut(g.contents[k]))
		if merged == nil || history.Same(merged, held) && !laterCell(g.contents[k], e.Record) {
			delete(g.contents, k)
			continue
		}
		w := history.WriteOn(e.Record, k, merged.Successor(&e.User), &e.User)
		w.BeginsHold = true
		w.Record.Partial = true // it predates the loss: the archive may have more
		writes = append(writes, w)
	}
	return writes, nil
}

// laterCell reports whether other has a later cell time than the cached record that includes it. A cache that came
// back older restarts its cell times below the archive's. A put of the cached record as it is would lose.
func laterCell(other, held *history.Record) bool {
	if held == nil || other == nil {
		return false
	}
	return other.CellTime > held.CellTime || other.CellTime == held.CellTime && !history.Same(other, held)
}

// getDropped returns the archive's records of keys that the cache may have dropped or holds only in part, such as
// tombstones. It sets the error of unanswered entries.
func (r *Recovery) getDropped(ctx context.Context, keys []history.Key, entries []history.Entry) (map[history.Key]*history.Record, error) {
	var asked []history.Key
	var at []int
	for i, e := range entries {
		if e.Err == nil && (e.Record == nil && !e.User.Complete() || e.Record != nil && e.Record.Partial) {
			asked, at = append(asked, keys[i]), append(at, i)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	old, err := r.cfg.Archiver.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	dropped := make(map[history.Key]*history.Record, len(asked))
	for i, k := range asked {
		if o := old[i].Record; o != nil {
			m := *o
			m.Partial = true // another content may be archived before the write
			dropped[k] = &m
		} else if errors.Is(old[i].Err, history.ErrUnavailable) {
			entries[at[i]].Err = old[i].Err
		}
	}
	return dropped, nil
}
