package pebble_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// answers are calls that rely on a change not yet on disk.
type answers struct {
	change  string
	make    func(ctx context.Context, db *pebble.DB) error // changes users 1 and 2
	relying map[string]func(ctx context.Context, db *pebble.DB) error
}

// others reads everything of an unaffected user.
func others(ctx context.Context, db *pebble.DB) error {
	k := viewing(3, 1)
	_, listing := db.Cache().List(ctx, k.UID, history.Query{Limit: 10})
	_, getting := db.Archive().Get(ctx, []history.Key{k})
	_, row := db.Archive().Page(ctx, k.UID, history.Query{Limit: 10_000})
	seen := db.Days().See(ctx, []history.Sighting{{UID: k.UID, Day: 1}})[0]
	return errors.Join(db.Cache().Load(ctx, []history.Key{k})[0].Err, listing, getting, row, seen.Err)
}

func readers(at int64) []answers {
	k := viewing(1, 1)
	r := beat(at)
	load := func(ctx context.Context, db *pebble.DB) error {
		return db.Cache().Load(ctx, []history.Key{viewing(3, 1), k})[1].Err
	}
	list := func(ctx context.Context, db *pebble.DB) error {
		_, err := db.Cache().List(ctx, k.UID, history.Query{Limit: 10})
		return err
	}
	put := func(ctx context.Context, db *pebble.DB) error {
		return errors.Join(db.Archive().Put(ctx, []history.Cell{{Key: k, Record: r}})...)
	}
	get := func(ctx context.Context, db *pebble.DB) error {
		_, err := db.Archive().Get(ctx, []history.Key{viewing(3, 1), k})
		return err
	}
	row := func(ctx context.Context, db *pebble.DB) error {
		_, err := db.Archive().Page(ctx, k.UID, history.Query{Limit: 10_000})
		return err
	}
	see := func(ctx context.Context, db *pebble.DB) error {
		return db.Days().See(ctx, []history.Sighting{{UID: k.UID, Day: 2}})[0].Err
	}
	return []answers{
		{"apply", func(ctx context.Context, db *pebble.DB) error {
			return db.Cache().Write(ctx, []history.Write{{Key: k, Record: r}})[0].Err
		}, map[string]func(context.Context, *pebble.DB) error{
			"load": load, "list": list,
		}},
		{"apply of a whole record", func(ctx context.Context, db *pebble.DB) error {
			whole := *r
			whole.Partial = false
			warming := db.Cache().Warm(ctx, k.UID, history.WarmSet{})
			return errors.Join(warming, db.Cache().Write(ctx, []history.Write{{Key: k, Record: &whole}})[0].Err)
		}, map[string]func(context.Context, *pebble.DB) error{
			"get of what was carried": func(ctx context.Context, db *pebble.DB) error {
				if put, _, err := db.Promote(ctx, []history.Key{k}); put != 1 || err != nil {
					return errors.Join(errors.New("nothing was carried"), err)
				}
				return get(ctx, db)
			},
		}},
		{"clear", func(ctx context.Context, db *pebble.DB) error {
			_, err := db.Cache().Clear(ctx, k.UID, history.Clear{Until: at})
			return err
		}, map[string]func(context.Context, *pebble.DB) error{
			"load": load, "list": list,
		}},
		{"pause", func(ctx context.Context, db *pebble.DB) error {
			return db.Cache().Pause(ctx, k.UID, history.Pause{}, history.Pause{Since: at - 5000})
		}, map[string]func(context.Context, *pebble.DB) error{
			"load": load, "list": list,
		}},
		{"put", put, map[string]func(context.Context, *pebble.DB) error{"get": get, "row": row, "put again": put}},
		{"clear archive", func(ctx context.Context, db *pebble.DB) error {
			return db.Archive().PutUser(ctx, k.UID, history.User{Cleared: map[uint32]int64{0: at}})
		}, map[string]func(context.Context, *pebble.DB) error{"get": get, "row": row}},
		{"see", see, map[string]func(context.Context, *pebble.DB) error{"see again": see}},
	}
}

// TestAnswersWaitForTheDisk blocks the fsync of a change: calls that rely on it wait for the disk, other calls
// do not.
func TestAnswersWaitForTheDisk(t *testing.T) {
	for _, test := range readers(now()) {
		t.Run(test.change, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { waitsForTheDisk(t, test) })
		})
	}
}

func waitsForTheDisk(t *testing.T, test answers) {
	d := newDisk()
	db := open(t, "store", pebble.Config{}.On(d))
	put(t, db.Cache(), viewing(3, 1))
	db.Days().See(t.Context(), []history.Sighting{{UID: viewing(3, 1).UID, Day: 1}})
	must(t, others(t.Context(), db))

	disk := d.stall()
	var all sync.WaitGroup
	var returned atomic.Int64
	call := func(f func(context.Context, *pebble.DB) error) {
		all.Go(func() {
			must(t, f(t.Context(), db))
			returned.Add(1)
		})
		synctest.Wait()
	}
	call(test.make)
	for name, f := range test.relying {
		before := returned.Load()
		if call(f); returned.Load() != before {
			t.Errorf("%s returned before the change was on disk", name)
		}
	}
	before := returned.Load()
	if call(others); returned.Load() != before+1 {
		t.Error("who relies on nothing of the change waits for it")
	}
	lost := d.mem.CrashClone(vfs.CrashCloneCfg{})
	d.stalled.Store(nil)
	close(disk.release)
	all.Wait()

	if test.change == "apply" { // it would have been lost
		db := open(t, "store", pebble.Config{}.On(lost))
		if e := db.Cache().Load(t.Context(), []history.Key{viewing(1, 1)})[0]; e.Record != nil || e.Err != nil {
			t.Errorf("after a crash before the sync: got %+v, want nothing", e)
		}
	}
}

// TestAnswersFailWithTheDisk fails the fsync of a change: calls that rely on it fail, during it and later.
func TestAnswersFailWithTheDisk(t *testing.T) {
	for _, test := range readers(now()) {
		t.Run(test.change, func(t *testing.T) {
			d := newDisk()
			db, err := pebble.Open("store", pebble.Config{}.On(d))
			if err != nil {
				t.Fatal(err)
			}
			disk := d.stall()
			var all sync.WaitGroup
			fails := func(name string, f func(context.Context, *pebble.DB) error) {
				if err := f(t.Context(), db); !errors.Is(err, history.ErrUnavailable) {
					t.Errorf("%s: got %v, want ErrUnavailable", name, err)
				}
			}
			all.Go(func() { fails("the change", test.make) })
			<-disk.begun
			for name, f := range test.relying {
				all.Go(func() { fails(name, f) })
			}
			disk.release <- syscall.EIO
			all.Wait()
			for name, f := range test.relying {
				fails(name+" later", f)
			}
			close(disk.release)
			if err := db.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("close: got %v, want EIO", err)
			}
		})
	}
}
