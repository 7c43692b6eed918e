package pebble_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestSnapshot takes snapshots under load. A copy opens with everything that was acknowledged before, and what follows is
// not lost from the store.
func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{}.Compacting(10))
	var mu sync.Mutex
	acked := map[history.Key]int64{}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range crashWriters {
		writers.Go(func() {
			var bases [crashKeys]uint64
			for position := now(); ctx.Err() == nil; position++ {
				writes, cells := childWindow(w, &bases, position)
				for i, o := range db.Cache().Write(t.Context(), writes) {
					if o.Err != nil || o.Status == history.Conflict {
						t.Errorf("write: %+v", o)
						return
					}
					bases[i] = writes[i].Record.Revision
				}
				if errs := db.Archive().Put(t.Context(), cells); errs != nil {
					t.Errorf("put: %v", errs[0])
					return
				}
				mu.Lock()
				for _, x := range writes {
					acked[x.Key] = position
				}
				mu.Unlock()
			}
		})
	}
	for n := range 8 {
		mu.Lock()
		before := maps.Clone(acked)
		mu.Unlock()
		wantAcked(t, open(t, copied(t, db, n%2 == 0), pebble.Config{}), before)
	}
	stop()
	writers.Wait()
	wantAcked(t, db, acked)
}

// TestSnapshotAtRest is the journal's corner: the current file is empty, or everything is in it.
func TestSnapshotAtRest(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	for _, positions := range []int64{0, 1, 0, 500} {
		acked := map[history.Key]int64{}
		for n := range positions {
			var bases [crashKeys]uint64
			writes, cells := childWindow(int(1000*positions+n), &bases, n)
			for i, o := range db.Cache().Write(t.Context(), writes) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				acked[writes[i].Key] = n
			}
			if errs := db.Archive().Put(t.Context(), cells); errs != nil {
				t.Fatal(errs[0])
			}
		}
		wantAcked(t, open(t, copied(t, db, false), pebble.Config{}), acked)
	}
}

// TestSnapshotLeftovers: the store replaces a snapshot that was not dropped, and drops it at a start.
func TestSnapshotLeftovers(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{})
	left, _, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, drop, err := db.Snapshot(t.Context()); err != nil || drop() != nil {
		t.Errorf("over one that was left: %v", err)
	}
	if _, _, err := db.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed(t, db)
	open(t, dir, pebble.Config{})
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s after a start: %v", left, err)
	}
}

// TestKill9DuringSnapshots kills a process that makes one snapshot after another.
func TestKill9DuringSnapshots(t *testing.T) { killed9(t, "snapshot") }

// copied returns a copy of a store's snapshot. A late one is copied only after the store has gone on.
func copied(t *testing.T, db *pebble.DB, late bool) (to string) {
	t.Helper()
	dir, drop, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if late {
		db.Checkpoint()
	}
	to = filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := drop(); err != nil {
		t.Fatal(err)
	}
	return to
}

// snapshots makes a snapshot.
func snapshots(db *pebble.DB) {
	_, drop, err := db.Snapshot(context.Background())
	if err == nil {
		err = drop()
	}
	if err != nil {
		panic(err)
	}
}

// TestRoom counts the reserve of a store with what is needed.
func TestRoom(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(roomy{vfs.NewMem()}))
	for need, want := range map[int64]bool{0: true, 700 << 20: true, 800 << 20: false} {
		if err := db.Room("elsewhere", need); (err == nil) != want {
			t.Errorf("%d MiB: %v", need>>20, err)
		}
	}
}

// roomy is a file system with 1,000 MiB free.
type roomy struct{ vfs.FS }

func (roomy) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1000 << 20, TotalBytes: 10_000 << 20}, nil
}
