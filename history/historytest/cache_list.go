package historytest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
)

func (c *cacheCase) list(uid string, q history.Query) history.Page {
	c.Helper()
	page, err := c.List(c.Context(), uid, q)
	if err != nil {
		c.Fatalf("List(%s, %+v): %v", uid, q, err)
	}
	return page
}

// lists checks a page that must be complete.
func (c *cacheCase) lists(uid string, q history.Query, want ...history.Item) {
	c.Helper()
	page := c.list(uid, q)
	c.items(fmt.Sprintf("List(%s, %+v)", uid, q), page.Items, want)
	if page.More {
		c.Errorf("List(%s, %+v): got more, want all in one page", uid, q)
	}
}

func (c *cacheCase) items(what string, got, want []history.Item) {
	c.Helper()
	if len(got) != len(want) {
		c.Errorf("%s: got %d items, want %d: %v", what, len(got), len(want), objects(got))
		return
	}
	for i, item := range got {
		if item.Object != want[i].Object {
			c.Errorf("%s, item %d: got %s, want %s", what, i, item.Object, want[i].Object)
			return
		}
		c.same(fmt.Sprintf("%s, item %d, %s", what, i, item.Object), item.Record, want[i].Record)
	}
}

func objects(items []history.Item) []string {
	var names []string
	for _, item := range items {
		names = append(names, item.Object.String())
	}
	return names
}

// item stores a record and returns it as a list item.
func (c *cacheCase) item(k history.Key, r *history.Record) history.Item {
	c.Helper()
	return history.Item{Object: k.Object, Record: c.put(k, r)}
}

// listOrder has records of one time and several ranks. 9_1 comes before 10_1: ids are compared as text.
func listOrder(c *cacheCase) {
	uid := c.user()
	at := func(id string, typ uint32, kind history.Kind, ms int64) history.Item {
		k := history.Key{UID: uid, Object: history.Object{ID: id, Type: typ}}
		return c.item(k, c.event(history.Event{Kind: kind, At: c.start + ms, Position: 5}))
	}
	oldest := at("zzz", 1, history.KindFinish, 0)
	ten := at("10", 1, history.KindProgress, 1)
	nine := at("9", 1, history.KindProgress, 1)
	nineB := at("9", 2, history.KindProgress, 1)
	stop := at("0", 1, history.KindStop, 1)
	newest := at("1", 1, history.KindStart, 2)
	all := []history.Item{newest, stop, nineB, nine, ten, oldest}
	c.lists(uid, history.Query{Limit: 100}, all...)
	for n := 1; n < len(all); n++ {
		page := c.list(uid, history.Query{Limit: n})
		c.items(fmt.Sprintf("first %d", n), page.Items, all[:n])
		if !page.More {
			c.Errorf("first %d of %d: got no more", n, len(all))
		}
	}
	c.lists(uid, history.Query{Limit: len(all)}, all...)
}

func listFilters(c *cacheCase) {
	uid := c.user()
	var all []history.Item
	for i := range 30 {
		all = append(all, c.item(key(uid, uint32(1+i%3), i), c.record(int64(i/2))))
	}
	slices.SortFunc(all, newestFirst)
	for _, q := range []history.Query{
		{Type: 2},
		{Type: 7},
		{Since: c.start + 5},
		{Until: c.start + 5},
		{Since: c.start + 5, Until: c.start + 9},
		{Since: c.start + 9, Until: c.start + 5},
		{Since: c.start + 100},
		{Until: c.start - 1},
		{Until: math.MaxInt64},
		{Until: 1 << 61},
		{Since: math.MaxInt64},
		{Since: c.start + 5, Until: math.MaxInt64 - 1, After: cursor(all[4])},
		{Type: 3, Since: c.start + 3, Until: c.start + 11},
		{Type: 1, After: cursor(all[7])},
		{Since: c.start + 5, After: cursor(all[4])},
		{Until: c.start + 5, After: cursor(all[4])},
		{Until: c.start + 5, After: cursor(all[25])},
	} {
		q.Limit = len(all)
		c.lists(uid, q, matching(all, q)...)
	}
}

func cursor(item history.Item) history.Cursor {
	return history.Cursor{Version: item.Record.Version, Object: item.Object}
}

// walk reads all pages, calling step, if any, between calls. Every page but the last is full and announces
// more, and all go down the list.
func (c *cacheCase) walk(uid string, q history.Query, step func(page int)) []history.Item {
	c.Helper()
	var all []history.Item
	for n := 0; ; n++ {
		page := c.list(uid, q)
		for _, item := range page.Items {
			if len(all) > 0 && newestFirst(all[len(all)-1], item) >= 0 {
				c.Fatalf("page %d of %s, %+v: got %s after %s", n, uid, q, item.Object, all[len(all)-1].Object)
			}
			all = append(all, item)
		}
		if !page.More {
			return all
		}
		if len(page.Items) != q.Limit {
			c.Fatalf("page %d of %s, %+v: got %d items and more", n, uid, q, len(page.Items))
		}
		q.After = cursor(all[len(all)-1])
		if step != nil {
			step(n)
		}
	}
}

// pages checks all pages of several sizes.
func (c *cacheCase) pages(uid string, q history.Query, want []history.Item) {
	c.Helper()
	for _, q.Limit = range []int{1, 7, 20, 100} {
		if q.Limit == 1 && len(want) > 50 {
			continue // equivalent, but slow
		}
		c.items(fmt.Sprintf("pages of %d, %+v", q.Limit, q), c.walk(uid, q, nil), want)
	}
}

