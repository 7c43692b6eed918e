package historytest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/playhead/playhead/history"
)

// clearAll has records of every rank on both sides of the mark. A stop or delete of its very millisecond is covered.
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
	left := c.renumbered(key(uid, 2, 5), later.Record)
	page := c.list(uid, history.Query{Limit: 10})
	c.items("after the clear", page.Items, []history.Item{{Object: later.Object, Record: left.After(c.start + 100)}})
	if page.User.Warm {
		c.Error("clear warmed the user unexpectedly")
	}
}

func clearType(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(50))
	stays := c.put(key(uid, 11, 1), c.record(50))
	later := c.put(key(uid, 1, 2), c.record(150))
	c.clear(uid, 1, 100)
	c.holds(key(uid, 1, 1), nil)
	c.renumbered(key(uid, 11, 1), stays)
	c.renumbered(key(uid, 1, 2), later)
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
	stays := c.put(k, c.record(150))
	c.clear(k.UID, 0, 120)
	c.conflicts(history.Write{Key: k, Record: c.record(160), Base: stays.Revision})
	c.renumbered(k, stays)
}

// clearTwice repeats a clear after later writes and after a later clear: it removes nothing.
func clearTwice(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(50))
	c.clear(uid, 0, 100)
	stays := c.put(key(uid, 1, 1), c.record(101))
	c.clear(uid, 0, 100)
	c.renumbered(key(uid, 1, 1), stays)
	c.clear(uid, 0, 200)
	after := c.put(key(uid, 1, 2), c.record(201))
	c.clear(uid, 0, 100)
	c.renumbered(key(uid, 1, 2), after)
	c.cleared(c.load(history.UserKey(uid)).User, map[uint32]int64{0: c.start + 200})
}

// clearMarks checks that removed records lose their dirty marks, others keep them, and the user's state gets one.
func clearMarks(c *cacheCase) {
	uid := c.user()
	gone, stays, other, own := key(uid, 1, 1), key(uid, 1, 2), key(uid, 2, 3), history.UserKey(uid)
	c.put(gone, c.record(50))
	c.put(stays, c.record(150))
	c.put(other, c.record(50))
	c.clear(uid, 1, 100)
	c.marked(uid, stays, other, own)
	c.markClean(history.Content{Key: own, Revision: c.load(own).User.Revision})
	c.marked(uid, stays, other)
	c.clear(uid, 0, 100)
	c.marked(uid, stays, own)
	c.markClean(history.Content{Key: own, Revision: c.load(own).User.Revision})
	c.clear(uid, 0, 10) // an older clear also marks
	c.marked(uid, stays, own)
}

// clearCutTime keeps the latest cell time of cleared records, and of no others.
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

// pause switches recording, ms milliseconds after the start of the test, with a new revision of the user's state.
func (c *cacheCase) pause(uid string, recording bool, ms int64) history.Pause {
	c.Helper()
	u := c.load(history.UserKey(uid)).User
	p := u.Pause.Switched(recording, c.start+ms, 0)
	if err := c.Pause(c.Context(), uid, u.Pause, p); err != nil {
		c.Fatalf("Pause(%s, %+v, %+v): %v", uid, u.Pause, p, err)
	}
	after := c.load(history.UserKey(uid)).User
	if after.Revision == u.Revision || after.Revision == 0 {
		c.Errorf("Pause(%s, %t): the revision of the state is %d, before %d; want a new one", uid, recording, after.Revision, u.Revision)
	}
	if after.Pause != p || after.Warm != u.Warm {
		c.Errorf("user after recording %t: got %+v of %+v, want %+v", recording, after, u, p)
	}
	return p
}

func pauseSwitched(c *cacheCase) {
	uid := c.user()
	for ms, recording := range []bool{true, false, false, true, true, false, true, false} {
		c.pause(uid, recording, int64(ms))
	}
	c.marked(uid, history.UserKey(uid))
}

