package job

import (
	"context"
	"errors"
	"strconv"

	"github.com/playhead/playhead/history"
)

// complete turns what was loaded into what is to be put. Most records are put as they are. Into each partial one it
// folds the archive's record, and writes the result back to the cache: see fold. Only what the cache has
// taken is put, so that all that is ever put are contents of the cache, whose cell times grow one after the other. The
// others are returned as keys that have to come again.
//
// Every record counts as partial for a while after the cache has begun another epoch, or while this job does not know
// when that was: another job may have archived a newer content, and may not have given it back to the cache yet.
func (j *Job) complete(ctx context.Context, epoch string, loaded batch) (b batch, again []history.Key, err error) {
	var partial batch
	suspect := !j.tookOver() || j.epoch.young(j.cfg.Suspect)
	for i, e := range loaded.entries {
		k := loaded.keys[i]
		switch {
		case e.Record.Clean(): // the archive has it already
			b.clean = append(b.clean, history.Content{Key: k, Revision: e.Record.Revision})
		case e.Record != nil && (e.Record.Partial || suspect):
			partial.add(k, e)
		default:
			b.add(k, e)
		}
	}
	if len(partial.keys) > 0 {
		if again, err = j.fold(ctx, epoch, &b, partial); err != nil {
			return b, nil, err
		}
	}
	return b, again, nil
}

// fold completes partial records and adds to b those that the cache has taken. One that
// it has taken as partial comes again: it has a revision now.
func (j *Job) fold(ctx context.Context, epoch string, b *batch, partial batch) (again []history.Key, err error) {
	old, err := j.archivedOf(ctx, &partial)
	if err != nil {
		return nil, err
	}
	if len(partial.keys) == 0 {
		return nil, nil
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
	if err := j.sameEpoch(ctx, epoch); err != nil {
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

// archivedOf returns what the archive holds of a batch. It takes out of the batch what the archive does not
// answer for, and damaged cells that the dead letters do not take: the next put replaces them. Those that
// they take count as absent.
func (j *Job) archivedOf(ctx context.Context, b *batch) (old []history.Entry, err error) {
	if old, err = j.askArchive(ctx, b.keys); err != nil {
		return nil, err
	}
	var unanswered []history.Key
	var dead []history.Dead
	for i, e := range old {
		switch k := b.keys[i]; {
		case e.Err == nil:
		case errors.Is(e.Err, history.ErrPermanent):
			dead = append(dead, j.damaged(k, e.Err))
		default:
			unanswered = append(unanswered, k)
		}
	}
	all := b.keys
	if err := j.without(ctx, b, unanswered, dead); err != nil {
		return nil, err
	}
	return only(b.keys, all, old), nil
}

// only returns the entries of some of all keys, which are in the same order.
func only(some, all []history.Key, entries []history.Entry) []history.Entry {
	left := entries[:0:0]
	for i, k := range all {
		if len(left) < len(some) && some[len(left)] == k {
			left = append(left, entries[i])
		}
	}
	return left
}

// askArchive returns what the archive has of keys, with an error in those that are damaged, and in those for which
// it does not answer, however often it is asked.
func (j *Job) askArchive(ctx context.Context, keys []history.Key) (old []history.Entry, err error) {
	tries := 0
	err = j.retry(ctx, "get", func(ctx context.Context) (err error) {
		var failed []error
		if tries++; tries < maxTries {
			old, err = j.cfg.Archive.Get(ctx, keys)
			return err
		}
		old, failed = j.getEach(ctx, keys)
		if enough(ctx, tries, len(failed), len(keys)) {
			return nil
		}
		return failed[0]
	})
	return old, err
}

// getEach asks the archive for keys one by one: for one that a silent part of it has, all would fail. It returns
// the errors of those that it does not answer for.
func (j *Job) getEach(ctx context.Context, keys []history.Key) (old []history.Entry, failed []error) {
	old = make([]history.Entry, len(keys))
	errs := j.each(len(keys), func(i int) error {
		one, err := j.cfg.Archive.Get(ctx, keys[i:i+1])
		if err == nil {
			old[i] = one[0]
		}
		return err
	})
	for i, err := range errs {
		if err != nil {
			old[i].Err = err
			failed = append(failed, err)
		}
	}
	return old, failed
}

// getArchived is askArchive for callers that put nothing in its place: a damaged cell counts as absent, also where the
// dead letters do not take it.
func (j *Job) getArchived(ctx context.Context, keys []history.Key) (old []history.Entry, err error) {
	if old, err = j.askArchive(ctx, keys); err != nil {
		return nil, err
	}
	var dead []history.Dead
	for i, e := range old {
		if errors.Is(e.Err, history.ErrPermanent) {
			dead = append(dead, j.damaged(keys[i], e.Err))
		}
	}
	_, err = j.keepDead(ctx, dead)
	return old, err
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
