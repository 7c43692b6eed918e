package historytest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"

	"github.com/playhead/playhead/history"
)

// pages reads parts of a row with every kind of query and compares them with the query's predicate.
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

// changingPages reads pages of a row that changes before each: records move up, are deleted or cleared, and new
// or very old ones arrive.
func (a archive) changingPages() {
	uid, now := freshUID(), hourAgo()
	var cells []history.Cell
	items, marks := make(map[history.Object]history.Item), history.User{}
	put := func(c history.Cell) {
		a.changes(uid, func() { a.put(c) })
		items[c.Key.Object] = history.Item{Object: c.Key.Object, Record: c.Record}
	}
	for _, c := range tied(uid, 800, now) {
		cells = append(cells, c)
		items[c.Key.Object] = history.Item{Object: c.Key.Object, Record: c.Record}
	}
	a.put(cells...)
	for i := range 150 {
		old := cells[rand.IntN(len(cells))].Key
		at := now + 1 + int64(i) // later than all before
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
			a.changes(uid, func() { a.clear(uid, marks.Cleared) })
		}
		all := uncleared(items, &marks)
		from := all[rand.IntN(len(all))]
		a.wantPage(uid, history.Query{Limit: 20, Type: rand.Uint32N(4), After: history.Cursor{Version: from.Record.Version, Object: from.Object}}, all)
		a.wantPage(uid, history.Query{Limit: 5}, all)
	}
}

// changes changes a row, which no page from before may deny.
func (a archive) changes(uid string, change func()) {
	a.t.Helper()
	page, err := a.store.Page(a.t.Context(), uid, history.Query{Limit: 1})
	if err != nil {
		a.t.Fatal(err)
	}
	change()
	if page.Unchanged != nil && page.Unchanged() {
		a.t.Error("a page from before a change is said to be unchanged")
	}
}

// pagesOfMany reads pages of several users at once: with few records, many, none, and with clear marks.
func (a archive) pagesOfMany() {
	uids := []string{freshUID(), freshUID(), freshUID(), freshUID()}
	now := hourAgo()
	for i, n := range []int{3, 2600, 0, 40} {
		if n > 0 {
			a.put(tied(uids[i], n, now)...)
		}
	}
	a.clear(uids[3], map[uint32]int64{0: now - 4})
	for _, q := range []history.Query{{}, {Limit: 20}, {Limit: 2500}, {Limit: 5000, Type: 2}} {
		pages, errs := history.Pages(a.t.Context(), a.store, uids, q)
		for i, uid := range uids {
			want, err := a.store.Page(a.t.Context(), uid, q)
			same := slices.EqualFunc(pages[i].Items, want.Items, func(got, want history.Item) bool {
				return got.Object == want.Object && a.same(got.Record, want.Record)
			})
			if err != nil || errs[i] != nil || !same || pages[i].More != want.More || !reflect.DeepEqual(pages[i].User, want.User) {
				a.t.Errorf("pages %+v, user %d: got %d items, more %v, user %+v, %v; want %d, %v, %+v, %v", q, i,
					len(pages[i].Items), pages[i].More, pages[i].User, errs[i], len(want.Items), want.More, want.User, err)
			}
		}
	}
}

