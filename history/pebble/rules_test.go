package pebble_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestCleanWhileFlushing: a record is marked clean during its flush, and its journal file is then removed. A
// crash must not lose the record.
func TestCleanWhileFlushing(t *testing.T) {
	files := vfs.NewCrashableMem()
	db := open(t, "store", pebble.Config{}.On(files))
	k, other := viewing(1, 1), viewing(2, 2)
	w := history.Write{Key: k, Record: beat(now())}
	mustApply(t, db.Cache(), []history.Write{w})
	step := 0
	err := db.CheckpointWhile(func() {
		if step++; step == 1 {
			must(t, db.Cache().MarkClean(t.Context(), []history.Content{{Key: k, Revision: w.Record.Revision}}))
		}
	})
	must(t, err)
	mustApply(t, db.Cache(), []history.Write{{Key: other, Record: beat(now())}}) // also syncs the mark clean
	left := files.CrashClone(vfs.CrashCloneCfg{})
	e := open(t, "store", pebble.Config{}.On(left)).Cache().Load(t.Context(), []history.Key{k})[0]
	if e.Record == nil || !history.SameContent(e.Record.Revision, w.Record.Revision) {
		t.Errorf("after a crash: got %+v, want the record that was acknowledged", e.Record)
	}
}

// TestListWhileFlushing: a record is written again during its flush. A list returns its new content once.
func TestListWhileFlushing(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(vfs.NewMem()))
	k := viewing(1, 1)
	first, second := beat(now()-1000), beat(now())
	mustApply(t, db.Cache(), []history.Write{{Key: k, Record: first}})
	step := 0
	must(t, db.CheckpointWhile(func() {
		if step++; step != 1 {
			return
		}
		mustApply(t, db.Cache(), []history.Write{{Key: k, Record: second, Base: first.Revision}})
		page, err := db.Cache().List(t.Context(), k.UID, history.Query{Limit: 10})
		if err != nil || len(page.Items) != 1 || page.Items[0].Record.Revision != second.Revision {
			t.Errorf("got %d items, %v: %+v; want the second content alone", len(page.Items), err, page.Items)
		}
		must(t, db.Cache().Pause(t.Context(), k.UID, history.Pause{}, history.Pause{Since: now()}))
		if e := db.Cache().Load(t.Context(), []history.Key{k})[0]; e.Record == nil || e.Record.Version != second.Version {
			t.Errorf("after a pause: got %+v, want the second content", e.Record)
		}
	}))
}

// TestSweepOfWhatIsWrittenAgain: a record expired in Pebble but written again in memory survives the sweep.
func TestSweepOfWhatIsWrittenAgain(t *testing.T) {
	clock := time.Now()
	db := open(t, "store", pebble.Config{Now: func() time.Time { return clock }}.On(vfs.NewMem()))
	k := viewing(1, 1)
	mustApply(t, db.Cache(), []history.Write{{Key: k, Record: beat(clock.UnixMilli())}})
	db.Checkpoint()
	clock = clock.Add(200 * 24 * time.Hour)
	again := beat(clock.UnixMilli())
	mustApply(t, db.Cache(), []history.Write{{Key: k, Record: again}})
	if _, err := db.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := db.Cache().Load(t.Context(), []history.Key{k})[0]; e.Record == nil || e.Record.Revision != again.Revision {
		t.Errorf("got %+v, want what was acknowledged", e.Record)
	}
}
