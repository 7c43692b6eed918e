package historytest

import (
	"slices"

	"github.com/playhead/playhead/history"
)

// keeps checks the remaining items and the low watermark: above every dropped record, not above any other clean one.
func (c *cacheCase) keeps(uid string, items []history.Item, kept func(n int) bool) {
	c.Helper()
	lowWatermark := c.load(history.UserKey(uid)).User.LowWatermark
	var want []history.Item
	for n, item := range items {
		k := history.Key{UID: uid, Object: item.Object}
		v := item.Record.Version
		switch {
		case !kept(n):
			c.holds(k, nil)
			if lowWatermark <= v {
				c.Errorf("low watermark %d is not above dropped %s at %d", lowWatermark, k, v)
			}
		case item.Record.Clean() && lowWatermark > v:
			c.Errorf("low watermark %d is above kept %s at %d", lowWatermark, k, v)
			fallthrough
		default:
			c.holds(k, item.Record)
			want = append(want, item)
		}
	}
	slices.SortFunc(want, newestFirst)
	c.lists(uid, history.Query{Limit: 100}, want...)
}

func trimOldest(c *cacheCase) {
	uid, other := c.user(), c.user()
	c.warm(uid, history.WarmSet{})
	c.warm(other, history.WarmSet{})
	items, others := c.fill(uid, 25), c.fill(other, 12)
	c.trim(uid, other)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept })
	c.keeps(other, others, func(n int) bool { return n >= 12-kept })
}

// trimDirty rewrites some of the oldest and newest records: the newest count among the kept ones, the oldest
// stay in addition.
func trimDirty(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	items := c.fill(uid, 25)
	dirty := []int{0, 3, 14, 20, 24}
	var contents []history.Content
	for _, n := range dirty {
		k, r := history.Key{UID: uid, Object: items[n].Object}, revise(items[n].Record)
		c.applied(history.Write{Key: k, Record: r, Base: items[n].Record.Revision})
		items[n].Record, contents = r, append(contents, content(k, r))
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept || slices.Contains(dirty, n) })
	c.markClean(contents...)
	for _, n := range dirty {
		items[n].Record = clean(items[n].Record)
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept })
}

// trimAllDirty drops no dirty record, however many there are.
func trimAllDirty(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	var items []history.Item
	for n := range 25 {
		items = append(items, c.item(key(uid, 1, n), c.record(int64(n))))
	}
	c.trim(uid)
	c.keeps(uid, items, func(int) bool { return true })
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("nothing was dropped: got user %+v, want complete", u)
	}
}

// trimTombstones has tombstones newer than the records, each fewer than the limit. All stay, although their sum
// exceeds it.
func trimTombstones(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	items := c.fill(uid, kept-1)
	for n := range kept {
		c.archive(key(uid, 2, n), c.tombstone(int64(100+n)))
	}
	c.trim(uid)
	c.keeps(uid, items, func(int) bool { return true })
	for n := range kept {
		if c.load(key(uid, 2, n)).Record == nil {
			c.Errorf("tombstone %d of %d was dropped", n, kept)
		}
	}
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("nothing was dropped: got user %+v, want complete", u)
	}
}

// trimManyTombstones deletes more objects than the limit. The oldest tombstones are dropped below the low
// watermark, and no record is, then or later.
func trimManyTombstones(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	live := c.fill(uid, kept)
	var tombs []*history.Record
	for n := range 2*kept + 5 {
		tombs = append(tombs, c.archive(key(uid, 2, n), c.tombstone(int64(100+n))))
	}
	for range 2 {
		c.trim(uid)
		lowWatermark := c.load(history.UserKey(uid)).User.LowWatermark
		for n, r := range tombs {
			dropped := n < kept+5
			if dropped {
				r = nil
			}
			c.holds(key(uid, 2, n), r)
			if above := lowWatermark > tombs[n].Version; above != dropped {
				c.Errorf("tombstone %d, dropped %t: the low watermark above it: %t", n, dropped, above)
			}
		}
		want := slices.Clone(live)
		slices.SortFunc(want, newestFirst)
		c.lists(uid, history.Query{Limit: 100}, want...)
	}
	c.archive(key(uid, 1, 900), c.record(1000))
	c.trim(uid)
	c.holds(history.Key{UID: uid, Object: live[0].Object}, nil)
	c.holds(history.Key{UID: uid, Object: live[1].Object}, live[1].Record)
	c.holds(key(uid, 2, kept+5), tombs[kept+5])
}

// trimTies has records of one version on both sides of the bound. A low watermark cannot separate them, so all stay.
func trimTies(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	var items []history.Item
	for n := range 25 {
		k := key(uid, 1, n)
		items = append(items, history.Item{Object: k.Object, Record: c.archive(k, c.record(int64(n/4*4)))}) // 0 0 0 0 4 4 4 4 ... 24
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 12 }) // the tenth newest is number 15
}

func trimFew(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	items := c.fill(uid, kept)
	c.trim(uid)
	c.keeps(uid, items, func(int) bool { return true })
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("nothing was dropped: got user %+v, want complete", u)
	}
}

// trimAgain trims twice with writes between, and never lowers the low watermark.
func trimAgain(c *cacheCase) {
	uid := c.user()
	high := history.VersionOf(c.start-1, 0)
	c.warm(uid, history.WarmSet{LowWatermark: high})
	items := c.fill(uid, kept+1)
	below := key(uid, 1, 900) // already below the low watermark
	old := history.Item{Object: below.Object, Record: c.archive(below, c.record(-100))}
	c.trim(uid)
	all := append([]history.Item{old}, items...)
	c.keeps(uid, all, func(n int) bool { return n >= 2 })
	lowWatermark := c.load(history.UserKey(uid)).User.LowWatermark
	late := key(uid, 1, 901)
	c.archive(late, c.record(-50))
	c.trim(uid)
	c.holds(late, nil)
	if got := c.load(history.UserKey(uid)).User.LowWatermark; got != lowWatermark {
		c.Errorf("low watermark after an older record was dropped: got %d, want %d as before", got, lowWatermark)
	}
}

// trimCold trims a cold user with some cached records.
func trimCold(c *cacheCase) {
	uid := c.user()
	items := c.fill(uid, 25)
	c.trim(uid)
	for n, item := range items {
		want := item.Record
		if n < 25-kept {
			want = nil
		}
		c.holds(history.Key{UID: uid, Object: item.Object}, want)
	}
	if u := c.load(history.UserKey(uid)).User; u.Warm {
		c.Errorf("trimming warmed the user: %+v", u)
	}
}
