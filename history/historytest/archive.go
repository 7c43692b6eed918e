package historytest

import (
	"maps"
	"reflect"
	"testing"

	"github.com/playhead/playhead/history"
)

// Archive tests every promise of [history.Archive]. It opens a store for each of
// its parts; open closes what it opened in a cleanup of its own t. The stores may
// share their data: every user of the suite has a name that was never used before.
func Archive(t *testing.T, open func(t *testing.T) history.Archive) {
	for _, part := range []struct {
		name string
		test func(a archive)
	}{
		{"RoundTrip", archive.roundTrip},
		{"NewestWins", archive.newestWins},
		{"EqualCellTimes", archive.equalTime},
		{"LateContents", archive.lateContents},
		{"CellTimeBeforeEventTime", archive.cellTimeFirst},
		{"OneKeyTwiceInOneCall", archive.twiceInOneCall},
		{"Tombstones", archive.tombstones},
		{"ManyUsers", archive.manyUsers},
		{"OneUser", archive.oneUser},
		{"Missing", archive.missing},
		{"Empty", archive.empty},
		{"LegalNames", archive.legalNames},
		{"NeighbouringNames", archive.neighbouringNames},
		{"LongRow", archive.longRow},
		{"Expired", archive.expired},
		{"ClearAll", archive.clearAll},
		{"ClearOneType", archive.clearOneType},
		{"ClearSeveral", archive.clearSeveral},
		{"ClearInAnyOrder", archive.clearInAnyOrder},
		{"ClearBeforeAnything", archive.clearBeforeAnything},
		{"ClearThenLatePut", archive.clearThenLatePut},
		{"ClearCutsTheFold", archive.clearCutsTheFold},
		{"ClearLongRow", archive.clearLongRow},
		{"ClearLongAgo", archive.clearLongAgo},
		{"ClearHidesLateCells", archive.clearHidesLateCells},
		{"ClearMarksOfAKey", archive.clearMarksOfAKey},
		{"Pauses", archive.pauses},
		{"PauseForever", archive.pauseForever},
		{"Concurrent", archive.concurrent},
		{"ConcurrentClear", archive.concurrentClear},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(archive{t, open(t)}) })
	}
}

// archive is a store under test; its methods fail the test instead of returning
// errors. Only put may be called from goroutines.
type archive struct {
	t     *testing.T
	store history.Archive
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

func (a archive) row(uid string) history.Row {
	a.t.Helper()
	row, err := a.store.Row(a.t.Context(), uid)
	if err != nil {
		a.t.Fatalf("row %s: %v", uid, err)
	}
	return row
}

func (a archive) clear(uid string, cleared map[uint32]int64) {
	a.t.Helper()
	if err := a.store.PutUser(a.t.Context(), uid, history.User{Cleared: maps.Clone(cleared)}); err != nil {
		a.t.Fatalf("clear %v of %s: %v", cleared, uid, err)
	}
}

// want checks what Get and Row say of one key.
func (a archive) want(k history.Key, want *history.Record) {
	a.t.Helper()
	if got := a.get(k)[0]; !reflect.DeepEqual(got, want) {
		a.t.Errorf("get %s: got %+v, want %+v", k, got, want)
	}
	var got *history.Record
	for _, item := range a.row(k.UID).Items {
		if item.Object == k.Object {
			got = item.Record
		}
	}
	if !reflect.DeepEqual(got, want) {
		a.t.Errorf("%s in its row: got %+v, want %+v", k, got, want)
	}
}

// wantMarks checks the marks that Row returns. A mark that a later one of all
// types covers says nothing more, so that it may be absent.
func (a archive) wantMarks(uid string, want map[uint32]int64) {
	a.t.Helper()
	got, u := a.row(uid).Cleared, history.User{Cleared: want}
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