// uncleared returns the items that survive clear marks, newest first.
func uncleared(items map[history.Object]history.Item, u *history.User) (all []history.Item) {
	for o, it := range items {
		if it.Record = it.Record.After(u.ClearedAt(o.Type)); it.Record != nil {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, history.NewestFirst)
	return all
}

// tied returns cells of three types, five per millisecond, and some tombstones.
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

// wantPage compares a page with the query's selection of all items, newest first.
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

// chains returns successive contents of a key with events of one millisecond.
func chains(k history.Key, now int64) map[string][]history.Cell {
	play, stop, grave := cellAt(k, now, 5), cellAt(k, now, 3), deletedAt(k, now)
	stop.Record.Version, stop.Record.State = history.VersionOf(now, history.RankStop), history.StateStopped
	chain := func(events ...history.Cell) []history.Cell {
		for i := range events[1:] {
			events[i+1] = next(events[i], events[i+1])
		}
		return events
	}
	return map[string][]history.Cell{
		"two positions":         chain(play, cellAt(k, now, 4)),
		"a stop":                chain(play, stop),
		"a delete":              chain(play, stop, grave),
		"progress after delete": chain(grave, play),
		"a late event":          chain(play, stop, cellAt(k, now-50, 9), cellAt(k, now-60, 12)),
	}
}

// lateContents puts contents of one millisecond late: the last successor stays.
func (a archive) lateContents() {
	for name, chain := range chains(freshKey(), hourAgo()) {
		for i, newer := range chain {
			for _, older := range chain[:i] {
				a.late(name, older.Record, newer.Record)
			}
		}
	}
}

// late puts two contents in every order, separately and in one call.
func (a archive) late(name string, older, newer *history.Record) {
	a.t.Helper()
	for _, order := range [][]*history.Record{{older, newer}, {newer, older}, {newer, older, older}, {older, newer, older}} {
		for _, calls := range []int{1, len(order)} {
			k := freshKey()
			var cells []history.Cell
			for _, r := range order {
				cells = append(cells, history.Cell{Key: k, Record: r})
			}
			for part := range slices.Chunk(cells, len(cells)/calls) {
				a.put(part...)
			}
			if got := a.get(k)[0]; !a.same(got, newer) {
				a.t.Errorf("%s, %d cells in %d calls: got %+v, want %+v", name, len(cells), calls, got, newer)
			}
		}
	}
}

// cellTimeFirst has a content with an older event than a late one's: the cell time decides.
func (a archive) cellTimeFirst() {
	now := hourAgo()
	for i, order := range [][]int64{{50, 20}, {20, 50}} {
		k := freshKey()
		var cells []history.Cell
		for _, late := range order {
			c := cellAt(k, now+50-late, late)
			c.Record.CellTime = now + 100 + late
			cells = append(cells, c)
		}
		a.put(cells...)
		a.put(cells[1])
		a.want(k, cells[i].Record)
	}
}

// clearLongAgo clears up to a time before the retention: kept records are folds of earlier events.
func (a archive) clearLongAgo() {
	const day = 24 * 3600 * 1000
	for _, typ := range []uint32{0, 1} {
		k, now := freshKey(), hourAgo()
		c := cellAt(k, now, 5)
		until := now - history.DefaultRetention - day
		c.Record.Completions = []history.Stay{{At: until - 1, Viewing: 1}, {At: now, Viewing: 2}}
		a.put(c)
		a.clear(k.UID, map[uint32]int64{typ: until})
		a.clear(k.UID, map[uint32]int64{typ: until - day})
		a.wantCleared(k.UID, []history.Cell{c}, map[uint32]int64{typ: until})
	}
}

// clearHidesLateCells clears contents whose cell times exceed their events' times and the mark. Get reports the
// cell time that the next content must exceed.
func (a archive) clearHidesLateCells() {
	for _, typ := range []uint32{0, 1} {
		k, now := freshKey(), hourAgo()
		other := history.Key{UID: k.UID, Object: history.Object{ID: "other", Type: k.Object.Type}}
		c, lesser := cellAt(k, now, 5), cellAt(other, now-9, 1)
		c.Record.CellTime, lesser.Record.CellTime = now+40, now+30
		a.put(c, lesser)
		a.wantCut(k, 0, 0)
		a.clear(k.UID, map[uint32]int64{typ: now})
		a.want(k, nil)
		a.wantCut(k, now+40, now+40)
		a.wantCut(other, now+30, now+40)

		fresh := history.Cell{Key: k, Record: cellAt(k, now+1, 6).Record.Successor(&a.entries(k)[0].User)}
		a.put(fresh)
		a.put(c)
		a.want(k, fresh.Record.After(now))
		a.wantCut(k, 0, now+30)
	}
}

// wantCut checks the cut times of a key and of its row. A store may return a later one than the key's own.
func (a archive) wantCut(k history.Key, key, row int64) {
	a.t.Helper()
	if got := a.entries(k)[0].User.CutTime; got < key || row == 0 && got != 0 {
		a.t.Errorf("cut time of %s: got %d, want %d or later", k, got, key)
	}
	if got := a.row(k.UID).User.CutTime; got < row || row == 0 && got != 0 {
		a.t.Errorf("cut time of the row of %s: got %d, want %d or later", k.UID, got, row)
	}
}

// clearMarksOfAKey gets keys, some missing, with their clear marks.
func (a archive) clearMarksOfAKey() {
	uid, now := freshUID(), hourAgo()
	a.put(cellAt(keyOf(uid, "a_1"), now, 1))
	a.clear(uid, map[uint32]int64{0: now - 30, 1: now - 20, 2: now - 40})
	for object, want := range map[string]int64{"a_1": now - 20, "b_1": now - 20, "b_2": now - 30, "b_3": now - 30} {
		k := keyOf(uid, object)
		e := a.entries(k)[0]
		if got := e.User.ClearedAt(k.Object.Type); got != want || (e.Record != nil) != (object == "a_1") {
			a.t.Errorf("%s: got %+v, cleared at %d, want %d", k, e.Record, got, want)
		}
	}
	if e := a.entries(freshKey())[0]; len(e.User.Cleared) != 0 || e.Record != nil {
		a.t.Errorf("of an unknown user: got %+v, want nothing", e)
	}
}

// concurrent has writers put the same cells in opposite orders: a reader never sees a cell's content get older.
func (a archive) concurrent() {
	const writers, rounds = 8, 20
	uid, now := freshUID(), hourAgo()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				if w%2 == 0 {
					r = rounds - 1 - r
				}
				a.put(cellsOf(uid, 10, now+int64(r*writers+w))...)
			}
		})
	}
	for range 2 {
		wg.Go(func() { a.neverOlder(uid, now, rounds) })
	}
	wg.Wait()
	a.wantRow(uid, cellsOf(uid, 10, now+rounds*writers-1))
}

