package pebble_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// disk is a disk with injected faults.
type disk struct {
	vfs.FS
	mem     *vfs.MemFS
	full    atomic.Pointer[string] // writes fail for file names that contain it
	refused atomic.Int64           // writes that failed with ENOSPC
	free    atomic.Uint64          // bytes, of a terabyte
	sick    atomic.Bool            // reads of tables fail
	stalled atomic.Pointer[stall]
}

func newDisk() *disk {
	d := new(disk)
	d.free.Store(1 << 39)
	d.use(vfs.NewCrashableMem())
	return d
}

// use replaces the files of the disk.
func (d *disk) use(mem *vfs.MemFS) {
	d.mem = mem
	d.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		full := d.full.Load()
		if full != nil && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, *full) {
			d.refused.Add(1)
			return syscall.ENOSPC
		}
		if stalled := d.stalled.Load(); stalled != nil && strings.HasSuffix(op.Path, ".log") {
			switch op.Kind {
			case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
				return stalled.wait()
			}
		}
		if d.sick.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			return syscall.EIO
		}
		return nil
	}))
}

func (d *disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

// stall blocks the syncs of the journal.
type stall struct {
	once    sync.Once
	begun   chan struct{} // closed at the first sync
	release chan error    // the result of a sync; closed for nil
}

func (d *disk) stall() *stall {
	s := &stall{begun: make(chan struct{}), release: make(chan error)}
	d.stalled.Store(s)
	return s
}

func (s *stall) wait() error {
	s.once.Do(func() { close(s.begun) })
	return <-s.release
}

func (d *disk) fill(name string) { d.full.Store(&name) }
func (d *disk) clean()           { d.full.Store(nil) }

// refuses checks that every write fails with the reason.
func refuses(t *testing.T, db *pebble.DB, why string) {
	t.Helper()
	ctx, k := t.Context(), viewing(1, 77)
	o := db.Cache().Write(ctx, []history.Write{{Key: k, Record: beat(now())}})[0]
	if o.Status != history.Unknown {
		t.Errorf("apply: got status %d, want unknown", o.Status)
	}
	_, clearing := db.Cache().Clear(ctx, k.UID, history.Clear{Until: 1})
	errs := map[string]error{
		"apply": o.Err, "clear": clearing, "clear archive": db.Archive().PutUser(ctx, k.UID, history.User{Cleared: map[uint32]int64{0: 1}}),
		"warm":       db.Cache().Warm(ctx, k.UID, history.WarmSet{}),
		"mark_clean": db.Cache().MarkClean(ctx, []history.Content{{Key: k, Revision: 1}}),
		"put":        errors.Join(db.Archive().Put(ctx, []history.Cell{{Key: k, Record: beat(now())}})...),
	}
	for name, err := range errs {
		if !errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want ErrUnavailable because of %q", name, err, why)
		}
	}
}

// reads checks that a record is readable.
func reads(t *testing.T, db *pebble.DB, k history.Key, want *history.Record) {
	t.Helper()
	e := db.Cache().Load(t.Context(), []history.Key{k})[0]
	if e.Err != nil || e.Record == nil || e.Record.Revision != want.Revision {
		t.Errorf("load %s: got %+v, %v; want revision %x", k, e.Record, e.Err, want.Revision)
	}
	page, err := db.Cache().List(t.Context(), k.UID, history.Query{Limit: 10})
	if err != nil || len(page.Items) == 0 {
		t.Errorf("list %s: got %d items, %v", k.UID, len(page.Items), err)
	}
}

// TestDiskNearlyFull refuses writes only while there is little room.
func TestDiskNearlyFull(t *testing.T) {
	d := newDisk()
	db := open(t, "store", pebble.Config{}.On(d))
	r := put(t, db.Cache(), viewing(1, 1))
	d.free.Store(20 << 20)
	refuses(t, db, "only 20 MiB are free on the disk")
	reads(t, db, viewing(1, 1), r)
	d.free.Store(1 << 39)
	put(t, db.Cache(), viewing(1, 2))
}

