package job

import (
	"context"
	"errors"
	"strconv"

	"github.com/playhead/playhead/history"
)

// How often entries are asked for that the cache does not answer: while it answers for
// others, and while it answers for none, for about a minute.
const maxLoads, maxLoadsOfNone = 3, 20

// load reads the records of keys. Those that the cache does not answer for, again and
// again, are left out: they have their marks, and must not hold up the others.
func (j *Job) load(ctx context.Context, keys []history.Key) ([]history.Key, []history.Entry, error) {
	entries, err := j.loadUntil(ctx, keys, func(tries, failed int) bool {
		return failed == 0 || tries >= maxLoadsOfNone || failed < len(keys) && tries >= maxLoads
	})
	if err != nil {
		return nil, nil, err
	}
	answered := make([]history.Key, 0, len(keys))
	for i, e := range entries {
		if e.Err == nil {
			entries[len(answered)] = e
			answered = append(answered, keys[i])
		}
	}
	j.metrics.leftOut.Add(float64(len(keys) - len(answered)))
	return answered, entries[:len(answered)], nil
}

// loadAll is load for callers that cannot leave anything out.
func (j *Job) loadAll(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	return j.loadUntil(ctx, keys, func(_, failed int) bool { return failed == 0 })
}

// loadUntil asks for keys until enough returns true. It is called with the tries so far, and
// with how many keys the cache did not answer for in the last one.
func (j *Job) loadUntil(ctx context.Context, keys []history.Key, enough func(tries, failed int) bool) (entries []history.Entry, err error) {
	tries := 0
	err = j.retry(ctx, "load", func(ctx context.Context) error {
		tries++
		entries = j.cfg.Cache.Load(ctx, keys)
		failed, err := 0, error(nil)
		for i := range entries {
			if entries[i].Err != nil {
				failed, err = failed+1, entries[i].Err
			}
		}
		if enough(tries, failed) {
			return nil
		}
		return err
	})
	return entries, err
}

// complete turns what was loaded into what is to be put. It folds the archive's record into
// each partial one, and into all for a while after the cache has begun another life: another job may
// have archived what this one was given since, and may not have brought it back yet. It writes the
// result back to the cache. Only what the cache has taken is put: all that is ever put are contents
// of the cache, whose cell times grow one after the other. The others are returned as keys
// that have to come again.
func (j *Job) complete(ctx context.Context, life string, keys []history.Key, entries []history.Entry) (b batch, again []history.Key, err error) {
	var partial batch
	doubtful := j.life.young(j.cfg.Doubt)
	for i, e := range entries {
		switch {
		case e.Record.Settled(): // the archive has it already
		case e.Record != nil && (e.Record.Partial || doubtful):
			partial.add(keys[i], e)
		default:
			b.add(keys[i], e)
		}
	}
	if len(partial.keys) > 0 {
		if again, err = j.fold(ctx, life, &b, partial); err != nil {
			return b, nil, err
		}
	}
	return b, again, nil
}

// batch is keys with what was loaded of them.
type batch struct {
	keys    []history.Key
	entries []history.Entry
}

func (b *batch) add(k history.Key, e history.Entry) {
	b.keys, b.entries = append(b.keys, k), append(b.entries, e)
}

// fold completes partial records and adds to b those that the cache has taken. One that
// it has taken as partial comes again: it has a revision now.
func (j *Job) fold(ctx context.Context, life string, b *batch, partial batch) (again []history.Key, err error) {
	old, err := j.getArchived(ctx, partial.keys)
	if err != nil {
		return nil, err
	}
	writes := make([]history.Write, len(partial.keys))
	for i, k := range partial.keys {
		e := &partial.entries[i]
		w := history.WriteOn(e.Record, k, mergeArchived(e, &old[i], k.Object), &e.User)
		// Without a base, because not even the revision can be read, it is as a first write:
		// it stays partial unless the user is complete.
		w.Record.Partial = w.Base == 0 && !e.User.Complete()
		writes[i] = w
		j.metrics.completed.WithLabelValues(strconv.FormatUint(uint64(k.Object.Type), 10)).Inc()
	}
	if err := j.sameLife(ctx, life); err != nil {
		return nil, err
	}
	for i, taken := range j.writeBack(ctx, writes) {
		if !taken || writes[i].Record.Partial {
			again = append(again, partial.keys[i])
			continue
		}
		partial.entries[i].Record = writes[i].Record
		b.add(partial.keys[i], partial.entries[i])
	}
	return again, nil
}

// getArchived returns what the archive holds of keys. A cell that can never be
// read again goes to the dead letters and counts as absent: the next put replaces it.
func (j *Job) getArchived(ctx context.Context, keys []history.Key) (old []history.Entry, err error) {
	err = j.retry(ctx, "get", func(ctx context.Context) (err error) {
		old, err = j.cfg.Archive.Get(ctx, keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	var letters []history.Dead
	for i, e := range old {
		if e.Err != nil {
			letter := j.refused(keys[i], nil, e.Err)
			if damage, ok := errors.AsType[*history.DamageError](e.Err); ok {
				letter.Cell = damage.Bytes
			}
			letters = append(letters, letter)
		}
	}
	return old, j.addDead(ctx, letters)
}

// mergeArchived returns the fold of a partial record and what the archive holds of the key. Its cell
// time is later than that of what stands there, also where a clear mark hides it.
func mergeArchived(e, old *history.Entry, o history.Object) *history.Record {
	u := e.User
	u.CutTime = max(u.CutTime, old.User.CutTime)
	m := history.Merge(e.Record, u.Cut(old.Record, o.Type)).Successor(&u)
	m.Partial = false
	return m
}

// writeBack writes completed records to the cache, so that readers see all of them
// and the next job need not ask again. It returns of each whether the cache has taken it:
// one may have lost against another writer, or got no answer.
func (j *Job) writeBack(ctx context.Context, writes []history.Write) (taken []bool) {
	ctx, cancel := context.WithTimeout(ctx, j.cfg.Deadline)
	defer cancel()
	taken = make([]bool, len(writes))
	for i, out := range j.cfg.Cache.Apply(ctx, writes) {
		if taken[i] = out.Status == history.Applied; !taken[i] {
			j.metrics.notWrittenBack.Inc()
		}
	}
	return taken
}
