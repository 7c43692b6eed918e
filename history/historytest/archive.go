package historytest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// archive is a store under test. Its methods fail the test instead of returning errors. Only put is safe in goroutines.
type archive struct {
	t      *testing.T
	store  history.Archive
	renews bool // changes revisions
}

// same reports whether a record is as expected.
func (a archive) same(got, want *history.Record) bool {
	if a.renews && got != nil && want != nil && got.Revision != 0 {
		r := *got
		r.Revision = want.Revision
		got = &r
	}
	return reflect.DeepEqual(got, want)
}

func (a archive) put(cells ...history.Cell) {
	a.t.Helper()
	errs := a.store.Put(a.t.Context(), cells)
	if errs != nil && len(errs) != len(cells) {
		a.t.Errorf("put %d cells: got %d errors, want one each or nil", len(cells), len(errs))
		return
	}
	for i, err := range errs {
		if err != nil {
			a.t.Errorf("put %s: %v", cells[i].Key, err)
		}
	}
}

func (a archive) entries(keys ...history.Key) []history.Entry {
	a.t.Helper()
	got, err := a.store.Get(a.t.Context(), keys)
	if err != nil || len(got) != len(keys) {
		a.t.Fatalf("get %d keys: %d entries, %v", len(keys), len(got), err)
	}
	return got
}

func (a archive) get(keys ...history.Key) []*history.Record {
	a.t.Helper()
	records := make([]*history.Record, len(keys))
	for i, e := range a.entries(keys...) {
		if e.Err != nil {
			a.t.Errorf("get %s: %v", keys[i], e.Err)
		}
		records[i] = e.Record
	}
	return records
}

// row reads a user's whole archive page by page.
func (a archive) row(uid string) history.Page {
	a.t.Helper()
	row, err := Row(a.t.Context(), a.store, uid)
	if err != nil {
		a.t.Fatalf("row %s: %v", uid, err)
	}
	return row
}

// Row returns a user's whole archive, newest first.
func Row(ctx context.Context, store history.Archive, uid string) (row history.Page, err error) {
	for q := (history.Query{Limit: 700}); ; q.After = row.End() {
		page, err := store.Page(ctx, uid, q)
		if err != nil {
			return history.Page{}, err
		}
		row.Items, row.Damaged = append(row.Items, page.Items...), append(row.Damaged, page.Damaged...)
		if row.User = page.User; !page.More {
			return row, nil
		}
	}
}

func (a archive) clear(uid string, cleared map[uint32]int64) {
	a.t.Helper()
	if err := a.store.PutUser(a.t.Context(), uid, history.User{Cleared: maps.Clone(cleared)}); err != nil {
		a.t.Fatalf("clear %v of %s: %v", cleared, uid, err)
	}
}

// want checks Get and Page for one key.
func (a archive) want(k history.Key, want *history.Record) {
	a.t.Helper()
	if got := a.get(k)[0]; !a.same(got, want) {
		a.t.Errorf("get %s: got %+v, want %+v", k, got, want)
	}
	var got *history.Record
	for _, item := range a.row(k.UID).Items {
		if item.Object == k.Object {
			got = item.Record
		}
	}
	if !a.same(got, want) {
		a.t.Errorf("%s in its row: got %+v, want %+v", k, got, want)
	}
}

// wantMarks checks the marks of Page. A mark covered by a later one of all types may be absent.
func (a archive) wantMarks(uid string, want map[uint32]int64) {
	a.t.Helper()
	got, u := a.row(uid).User.Cleared, history.User{Cleared: want}
	for typ, at := range got {
		if want[typ] != at {
			a.t.Errorf("clear mark of type %d: got %d, want %d", typ, at, want[typ])
		}
	}
	for typ := range want {
		if at := (&history.User{Cleared: got}).ClearedAt(typ); at != u.ClearedAt(typ) {
			a.t.Errorf("type %d cleared: got %d, want %d (marks %v)", typ, at, u.ClearedAt(typ), got)
		}
	}
}

