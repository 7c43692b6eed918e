package historytest

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
)

func (a archive) roundTrip() {
	now := hourAgo()
	r := &history.Record{
		Revision: math.MaxUint64, CellTime: now + 7, Version: history.VersionOf(now, history.RankStop), State: history.StateStopped,
		Position: 61_000, Session: "s-1", Device: "a television",
		Duration: 120_000, DurationVersion: history.VersionOf(now-5, history.RankProgress),
		Meta: map[string]string{"title": "Été", "empty": ""}, MetaVersion: history.VersionOf(now-7, history.RankProgress),
		Peaks:       []history.Peak{{At: now - 20, Position: 90_000}, {At: now - 10, Position: 80_000}},
		Completions: []history.Completion{{At: now - 30, Viewing: math.MaxUint64}, {At: now - 25, Viewing: 1}},
		PlaysBefore: 7, PlaysBeforeAt: now - 40, Reset: now - 50, Partial: true,
	}
	k := freshKey()
	a.put(history.Cell{Key: k, Record: r})
	a.want(k, r)
}

func (a archive) newestWins() {
	for _, order := range [][]int64{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		k, now := freshKey(), hourAgo()
		for _, i := range order {
			a.put(cellAt(k, now+i, i))
		}
		a.want(k, cellAt(k, now+2, 2).Record)
	}
}

// equalTime puts different contents under one cell time, which writers do not do: the
// one that was put last is in what stands.
func (a archive) equalTime() {
	k, now := freshKey(), hourAgo()
	for _, c := range []history.Cell{cellAt(k, now, 1), deletedAt(k, now), cellAt(k, now, 3), cellAt(k, now, 2)} {
		a.put(c)
		a.has(c)
	}
}

// has checks that a cell or the fold of it and others stands.
func (a archive) has(c history.Cell) {
	a.t.Helper()
	if got := a.get(c.Key)[0]; got == nil || !reflect.DeepEqual(got, c.Record) && !history.Same(got, history.Merge(got, c.Record)) {
		a.t.Errorf("get %s: got %+v, want %+v in it", c.Key, got, c.Record)
	}
}

func (a archive) twiceInOneCall() {
	now := hourAgo()
	for _, times := range [][]int64{{1, 2, 0}, {2, 1, 0}, {0, 2, 2}, {2, 2, 1}} {
		k, newest := freshKey(), int64(0)
		var cells []history.Cell
		for i, at := range times {
			cells = append(cells, cellAt(k, now+at, int64(i)))
			if at >= times[newest] {
				newest = int64(i)
			}
		}
		a.put(cells...)
		a.has(cells[newest])
	}
}

func (a archive) tombstones() {
	k, now := freshKey(), hourAgo()
	a.put(cellAt(k, now, 1))
	grave := deletedAt(k, now+10)
	a.put(grave)
	a.want(k, grave.Record)
	a.put(cellAt(k, now+9, 2))
	a.want(k, grave.Record)
	again := cellAt(k, now+11, 3)
	a.put(again)
	a.want(k, again.Record)
}

func (a archive) manyUsers() {
	var cells []history.Cell
	for i, now := 0, hourAgo(); i < 1000; i++ {
		cells = append(cells, cellAt(freshKey(), now-int64(i), int64(i)))
	}
	a.put(cells...)
	a.wantCells(cells)
}

func (a archive) oneUser() {
	cells := cellsOf(freshUID(), 1000, hourAgo())
	slices.Reverse(cells)
	a.put(cells...)
	a.wantCells(cells)
}

// wantCells checks one bulk Get of all cells.
func (a archive) wantCells(cells []history.Cell) {
	a.t.Helper()
	var keys []history.Key
	for _, c := range cells {
		keys = append(keys, c.Key)
	}
	for i, got := range a.get(keys...) {
		if want := cells[i].Record; !reflect.DeepEqual(got, want) {
			a.t.Fatalf("get %s, %d of %d: got %+v, want %+v", keys[i], i, len(keys), got, want)
		}
	}
}

// legalNames puts every legal byte into names, and names of the greatest length.
func (a archive) legalNames() {
	now, uid := hourAgo(), "._~@-AZaz09"+freshUID()
	uid += strings.Repeat("~", history.MaxUID-len(uid))
	keys := []history.Key{keyOf(uid, fmt.Sprintf("%s_%d", strings.Repeat("z", history.MaxObjectID), uint32(math.MaxUint32)))}
	for c := range byte(128) {
		o := history.Object{ID: string(c), Type: 1}
		if o.Validate() == nil {
			keys = append(keys, history.Key{UID: uid, Object: o}, keyOf(uid, "a"+o.String()), keyOf(uid, o.ID+"b_2"))
		}
	}
	var cells []history.Cell
	for i, k := range keys {
		cells = append(cells, cellAt(k, now, int64(i)))
	}
	a.put(cells...)
	a.wantCells(cells)
	a.wantRow(uid, cells)
}
