package historytest

import (
	"fmt"
	"math"
	"slices"

	"github.com/playhead/playhead/history"
)

// list reads one page.
func (c *cacheCase) list(uid string, q history.Query) history.Page {
	c.Helper()
	page, err := c.List(c.Context(), uid, q)
	if err != nil {
		c.Fatalf("List(%s, %+v): %v", uid, q, err)
	}
	return page
}

// lists checks a page that must hold all there is.
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

// item stores a record and returns it as a list shows it.
func (c *cacheCase) item(k history.Key, r *history.Record) history.Item {
	c.Helper()
	return history.Item{Object: k.Object, Record: c.put(k, r)}
}

// listOrder has records of one time and several ranks: 9_1 comes before 10_1,
// because texts are compared, not numbers.
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

// cursor is the place of an item.
func cursor(item history.Item) history.Cursor {
	return history.Cursor{Version: item.Record.Version, Object: item.Object}
}
