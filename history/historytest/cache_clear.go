package historytest

import "github.com/playhead/playhead/history"

// clear sets a clear mark, ms milliseconds after the start of the test, under a new
// revision of the user's state.
func (c *cacheCase) clear(uid string, typ uint32, ms int64) {
	c.Helper()
	before := c.load(history.UserKey(uid)).User
	until, err := c.Clear(c.Context(), uid, history.Clear{Type: typ, Until: c.start + ms})
	if err != nil {
		c.Fatalf("Clear(%s, %d): %v", uid, typ, err)
	}
	if want := max(c.start+ms, before.Cleared[typ]); until != want {
		c.Errorf("Clear(%s, %d) up to %d: got %d, want %d", uid, typ, c.start+ms, until, want)
	}
	if after := c.load(history.UserKey(uid)).User; after.Revision == before.Revision || after.Revision == 0 {
		c.Errorf("Clear(%s, %d): the revision of the state is %d, before %d; want a new one", uid, typ, after.Revision, before.Revision)
	}
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

// clearTwice has a clear come once more, after what was written since, and after a later
// one: it removes nothing.
func clearTwice(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(50))
	c.clear(uid, 0, 100)
	stays := c.put(key(uid, 1, 1), c.record(101))
	c.clear(uid, 0, 100)
	c.holds(key(uid, 1, 1), stays)
	c.clear(uid, 0, 200)
	after := c.put(key(uid, 1, 2), c.record(201))
	c.clear(uid, 0, 100)
	c.holds(key(uid, 1, 2), after)
	c.cleared(c.load(history.UserKey(uid)).User, map[uint32]int64{0: c.start + 200})
}

// clearMarks checks that the marks of removed records go, that the others stay and
// that the user's own state gets one.
func clearMarks(c *cacheCase) {
	uid := c.user()
	gone, stays, other, own := key(uid, 1, 1), key(uid, 1, 2), key(uid, 2, 3), history.UserKey(uid)
	c.put(gone, c.record(50))
	c.put(stays, c.record(150))
	c.put(other, c.record(50))
	c.clear(uid, 1, 100)
	c.marked(uid, stays, other, own)
	c.settle(history.Content{Key: own, Revision: c.load(own).User.Revision})
	c.marked(uid, stays, other)
	c.clear(uid, 0, 100)
	c.marked(uid, stays, own)
	c.settle(history.Content{Key: own, Revision: c.load(own).User.Revision})
	c.clear(uid, 0, 10) // an older one, also marks
	c.marked(uid, stays, own)
}

// clearCutTime keeps the latest cell time of what clears removed, and of nothing else.
func clearCutTime(c *cacheCase) {
	uid := c.user()
	later := func(ms, drift int64) *history.Record {
		r := c.record(ms)
		r.CellTime = r.Version.Time() + drift
		return r
	}
	c.put(key(uid, 1, 1), later(10, 0))
	c.archive(key(uid, 1, 2), later(20, 3_000_000))
	c.put(key(uid, 1, 3), later(30, 5))
	c.put(key(uid, 2, 4), later(20, 1<<40))
	c.put(key(uid, 1, 5), later(90, 4_000_000))
	c.put(key(uid, 1, 6), later(25, 200))
	for _, test := range []struct {
		typ  uint32
		ms   int64
		want int64
	}{
		{1, 10, 10},
		{1, 30, 20 + 3_000_000},
		{1, 35, 20 + 3_000_000},
		{2, 30, 20 + 1<<40},
		{0, 200, 20 + 1<<40},
	} {
		c.clear(uid, test.typ, test.ms)
		if got := c.load(history.UserKey(uid)).User.CutTime; got != c.start+test.want {
			c.Errorf("cut time after a clear of type %d up to %d ms: got %d, want %d", test.typ, test.ms, got-c.start, test.want)
		}
	}
	k := key(uid, 2, 4)
	user := c.load(k).User
	next := c.record(300).Successor(&user)
	c.put(k, next)
	if got := c.load(k).Record; got == nil || got.CellTime != c.start+20+1<<40+1 {
		c.Errorf("a record after the clear: got %+v, want cell time %d", got, c.start+20+1<<40+1)
	}
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
