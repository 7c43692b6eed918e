package historytest

import (
	"sync"
	"sync/atomic"

	"github.com/playhead/playhead/history"
)

// pause switches recording, ms milliseconds after the start of the test.
func (c *cacheCase) pause(uid string, recording bool, ms int64) (history.Pause, history.Mark) {
	c.Helper()
	p, mark, err := c.Pause(c.Context(), uid, recording, c.start+ms)
	if err != nil {
		c.Fatalf("Pause(%s, %t): %v", uid, recording, err)
	}
	if mark <= 0 {
		c.Errorf("Pause(%s, %t): got mark %d, want a time", uid, recording, mark)
	}
	return p, mark
}

// switched switches recording and checks what is remembered, 0 for never.
func (c *cacheCase) switched(uid string, recording bool, ms int64, want history.Pause) history.Mark {
	c.Helper()
	for _, at := range []*int64{&want.Since, &want.Until} {
		if *at != 0 {
			*at += c.start
		}
	}
	got, mark := c.pause(uid, recording, ms)
	if got != want {
		c.Errorf("recording %t at %d: got %+v, want %+v", recording, c.start+ms, got, want)
	}
	if u := c.load(history.UserKey(uid)).User; u.Pause != want || u.Warm {
		c.Errorf("user after recording %t: got %+v, want %+v of a cold user", recording, u, want)
	}
	return mark
}

func pauseSwitched(c *cacheCase) {
	uid := c.user()
	c.switched(uid, true, 10, history.Pause{})
	c.switched(uid, false, 100, history.Pause{Since: 100})
	c.switched(uid, false, 200, history.Pause{Since: 100})
	c.switched(uid, true, 300, history.Pause{Since: 100, Until: 300})
	c.switched(uid, true, 400, history.Pause{Since: 100, Until: 300})
	c.switched(uid, false, 300, history.Pause{Since: 301}) // a clock that stood still
	c.switched(uid, true, 250, history.Pause{Since: 301, Until: 302})
	mark := c.switched(uid, false, 500, history.Pause{Since: 500})
	c.marked(uid, map[history.Key]history.Mark{history.UserKey(uid): mark})
}

// pauseNewest pauses a user of whom something newer is recorded than the time of the
// pause: it stays outside.
func pauseNewest(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(10))
	c.put(key(uid, 1, 2), c.record(150))
	c.switched(uid, false, 100, history.Pause{Since: 150})
}

// pauseHeldBase checks that whoever holds a record finds out, whether it is marked or
// not, and that nothing else of it changes.
func pauseHeldBase(c *cacheCase) {
	uid := c.user()
	marked, settled := key(uid, 1, 1), key(uid, 2, 2)
	one, two := c.record(50), c.put(settled, c.record(60))
	mark := c.mark(marked, one)
	for _, recording := range []bool{false, true, false} {
		_, own := c.pause(uid, recording, 100)
		c.marked(uid, map[history.Key]history.Mark{marked: mark, history.UserKey(uid): own})
		for k, held := range map[history.Key]*history.Record{marked: one, settled: two} {
			now := c.conflicts(history.Write{Key: k, Record: c.record(150), Base: held.Revision})
			if !history.Same(now.Record, held) || now.User.Pause.On() == recording {
				c.Errorf("%s, recording %t: got %+v of %+v, want the same content", k, recording, now.Record, now.User)
			}
		}
		one, two = c.load(marked).Record, c.load(settled).Record
	}
	c.applied(history.Write{Key: settled, Record: c.record(150), Base: two.Revision}) // who knows decides alone
	c.lists(uid, history.Query{Limit: 10},
		history.Item{Object: settled.Object, Record: c.load(settled).Record}, history.Item{Object: marked.Object, Record: one})
}

// pauseUnbased writes without a base, which nobody could hold.
func pauseUnbased(c *cacheCase) {
	uid := c.user()
	c.pause(uid, false, 100)
	for ms, want := range map[int64]history.WriteStatus{100: history.Applied, 101: history.Conflict, 5000: history.Conflict} {
		k := key(uid, 1, int(ms))
		if got := c.apply(history.Write{Key: k, Record: c.record(ms)}); got.Status != want || want == history.Conflict && !got.Current.User.Pause.On() {
			c.Errorf("%d ms, recording is off since 100: got %+v, want status %d", ms, got, want)
		}
	}
	c.applied(history.Write{Key: key(uid, 1, 1), Record: c.tombstone(300)})
	c.pause(uid, true, 200)
	for ms, want := range map[int64]history.WriteStatus{99: history.Applied, 150: history.Conflict, 200: history.Conflict, 201: history.Applied} {
		if got := c.apply(history.Write{Key: key(uid, 2, int(ms)), Record: c.record(ms)}); got.Status != want {
			c.Errorf("%d ms, recording was off from 100 to 200: got %+v, want status %d", ms, got, want)
		}
	}
}

// pauseRaced pauses while others write. Who has read before that and writes after it
// must find out.
func pauseRaced(c *cacheCase) {
	uid := c.user()
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
		c.apply(history.Write{Key: key(uid, 2, n), Record: c.record(0)})
	}
	c.pause(uid, false, 500)
	paused.Store(true)
	writers.Wait()
}

// pauseCleared switches recording off of a user who clears: each leaves the other alone.
func pauseCleared(c *cacheCase) {
	uid := c.user()
	c.put(key(uid, 1, 1), c.record(50))
	p, _ := c.pause(uid, false, 100)
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
	c.warm(uid, history.Warmth{Pause: p})
	now := c.conflicts(history.Write{Key: key(uid, 1, 1), Record: c.record(250), Base: held.Revision})
	if now.User.Pause != p || !now.User.Complete() || !history.Same(now.Record, held) {
		c.Errorf("after the warm-up: got %+v of %+v, want what was there, and recording off", now.Record, now.User)
	}
}

// pauseWarmOlder warms a user who switched recording on meanwhile.
func pauseWarmOlder(c *cacheCase) {
	uid := c.user()
	c.pause(uid, false, 100)
	p, _ := c.pause(uid, true, 200)
	held := c.put(key(uid, 1, 1), c.record(300))
	for _, old := range []history.Pause{{}, {Since: c.start + 100}, {Since: c.start + 50, Until: c.start + 60}} {
		c.warm(uid, history.Warmth{Pause: old})
	}
	if u := c.load(history.UserKey(uid)).User; u.Pause != p || !u.Warm {
		c.Errorf("after the warm-up: got %+v, want %+v", u, p)
	}
	c.applied(history.Write{Key: key(uid, 1, 1), Record: c.record(350), Base: held.Revision})
}