func (a archive) neverOlder(uid string, now int64, rounds int) {
	var keys []history.Key
	for _, c := range cellsOf(uid, 10, now) {
		keys = append(keys, c.Key)
	}
	seen := make([]history.Version, len(keys))
	for range rounds {
		got, err := a.store.Get(a.t.Context(), keys)
		if err != nil {
			a.t.Errorf("get %s: %v", uid, err)
			return
		}
		for i, e := range got {
			r := e.Record
			if r == nil && seen[i] > 0 || r != nil && r.Version < seen[i] {
				a.t.Errorf("get %s: got %+v after version %d", keys[i], r, seen[i])
			} else if r != nil {
				seen[i] = r.Version
			}
		}
	}
}

// concurrentClear clears during puts from before and after the mark.
func (a archive) concurrentClear() {
	const rounds = 20
	uid, now := freshUID(), hourAgo()
	cells, cleared := around(uid, now), map[uint32]int64{0: now, 2: now + 10}
	var wg sync.WaitGroup
	for _, typ := range []uint32{0, 2} {
		wg.Go(func() {
			for r := int64(rounds); r >= 0; r-- {
				if err := a.store.PutUser(a.t.Context(), uid, history.User{Cleared: map[uint32]int64{typ: cleared[typ] - r}}); err != nil {
					a.t.Errorf("clear %s: %v", uid, err)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range rounds {
				a.put(cells...)
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			if _, err := Row(a.t.Context(), a.store, uid); err != nil {
				a.t.Errorf("row %s: %v", uid, err)
			}
		}
	})
	wg.Wait()
	a.wantCleared(uid, cells, cleared)
}
