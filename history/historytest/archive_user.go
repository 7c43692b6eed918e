package historytest

import (
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
)

func (a archive) missing() {
	c := cellAt(freshKey(), hourAgo(), 1)
	a.put(c)
	uid := c.Key.UID
	got := a.get(freshKey(), c.Key, keyOf(uid, "100_2"), keyOf(uid, "10_1"), c.Key, keyOf(uid, "1000_1"))
	for i, want := range []*history.Record{nil, c.Record, nil, nil, c.Record, nil} {
		if !a.same(got[i], want) {
			a.t.Errorf("key %d: got %+v, want %+v", i, got[i], want)
		}
	}
	if row := a.row(freshUID()); len(row.Items) != 0 || len(row.User.Cleared) != 0 {
		a.t.Errorf("row of an unknown user: got %+v, want nothing", row)
	}
}

func (a archive) empty() {
	a.put()
	a.get()
	uid := freshUID()
	a.clear(uid, nil)
	a.wantMarks(uid, nil)
}

// neighbouringNames has users, namespaces and objects with common prefixes.
func (a archive) neighbouringNames() {
	uid, now := freshUID(), hourAgo()
	users := []string{uid, uid + "0", uid + "-", uid + ".", uid + "100_1"[:3], uid[:len(uid)-1], uid + "\x01a", uid + "\x01ab"}
	for i, u := range users {
		a.put(neighbours(u, now+int64(i))...)
	}
	a.clear(users[1], map[uint32]int64{0: now + 100})
	for i, u := range users {
		if i != 1 {
			a.wantRow(u, neighbours(u, now+int64(i)))
			a.wantCells(neighbours(u, now+int64(i)))
		}
	}
	a.wantRow(users[1], nil)
}

func neighbours(uid string, at int64) []history.Cell {
	var cells []history.Cell
	for _, o := range []string{"1_1", "1_10", "1_2", "10_1", "1_1_1", "1:_1", "1-_1", "100_1"} {
		cells = append(cells, cellAt(keyOf(uid, o), at, int64(len(o))))
	}
	return cells
}

// longRow exceeds every adapter's page and has tombstones and superseded puts. It detects pages that count
// hidden records.
func (a archive) longRow() {
	uid, now := freshUID(), hourAgo()
	cells := cellsOf(uid, 3000, now)
	for i := 0; i < len(cells); i += 7 {
		cells[i] = deletedAt(cells[i].Key, now+10_000)
	}
	a.put(cells...)
	a.put(cellsOf(uid, 1000, now-10_000)...)
	a.wantRow(uid, cells)
}

func (a archive) expired() {
	const day = 24 * 3600 * 1000
	uid, now := freshUID(), hourAgo()
	last, gone := now-history.DefaultRetention+2*day, now-history.DefaultRetention
	kept := []history.Cell{cellAt(keyOf(uid, "89_1"), last, 1), cellAt(keyOf(uid, "0_1"), now, 2)}
	a.put(kept...)
	a.put(cellAt(keyOf(uid, "90_1"), gone, 3), deletedAt(keyOf(uid, "91_1"), gone-day), cellAt(keyOf(uid, "0_1"), gone, 4))
	a.wantRow(uid, kept)
	a.wantCells(append(kept, history.Cell{Key: keyOf(uid, "90_1")}, history.Cell{Key: keyOf(uid, "91_1")}))
}

// cuts are clear marks by type, 0 for all, relative to the test's time.
type cuts map[uint32]int64

func (a archive) clearAll() { a.clearing(cuts{0: 0}) }

func (a archive) clearOneType() { a.clearing(cuts{2: 0}) }

func (a archive) clearSeveral() {
	a.clearing(cuts{1: 0, 3: 10})
	a.clearing(cuts{0: 0, 3: 10})
	a.clearing(cuts{0: 10, 2: 0})
}

func (a archive) clearInAnyOrder() {
	for _, typ := range []uint32{0, 2} {
		a.clearing(cuts{typ: 0}, cuts{typ: 10})
		a.clearing(cuts{typ: 10}, cuts{typ: 0})
		a.clearing(cuts{typ: 10}, cuts{typ: 10})
	}
	a.clearing(cuts{2: 0}, cuts{0: 10})
	a.clearing(cuts{2: 10}, cuts{0: 0})
	a.clearing(cuts{0: 0}, cuts{2: 10})
	a.clearing(cuts{0: 10}, cuts{2: 0})
	a.clearing(cuts{2: 10}, cuts{0: 0}, cuts{2: 0, 1: 10}, cuts{0: -1})
}

// clearing sets marks one by one over a row, then puts the row again.
func (a archive) clearing(steps ...cuts) {
	a.t.Helper()
	uid, now := freshUID(), hourAgo()
	cells, cleared := around(uid, now), map[uint32]int64{}
	a.put(cells...)
	for _, step := range steps {
		at := map[uint32]int64{}
		for typ, after := range step {
			at[typ] = now + after
			cleared[typ] = max(cleared[typ], now+after)
		}
		a.clear(uid, at)
		a.wantCleared(uid, cells, cleared)
	}
	a.put(cells...)
	a.wantCleared(uid, cells, cleared)
}

// around returns cells of three types before, at and after the time, and ten milliseconds later.
func around(uid string, now int64) []history.Cell {
	var cells []history.Cell
	for i, at := range []int64{now - 1, now, now + 1, now + 9, now + 10, now + 11} {
		for typ := range 3 {
			k := keyOf(uid, fmt.Sprintf("%d_%d", i, typ+1))
			if i%2 == typ%2 {
				cells = append(cells, deletedAt(k, at))
			} else {
				cells = append(cells, cellAt(k, at, int64(i)))
			}
		}
	}
	return cells
}

