package pebble_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestAlone: a user absent from the archive is complete, and stays complete after archived records and a crash.
// Any other user is cold.
func TestAlone(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db := open(t, "store", pebble.Config{Alone: true}.On(fs))
	<-db.Learned()
	at := now()
	must(t, errors.Join(db.Archive().Put(t.Context(), []history.Cell{{Key: viewing(2, 1), Record: beat(at)}})...))
	must(t, db.Archive().PutUser(t.Context(), viewing(3, 1).UID, history.User{Cleared: map[uint32]int64{0: at - 5000}}))
	for user, want := range map[int]bool{1: true, 2: false, 3: false} {
		if u := userOf(t, db, viewing(user, 1)); u.Complete() != want {
			t.Errorf("user %d: complete %v, want %v", user, !want, want)
		}
	}
	for user, want := range map[int]history.WriteStatus{1: history.Applied, 2: history.Conflict, 3: history.Conflict} {
		if got := bornWhole(t, db, viewing(user, 7), at); got != want {
			t.Errorf("a whole birth of user %d: status %v, want %v", user, got, want)
		}
	}
	must(t, errors.Join(db.Archive().Put(t.Context(), []history.Cell{{Key: viewing(1, 9), Record: beat(at)}})...))
	again := open(t, "store", pebble.Config{Alone: true}.On(fs.CrashClone(vfs.CrashCloneCfg{})))
	<-again.Learned()
	for name, db := range map[string]*pebble.DB{"before the crash": db, "after it": again} {
		if u := userOf(t, db, viewing(1, 1)); !u.Complete() {
			t.Errorf("%s: a user is %+v, want complete", name, u)
		}
	}
}

// TestAloneComesTooLate: the archive gets a record of the user between a load and a write.
func TestAloneComesTooLate(t *testing.T) {
	db := open(t, "store", pebble.Config{Alone: true}.On(vfs.NewMem()))
	<-db.Learned()
	k, at := viewing(1, 1), now()
	if u := userOf(t, db, k); !u.Complete() {
		t.Fatalf("the user is %+v, want complete", u)
	}
	must(t, errors.Join(db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: beat(at)}})...))
	if got := bornWhole(t, db, k, at); got != history.Conflict {
		t.Errorf("a whole birth: status %v, want a conflict", got)
	}
	if u := userOf(t, db, k); u.Warm {
		t.Errorf("the user is %+v, want a cold one", u)
	}
}

func userOf(t *testing.T, db *pebble.DB, k history.Key) history.User {
	t.Helper()
	e := db.Cache().Load(t.Context(), []history.Key{k})[0]
	must(t, e.Err)
	return e.User
}

// bornWhole writes a record without a base and without the partial flag.
func bornWhole(t *testing.T, db *pebble.DB, k history.Key, at int64) history.WriteStatus {
	t.Helper()
	r := beat(at)
	r.Partial = false
	return db.Cache().Write(t.Context(), []history.Write{{Key: k, Record: r}})[0].Status
}
