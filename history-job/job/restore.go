package job

import (
	"context"
	"errors"

	"github.com/playhead/playhead/history"
)

// restored deals with the keys of a delivery that carry their content: the cache
// had it when it was announced, and someone else announces the key. Only what the cache
// has lost since is given back to it. It returns that and the other keys.
func (j *Job) restored(ctx context.Context, keys []history.Announcement) ([]history.Key, error) {
	contents := make(map[history.Key]*history.Record)
	marked := make([]history.Key, 0, len(keys))
	for _, d := range keys {
		if d.Record == nil {
			marked = append(marked, d.Key)
			continue
		}
		contents[d.Key] = history.Merge(contents[d.Key], d.Record)
	}
	for len(contents) > 0 {
		again, err := j.giveBackLost(ctx, contents)
		if err != nil {
			return nil, err
		}
		marked = append(marked, again...)
	}
	return marked, nil
}

// giveBackLost writes what the cache lacks of the contents, and returns the keys of
// that. It removes from contents what is dealt with; what lost against another
// writer stays.
func (j *Job) giveBackLost(ctx context.Context, contents map[history.Key]*history.Record) ([]history.Key, error) {
	writes, err := j.lost(ctx, contents)
	if err != nil || len(writes) == 0 {
		return nil, err
	}
	var marked []history.Key
	err = j.retry(ctx, "restore", func(ctx context.Context) error {
		var errs []error
		for i, out := range j.cfg.Cache.Apply(ctx, writes) {
			errs = append(errs, out.Err)
			if out.Status == history.Applied {
				marked = append(marked, writes[i].Key)
				delete(contents, writes[i].Key)
			}
		}
		writes = unanswered(writes, errs)
		return errors.Join(errs...)
	})
	j.metrics.restored.Add(float64(len(marked)))
	return marked, err
}

func unanswered(writes []history.Write, errs []error) []history.Write {
	left := writes[:0:0]
	for i, err := range errs {
		if err != nil {
			left = append(left, writes[i])
		}
	}
	return left
}

// lost returns a write for every content that says more than what the cache holds,
// and removes the others from contents.
func (j *Job) lost(ctx context.Context, contents map[history.Key]*history.Record) ([]history.Write, error) {
	keys := make([]history.Key, 0, len(contents))
	for k := range contents {
		keys = append(keys, k)
	}
	entries, err := j.loadAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	dropped, err := j.dropped(ctx, keys, entries)
	if err != nil {
		return nil, err
	}
	var writes []history.Write
	for i, e := range entries {
		k := keys[i]
		there := history.Merge(e.Record, dropped[k])
		whole := e.User.Cut(history.Merge(there, contents[k]), k.Object.Type)
		if whole == nil || history.Same(whole, there) && !outran(contents[k], e.Record) {
			delete(contents, k)
			continue
		}
		w := history.Write{Key: k, Record: whole.Successor(&e.User), Pause: e.User.Pause, Mark: true}
		w.Record.Partial = true // the content is from before the cache lost it: the archive may have more
		if e.Record != nil {
			w.Base = e.Record.Revision
		}
		writes = append(writes, w)
	}
	return writes, nil
}

// outran reports whether another content has a later cell time than what the cache holds, which
// includes it: after a cache came back older, a chain of contents began anew before the end
// of the one that the archive has. Put as it is, what the cache holds would lose.
func outran(other, held *history.Record) bool {
	if held == nil || other == nil {
		return false
	}
	return other.CellTime > held.CellTime || other.CellTime == held.CellTime && !history.Same(other, held)
}

// dropped returns what the archive holds of the keys that the cache has not, but may have
// dropped, or does not have whole: a tombstone, perhaps, of what is to be given back.
func (j *Job) dropped(ctx context.Context, keys []history.Key, entries []history.Entry) (map[history.Key]*history.Record, error) {
	var asked []history.Key
	for i, e := range entries {
		if e.Record == nil && !e.User.Complete() || e.Record != nil && e.Record.Partial {
			asked = append(asked, keys[i])
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	old, err := j.known(ctx, asked)
	if err != nil {
		return nil, err
	}
	dropped := make(map[history.Key]*history.Record, len(asked))
	for i, k := range asked {
		if r := old[i].Record; r != nil {
			m := *r
			m.Partial = true // another one may be archived until this is written
			dropped[k] = &m
		}
	}
	return dropped, nil
}
