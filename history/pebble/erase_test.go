package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// device is a text found only in the records of one user. It is too random for compression to hide it.
func device(user int) string { return fmt.Sprintf("%d-q7Zk2xVw9LpT4mYs8RbN", user) }

// lived fills the cache with dirty and clean records, a log and a day, and the archive with live records and
// segments.
func lived(t *testing.T, db *pebble.DB, user int) (uid string) {
	t.Helper()
	ctx, uid := t.Context(), viewing(user, 0).UID
	_, err := db.Cache().Changes(ctx, uid, 0, 10)
	must(t, err)
	var cells []history.Cell
	var contents []history.Content
	for i := range 30 {
		r := beat(now() - int64(30-i)*1000)
		r.Device, r.Session, r.Partial = device(user), fmt.Sprintf("%016x", i), true
		k := viewing(user, i)
		mustApply(t, db.Cache(), []history.Write{{Key: k, Record: r, BeginsHold: true}})
		if cells = append(cells, history.Cell{Key: k, Record: r}); i < 20 {
			contents = append(contents, history.Content{Key: k, Revision: r.Revision})
		}
	}
	if errs := (compacted{db.Archive(), t}).Put(ctx, cells[:25]); errs != nil {
		t.Fatal(errs)
	}
	must(t, db.Cache().MarkClean(ctx, contents))
	db.Days().See(ctx, []history.Sighting{{UID: uid, Day: 20_000}})
	return uid
}

// eraseAll erases a user as the service does.
func eraseAll(t *testing.T, db *pebble.DB, uid string) (until int64) {
	t.Helper()
	until, err := db.Cache().Clear(t.Context(), uid, history.Clear{Until: now()})
	must(t, err)
	must(t, db.Erase(t.Context(), uid, until))
	return until
}

func wantHeld(t *testing.T, db *pebble.DB, uid string, until int64, want map[string]int) { //nolint:revive // what a test is made of
	t.Helper()
	held, err := db.Held(t.Context(), uid, until)
	must(t, err)
	for place, n := range held {
		if n != want[place] {
			t.Errorf("%s: %d, want %d", place, n, want[place])
		}
	}
}

// filesWith returns the files of a directory that contain a text.
func filesWith(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if bytes.Contains(b, []byte(text)) {
			names = append(names, filepath.Base(path))
		}
		return err
	}))
	return names
}

// wantNoFile waits until no file contains a text: Pebble removes obsolete files a moment later.
func wantNoFile(t *testing.T, dir, text string) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		names := filesWith(t, dir, text)
		if len(names) == 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%q is in %q", text, names)
		}
	}
}

// TestErase erases one of two users and searches the files of the open store.
func TestErase(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{}.Compacting(100))
	ann, bob := lived(t, db, 1), lived(t, db, 2)
	had := map[string]int{
		"cache: records": 30, "cache: dirty marks": 10, "cache: changes": 30, "cache: days": 1,
		"archive: live records": 1, "archive: records in segments": 24, "archive: chunks": 1,
	}
	for _, uid := range []string{ann, bob} {
		wantHeld(t, db, uid, 0, had)
	}
	for _, user := range []int{1, 2} {
		if len(filesWith(t, dir, device(user))) == 0 {
			t.Fatalf("no file has %q, so that to look for it says nothing", device(user))
		}
	}
	for range 2 {
		eraseAll(t, db, ann)
		wantHeld(t, db, ann, 0, nil)
		for _, text := range []string{device(1), ann + "/", ann + "\x00title"} {
			wantNoFile(t, dir, text)
		}
	}
	wantHeld(t, db, bob, 0, had)
	closed(t, db)
	wantNoFile(t, dir, device(1))
	db = open(t, dir, pebble.Config{}.Compacting(100))
	wantHeld(t, db, ann, 0, nil)
	wantHeld(t, db, bob, 0, had)
	if e, err := db.Archive().Get(t.Context(), []history.Key{viewing(1, 3)}); err != nil || e[0].Record != nil || e[0].User.Cleared[0] == 0 {
		t.Errorf("got %+v, %v, want a clear mark and nothing else", e, err)
	}
}

// TestEraseBesideAll erases a user during puts, compactions, reads and checkpoints of the same user. Earlier
// contents are gone, later ones stay.
func TestEraseBesideAll(t *testing.T) {
	for range 5 {
		db := open(t, "store", pebble.Config{}.Compacting(100).On(vfs.NewMem()))
		uid := lived(t, db, 1)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		beside := func(do func(n int)) {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						do(n)
					}
				}
			})
		}
		old := beat(now() - 20_000)
		beside(func(n int) { db.Archive().Put(t.Context(), []history.Cell{{Key: viewing(1, n%30), Record: old}}) })
		beside(func(int) { _, _ = db.Archive().Compact(t.Context(), uid) })
		beside(func(int) {
			_, err := db.Archive().Page(t.Context(), uid, history.Query{Limit: 10})
			must(t, err)
		})
		beside(func(int) { db.Checkpoint() })
		until := eraseAll(t, db, uid)
		close(stop)
		wg.Wait()
		page, err := db.Archive().Page(t.Context(), uid, history.Query{Limit: 10})
		if err != nil || len(page.Items) > 0 {
			t.Errorf("%d records are seen, %v, want none", len(page.Items), err)
		}
		must(t, db.Erase(t.Context(), uid, until)) // late puts
		wantHeld(t, db, uid, until, nil)
		later := history.Cell{Key: viewing(1, 1), Record: beat(until + 1)}
		if errs := db.Archive().Put(t.Context(), []history.Cell{later}); errs != nil {
			t.Fatal(errs)
		}
		must(t, db.Erase(t.Context(), uid, until))
		wantHeld(t, db, uid, 0, map[string]int{"archive: live records": 1})
	}
}

// TestEraseDamaged erases a user with a damaged chunk or list of chunks.
func TestEraseDamaged(t *testing.T) {
	spoilt := func(b []byte) []byte { return append(b[:len(b)-1], b[len(b)-1]^1) }
	for name, spoil := range map[string]func(db *pebble.DB, uid string){
		"chunk": func(db *pebble.DB, uid string) { db.SpoilChunk(uid, 0, spoilt) },
		"list":  func(db *pebble.DB, uid string) { db.SpoilList(uid, spoilt) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db := open(t, dir, pebble.Config{}.Compacting(100))
			uid := lived(t, db, 1)
			spoil(db, uid)
			closed(t, db) // drops what is in memory
			db = open(t, dir, pebble.Config{}.Compacting(100))
			i, err := db.Archive().Inspect(t.Context(), uid, true)
			if err == nil && len(i.Wrong) == 0 {
				t.Fatalf("nothing is wrong with the parts")
			}
			eraseAll(t, db, uid)
			wantHeld(t, db, uid, 0, nil)
			if i, err := db.Archive().Inspect(t.Context(), uid, true); err != nil || len(i.Segments.Chunks)+len(i.Wrong) > 0 {
				t.Errorf("inspected: %+v, %v, want no parts", i, err)
			}
		})
	}
}

// TestEraseOfNobody erases an unknown user.
func TestEraseOfNobody(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(vfs.NewMem()))
	eraseAll(t, db, "nobody")
	wantHeld(t, db, "nobody", 0, nil)
}
