package pebble_test

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestAbsentIsKnown changes keys while a store learns them: no stored key is taken for absent, and missing keys
// are known to be absent.
func TestAbsentIsKnown(t *testing.T) {
	files := vfs.NewMem()
	db := open(t, "store", pebble.Config{}.On(files))
	for user := range 20 {
		var writes []history.Write
		for n := range 500 {
			writes = append(writes, history.Write{Key: viewing(user, n), Record: beat(now())})
		}
		mustApply(t, db.Cache(), writes)
	}
	closed(t, db)

	db = open(t, "store", pebble.Config{}.On(files))
	var all sync.WaitGroup
	for user := range 20 {
		all.Go(func() { changeUser(t, db, user) })
	}
	all.Wait()
	if key := db.Lacking(); key != nil {
		t.Errorf("%q is there and taken for absent", key)
	}
	absent := 0
	for n := range 1000 {
		if db.Cache().Absent(viewing(99, n)) {
			absent++
		}
	}
	if absent < 950 {
		t.Errorf("of 1000 keys that are not there, %d are known to be absent", absent)
	}
}

// changeUser writes a new record and puts it, clears some users, and reads the new record.
func changeUser(t *testing.T, db *pebble.DB, user int) {
	k, at := viewing(user, 1000), now()
	if user%2 == 0 {
		if _, err := db.Cache().Clear(t.Context(), k.UID, history.Clear{Until: at}); err != nil {
			t.Error(err)
		}
	}
	r := beat(at + 1)
	mustApply(t, db.Cache(), []history.Write{{Key: k, Record: r, Cleared: at}})
	if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
		t.Error(errs)
	}
	db.Checkpoint()
	got, err := db.Archive().Get(t.Context(), []history.Key{k})
	if err != nil || got[0].Record == nil {
		t.Errorf("get %s: %v, %v; want the record", k, got, err)
	}
	reads(t, db, k, r)
}

// TestKeysThatAreGone: a rescan forgets removed keys.
func TestKeysThatAreGone(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(vfs.NewMem()))
	for n := range 100 {
		put(t, db.Cache(), viewing(1, n))
	}
	db.Checkpoint()
	if _, err := db.Cache().Clear(t.Context(), viewing(1, 0).UID, history.Clear{Until: now()}); err != nil {
		t.Fatal(err)
	}
	db.Checkpoint()
	before, after := db.LearnAgain()
	if before < 100 || after != 2 { // the user's key and its row
		t.Errorf("knows %d hashes, and %d when it has learned them again; want more than 100, and 2", before, after)
	}
	if key := db.Lacking(); key != nil {
		t.Errorf("%q is there and taken for absent", key)
	}
}