func (a archive) roundTrip() {
	now := hourAgo()
	r := &history.Record{
		Revision: math.MaxUint64, CellTime: now + 7, Version: history.VersionOf(now, history.RankStop), State: history.StateStopped,
		Position: 61_000, Session: "s-1", Device: "a television",
		Duration: 120_000, DurationVersion: history.VersionOf(now-5, history.RankProgress),
		Meta: history.NewMeta(map[string]string{"title": "Été", "empty": ""}), MetaVersion: history.VersionOf(now-7, history.RankProgress),
		Peaks:       []history.Peak{{At: now - 20, Position: 90_000}, {At: now - 10, Position: 80_000}},
		Completions: []history.Stay{{At: now - 30, Viewing: math.MaxUint64}, {At: now - 25, Viewing: 1}},
		PlaysBefore: 7, PlaysBeforeAt: now - 40, Dismissed: history.VersionOf(now+20, history.RankOffered), RemovedAt: now - 50, Partial: true,
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

// equalTime puts different contents with one cell time, which writers do not do. The result includes the last one.
func (a archive) equalTime() {
	k, now := freshKey(), hourAgo()
	for _, c := range []history.Cell{cellAt(k, now, 1), deletedAt(k, now), cellAt(k, now, 3), cellAt(k, now, 2)} {
		a.put(c)
		a.has(c)
	}
}

func (a archive) has(c history.Cell) {
	a.t.Helper()
	if got := a.get(c.Key)[0]; got == nil || !a.same(got, c.Record) && !history.Same(got, history.Merge(got, c.Record)) {
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
	some := slices.Clone(cells[100:140]) // of a long row, and others that it lacks
	for i := range some {
		some = append(some, history.Cell{Key: keyOf(cells[0].Key.UID, fmt.Sprintf("none%d_1", i))})
	}
	a.wantCells(some)
}

// wantCells checks one bulk Get of all cells.
func (a archive) wantCells(cells []history.Cell) {
	a.t.Helper()
	var keys []history.Key
	for _, c := range cells {
		keys = append(keys, c.Key)
	}
	for i, got := range a.get(keys...) {
		if want := cells[i].Record; !a.same(got, want) {
			a.t.Fatalf("get %s, %d of %d: got %+v, want %+v", keys[i], i, len(keys), got, want)
		}
	}
}

// legalNames uses names with every Latin-1 letter and of maximal length.
func (a archive) legalNames() {
	now, uid := hourAgo(), freshUID()+" ._~@-AZaz09"
	uid += strings.Repeat("~", history.MaxID-len(uid))
	keys := []history.Key{keyOf(uid, fmt.Sprintf("%s_%d", strings.Repeat("z", history.MaxID), uint32(math.MaxUint32)))}
	for c := range rune(256) {
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

// freshUID returns a user unknown to earlier runs.
func freshUID() string { return "é/%:*?[#|" + rand.Text() }

// keyOf returns the key of a user and an object such as "100_1".
func keyOf(uid, object string) history.Key {
	o, err := history.ParseObject(object)
	if err != nil {
		panic(fmt.Sprintf("object %q of the suite: %v", object, err))
	}
	return history.Key{UID: uid, Object: o}
}

func freshKey() history.Key { return keyOf(freshUID(), "100_1") }

// hourAgo is the suite's reference time, neither expired nor in the future.
func hourAgo() int64 { return time.Now().Add(-time.Hour).UnixMilli() }

// cellAt returns the cell of a viewing at a position and time.
func cellAt(k history.Key, at, position int64) history.Cell {
	return history.Cell{Key: k, Record: &history.Record{
		Revision: uint64(at)<<8 | uint64(position), CellTime: at, Version: history.VersionOf(at, history.RankProgress),
		State: history.StatePlaying, Position: position,
	}}
}

// deletedAt returns the cell of a delete.
func deletedAt(k history.Key, at int64) history.Cell {
	return history.Cell{Key: k, Record: &history.Record{
		Revision: uint64(at), CellTime: at, Version: history.VersionOf(at, history.RankDelete), State: history.StateDeleted, RemovedAt: at,
	}}
}

// next returns the successor of a cell after a later event.
func next(before, event history.Cell) history.Cell {
	return history.Cell{Key: event.Key, Record: history.Merge(before.Record, event.Record).Successor(nil)}
}

// cellsOf returns n cells of one user, one object each, in the order of their objects' text.
func cellsOf(uid string, n int, at int64) []history.Cell {
	cells := make([]history.Cell, n)
	for i := range cells {
		cells[i] = cellAt(keyOf(uid, fmt.Sprintf("%06d_%d", i, 1+i%3)), at+int64(i), int64(i+1))
	}
	return cells
}

func (a archive) wantRow(uid string, cells []history.Cell) {
	a.t.Helper()
	want := slices.Clone(cells)
	slices.SortFunc(want, func(x, y history.Cell) int {
		return history.NewestFirst(history.Item{Object: x.Key.Object, Record: x.Record}, history.Item{Object: y.Key.Object, Record: y.Record})
	})
	got := a.row(uid).Items
	if len(got) != len(want) {
		a.t.Errorf("row %s: %d items, want %d", uid, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i].Object != want[i].Key.Object || !a.same(got[i].Record, want[i].Record) {
			a.t.Fatalf("row %s, item %d: got %s %+v, want %s %+v", uid, i,
				got[i].Object, got[i].Record, want[i].Key.Object, want[i].Record)
		}
	}
}
