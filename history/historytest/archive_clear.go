package historytest

import (
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
)

// marks are clear marks by type, 0 for all, relative to the time of a test.
type marks map[uint32]int64

func (a archive) clearAll() { a.clearing(marks{0: 0}) }

func (a archive) clearOneType() { a.clearing(marks{2: 0}) }

func (a archive) clearSeveral() {
	a.clearing(marks{1: 0, 3: 10})
	a.clearing(marks{0: 0, 3: 10})
	a.clearing(marks{0: 10, 2: 0})
}

func (a archive) clearInAnyOrder() {
	for _, typ := range []uint32{0, 2} {
		a.clearing(marks{typ: 0}, marks{typ: 10})
		a.clearing(marks{typ: 10}, marks{typ: 0})
		a.clearing(marks{typ: 10}, marks{typ: 10})
	}
	a.clearing(marks{2: 0}, marks{0: 10})
	a.clearing(marks{2: 10}, marks{0: 0})
	a.clearing(marks{0: 0}, marks{2: 10})
	a.clearing(marks{0: 10}, marks{2: 0})
	a.clearing(marks{2: 10}, marks{0: 0}, marks{2: 0, 1: 10}, marks{0: -1})
}

// clearing sets marks one after the other over a row, and then puts the row again.
func (a archive) clearing(steps ...marks) {
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

// around returns cells of three types before, at and after the time and ten
// milliseconds later.
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

// wantCleared checks that what is left of the cells under the marks is all there is.
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

// clearThenLatePut puts an object again and again, late and in time.
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

// clearCutsTheFold clears between the events that one record is the fold of.
func (a archive) clearCutsTheFold() {
	k, now := freshKey(), hourAgo()
	c := cellAt(k, now+20, 5)
	c.Record.Completions = []history.Completion{{At: now, Viewing: 1}, {At: now + 15, Viewing: 2}}
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
