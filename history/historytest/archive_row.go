package historytest

import (
	"reflect"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
)

// wantRow checks that the user's row holds exactly the given cells, in order.
func (a archive) wantRow(uid string, cells []history.Cell) {
	a.t.Helper()
	want := slices.Clone(cells)
	slices.SortFunc(want, func(x, y history.Cell) int {
		return strings.Compare(x.Key.Object.String(), y.Key.Object.String())
	})
	got := a.row(uid).Items
	if len(got) != len(want) {
		a.t.Errorf("row %s: %d items, want %d", uid, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i].Object != want[i].Key.Object || !reflect.DeepEqual(got[i].Record, want[i].Record) {
			a.t.Fatalf("row %s, item %d: got %s %+v, want %s %+v", uid, i,
				got[i].Object, got[i].Record, want[i].Key.Object, want[i].Record)
		}
	}
}

func (a archive) missing() {
	c := cellAt(freshKey(), hourAgo(), 1)
	a.put(c)
	uid := c.Key.UID
	got := a.get(freshKey(), c.Key, keyOf(uid, "100_2"), keyOf(uid, "10_1"), c.Key, keyOf(uid, "1000_1"))
	for i, want := range []*history.Record{nil, c.Record, nil, nil, c.Record, nil} {
		if !reflect.DeepEqual(got[i], want) {
			a.t.Errorf("key %d: got %+v, want %+v", i, got[i], want)
		}
	}
	if row := a.row(freshUID()); len(row.Items) != 0 || len(row.Cleared) != 0 {
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

// neighbouringNames has users and objects that begin like others.
func (a archive) neighbouringNames() {
	uid, now := freshUID(), hourAgo()
	users := []string{uid, uid + "0", uid + "-", uid + ".", uid + "100_1"[:3], uid[:len(uid)-1]}
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

// longRow is longer than any page of an adapter, with tombstones and puts that
// lost, so that pages which count what they do not return are found out.
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
	last, gone := now-history.ArchiveLife+2*day, now-history.ArchiveLife
	kept := []history.Cell{cellAt(keyOf(uid, "89_1"), last, 1), cellAt(keyOf(uid, "0_1"), now, 2)}
	a.put(kept...)
	a.put(cellAt(keyOf(uid, "90_1"), gone, 3), deletedAt(keyOf(uid, "91_1"), gone-day), cellAt(keyOf(uid, "0_1"), gone, 4))
	a.wantRow(uid, kept)
	a.wantCells(append(kept, history.Cell{Key: keyOf(uid, "90_1")}, history.Cell{Key: keyOf(uid, "91_1")}))
}
