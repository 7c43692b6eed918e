package historytest

import (
	"slices"
	"sync"

	"github.com/playhead/playhead/history"
)

// chains returns contents of a key, each made from the one before, whose events are all
// of the same millisecond.
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

// lateContents puts contents of one millisecond late: the one that was made from the
// others stays.
func (a archive) lateContents() {
	for name, chain := range chains(freshKey(), hourAgo()) {
		for i, newer := range chain {
			for _, older := range chain[:i] {
				a.late(name, older.Record, newer.Record)
			}
		}
	}
}

// late puts two contents in every order, one after the other and in one call.
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

// cellTimeFirst has a content whose event is older than that of a late one: the time of
// the cell decides.
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

// clearLongAgo clears up to a time that the archive no longer keeps records of: those
// that it keeps are the fold of what was before.
func (a archive) clearLongAgo() {
	const day = 24 * 3600 * 1000
	for _, typ := range []uint32{0, 1} {
		k, now := freshKey(), hourAgo()
		c := cellAt(k, now, 5)
		until := now - history.ArchiveLife - day
		c.Record.Completions = []history.Completion{{At: until - 1, Viewing: 1}, {At: now, Viewing: 2}}
		a.put(c)
		a.clear(k.UID, map[uint32]int64{typ: until})
		a.clear(k.UID, map[uint32]int64{typ: until - day})
		a.wantCleared(k.UID, []history.Cell{c}, map[uint32]int64{typ: until})
	}
}

// clearHidesLateCells clears contents whose cells are later than their events, and so
// than the mark: what comes next is told after what it must come.
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

// wantCut checks the cut times of a key and of its user's row. A store may remember a
// later one than that of the very key.
func (a archive) wantCut(k history.Key, key, row int64) {
	a.t.Helper()
	if got := a.entries(k)[0].User.CutTime; got < key || row == 0 && got != 0 {
		a.t.Errorf("cut time of %s: got %d, want %d or later", k, got, key)
	}
	if got := a.row(k.UID).User.CutTime; got < row || row == 0 && got != 0 {
		a.t.Errorf("cut time of the row of %s: got %d, want %d or later", k.UID, got, row)
	}
}

// clearMarksOfAKey asks for keys, of which some do not exist, with the marks that apply.
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

// concurrent has writers race for the same cells in opposite orders while readers
// look on: whatever a reader sees of a cell never gets older.
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

// concurrentClear clears while puts from before and after the mark arrive.
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
