package pebble_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// aging is a store with its own clock.
type aging struct {
	*testing.T
	db    *pebble.DB
	clock time.Time
}

func newAging(t *testing.T, ttl time.Duration) *aging {
	l := &aging{T: t, clock: time.UnixMilli(1_700_000_000_000)}
	config := pebble.Config{TTL: ttl, Now: func() time.Time { return l.clock }}
	l.db = open(t, "store", config.On(vfs.NewMem()))
	return l
}

// write writes a record of the current time to the cache.
func (l *aging) write(k history.Key) *history.Record {
	l.Helper()
	r := beat(l.clock.UnixMilli())
	mustApply(l, l.db.Cache(), []history.Write{{Key: k, Record: r, BeginsHold: true}})
	return r
}

// archive puts a record and marks it clean, as the job does.
func (l *aging) archive(k history.Key, r *history.Record) {
	l.Helper()
	if errs := l.db.Archive().Put(l.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
		l.Fatal(errs[0])
	}
	markClean(l, l.db.Cache(), k, r)
}

// want checks whether the cache and the archive show a record.
func (l *aging) want(k history.Key, inCache, inArchive bool) {
	l.Helper()
	page, err := l.db.Cache().List(l.Context(), k.UID, history.Query{Limit: 10})
	if err != nil {
		l.Fatal(err)
	}
	e := l.db.Cache().Load(l.Context(), []history.Key{k})[0]
	if (e.Record != nil) != inCache || (len(page.Items) > 0) != inCache {
		l.Errorf("%v: load got %+v, list %d items; want it in the cache: %v", l.clock, e.Record, len(page.Items), inCache)
	}
	got, err := l.db.Archive().Get(l.Context(), []history.Key{k})
	row, err2 := l.db.Archive().Page(l.Context(), k.UID, history.Query{Limit: 10_000})
	if err != nil || err2 != nil {
		l.Fatal(err, err2)
	}
	if (got[0].Record != nil) != inArchive || (len(row.Items) > 0) != inArchive {
		l.Errorf("%v: get got %+v, row %d items; want it in the archive: %v", l.clock, got[0].Record, len(row.Items), inArchive)
	}
}

// swept sweeps and checks the number of dropped records.
func (l *aging) swept(want int) {
	l.Helper()
	l.db.Checkpoint()
	got, err := l.db.Sweep(l.Context())
	if err != nil || got != want {
		l.Errorf("sweep at %v: got %d, %v; want %d", l.clock, got, err, want)
	}
}

func TestTTL(t *testing.T) {
	l, k := newAging(t, 24*time.Hour), viewing(1, 1)
	l.archive(k, l.write(k))
	l.clock = l.clock.Add(24 * time.Hour)
	l.want(k, true, true)
	l.swept(0)
	l.clock = l.clock.Add(time.Millisecond)
	l.want(k, false, true)
	l.swept(1)
	wantDirty(t, l.db)
	l.clock = l.clock.Add(89 * 24 * time.Hour)
	l.want(k, false, false)
	l.swept(1)
	l.swept(0)
}

// TestDirtyOutlivesItsTTL: a dirty record is not dropped, hidden or overwritten at its TTL until it is clean.
func TestDirtyOutlivesItsTTL(t *testing.T) {
	l, k := newAging(t, time.Hour), viewing(1, 1)
	r := l.write(k)
	for _, age := range []time.Duration{2 * time.Hour, 89 * 24 * time.Hour} {
		l.clock = time.UnixMilli(r.Version.Time()).Add(age)
		l.swept(0)
		l.want(k, true, false)
		wantDirty(t, l.db, k)
		markClean(t, l.db.Cache(), k, &history.Record{}) // from a job that found no record
		wantDirty(t, l.db, k)
	}
	if out := l.db.Cache().Write(t.Context(), []history.Write{{Key: k, Record: beat(l.clock.UnixMilli())}})[0]; out.Status != history.Conflict || out.Current.Record == nil {
		t.Errorf("a write without a base: got %+v, want a conflict with the record", out)
	}
	l.archive(k, r)
	l.want(k, false, true)
	wantDirty(t, l.db)
	l.swept(1)
}

// TestDirtyOutlivesNoArchive: a dirty record older than the archive's TTL is dropped with its mark.
func TestDirtyOutlivesNoArchive(t *testing.T) {
	l, k := newAging(t, time.Hour), viewing(1, 1)
	l.write(k)
	l.clock = l.clock.Add(90*24*time.Hour + time.Millisecond)
	l.want(k, false, false)
	l.swept(1)
	wantDirty(t, l.db)
}

