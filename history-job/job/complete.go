package job

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/playhead/playhead/history"
)

// load reads the records of keys. Entries that a store did not answer for are read
// again until it does.
func (j *Job) load(ctx context.Context, keys []history.Dirty) ([]history.Entry, error) {
	ks := make([]history.Key, len(keys))
	for i, d := range keys {
		ks[i] = d.Key
	}
	var entries []history.Entry
	err := j.retry(ctx, "load", func(ctx context.Context) error {
		entries = j.cfg.Cache.Load(ctx, ks)
		for i := range entries {
			if entries[i].Err != nil {
				return entries[i].Err
			}
		}
		return nil
	})
	return entries, err
}

// complete makes entries what is to be put, and remembers that.
func (j *Job) complete(ctx context.Context, keys []history.Dirty, entries []history.Entry) ([]history.Entry, error) {
	entries, err := j.folded(ctx, keys, entries)
	if err == nil {
		j.recent.add(keys, entries)
	}
	return entries, err
}

// folded folds what the archive holds into records that were born without knowing
// it, and gives the result back to the cache.
func (j *Job) folded(ctx context.Context, keys []history.Dirty, entries []history.Entry) ([]history.Entry, error) {
	var partial []history.Key
	var at []int
	for i, e := range entries {
		switch {
		case e.Record == nil || !e.Record.Partial:
		case slices.Contains(j.cfg.Unfolded, keys[i].Key.Object.Type):
			r := *e.Record
			r.Partial = false
			entries[i].Record = &r
		default:
			partial, at = append(partial, keys[i].Key), append(at, i)
		}
	}
	if len(partial) == 0 {
		return entries, nil
	}
	old, err := j.known(ctx, partial)
	if err != nil {
		return nil, err
	}
	writes := make([]history.Write, len(partial))
	for n, i := range at {
		e := &entries[i]
		writes[n] = history.Write{Key: partial[n], Base: e.Record.Revision, Record: whole(e.Record, old[n], &e.User, partial[n].Object)}
		e.Record = writes[n].Record
	}
	for _, k := range partial {
		j.metrics.completed.WithLabelValues(strconv.FormatUint(uint64(k.Object.Type), 10)).Inc()
	}
	j.giveBack(ctx, writes)
	return entries, nil
}

// known returns what the archive holds of keys. A cell that it can never read again
// is none, and found by halves: what is put next replaces it.
func (j *Job) known(ctx context.Context, keys []history.Key) (old []*history.Record, err error) {
	err = j.retry(ctx, "get", func(ctx context.Context) (err error) {
		old, err = j.cfg.Archive.Get(ctx, keys)
		return err
	})
	switch half := len(keys) / 2; {
	case !errors.Is(err, history.ErrPermanent):
		return old, err
	case half == 0:
		letter := j.refused(keys[0], nil, err)
		return make([]*history.Record, 1), j.bury(ctx, []history.Dead{letter})
	default:
		left, err := j.known(ctx, keys[:half])
		if err != nil {
			return nil, err
		}
		right, err := j.known(ctx, keys[half:])
		return append(left, right...), err
	}
}

// whole is the fold of a partial record and what the archive holds of the key.
func whole(r, old *history.Record, u *history.User, o history.Object) *history.Record {
	m := *history.Merge(r, old.After(u.ClearedAt(o.Type)))
	m.Partial = false
	m.Revision = rand.Uint64()>>1 + 1
	return &m
}

// giveBack writes completed records to the cache, so that readers see them whole
// and the next job need not ask again. One that lost against another writer stays
// partial and comes again with that writer's mark; one that got no answer, with the
// next event.
func (j *Job) giveBack(ctx context.Context, writes []history.Write) {
	ctx, cancel := context.WithTimeout(ctx, j.cfg.Deadline)
	defer cancel()
	for _, out := range j.cfg.Cache.Apply(ctx, writes) {
		if out.Status != history.Applied {
			j.metrics.notGivenBack.Inc()
		}
	}
}
