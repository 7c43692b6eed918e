package historytest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/playhead/playhead/history"
)

// pages asks for parts of a row in every way that a query knows, and compares them with what the
// query says of each record.
func (a archive) pages() {
	uid, now := freshUID(), hourAgo()
	cells := tied(uid, 1500, now)
	a.put(cells...)
	a.wantPages(uid, cells, history.User{})
	cleared := history.User{Cleared: map[uint32]int64{0: now - 1200, 2: now - 500}}
	a.clear(uid, cleared.Cleared)
	a.wantPages(uid, cells, cleared)
	again := cellAt(cells[700].Key, now+1, 7) // from the middle to the front
	a.put(again)
	cells[700] = again
	a.wantPages(uid, cells, cleared)
}

// changingPages reads pages of a row of which something changes before each: what is in it moves up,
// is deleted or cleared, and something new comes, also of long ago.
func (a archive) changingPages() {
	uid, now := freshUID(), hourAgo()
	var cells []history.Cell
	items, marks := make(map[history.Object]history.Item), history.User{}
	put := func(c history.Cell) {
		a.put(c)
		items[c.Key.Object] = history.Item{Object: c.Key.Object, Record: c.Record}
	}
	for _, c := range tied(uid, 800, now) {
		cells = append(cells, c)
		items[c.Key.Object] = history.Item{Object: c.Key.Object, Record: c.Record}
	}
	a.put(cells...)
	for i := range 150 {
		old := cells[rand.IntN(len(cells))].Key
		at := now + int64(i)
		switch i % 5 {
		case 0:
			put(deletedAt(old, at))
		case 1:
			put(cellAt(keyOf(uid, fmt.Sprintf("new%d_1", i)), now-int64(rand.IntN(200)), 1))
		default:
			put(cellAt(old, at, int64(i)))
		}
		if i == 100 {
			marks.Cleared = map[uint32]int64{3: now - 100}
			a.clear(uid, marks.Cleared)
		}
		all := left(items, &marks)
		from := all[rand.IntN(len(all))]
		a.wantPage(uid, history.Query{Limit: 20, Type: rand.Uint32N(4), After: history.Cursor{Version: from.Record.Version, Object: from.Object}}, all)
		a.wantPage(uid, history.Query{Limit: 5}, all)
	}
}

// left returns what clear marks leave of items, newest first.
func left(items map[history.Object]history.Item, u *history.User) (all []history.Item) {
	for o, it := range items {
		if it.Record = it.Record.After(u.ClearedAt(o.Type)); it.Record != nil {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, history.NewestFirst)
	return all
}

// tied returns cells of three types, five of each millisecond, and some tombstones.
func tied(uid string, n int, at int64) (cells []history.Cell) {
	for i := range n {
		k := keyOf(uid, fmt.Sprintf("%d_%d", i*7919%n, 1+i%3))
		if c := cellAt(k, at-int64(i/5), int64(i)); i%11 > 0 {
			cells = append(cells, c)
		} else {
			cells = append(cells, deletedAt(k, at-int64(i/5)))
		}
	}
	return cells
}

func (a archive) wantPages(uid string, cells []history.Cell, u history.User) {
	a.t.Helper()
	var items []history.Item
	for _, c := range cells {
		if r := c.Record.After(u.ClearedAt(c.Key.Object.Type)); r != nil {
			items = append(items, history.Item{Object: c.Key.Object, Record: r})
		}
	}
	slices.SortFunc(items, history.NewestFirst)
	middle, last := items[len(items)/2], items[len(items)-1]
	at := middle.Record.Version.Time()
	for _, q := range []history.Query{
		{Limit: 0},
		{Limit: 1},
		{Limit: 20, Type: 2},
		{Limit: 20, After: history.Cursor{Version: middle.Record.Version, Object: middle.Object}},
		{Limit: 20, After: history.Cursor{Version: middle.Record.Version, Object: history.Object{ID: "~", Type: 1}}}, // before those of its millisecond
		{Limit: 20, After: history.Cursor{Version: middle.Record.Version + 1, Object: middle.Object}},
		{Limit: 20, After: history.Cursor{Version: last.Record.Version, Object: last.Object}},
		{Limit: 7, Since: at, Until: at},
		{Limit: 700, Since: at - 20, Type: 3},
		{Limit: 700, Until: at},
		{Limit: 20, Until: at, After: history.Cursor{Version: middle.Record.Version, Object: middle.Object}, Type: 1},
		{Limit: len(items)},
		{Limit: 10 * len(items)},
	} {
		a.wantPage(uid, q, items)
	}
	for range 20 {
		it := items[rand.IntN(len(items))]
		a.wantPage(uid, history.Query{Limit: 1 + rand.IntN(50), Type: rand.Uint32N(4), After: history.Cursor{Version: it.Record.Version, Object: it.Object}}, items)
	}
}

// wantPage compares a page with what the query wants of all items, newest first.
func (a archive) wantPage(uid string, q history.Query, items []history.Item) {
	a.t.Helper()
	page, err := a.store.Page(a.t.Context(), uid, q)
	if err != nil {
		a.t.Fatalf("page %+v: %v", q, err)
	}
	var want []history.Item
	for _, it := range items {
		if q.Wants(it.Place()) {
			want = append(want, it)
		}
	}
	more := q.Limit > 0 && len(want) > q.Limit
	want = want[:min(len(want), q.Limit)]
	if len(page.Items) != len(want) || page.More != more {
		a.t.Fatalf("page %+v: %d items, more %v; want %d, %v", q, len(page.Items), page.More, len(want), more)
	}
	for i, it := range want {
		if page.Items[i].Object != it.Object || !a.same(page.Items[i].Record, it.Record) {
			a.t.Fatalf("page %+v, item %d: got %s %+v, want %s %+v", q, i, page.Items[i].Object, page.Items[i].Record, it.Object, it.Record)
		}
	}
}
