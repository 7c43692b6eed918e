package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/playhead/playhead/history"
)

// batch is keys with what was loaded of them.
type batch struct {
	keys    []history.Key
	entries []history.Entry
	settled []history.Content // are not put: the archive has them; settling them removes a mark that is left over
}

func (b *batch) add(k history.Key, e history.Entry) {
	b.keys, b.entries = append(b.keys, k), append(b.entries, e)
}

// without takes out of a batch the keys that the archive does not answer for, and those whose letters the dead
// letters do not take: they are not settled, and come again with a sweep.
func (j *Job) without(ctx context.Context, b *batch, unanswered []history.Key, dead []history.Dead) error {
	left := make(map[history.Key]bool, len(unanswered))
	for _, k := range unanswered {
		left[k] = true
	}
	kept, err := j.keepDead(ctx, dead)
	if err != nil {
		return err
	}
	if !kept {
		for _, l := range dead {
			left[l.Key] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	j.leave(len(left))
	all := *b
	b.keys, b.entries = nil, nil
	for i, k := range all.keys {
		if !left[k] {
			b.add(k, all.entries[i])
		}
	}
	return nil
}

// leave counts keys that are left to a later sweep. A put of them may land all the same.
func (j *Job) leave(keys int) {
	j.metrics.leftOut.Add(float64(keys))
	j.left.Add(int64(keys))
	j.givenUp()
}

// givenUp says that a put may be under way of which nobody awaits the answer, for as long as a try lasts.
func (j *Job) givenUp() { j.landed.Store(time.Now().Add(j.cfg.Deadline).UnixMilli()) }

// errLife means that nothing may be archived: the cache may have restarted since it was compared with
// what this job has archived.
var errLife = fmt.Errorf("%w: the cache is not known to be the one that was compared", history.ErrUnavailable)

// sameLife fails with [errLife] unless the cache is still in a life. It is asked after
// contents were loaded and before they are put: contents of a cache that came back older, and
// those made from them since, must not overwrite what the archive has. So it is asked before they are completed in
// the cache: what a clear has taken out of the archive would be missing in a whole record, and the clear in the cache.
func (j *Job) sameLife(ctx context.Context, life string) error {
	if j.cfg.Life == nil {
		return nil
	}
	if name, err := j.askLife(ctx); err != nil || name != life {
		return errLife
	}
	return nil
}

func (j *Job) askLife(ctx context.Context) (name string, err error) {
	err = j.try(ctx, func(ctx context.Context) (err error) {
		name, err = j.cfg.Life(ctx)
		return err
	})
	return name, err
}

// fold completes partial records and adds to b those that the cache has taken. One that
// it has taken as partial comes again: it has a revision now.
func (j *Job) fold(ctx context.Context, life string, b *batch, partial batch) (again []history.Key, err error) {
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