// pauseTwice repeats a switch after the next ones: it has no effect.
func pauseTwice(c *cacheCase) {
	uid := c.user()
	var all []history.Pause
	for n := range 4 {
		all = append(all, c.load(history.UserKey(uid)).User.Pause)
		c.pause(uid, n%2 == 1, int64(n))
	}
	held := c.put(key(uid, 1, 1), c.record(50))
	last := c.load(history.UserKey(uid)).User
	c.markClean(history.Content{Key: history.UserKey(uid), Revision: last.Revision})
	for n := range 3 {
		if err := c.Pause(c.Context(), uid, all[n], all[n+1]); !errors.Is(err, history.ErrConflict) {
			c.Errorf("switch %d once more: got %v, want a conflict", n, err)
		}
	}
	if u := c.load(history.UserKey(uid)).User; u.Pause != last.Pause || u.Revision != last.Revision {
		c.Errorf("after old switches: got %+v, want %+v", u, last)
	}
	c.holds(key(uid, 1, 1), held)
	c.marked(uid, key(uid, 1, 1))
}

// pauseHeldBase: a writer based on any record conflicts after a pause. The record stays clean or dirty, and
// only its revision changes.
func pauseHeldBase(c *cacheCase) {
	uid := c.user()
	dirty, clean := key(uid, 1, 1), key(uid, 2, 2)
	one, two := c.put(dirty, c.record(50)), c.archive(clean, c.record(60))
	for _, recording := range []bool{false, true, false} {
		c.pause(uid, recording, 100)
		c.marked(uid, dirty, history.UserKey(uid))
		for k, held := range map[history.Key]*history.Record{dirty: one, clean: two} {
			now := c.conflicts(history.Write{Key: k, Record: c.record(150), Base: held.Revision})
			if !history.Same(now.Record, held) || now.User.Pause.On() == recording || now.Record.Clean() != held.Clean() {
				c.Errorf("%s, recording %t: got %+v of %+v, want the same content", k, recording, now.Record, now.User)
			}
		}
		one, two = c.load(dirty).Record, c.load(clean).Record
	}
	c.applied(history.Write{Key: clean, Record: c.record(150), Base: two.Revision}) // with knowledge of the pause the writer decides
	c.marked(uid, dirty, clean, history.UserKey(uid))
	c.lists(uid, history.Query{Limit: 10},
		history.Item{Object: clean.Object, Record: c.load(clean).Record}, history.Item{Object: dirty.Object, Record: one})
}

// pauseLate marks a content clean whose revision the pause changed: the mark stays until the current revision is clean.
func pauseLate(c *cacheCase) {
	uid := c.user()
	k := key(uid, 1, 1)
	r := c.put(k, c.record(50))
	c.pause(uid, false, 100)
	c.markClean(content(k, r))
	c.marked(uid, k, history.UserKey(uid))
	now := c.load(k).Record
	c.markClean(content(k, now))
	c.marked(uid, history.UserKey(uid))
	c.holds(k, clean(now))
}

// pauseUnbased writes without a base. The writer has to know of the pause and decides what it covers.
func pauseUnbased(c *cacheCase) {
	uid := c.user()
	known := []history.Pause{{}, c.pause(uid, false, 100), c.pause(uid, true, 200), c.pause(uid, false, 300)}
	for n, p := range known[:3] {
		for _, r := range []*history.Record{c.record(50), c.record(150), c.tombstone(400)} {
			now := c.conflicts(history.Write{Key: key(uid, 1, n), Record: r, Pause: p})
			if now.Record != nil || now.User.Pause != known[3] {
				c.Errorf("write that knows of %+v: got %+v, want %+v", p, now, known[3])
			}
		}
	}
	for n, r := range []*history.Record{c.record(50), c.record(150), c.record(5000), c.tombstone(400)} {
		c.applied(history.Write{Key: key(uid, 2, n), Record: r, Pause: known[3]})
		c.holds(key(uid, 2, n), r)
	}
}

// pauseRaced pauses during writes. A writer with a read before the pause and a write after it conflicts.
func pauseRaced(c *cacheCase) {
	uid := c.user()
	for n := range 3 { // new records at the pause may be as old as the newest
		c.put(key(uid, 1, n), c.record(0))
	}
	var paused atomic.Bool
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			k := key(uid, 1, n%3)
			for i, late := int64(0), 0; late < 3; i++ {
				e := c.Load(c.Context(), []history.Key{k})[0]
				w := history.Write{Key: k, Record: c.record(1000 + i), BeginsHold: i%2 == 0}
				if e.Record != nil {
					w.Base = e.Record.Revision
				}
				after := paused.Load()
				out := c.Write(c.Context(), []history.Write{w})[0]
				if after && !e.User.Pause.On() && out.Status != history.Conflict {
					c.Errorf("write after the pause on what was read before: %+v", out)
				}
				if e.User.Pause.On() {
					late++
				}
			}
		})
	}
	for n := range 20 { // do not wait for the first write
		c.put(key(uid, 2, n), c.record(0))
	}
	c.pause(uid, false, 500)
	paused.Store(true)
	writers.Wait()
}

