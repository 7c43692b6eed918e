package historytest

import "github.com/playhead/playhead/history"

// markForced writes without asking for a mark where there is none: a first record, and one
// that is made from a settled one.
func markForced(c *cacheCase) {
	k := key(c.user(), 1, 1)
	first := c.put(k, c.record(0))
	c.marked(k.UID, k)
	c.settle(content(k, first))
	c.marked(k.UID)
	c.applied(history.Write{Key: k, Record: c.record(1), Base: settled(first).Revision})
	c.marked(k.UID, k)
}

// markKept checks that whoever goes on from an unsettled record leaves its mark.
func markKept(c *cacheCase) {
	k := key(c.user(), 1, 1)
	base := c.put(k, c.record(0))
	for ms := range int64(3) {
		next := c.record(ms)
		c.applied(history.Write{Key: k, Record: next, Base: base.Revision})
		c.marked(k.UID, k)
		base = next
	}
	c.settle(content(k, base))
	c.marked(k.UID)
}

// markConflict settles a record that another writer holds: the writer finds out, and what
// it makes of the settled one has a mark.
func markConflict(c *cacheCase) {
	k := key(c.user(), 1, 1)
	held := c.put(k, c.record(0))
	c.settle(content(k, held))
	for _, mark := range []bool{false, true} {
		now := c.conflicts(history.Write{Key: k, Record: c.record(1), Base: held.Revision, Mark: mark})
		c.same("current record", now.Record, settled(held))
		c.marked(k.UID)
	}
	c.applied(history.Write{Key: k, Record: c.record(1), Base: settled(held).Revision})
	c.marked(k.UID, k)
}

// markReplaced asks for new marks. They say when, so that the key comes after another one
// that was marked in between.
func markReplaced(c *cacheCase) {
	uid := c.user()
	k, other := key(uid, 1, 1), key(uid, 1, 2)
	first := c.put(k, c.record(0))
	c.put(other, c.record(0))
	c.ordered(uid, k, other)
	c.applied(history.Write{Key: k, Record: c.record(1), Base: first.Revision, Mark: true})
	c.ordered(uid, other, k)
}

// ordered checks that the marks of a user come in an order.
func (c *cacheCase) ordered(uid string, want ...history.Key) {
	c.Helper()
	n := 0
	for _, k := range c.overdue([]history.Bucket{history.BucketOf(uid)}, 0, 1<<30) {
		if k.UID != uid {
			continue
		}
		if n >= len(want) || k != want[n] {
			c.Errorf("mark %d of %s: got %s, want %v", n, uid, k, want)
		}
		n++
	}
}
