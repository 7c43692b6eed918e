package historytest

import (
	"slices"
	"sync"

	"github.com/playhead/playhead/history"
)

func warmCold(c *cacheCase) {
	uid := c.user()
	one, two, gone := c.archived(1, c.record(10)), c.archived(2, c.record(20)), c.archived(3, c.tombstone(30))
	lowWatermark := history.VersionOf(c.start, 1)
	c.warm(uid, history.WarmSet{Items: []history.Item{one, two, gone}, LowWatermark: lowWatermark, Cleared: map[uint32]int64{0: c.start, 4: c.start + 5}})
	two.Record, one.Record = c.renumbered(key(uid, 1, 2), two.Record), c.renumbered(key(uid, 1, 1), one.Record)
	page := c.list(uid, history.Query{Limit: 10})
	c.items("warmed", page.Items, []history.Item{
		{Object: two.Object, Record: two.Record.After(c.start)}, {Object: one.Object, Record: one.Record.After(c.start)},
	})
	if !page.User.Warm || page.User.LowWatermark != lowWatermark {
		c.Errorf("user: got %+v, want warm with low watermark %d", page.User, lowWatermark)
	}
	c.cleared(page.User, map[uint32]int64{0: c.start, 4: c.start + 5})
	c.renumbered(key(uid, 1, 3), gone.Record)
	c.marked(uid)
	c.applied(history.Write{Key: key(uid, 1, 1), Record: c.record(40), Base: one.Record.Revision})
}

func warmEmpty(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("user of whom the archive has nothing: got %+v, want complete", u)
	}
}

func warmTwice(c *cacheCase) {
	uid := c.user()
	one := c.archived(1, c.record(10))
	c.warm(uid, history.WarmSet{Items: []history.Item{one}, LowWatermark: 5, Cleared: map[uint32]int64{2: 7}})
	c.warm(uid, history.WarmSet{Items: []history.Item{c.archived(2, c.record(20))}, LowWatermark: 3, Cleared: map[uint32]int64{2: 8, 3: 9}})
	c.lists(uid, history.Query{Limit: 10}, one)
	u := c.load(history.UserKey(uid)).User
	if u.LowWatermark != 5 {
		c.Errorf("low watermark: got %d, want 5 from the first time", u.LowWatermark)
	}
	c.cleared(u, map[uint32]int64{2: 7})
}

// warmAll warms several users at once: each gets its own set.
func warmAll(c *cacheCase) {
	uids := []string{c.user(), c.user(), c.user(), c.user()}
	one, two := c.archived(1, c.record(10)), c.archived(2, c.record(20))
	c.put(key(uids[1], 1, 3), c.record(30)) // a clear mark renumbers it
	c.warm(uids[3], history.WarmSet{LowWatermark: 5})
	for i, err := range history.WarmAll(c.Context(), c.CacheStore, uids, []history.WarmSet{
		{Items: []history.Item{one}}, {Items: []history.Item{two}, Cleared: map[uint32]int64{4: 5}}, {LowWatermark: 7}, {},
	}) {
		if err != nil {
			c.Errorf("user %d: %v", i, err)
		}
	}
	c.lists(uids[0], history.Query{Limit: 10}, one)
	for i, want := range []history.Version{0, 0, 7, 5} { // the last one was warm
		u := c.load(history.UserKey(uids[i])).User
		if !u.Warm || u.LowWatermark != want {
			c.Errorf("user %d: got %+v, want low watermark %d", i, u, want)
		}
		c.cleared(u, []map[uint32]int64{1: {4: 5}, 3: nil}[i])
	}
	if r := c.load(key(uids[1], 1, 2)).Record; !history.Same(r, two.Record) {
		c.Errorf("with a clear mark of another type: got %+v, want %+v", r, two.Record)
	}
}

// warmWritten warms a user after a concurrent write: the cached record stays, with its mark.
func warmWritten(c *cacheCase) {
	uid := c.user()
	k := key(uid, 1, 1)
	r := c.put(k, c.record(50))
	old := c.archived(2, c.record(60))
	c.warm(uid, history.WarmSet{Items: []history.Item{c.archived(1, c.record(70)), old}})
	c.lists(uid, history.Query{Limit: 10}, old, history.Item{Object: k.Object, Record: r})
	c.marked(uid, k)
}

// warmClean adds records without the clean bit, as archives may store them.
func warmClean(c *cacheCase) {
	uid := c.user()
	k, r := key(uid, 1, 1), c.record(10)
	r.CellTime = r.Version.Time() + 77
	c.warm(uid, history.WarmSet{Items: []history.Item{{Object: k.Object, Record: r}}})
	c.holds(k, clean(r))
	if got := c.load(k).Record; got.CellTime != r.CellTime {
		c.Errorf("cell time: got %d, want %d", got.CellTime, r.CellTime)
	}
	c.conflicts(history.Write{Key: k, Record: c.record(20), Base: r.Revision})
	c.applied(history.Write{Key: k, Record: c.record(20), Base: clean(r).Revision})
	c.marked(uid, k)
}

