package historytest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/playhead/playhead/history"
)

// pause switches recording, ms milliseconds after the start of the test, under a new
// revision of the user's state.
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

// pauseTwice has a switch come once more, after the next one and the one after that: it does
// nothing, to nobody.
func pauseTwice(c *cacheCase) {
	uid := c.user()
	var all []history.Pause
	for n := range 4 {
		all = append(all, c.load(history.UserKey(uid)).User.Pause)
		c.pause(uid, n%2 == 1, int64(n))
	}
	held := c.put(key(uid, 1, 1), c.record(50))
	last := c.load(history.UserKey(uid)).User
	c.settle(history.Content{Key: history.UserKey(uid), Revision: last.Revision})
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

// pauseHeldBase checks that whoever holds a record finds out, whether it is settled or
// not, that it stays so, and that nothing else of it changes.
func pauseHeldBase(c *cacheCase) {
	uid := c.user()
	dirty, clean := key(uid, 1, 1), key(uid, 2, 2)
	one, two := c.put(dirty, c.record(50)), c.archive(clean, c.record(60))
	for _, recording := range []bool{false, true, false} {
		c.pause(uid, recording, 100)
		c.marked(uid, dirty, history.UserKey(uid))
		for k, held := range map[history.Key]*history.Record{dirty: one, clean: two} {
			now := c.conflicts(history.Write{Key: k, Record: c.record(150), Base: held.Revision})
			if !history.Same(now.Record, held) || now.User.Pause.On() == recording || now.Record.Settled() != held.Settled() {
				c.Errorf("%s, recording %t: got %+v of %+v, want the same content", k, recording, now.Record, now.User)
			}
		}
		one, two = c.load(dirty).Record, c.load(clean).Record
	}
	c.applied(history.Write{Key: clean, Record: c.record(150), Base: two.Revision}) // who knows decides alone
	c.marked(uid, dirty, clean, history.UserKey(uid))
	c.lists(uid, history.Query{Limit: 10},
		history.Item{Object: clean.Object, Record: c.load(clean).Record}, history.Item{Object: dirty.Object, Record: one})
}

// pauseLate settles a content that has another revision since the pause: the mark stays,
// until the one that is there is settled.
func pauseLate(c *cacheCase) {
	uid := c.user()
	k := key(uid, 1, 1)
	r := c.put(k, c.record(50))
	c.pause(uid, false, 100)
	c.settle(content(k, r))
	c.marked(uid, k, history.UserKey(uid))
	now := c.load(k).Record
	c.settle(content(k, now))
	c.marked(uid, history.UserKey(uid))
	c.holds(k, settled(now))
}

// pauseUnbased writes without a base, which nobody could hold: the writer has to know of
// the pause, and decides alone what it covers.
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

// pauseRaced pauses while others write. Who has read before that and writes after it
// must find out.
func pauseRaced(c *cacheCase) {
	uid := c.user()
	for n := range 3 { // what is new when the pause begins may be as old as the newest there is
		c.put(key(uid, 1, n), c.record(0))
	}
	var paused atomic.Bool
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			k := key(uid, 1, n%3)
			for i, late := int64(0), 0; late < 3; i++ {
				e := c.Load(c.Context(), []history.Key{k})[0]
				w := history.Write{Key: k, Record: c.record(1000 + i), Mark: i%2 == 0}
				if e.Record != nil {
					w.Base = e.Record.Revision
				}
				after := paused.Load()
				out := c.Apply(c.Context(), []history.Write{w})[0]
				if after && !e.User.Pause.On() && out.Status != history.Conflict {
					c.Errorf("write after the pause on what was read before: %+v", out)
				}
				if e.User.Pause.On() {
					late++
				}
			}
		})
	}
	for n := range 20 { // so that nobody waits for the first write
		c.put(key(uid, 2, n), c.record(0))
	}
	c.pause(uid, false, 500)
	paused.Store(true)
	writers.Wait()
}

// pauseCleared switches recording off of a user who clears: each leaves the other alone.
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

// pauseWarm warms a user who wrote while nobody knew of the pause that the archive has.
func pauseWarm(c *cacheCase) {
	uid := c.user()
	held := c.put(key(uid, 1, 1), c.record(200))
	p := history.Pause{Since: c.start + 100}
	c.warm(uid, history.WarmSet{Pause: p})
	now := c.conflicts(history.Write{Key: key(uid, 1, 1), Record: c.record(250), Base: held.Revision})
	if now.User.Pause != p || !now.User.Complete() || !history.Same(now.Record, held) {
		c.Errorf("after the warm-up: got %+v of %+v, want what was there, and recording off", now.Record, now.User)
	}
}

// pauseWarmSettled does so to a user with a settled record and another.
func pauseWarmSettled(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(20))
	held := c.archive(key(uid, 1, 2), c.record(30))
	c.warm(uid, history.WarmSet{Items: []history.Item{c.archived(3, c.record(10))}, Pause: history.Pause{Since: c.start + 100}})
	for n, want := range map[int]bool{1: false, 2: true, 3: true} {
		if got := c.load(key(uid, 1, n)).Record; got.Settled() != want || history.SameContent(got.Revision, held.Revision) {
			c.Errorf("record %d after the warm-up: got %+v; want another revision, settled: %t", n, got, want)
		}
	}
	c.marked(uid, key(uid, 1, 1))
}

// pauseWarmOlder warms a user who switched recording on meanwhile.
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
