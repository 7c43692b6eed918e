package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// A user may restore removed records from a backup, as of the moment after the removal. The judge does not
// compute the restored view. Instead, it checks the rest: the view exists until the next removal, later
// acknowledgements count, and both stores agree at rest. Then the user clears everything, and nothing may remain.

// restore restores the removed records of a backup.
func (w *World) restore(c *client, records []*historyv1.ImportedRecord) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	back := make([]*known, len(records))
	for i, r := range records {
		back[i] = w.oracle.restore(history.Key{UID: c.uid, Object: history.Object{ID: r.Object.Id, Type: r.Object.Type}}, s.clock.nowMS())
	}
	c.busy++
	w.ask(s, fmt.Sprintf("restore %d records of %s", len(records), c.uid), func(ctx context.Context) (any, error) {
		return s.rpc.Import(ctx, &historyv1.ImportRequest{Uid: c.uid, Records: records, Restore: true})
	}, func(answer any, err error) {
		c.busy--
		w.tracef("%-7s -> restore of %s: %v %v", s.name, c.uid, answer, err)
		for i, k := range back {
			k.open--
			k.unknown++
			if err != nil || k.sent < w.oracle.lost {
				continue
			}
			switch answer.(*historyv1.ImportResponse).Statuses[i] {
			case historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED, historyv1.Status_STATUS_STALE:
				k.acked = w.oracle.now()
			}
		}
	})
}

// restore notes a restored record, from a service whose clock shows now. Its time is the latest possible one: the
// restore may hide reports up to then.
func (o *oracle) restore(key history.Key, now int64) *known {
	u := o.users[key.UID]
	b := u.book(key.Object)
	k := &known{fact: fact{at: now}, sent: o.now(), open: 1}
	for _, f := range b.facts {
		k.at = max(k.at, f.at)
	}
	for _, c := range slices.Concat(b.deletes, u.clears) {
		k.at = max(k.at, c.at)
	}
	for _, r := range b.restored { // possibly deleted since, as of their own times
		k.at = max(k.at, r.at)
	}
	k.at += history.MaxLift + 1
	b.restored = append(b.restored, k)
	return k
}

// restored reports whether any of a key's records may have been restored.
func (o *oracle) restored(k history.Key) bool { return len(o.users[k.UID].book(k.Object).restored) > 0 }

// checkRestored judges the view of a restored record from a read that began at a time.
func (o *oracle) checkRestored(k history.Key, v view, begun int64) string {
	u := o.users[k.UID]
	b := u.book(k.Object)
	behind, others := o.span(u, k.Object, begun)
	for _, at := range others {
		behind = max(behind, at)
	}
	for _, r := range b.restored {
		behind = max(behind, r.at)
		if !v.found && r.acked > 0 && r.acked < begun && !o.removedSince(u, k.Object, r.sent) {
			return fmt.Sprintf("%s: nothing is shown of what was brought back", k)
		}
	}
	bs := o.bounds(k, behind, begun)
	plays, least := bs.plays().least, bs.leastWatched()
	switch {
	case len(bs.must) == 0:
		return ""
	case !v.found:
		return fmt.Sprintf("%s: nothing is shown of what was acknowledged after it was brought back", k)
	case v.plays < plays || v.watched < least:
		return fmt.Sprintf("%s: what was acknowledged after it was brought back is not all in %s", k, v)
	}
	return bs.judgeFurthestAtLeast(k, v)
}

func (b *bounds) judgeFurthestAtLeast(k history.Key, v view) string {
	for _, f := range b.must {
		if f.position > v.furthest && (f.sure() || !f.completes()) || f.at > v.at {
			return fmt.Sprintf("%s: what was acknowledged after it was brought back is not in %s: %s", k, v, f)
		}
	}
	return ""
}

// removedSince reports whether a delete or a clear may have come since.
func (o *oracle) removedSince(u *userBook, obj history.Object, since int64) bool {
	may := func(c *cut) bool { return (c.typ == 0 || c.typ == obj.Type) && (c.acked == 0 || c.acked > since) }
	return slices.ContainsFunc(u.book(obj).deletes, may) || slices.ContainsFunc(u.clears, may)
}