// warmCutTime merges cut times: the later one wins.
func warmCutTime(c *cacheCase) {
	for _, test := range []struct{ cache, archive, want int64 }{{0, 0, 0}, {0, 700, 700}, {300, 700, 700}, {800, 700, 800}} {
		uid := c.user()
		if test.cache > 0 {
			c.put(key(uid, 1, 1), c.record(test.cache))
			c.clear(uid, 0, test.cache)
		}
		w := history.WarmSet{CutTime: c.start + test.archive}
		if test.archive == 0 {
			w.CutTime = 0
		}
		c.warm(uid, w)
		want := c.start + test.want
		if test.want == 0 {
			want = 0
		}
		if got := c.load(history.UserKey(uid)).User; got.CutTime != want || !got.Warm {
			c.Errorf("cut time %d in the cache, %d in the archive: got %+v, want %d", test.cache, test.archive, got, test.want)
		}
	}
}

// warmHidden warms a user, after a concurrent clear, with a covered record. The key's next record must exceed
// its cell time.
func warmHidden(c *cacheCase) {
	uid := c.user()
	c.clear(uid, 1, 100)
	covered, later := c.record(90), c.record(101)
	covered.CellTime, later.CellTime = covered.Version.Time()+300, later.Version.Time()+500
	c.warm(uid, history.WarmSet{CutTime: c.start + 120, Items: []history.Item{c.archived(1, covered), c.archived(2, later)}})
	if got := c.load(history.UserKey(uid)).User.CutTime; got != covered.CellTime {
		c.Errorf("cut time: got %d, want %d, the cell time of what is hidden", got-c.start, covered.CellTime-c.start)
	}
}

// warmCleared warms a user after a concurrent clear: the later of two marks wins, and covered records do not return.
func warmCleared(c *cacheCase) {
	uid := c.user()
	c.clear(uid, 0, 100)
	c.clear(uid, 3, 50)
	covered, later := c.archived(1, c.record(100)), c.archived(2, c.record(101))
	c.warm(uid, history.WarmSet{
		Items:   []history.Item{covered, later},
		Cleared: map[uint32]int64{0: c.start + 60, 3: c.start + 90, 5: c.start + 120},
	})
	page := c.list(uid, history.Query{Limit: 10})
	later.Record = c.load(key(uid, 1, 2)).Record
	c.items("warmed", page.Items, []history.Item{{Object: later.Object, Record: later.Record.After(c.start + 100)}})
	c.cleared(page.User, map[uint32]int64{0: c.start + 100, 3: c.start + 90, 5: c.start + 120})
	if e := c.load(key(uid, 1, 1)); e.Record.Visible(covered.Object, &e.User) != nil {
		c.Errorf("covered record: got %+v, want none visible", e.Record)
	}
}

// warmHeld adds clear marks unknown to writers: those based on cached or returning records conflict. Other
// types are unaffected.
func warmHeld(c *cacheCase) {
	uid := c.user()
	dirty, archived := c.put(key(uid, 1, 1), c.record(150)), c.archive(key(uid, 1, 2), c.record(160))
	back, other := c.archived(3, c.record(170)), history.Item{Object: key(uid, 2, 4).Object, Record: clean(c.record(50))}
	c.warm(uid, history.WarmSet{Items: []history.Item{back, other}, Cleared: map[uint32]int64{1: c.start + 100}})
	for n, was := range map[int]*history.Record{1: dirty, 2: archived, 3: back.Record} {
		now := c.conflicts(history.Write{Key: key(uid, 1, n), Record: c.record(200), Base: was.Revision})
		c.cleared(now.User, map[uint32]int64{1: c.start + 100})
		c.renumbered(key(uid, 1, n), was)
	}
	c.marked(uid, key(uid, 1, 1))
	c.applied(history.Write{Key: key(uid, 2, 4), Record: c.record(200), Base: other.Record.Revision})
}

// warmKnown adds known or older clear marks: a writer's base stays valid.
func warmKnown(c *cacheCase) {
	uid := c.user()
	c.clear(uid, 1, 100)
	held := c.put(key(uid, 1, 1), c.record(150))
	c.warm(uid, history.WarmSet{Cleared: map[uint32]int64{1: c.start + 100}})
	c.applied(history.Write{Key: key(uid, 1, 1), Record: c.record(200), Base: held.Revision})
}

// warmTrimmed warms a user after a concurrent trim. The archive's copy of a dropped record may be outdated and
// does not return.
func warmTrimmed(c *cacheCase) {
	uid := c.user()
	items := c.fill(uid, 25)
	c.trim(uid)
	dropped := c.archived(900, c.record(-100))
	c.warm(uid, history.WarmSet{Items: []history.Item{dropped, c.archived(901, c.record(1000))}})
	c.holds(history.Key{UID: uid, Object: dropped.Object}, nil)
	if e := c.load(key(uid, 1, 901)); e.Record == nil || e.User.LowWatermark <= items[0].Record.Version {
		c.Errorf("got %+v, %+v; want the newer record, and a low watermark above what was dropped", e.Record, e.User)
	}
}

