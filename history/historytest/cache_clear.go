package historytest

import "github.com/playhead/playhead/history"

// clear sets a clear mark, ms milliseconds after the start of the test.
func (c *cacheCase) clear(uid string, typ uint32, ms int64) history.Mark {
	c.Helper()
	mark, err := c.Clear(c.Context(), uid, typ, c.start+ms)
	if err != nil {
		c.Fatalf("Clear(%s, %d): %v", uid, typ, err)
	}
	if mark <= 0 {
		c.Errorf("Clear(%s, %d): got mark %d, want a time", uid, typ, mark)
	}
	return mark
}

// clearAll has records on both sides of the mark, of every rank: a stop or delete
// of the very millisecond goes too.
func clearAll(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(99))
	c.put(key(uid, 2, 2), c.record(100))
	c.put(key(uid, 1, 3), c.event(history.Event{Kind: history.KindStop, At: c.start + 100}))
	c.put(key(uid, 1, 4), c.tombstone(100))
	later := c.item(key(uid, 2, 5), c.record(101))
	c.clear(uid, 0, 100)
	for n, typ := range map[int]uint32{1: 1, 2: 2, 3: 1, 4: 1} {
		e := c.load(key(uid, typ, n))
		c.same("cleared record", e.Record, nil)
		c.cleared(e.User, map[uint32]int64{0: c.start + 100})
	}
	c.holds(key(uid, 2, 5), later.Record)
	page := c.list(uid, history.Query{Limit: 10})
	c.items("after the clear", page.Items, []history.Item{{Object: later.Object, Record: later.Record.After(c.start + 100)}})
	if page.User.Warm {
		c.Error("the user got warm by the clear")
	}
}

func clearType(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(50))
	stays := c.put(key(uid, 11, 1), c.record(50))
	later := c.put(key(uid, 1, 2), c.record(150))
	c.clear(uid, 1, 100)
	c.holds(key(uid, 1, 1), nil)
	c.holds(key(uid, 11, 1), stays)
	c.holds(key(uid, 1, 2), later)
	c.cleared(c.load(history.UserKey(uid)).User, map[uint32]int64{1: c.start + 100})
}

func clearOlder(c *cacheCase) {
	uid := c.user()
	c.clear(uid, 0, 100)
	c.clear(uid, 0, 50)
	c.clear(uid, 2, 70)
	c.clear(uid, 2, 60)
	c.cleared(c.load(history.UserKey(uid)).User, map[uint32]int64{0: c.start + 100, 2: c.start + 70})
	c.conflicts(history.Write{Key: key(uid, 1, 1), Record: c.record(80)})
	c.clear(uid, 0, 120)
	c.cleared(c.load(history.UserKey(uid)).User, map[uint32]int64{0: c.start + 120, 2: c.start + 70})
}

func clearHeldBase(c *cacheCase) {
	k := key(c.user(), 1, 1)
	held := c.put(k, c.record(50))
	c.clear(k.UID, 0, 100)
	now := c.conflicts(history.Write{Key: k, Record: c.record(150), Base: held.Revision})
	c.same("current record", now.Record, nil)
	c.cleared(now.User, map[uint32]int64{0: c.start + 100})
	c.holds(k, nil)
	c.put(k, c.record(150))
}

// clearMarks checks that the marks of removed records go, that the others stay and
// that the user's own state gets one.
func clearMarks(c *cacheCase) {
	uid := c.user()
	gone, stays, other := key(uid, 1, 1), key(uid, 1, 2), key(uid, 2, 3)
	c.mark(gone, c.record(50))
	want := map[history.Key]history.Mark{stays: c.mark(stays, c.record(150)), other: c.mark(other, c.record(50))}
	want[history.UserKey(uid)] = c.clear(uid, 1, 100)
	c.marked(uid, want)
	old := want[history.UserKey(uid)]
	delete(want, other)
	if want[history.UserKey(uid)] = c.clear(uid, 0, 100); want[history.UserKey(uid)] <= old {
		c.Errorf("mark of the second clear: got %d, want more than %d", want[history.UserKey(uid)], old)
	}
	c.marked(uid, want)
	want[history.UserKey(uid)] = c.clear(uid, 0, 10) // an older one, also marks
	c.marked(uid, want)
}

// clearLong removes more records than fit into any one command.
func clearLong(c *cacheCase) {
	const n, until = 8_500, 8_494
	uid := c.user()
	items := c.fill(uid, n)
	c.clear(uid, 0, until)
	c.holds(history.Key{UID: uid, Object: items[until].Object}, nil)
	page := c.list(uid, history.Query{Limit: 100})
	if got, want := len(page.Items), n-until-1; got != want || page.More {
		c.Errorf("List after the clear: got %d items, more %t; want %d", got, page.More, want)
	}
}