// wantCleared checks that exactly the uncovered cells are left.
func (a archive) wantCleared(uid string, cells []history.Cell, cleared map[uint32]int64) {
	a.t.Helper()
	u := history.User{Cleared: cleared}
	var left, all []history.Cell
	for _, c := range cells {
		c.Record = c.Record.After(u.ClearedAt(c.Key.Object.Type))
		if all = append(all, c); c.Record != nil {
			left = append(left, c)
		}
	}
	a.wantCells(all)
	a.wantRow(uid, left)
	a.wantMarks(uid, cleared)
}

func (a archive) clearBeforeAnything() {
	uid, now := freshUID(), hourAgo()
	cleared := map[uint32]int64{0: now, 2: now + 10}
	a.clear(uid, cleared)
	a.wantCleared(uid, nil, cleared)
	cells := around(uid, now)
	a.put(cells...)
	a.wantCleared(uid, cells, cleared)
}

// clearThenLatePut repeatedly puts an object, late and in time.
func (a archive) clearThenLatePut() {
	k, now := freshKey(), hourAgo()
	a.put(cellAt(k, now+5, 1))
	a.clear(k.UID, map[uint32]int64{0: now + 10})
	for _, late := range []int64{4, 5, 6, 10} {
		a.put(cellAt(k, now+late, late))
		a.want(k, nil)
	}
	next := cellAt(k, now+11, 11)
	a.put(next)
	a.want(k, next.Record.After(now+10))
	a.put(cellAt(k, now+10, 10))
	a.want(k, next.Record.After(now+10))
}

// clearCutsTheFold clears between the events of one record.
func (a archive) clearCutsTheFold() {
	k, now := freshKey(), hourAgo()
	c := cellAt(k, now+20, 5)
	c.Record.Completions = []history.Stay{{At: now, Viewing: 1}, {At: now + 15, Viewing: 2}}
	c.Record.Peaks = []history.Peak{{At: now + 5, Position: 90}}
	c.Record.Duration, c.Record.DurationVersion = 100, history.VersionOf(now+3, history.RankProgress)
	cleared := map[uint32]int64{k.Object.Type: now + 10}
	a.put(c)
	a.clear(k.UID, cleared)
	a.wantCleared(k.UID, []history.Cell{c}, cleared)
}

func (a archive) clearLongRow() {
	uid, now := freshUID(), hourAgo()
	cells := cellsOf(uid, 3000, now)
	cleared := map[uint32]int64{2: now + 2000}
	a.put(cells...)
	a.clear(uid, cleared)
	a.wantCleared(uid, cells, cleared)
	maps.Copy(cleared, map[uint32]int64{0: now + 1000})
	a.clear(uid, cleared)
	a.wantCleared(uid, cells, cleared)
}

// pauses stores pauses in any order: the latest change stays, alongside clear marks and records.
func (a archive) pauses() {
	uid, now := freshUID(), hourAgo()
	c := cellAt(keyOf(uid, "1_1"), now+500, 1)
	a.put(c)
	all := []history.Pause{
		{Since: now + 300},
		{Since: now + 100},
		{},
		{Since: now + 100, Until: now + 200},
		{Since: now + 300, Until: now + 400},
		{Since: now + 300},
		{Since: now + 401},
		{Since: now + 401, Earlier: "100 200"},
		{Since: now + 401},
		{Since: now + 401, Until: now + 410, Earlier: "100 200 5 9"},
	}
	var newest history.Pause
	for i, p := range all {
		u := history.User{Pause: p, Cleared: map[uint32]int64{0: now + int64(i)}}
		if err := a.store.PutUser(a.t.Context(), uid, u); err != nil {
			a.t.Fatalf("put %+v of %s: %v", u, uid, err)
		}
		newest = newest.Newer(p)
		row := a.row(uid)
		if row.User.Pause != newest || row.User.Cleared[0] != now+int64(i) || len(row.Items) != 1 {
			a.t.Errorf("row after %+v: got %+v, want pause %+v, and the record", u, row, newest)
		}
		if got, err := a.store.Get(a.t.Context(), []history.Key{c.Key}); err != nil || got[0].User.Pause != newest {
			a.t.Errorf("get after %+v: got %+v, %v, want pause %+v", u, got, err, newest)
		}
	}
	a.want(c.Key, c.Record.After(now+int64(len(all)-1)))
}

// pausesOfOneMoment stores pauses of one change time in every order: the same one stays.
func (a archive) pausesOfOneMoment() {
	now := hourAgo()
	all := []history.Pause{{Since: now + 500}, {Since: now + 100, Until: now + 500}, {Since: now + 200, Until: now + 500}}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {1, 2}, {2, 1}} {
		uid, newest := freshUID(), history.Pause{}
		for _, i := range order {
			if err := a.store.PutUser(a.t.Context(), uid, history.User{Pause: all[i]}); err != nil {
				a.t.Fatalf("put %+v of %s: %v", all[i], uid, err)
			}
			newest = newest.Newer(all[i])
			if row := a.row(uid); row.User.Pause != newest {
				a.t.Errorf("order %v, after %+v: got %+v, want %+v", order, all[i], row.User.Pause, newest)
			}
		}
	}
}

// pauseForever stores a pause older than the retention of records.
func (a archive) pauseForever() {
	uid := freshUID()
	p := history.Pause{Since: hourAgo() - 2*history.DefaultRetention}
	if err := a.store.PutUser(a.t.Context(), uid, history.User{Pause: p}); err != nil {
		a.t.Fatal(err)
	}
	if row := a.row(uid); row.User.Pause != p {
		a.t.Errorf("row: got %+v, want pause %+v", row, p)
	}
}