// warmLong warms a user with more records than fit into any one command.
func warmLong(c *cacheCase) {
	const n = 8_500
	uid := c.user()
	items := make([]history.Item, n)
	for i := range items {
		items[i] = c.archived(i, c.record(int64(i)))
	}
	c.warm(uid, history.WarmSet{Items: items})
	slices.Reverse(items)
	page := c.list(uid, history.Query{Limit: 100, After: cursor(items[n/2])})
	c.items("in the middle", page.Items, items[n/2+1:n/2+101])
}

// warmOlder warms a user whose cold uploads are older than the archive's records. A list is certain only down
// to the archive's.
func warmOlder(c *cacheCase) {
	uid := c.user()
	older, newer, same := c.record(10), c.record(90), c.record(40)
	c.put(key(uid, 1, 1), older)
	c.put(key(uid, 1, 2), newer)
	c.put(key(uid, 1, 3), same)
	in := c.record(60)
	c.warm(uid, history.WarmSet{Items: []history.Item{
		c.archived(1, in), c.archived(2, c.record(80)), c.archived(3, c.record(40)), c.archived(4, c.record(70)),
	}})
	e := c.load(key(uid, 1, 1))
	c.same("the older one", e.Record, older)
	if !e.User.Warm || e.User.LowWatermark != in.Version+1 {
		c.Errorf("user: got %+v, want warm with low watermark %d, above what the archive has of it", e.User, in.Version+1)
	}
	other := c.user()
	c.put(key(other, 1, 2), newer)
	c.warm(other, history.WarmSet{Items: []history.Item{c.archived(2, c.record(80))}, LowWatermark: 7})
	if u := c.load(history.UserKey(other)).User; u.LowWatermark != 7 {
		c.Errorf("user with a newer one: got %+v, want low watermark 7", u)
	}
}

// moments is the number of races of a change with reads.
const moments = 50

// loadWhileWarming: an entry is consistent. If it says that the user is warm, it has the archive's record.
func loadWhileWarming(c *cacheCase) {
	for range moments {
		k := key(c.user(), 1, 1)
		item := history.Item{Object: k.Object, Record: c.record(0)}
		c.race(func() {
			if err := c.Warm(c.Context(), k.UID, history.WarmSet{Items: []history.Item{item}}); err != nil {
				c.Errorf("Warm(%s): %v", k.UID, err)
			}
		}, func() bool {
			e := c.Load(c.Context(), []history.Key{k})[0]
			return c.was("Load", e, e.Err == nil && (e.Record != nil || !e.User.Warm))
		})
	}
}

// loadWhileTrimming: a record is missing only below the low watermark.
func loadWhileTrimming(c *cacheCase) {
	for range moments {
		k, oldest := c.trimmable()
		c.race(c.trims(k.UID), func() bool {
			e := c.Load(c.Context(), []history.Key{k})[0]
			return c.was("Load", e, e.Err == nil && (e.Record != nil || e.User.LowWatermark > oldest.Version))
		})
	}
}

// listWhileWarming: the same for a page.
func listWhileWarming(c *cacheCase) {
	for range moments {
		uid := c.user()
		items := []history.Item{c.archived(1, c.record(0)), c.archived(2, c.record(1))}
		c.race(func() {
			if err := c.Warm(c.Context(), uid, history.WarmSet{Items: items}); err != nil {
				c.Errorf("Warm(%s): %v", uid, err)
			}
		}, func() bool {
			page, err := c.List(c.Context(), uid, history.Query{Limit: 10})
			return c.was("List", page, err == nil && (len(page.Items) == len(items) || !page.User.Warm))
		})
	}
}

// listWhileTrimming: a page without a record announces more, here or below the low watermark.
func listWhileTrimming(c *cacheCase) {
	for range moments {
		k, oldest := c.trimmable()
		c.race(c.trims(k.UID), func() bool {
			page, err := c.List(c.Context(), k.UID, history.Query{Limit: 100})
			return c.was("List", page, err == nil && (len(page.Items) > kept || page.More || page.User.LowWatermark > oldest.Version))
		})
	}
}

// trimmable returns the oldest record of a warm user with one too many.
func (c *cacheCase) trimmable() (history.Key, *history.Record) {
	c.Helper()
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	oldest := c.fill(uid, kept+1)[0]
	return history.Key{UID: uid, Object: oldest.Object}, oldest.Record
}

func (c *cacheCase) trims(uid string) func() {
	return func() {
		if err := c.Trim(c.Context(), []string{uid}); err != nil {
			c.Errorf("Trim(%s): %v", uid, err)
		}
	}
}

// was fails the test for an answer that was never true.
func (c *cacheCase) was(what string, got any, ok bool) bool {
	c.Helper()
	if !ok {
		c.Errorf("%s while it changed: got %+v", what, got)
	}
	return ok
}

// race repeats look during change, until it returns false.
func (c *cacheCase) race(change func(), look func() bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for look() {
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	change()
	close(done)
}