// TestDiskFull fails writes to each kind of file. All acknowledged writes stay readable, also after a restart
// with room.
func TestDiskFull(t *testing.T) {
	for _, test := range []struct {
		name, file string
		fail       func(db *pebble.DB)
	}{
		{"journal", ".log", func(db *pebble.DB) {
			k := viewing(2, 2)
			db.Cache().Write(t.Context(), []history.Write{{Key: k, Record: beat(now())}})
			if e := db.Cache().Load(t.Context(), []history.Key{k})[0]; !errors.Is(e.Err, history.ErrUnavailable) {
				t.Errorf("load %s, which is not on disk: got %+v, want ErrUnavailable", k, e)
			}
		}},
		{"manifest", "MANIFEST", (*pebble.DB).Checkpoint},
		{"next journal", "journal", (*pebble.DB).Checkpoint},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDisk()
			db, err := pebble.Open("store", pebble.Config{}.On(d))
			if err != nil {
				t.Fatal(err)
			}
			r := put(t, db.Cache(), viewing(1, 1))
			d.fill(test.file)
			test.fail(db)
			if err := db.Run(t.Context()); !errors.Is(err, history.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("run: got %v, want ErrUnavailable because of ENOSPC", err)
			}
			refuses(t, db, "store failed")
			reads(t, db, viewing(1, 1), r)
			if err := db.Close(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("close: got %v, want ENOSPC", err)
			}

			d.clean()
			db = open(t, "store", pebble.Config{}.On(d.mem.CrashClone(vfs.CrashCloneCfg{})))
			reads(t, db, viewing(1, 1), r)
			wantDirty(t, db, viewing(1, 1))
		})
	}
}

// TestDiskFullForAFlush continues once there is room again: the journal has everything.
func TestDiskFullForAFlush(t *testing.T) {
	d := newDisk()
	db := open(t, "store", pebble.Config{}.On(d))
	r := put(t, db.Cache(), viewing(1, 1))
	d.fill(".sst")
	over := make(chan struct{})
	go func() {
		defer close(over)
		db.Checkpoint()
	}()
	for n := range 100 {
		put(t, db.Cache(), viewing(2, n))
	}
	reads(t, db, viewing(1, 1), r)
	d.clean()
	<-over
	reads(t, db, viewing(1, 1), r)
}

// TestDiskSickWhileChanging fails reads during calls that change a whole user. Writes waiting in memory
// survive.
func TestDiskSickWhileChanging(t *testing.T) {
	d, uid := newDisk(), viewing(1, 0).UID
	db, err := pebble.Open("store", pebble.Config{}.On(d))
	if err != nil {
		t.Fatal(err)
	}
	writes := make([]history.Write, 500)
	for i := range writes {
		writes[i] = history.Write{Key: viewing(1, i), Record: beat(now())}
	}
	mustApply(t, db.Cache(), writes)
	closed(t, db) // drops the caches

	db = open(t, "store", pebble.Config{Keep: 10}.On(d).Blind())
	r := beat(now())
	mustApply(t, db.Cache(), []history.Write{{Key: viewing(1, 0), Record: r, Base: writes[0].Record.Revision}})
	d.sick.Store(true)
	pausing := db.Cache().Pause(t.Context(), uid, history.Pause{}, history.Pause{Since: now()})
	_, clearing := db.Cache().Clear(t.Context(), uid, history.Clear{Until: now()})
	warming := db.Cache().Warm(t.Context(), uid, history.WarmSet{Pause: history.Pause{Since: now()}})
	for what, err := range map[string]error{"pause": pausing, "clear": clearing, "warm": warming} {
		if !errors.Is(err, history.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: got %v, want ErrUnavailable because of EIO", what, err)
		}
	}
	d.sick.Store(false)
	reads(t, db, viewing(1, 0), r)
	if page, err := db.Cache().List(t.Context(), uid, history.Query{Limit: 1000}); err != nil || len(page.Items) != len(writes) {
		t.Errorf("list: got %d items, %v; want %d", len(page.Items), err, len(writes))
	}
}

// TestOpenOnFullDisk fails with one line that says what to do, stops trying, and opens with all records once
// there is room.
func TestOpenOnFullDisk(t *testing.T) {
	disks := map[string]*disk{}
	for _, file := range []string{".sst", "MANIFEST", ".log", "journal-synced", ""} {
		d := newDisk()
		db := open(t, "store", pebble.Config{}.On(d))
		r := put(t, db.Cache(), viewing(1, 1))
		left := newDisk()
		left.use(d.mem.CrashClone(vfs.CrashCloneCfg{}))
		left.fill(file)
		disks[file] = left
		_, err := pebble.Open("store", pebble.Config{}.On(left))
		if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") || !strings.HasSuffix(err.Error(), "make room on the disk and start again") {
			t.Errorf("open with no room for %q: got %v, want one line about ENOSPC", file, err)
		}
		reads(t, open(t, "store", pebble.Config{}.On(left.mem.CrashClone(vfs.CrashCloneCfg{}))), viewing(1, 1), r)
	}
	for file, d := range disks {
		if n := d.refused.Load(); n > 100 {
			t.Errorf("a start with no room for %q wrote %d times, and goes on", file, n)
		}
	}
}

// TestReady follows the room on the disk.
func TestReady(t *testing.T) {
	d := newDisk()
	db := open(t, "store", pebble.Config{}.On(d))
	for _, free := range []uint64{1 << 39, 20 << 20, 1 << 39} {
		d.free.Store(free)
		if err := db.Ready(t.Context()); (err != nil) != (free == 20<<20) || err != nil && !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("with %d bytes free: got %v", free, err)
		}
	}
}