// TestSweepManyAndSpareTheLiving has more records than one step of the sweep, and live records among the
// expired.
func TestSweepManyAndSpareTheLiving(t *testing.T) {
	l := newAging(t, time.Hour)
	writes := make([]history.Write, 5000)
	for i := range writes {
		at := l.clock.UnixMilli()
		if i%10 == 0 {
			at += 1000
		}
		writes[i] = history.Write{Key: viewing(i/7, i), Record: beat(at)}
	}
	mustApply(t, l.db.Cache(), writes)
	for _, w := range writes {
		markClean(t, l.db.Cache(), w.Key, w.Record)
	}
	l.clock = l.clock.Add(time.Hour + time.Millisecond)
	l.swept(4500)
	keys := make([]history.Key, len(writes))
	for i, w := range writes {
		keys[i] = w.Key
	}
	for i, e := range l.db.Cache().Load(t.Context(), keys) {
		if (e.Record != nil) != (i%10 == 0) {
			t.Errorf("record %d: got %+v", i, e.Record)
		}
	}
}

// TestExpiredIsNoBase accepts a write without a base over an expired record, before and after a checkpoint. A
// conflict without a visible record would never end.
func TestExpiredIsNoBase(t *testing.T) {
	for _, checkpoint := range []bool{false, true} {
		l, k := newAging(t, time.Hour), viewing(1, 1)
		l.archive(k, l.write(k))
		if checkpoint {
			l.db.Checkpoint()
		}
		l.clock = l.clock.Add(2 * time.Hour)
		r := l.write(k)
		l.want(k, true, true) // the archive has the first record
		wantDirty(t, l.db, k)
		l.swept(0)
		if got := l.db.Cache().Load(t.Context(), []history.Key{k})[0].Record; got.Revision != r.Revision {
			t.Errorf("after a checkpoint %v: got revision %x, want %x", checkpoint, got.Revision, r.Revision)
		}
	}
}

// TestShortTTLHasALowWatermark: a user is not complete if older records have expired in the cache but not in
// the archive.
func TestShortTTLHasALowWatermark(t *testing.T) {
	l, k := newAging(t, time.Hour), viewing(1, 1)
	if err := l.db.Cache().Warm(t.Context(), k.UID, history.WarmSet{}); err != nil {
		t.Fatal(err)
	}
	want := history.VersionOf(l.clock.Add(-time.Hour).UnixMilli(), 0)
	page, err := l.db.Cache().List(t.Context(), k.UID, history.Query{Limit: 1})
	if err != nil || page.User.LowWatermark != want {
		t.Errorf("list: got low watermark %d, %v; want %d", page.User.LowWatermark, err, want)
	}
	if u := l.db.Cache().Load(t.Context(), []history.Key{k})[0].User; u.LowWatermark != want || !u.Warm {
		t.Errorf("load: got %+v, want warm with low watermark %d", u, want)
	}
	conflict := l.db.Cache().Write(t.Context(), []history.Write{{Key: k, Record: beat(1), Base: 1}})[0]
	if u := conflict.Current.User; u.LowWatermark != want {
		t.Errorf("conflict: got %+v, want low watermark %d", u, want)
	}
}

// TestRunSweeps waits for the next sweep.
func TestRunSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := pebble.Config{TTL: time.Second, SweepEvery: 10 * time.Second}
		db := open(t, "store", config.On(vfs.NewMem()))
		k := viewing(1, 1)
		r := beat(now())
		mustApply(t, db.Cache(), []history.Write{{Key: k, Record: r}})
		markClean(t, db.Cache(), k, r)
		db.Checkpoint()
		go func() {
			if err := db.Run(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(11 * time.Second)
		if n, err := db.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("sweep after the run's own: got %d, %v; want 0", n, err)
		}
	})
}

// TestQuietGivesRoomBack writes two journal files, which the store keeps, and waits until the quiet store
// shrinks them to its limit.
func TestQuietGivesRoomBack(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{}.Quiet(20*time.Millisecond))
	v := newViewings(0, 1000)
	for range 2 {
		for written := 0; written < 8<<20; written += window * 150 {
			v.apply(t, db.Cache())
		}
		db.Checkpoint()
	}
	for deadline := time.Now().Add(2 * time.Minute); taken(t, filepath.Join(dir, "journal")) > 6<<20; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the journal of a quiet store still takes %d bytes", taken(t, filepath.Join(dir, "journal")))
		}
	}
	v.apply(t, db.Cache())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, pebble.Config{})
	for _, e := range again.Cache().Load(t.Context(), v.keys) {
		if e.Err != nil || e.Record == nil {
			t.Fatalf("got %+v, want what was written", e)
		}
	}
}

// taken returns the disk usage below a directory in bytes.
func taken(t testing.TB, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreMissing(err)
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return ignoreMissing(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// ignoreMissing drops the error of a file that a checkpoint has just removed.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