func (c *cacheCase) ties(uid string, n int) []history.Item {
	c.Helper()
	var all []history.Item
	var writes []history.Write
	for i := range n {
		w := history.Write{Key: key(uid, uint32(1+i%2), i), Record: c.record(0)}
		writes = append(writes, w)
		all = append(all, history.Item{Object: w.Key.Object, Record: w.Record})
	}
	c.Write(c.Context(), writes)
	slices.SortFunc(all, newestFirst)
	return all
}

func pageTies(c *cacheCase) {
	uid := c.user()
	all := c.ties(uid, 500)
	c.pages(uid, history.Query{}, all)
	c.pages(uid, history.Query{Since: c.start, Until: c.start}, all)
	last := all[len(all)-1]
	c.lists(uid, history.Query{Limit: 20, After: cursor(last)})
}

func pageFiltered(c *cacheCase) {
	uid := c.user()
	all := c.ties(uid, 100)
	older := c.item(key(uid, 1, 999), c.record(-5))
	all = append(all, older, c.item(key(uid, 2, 999), c.record(-6)))
	for _, q := range []history.Query{{Type: 1}, {Type: 2}, {Until: c.start - 1}, {Type: 1, Since: c.start - 5}} {
		c.pages(uid, q, matching(all, q))
	}
}

// pageHoles hides nine in ten of many records: pages are still full, and none is announced after the last
// visible record.
func pageHoles(c *cacheCase) {
	uid := c.user()
	var want []history.Item
	for i := range 300 {
		if k := key(uid, 1, i); i%10 == 9 {
			want = append(want, c.item(k, c.record(int64(i/50))))
		} else {
			c.put(k, c.tombstone(int64(i/50)))
		}
	}
	slices.SortFunc(want, newestFirst)
	c.pages(uid, history.Query{}, want)
	c.pages(uid, history.Query{Since: c.start + 2, Until: c.start + 4}, matching(want, history.Query{Since: c.start + 2, Until: c.start + 4}))
}

// pageWhileWriting inserts newer records and deletes returned items between pages: the rest is neither skipped
// nor repeated.
func pageWhileWriting(c *cacheCase) {
	uid := c.user()
	all := c.ties(uid, 60)
	got := c.walk(uid, history.Query{Limit: 7}, func(page int) {
		c.put(key(uid, 3, page), c.record(int64(100+page)))
		given := all[page*7]
		k := history.Key{UID: uid, Object: given.Object}
		c.applied(history.Write{Key: k, Record: c.tombstone(200), Base: given.Record.Revision})
	})
	c.items("pages", got, all)
}

func newestFirst(a, b history.Item) int {
	return cmp.Or(
		cmp.Compare(b.Record.Version, a.Record.Version),
		strings.Compare(b.Object.String(), a.Object.String()),
	)
}

// matching returns the items that a query without limit selects, by the contract.
func matching(all []history.Item, q history.Query) []history.Item {
	var got []history.Item
	for _, item := range all {
		at := item.Record.Version.Time()
		after := history.Item{Object: q.After.Object, Record: &history.Record{Version: q.After.Version}}
		switch {
		case q.Type != 0 && item.Object.Type != q.Type:
		case q.Since != 0 && at < q.Since, q.Until != 0 && at > q.Until:
		case q.After != history.Cursor{} && newestFirst(item, after) <= 0:
		default:
			got = append(got, item)
		}
	}
	slices.SortFunc(got, newestFirst)
	return got
}

// listHidden has tombstones newer than, among and older than the visible records.
func listHidden(c *cacheCase) {
	uid := c.user()
	var want []history.Item
	for i := range 60 {
		k := key(uid, 1, i)
		if i%20 == 10 {
			want = append(want, c.item(k, c.record(int64(i))))
		} else {
			c.put(k, c.tombstone(int64(i)))
		}
	}
	slices.Reverse(want)
	c.lists(uid, history.Query{Limit: 10}, want...)
	c.lists(uid, history.Query{Limit: len(want)}, want...)
	if page := c.list(uid, history.Query{Limit: 1}); len(page.Items) != 1 || !page.More {
		c.Errorf("first of %d: got %d items, more %t", len(want), len(page.Items), page.More)
	}
}

// listCleared has a fold from before the clear, of which nothing may show.
func listCleared(c *cacheCase) {
	uid := c.user()
	early := history.Event{Kind: history.KindFinish, At: c.start, Position: 9000, Duration: 9000, Session: "a", Meta: history.NewMeta(map[string]string{"a": "b"})}
	late := history.Event{Kind: history.KindProgress, At: c.start + 50, Position: 10, Session: "b"}
	k := key(uid, 1, 1)
	stays := c.put(k, revise(history.Merge(early.Record(), late.Record())))
	c.put(key(uid, 1, 2), c.record(20))
	c.clear(uid, 0, 20)
	left := c.renumbered(k, stays)
	page := c.list(uid, history.Query{Limit: 10})
	c.items("after the clear", page.Items, []history.Item{{Object: k.Object, Record: left.After(c.start + 20)}})
	c.cleared(page.User, map[uint32]int64{0: c.start + 20})
}

// listRewritten moves the oldest record to the top and deletes the next.
func listRewritten(c *cacheCase) {
	uid := c.user()
	items := c.fill(uid, 4)
	top, gone := c.record(100), c.tombstone(101)
	c.applied(history.Write{Key: key(uid, 1, 0), Record: top, Base: items[0].Record.Revision})
	c.applied(history.Write{Key: key(uid, 1, 1), Record: gone, Base: items[1].Record.Revision})
	c.lists(uid, history.Query{Limit: 10}, history.Item{Object: items[0].Object, Record: top}, items[3], items[2])
	back := c.record(102)
	c.applied(history.Write{Key: key(uid, 1, 1), Record: back, Base: gone.Revision})
	c.lists(uid, history.Query{Limit: 1, Since: c.start + 102}, history.Item{Object: items[1].Object, Record: back})
}