// pauseCleared switches recording off for a user who clears: neither affects the other.
func pauseCleared(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(50))
	p := c.pause(uid, false, 100)
	c.clear(uid, 0, 150)
	u := c.load(history.UserKey(uid)).User
	if u.Pause != p || u.Cleared[0] != c.start+150 {
		c.Errorf("after pause and clear: got %+v, want both", u)
	}
}

// pauseWarm warms a user who wrote before the archived pause was known.
func pauseWarm(c *cacheCase) {
	uid := c.user()
	held := c.put(key(uid, 1, 1), c.record(200))
	p := history.Pause{Since: c.start + 100, Earlier: "100 200 5 9"}
	c.warm(uid, history.WarmSet{Pause: p})
	now := c.conflicts(history.Write{Key: key(uid, 1, 1), Record: c.record(250), Base: held.Revision})
	if now.User.Pause != p || !now.User.Complete() || !history.Same(now.Record, held) {
		c.Errorf("after the warm-up: got %+v of %+v, want what was there, and recording off", now.Record, now.User)
	}
}

// pauseWarmClean does so for a user with a clean record and a dirty one.
func pauseWarmClean(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(20))
	held := c.archive(key(uid, 1, 2), c.record(30))
	c.warm(uid, history.WarmSet{Items: []history.Item{c.archived(3, c.record(10))}, Pause: history.Pause{Since: c.start + 100}})
	for n, want := range map[int]bool{1: false, 2: true, 3: true} {
		if got := c.load(key(uid, 1, n)).Record; got.Clean() != want || history.SameContent(got.Revision, held.Revision) {
			c.Errorf("record %d after the warm-up: got %+v; want another revision, clean: %t", n, got, want)
		}
	}
	c.marked(uid, key(uid, 1, 1))
}

// pauseWarmOlder warms a user who has since switched recording on.
func pauseWarmOlder(c *cacheCase) {
	uid := c.user()
	c.pause(uid, false, 100)
	p := c.pause(uid, true, 200)
	held := c.put(key(uid, 1, 1), c.record(300))
	for _, old := range []history.Pause{{}, {Since: c.start + 100}, {Since: c.start + 50, Until: c.start + 60}} {
		c.warm(uid, history.WarmSet{Pause: old})
	}
	if u := c.load(history.UserKey(uid)).User; u.Pause != p || !u.Warm {
		c.Errorf("after the warm-up: got %+v, want %+v", u, p)
	}
	c.applied(history.Write{Key: key(uid, 1, 1), Record: c.record(350), Base: held.Revision})
}

// pauseWarmAlike warms users with different pauses of one time in cache and archive: the same one wins on either side.
func pauseWarmAlike(c *cacheCase) {
	all := []history.Pause{
		{Since: c.start + 9},
		{Since: c.start + 1, Until: c.start + 9},
		{Since: c.start + 5, Until: c.start + 9, Earlier: "3 9 1 2"},
		{Since: c.start + 5, Until: c.start + 9, Earlier: "4 5"},
		{Since: c.start + 5, Until: c.start + 9, Earlier: "3 5"},
		{Since: c.start + 5, Until: c.start + 9},
	}
	for i, p := range all {
		for j, q := range all {
			uid := c.user()
			if err := c.Pause(c.Context(), uid, history.Pause{}, p); err != nil {
				c.Fatalf("Pause(%s, %+v): %v", uid, p, err)
			}
			c.warm(uid, history.WarmSet{Pause: q})
			if got, want := c.load(history.UserKey(uid)).User.Pause, all[min(i, j)]; got != want {
				c.Errorf("cache with %+v, archive with %+v: got %+v, want %+v", p, q, got, want)
			}
		}
	}
}
