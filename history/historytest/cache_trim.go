package historytest

import (
	"slices"

	"github.com/playhead/playhead/history"
)

func (c *cacheCase) trim(uids ...string) {
	c.Helper()
	if err := c.Trim(c.Context(), uids); err != nil {
		c.Fatalf("Trim(%v): %v", uids, err)
	}
}

// keeps checks which of the items are left, and that the floor says so: above
// every dropped record, not above any other without a mark.
func (c *cacheCase) keeps(uid string, items []history.Item, kept func(n int) bool) {
	c.Helper()
	floor, marks := c.load(history.UserKey(uid)).User.Floor, c.marks(uid)
	var want []history.Item
	for n, item := range items {
		k := history.Key{UID: uid, Object: item.Object}
		v := item.Record.Version
		switch {
		case !kept(n):
			c.holds(k, nil)
			if floor <= v {
				c.Errorf("floor %d is not above dropped %s at %d", floor, k, v)
			}
		case marks[k] == 0 && floor > v:
			c.Errorf("floor %d is above kept %s at %d", floor, k, v)
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
	c.warm(uid, history.Warmth{})
	c.warm(other, history.Warmth{})
	items, others := c.fill(uid, 25), c.fill(other, 12)
	c.trim(uid, other)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept })
	c.keeps(other, others, func(n int) bool { return n >= 12-kept })
}

// trimDirty has marks on some of the oldest and some of the newest: the newest are
// counted with them, the oldest stay beside those.
func trimDirty(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.Warmth{})
	items := c.fill(uid, 25)
	dirty := []int{0, 3, 14, 20, 24}
	var marks []history.Dirty
	for _, n := range dirty {
		k, r := history.Key{UID: uid, Object: items[n].Object}, revise(items[n].Record)
		out := c.applied(history.Write{Key: k, Record: r, Base: items[n].Record.Revision, Mark: true})
		items[n].Record, marks = r, append(marks, history.Dirty{Key: k, Mark: out.Mark})
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept || slices.Contains(dirty, n) })
	c.settle(marks...)
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept })
}

// trimTies has records of one version on both sides of the bound. A floor cannot
// part them, so they stay together.
func trimTies(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.Warmth{})
	var items []history.Item
	for n := range 25 {
		items = append(items, c.item(key(uid, 1, n), c.record(int64(n/4*4)))) // 0 0 0 0 4 4 4 4 ... 24
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 12 }) // the tenth newest is number 15
}

func trimFew(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.Warmth{})
	items := c.fill(uid, kept)
	c.trim(uid)
	c.keeps(uid, items, func(int) bool { return true })
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("nothing was dropped: got user %+v, want complete", u)
	}
}

// trimAgain trims twice with writes between, and never lowers a floor.
func trimAgain(c *cacheCase) {
	uid := c.user()
	high := history.VersionOf(c.start-1, 0)
	c.warm(uid, history.Warmth{Floor: high})
	items := c.fill(uid, kept+1)
	old := c.item(key(uid, 1, 900), c.record(-100)) // below the floor already
	c.trim(uid)
	all := append([]history.Item{old}, items...)
	c.keeps(uid, all, func(n int) bool { return n >= 2 })
	floor := c.load(history.UserKey(uid)).User.Floor
	late := c.item(key(uid, 1, 901), c.record(-50))
	c.trim(uid)
	c.holds(history.Key{UID: uid, Object: late.Object}, nil)
	if got := c.load(history.UserKey(uid)).User.Floor; got != floor {
		c.Errorf("floor after an older record was dropped: got %d, want %d as before", got, floor)
	}
}

// trimCold trims a user of whom the cache knows nothing but some records.
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
