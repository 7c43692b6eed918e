package pebble_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// disk is a disk that can be full.
type disk struct {
	vfs.FS
	mem  *vfs.MemFS
	full atomic.Pointer[string] // no file whose name has this in it can be written
	free atomic.Uint64          // bytes, of a terabyte
}

func newDisk() *disk {
	d := &disk{mem: vfs.NewCrashableMem()}
	d.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		full := d.full.Load()
		if full != nil && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, *full) {
			return syscall.ENOSPC
		}
		return nil
	}))
	d.free.Store(1 << 39)
	return d
}

func (d *disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

func (d *disk) fill(name string) { d.full.Store(&name) }
func (d *disk) clean()           { d.full.Store(nil) }

// refuses checks that every way of writing fails and says why.
func refuses(t *testing.T, db *pebble.DB, why string) {
	t.Helper()
	ctx, k := t.Context(), viewing(1, 77)
	o := db.Cache().Apply(ctx, []history.Write{{Key: k, Record: beat(now())}})[0]
	if o.Status != history.Unknown {
		t.Errorf("apply: got status %d, want unknown", o.Status)
	}
	_, clearing := db.Cache().Clear(ctx, k.UID, 0, 1)
	errs := map[string]error{
		"apply": o.Err, "clear": clearing, "clear archive": db.Archive().PutUser(ctx, k.UID, history.User{Cleared: map[uint32]int64{0: 1}}),
		"warm":   db.Cache().Warm(ctx, k.UID, history.Warmth{}),
		"settle": db.Cache().Settle(ctx, []history.Dirty{{Key: k, Mark: 1}}),
		"put":    errors.Join(db.Archive().Put(ctx, []history.Cell{{Key: k, Record: beat(now())}})...),
	}
	for name, err := range errs {
		if !errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want ErrUnavailable because of %q", name, err, why)
		}
	}
}

// reads checks that a record can be read.
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

// TestDiskNearlyFull refuses writes while there is little room, and no longer.
func TestDiskNearlyFull(t *testing.T) {
	d := newDisk()
	db := open(t, "store", pebble.Config{}.On(d))
	r, _ := put(t, db.Cache(), viewing(1, 1))
	d.free.Store(20 << 20)
	refuses(t, db, "only 20 MiB are free on the disk")
	reads(t, db, viewing(1, 1), r)
	d.free.Store(1 << 39)
	put(t, db.Cache(), viewing(1, 2))
}

// TestDiskFull fails to write in every place that matters. What was acknowledged
// before can be read, now and after a start with room.
func TestDiskFull(t *testing.T) {
	for _, test := range []struct {
		name, file string
		fail       func(db *pebble.DB)
	}{
		{"journal", ".log", func(db *pebble.DB) {
			db.Cache().Apply(t.Context(), []history.Write{{Key: viewing(1, 2), Record: beat(now())}})
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
			r, mark := put(t, db.Cache(), viewing(1, 1))
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
			wantDirty(t, db, map[history.Key]history.Mark{viewing(1, 1): mark})
		})
	}
}

// TestDiskFullForAFlush goes on when there is room again: the journal has it all.
func TestDiskFullForAFlush(t *testing.T) {
	d := newDisk()
	db := open(t, "store", pebble.Config{}.On(d))
	r, _ := put(t, db.Cache(), viewing(1, 1))
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
