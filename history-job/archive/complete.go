package archive

import (
	"context"
	"errors"
	"strconv"

	"github.com/playhead/playhead/history"
)

// complete turns loaded records into a batch to put. Most records are put as they are. fold merges each partial
// record with the archive's record and writes the result back to the cache. Only written-back results are put, so
// every put is a content of the cache with a growing cell time. Other keys are returned for another round.
//
// In a suspect epoch every record counts as partial.
func (a *Archiver) complete(ctx context.Context, epoch string, loaded batch) (b batch, again []history.Key, err error) {
	var partial batch
	suspect := a.cfg.Epochs.Suspect()
	for i, e := range loaded.entries {
		k := loaded.keys[i]
		switch {
		case e.Record.Clean() && (a.cfg.Plays == nil || !e.Record.Unsure()): // already archived
			b.clean = append(b.clean, history.Content{Key: k, Revision: e.Record.Revision})
		case e.Record != nil && (e.Record.Partial || suspect):
			partial.add(k, e)
		default:
			b.add(k, e)
		}
	}
	if len(partial.keys) > 0 {
		if again, err = a.fold(ctx, epoch, &b, partial); err != nil {
			return b, nil, err
		}
	}
	return b, again, nil
}

// fold completes partial records and adds to b those that the cache accepted. A record accepted as partial is
// returned for another round, with a revision.
func (a *Archiver) fold(ctx context.Context, epoch string, b *batch, partial batch) (again []history.Key, err error) {
	old, err := a.archivedOf(ctx, &partial)
	if err != nil {
		return nil, err
	}
	if len(partial.keys) == 0 {
		return nil, nil
	}
	partial = cleared(b, partial, old)
	writes := make([]history.Write, len(partial.keys))
	for i, k := range partial.keys {
		e := &partial.entries[i]
		archived := old[k]
		w := history.WriteOn(e.Record, k, mergeArchived(e, &archived, k.Object), &e.User)
		// Without a base (unreadable revision) this is a first write: partial unless the user is complete.
		w.Record.Partial = w.Base == 0 && !e.User.Complete()
		writes[i] = w
		a.metrics.completed.WithLabelValues(strconv.FormatUint(uint64(k.Object.Type), 10)).Inc()
	}
	// A clear removes records from the archive, and a cache that came back older may lack that clear. A record
	// completed there would count as whole without its cleared part.
	if err := a.cfg.Epochs.Verify(ctx, epoch); err != nil {
		return nil, err
	}
	for i, taken := range a.writeBack(ctx, writes) {
		if !taken || writes[i].Record.Partial {
			again = append(again, partial.keys[i])
			continue
		}
		partial.entries[i].Record = writes[i].Record
		b.add(partial.keys[i], partial.entries[i])
	}
	return again, nil
}

// cleared applies the archive's clear marks, which the cache may lack, and returns the records that they do not cover.
// Covered records are clean, since the archive would hide them. One with plays in the stream is returned too, so that
// the stream gets their removal.
func cleared(b *batch, partial batch, old map[history.Key]history.Entry) (left batch) {
	for i, e := range partial.entries {
		k := partial.keys[i]
		e.User.MergeCleared(old[k].User.Cleared)
		if present(k, &e) == nil && e.Record.Revision > 0 && !e.Record.Unsure() {
			b.clean = append(b.clean, history.Content{Key: k, Revision: e.Record.Revision})
		} else {
			left.add(k, e)
		}
	}
	return left
}

// archivedOf returns the archive's entries of a batch. It removes unanswered keys from the batch. Damaged cells
// count as absent once they are dead letters; otherwise their keys are removed too, because the next put
// overwrites the cell.
func (a *Archiver) archivedOf(ctx context.Context, b *batch) (old map[history.Key]history.Entry, err error) {
	found, err := a.get(ctx, b.keys)
	if err != nil {
		return nil, err
	}
	old = make(map[history.Key]history.Entry, len(found))
	var unanswered []history.Key
	var dead []history.Dead
	for i, e := range found {
		k := b.keys[i]
		switch old[k] = e; {
		case e.Err == nil:
		case errors.Is(e.Err, history.ErrPermanent):
			dead = append(dead, a.damaged(k, e.Err))
		default:
			unanswered = append(unanswered, k)
		}
	}
	return old, a.without(ctx, b, unanswered, dead)
}

// mergeArchived merges a partial record with the archive's record of the key. Its cell time is later than the
// archived cell's, even if a clear mark hides that cell.
func mergeArchived(e, old *history.Entry, o history.Object) *history.Record {
	u := e.User
	u.CutTime = max(u.CutTime, old.User.CutTime)
	m := history.Merge(e.Record, u.Cut(old.Record, o.Type)).Successor(&u)
	m.Partial = false
	return m
}

// writeBack writes completed records to the cache, for readers and for the next job. It returns which writes were
// accepted. A write fails on a conflict or without an answer.
func (a *Archiver) writeBack(ctx context.Context, writes []history.Write) (taken []bool) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	taken = make([]bool, len(writes))
	for i, out := range a.cfg.Cache.Write(ctx, writes) {
		if taken[i] = out.Status == history.Applied; !taken[i] {
			a.metrics.notWrittenBack.Inc()
		}
	}
	return taken
}
