package pebble_test

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
)

func TestCache(t *testing.T) {
	historytest.Cache(t, func(t *testing.T, keep int) historytest.CacheStore {
		return open(t, t.TempDir(), pebble.Config{Keep: keep}).Cache()
	})
}

func TestArchive(t *testing.T) {
	historytest.Archive(t, func(t *testing.T) history.Archive {
		return open(t, t.TempDir(), pebble.Config{}).Archive()
	})
}

func TestRetention(t *testing.T) {
	historytest.ArchiveRetention(t, func(t *testing.T, rules *history.Rulebook) history.Archive {
		return open(t, "store", pebble.Config{Rules: rules}.On(vfs.NewMem())).Archive()
	})
	historytest.CacheRetention(t, func(t *testing.T, rules *history.Rulebook) historytest.CacheStore {
		return open(t, "store", pebble.Config{Rules: rules}.On(vfs.NewMem())).Cache()
	})
}

// TestCacheAcrossCheckpoints makes a checkpoint before every third call, up to a limit.
func TestCacheAcrossCheckpoints(t *testing.T) {
	until := int64(50)
	if testing.Short() {
		until = 20
	}
	historytest.Cache(t, func(t *testing.T, keep int) historytest.CacheStore {
		db := open(t, "store", pebble.Config{Keep: keep}.On(vfs.NewMem()))
		var calls atomic.Int64
		return before{func() {
			if n := calls.Add(1); n%3 == 0 && n < until {
				db.Checkpoint()
			}
		}, db.Cache()}
	})
}

// TestCacheWithCollidingHashes makes nearly all keys collide.
func TestCacheWithCollidingHashes(t *testing.T) {
	historytest.Cache(t, func(t *testing.T, keep int) historytest.CacheStore {
		return open(t, "store", pebble.Config{Keep: keep}.On(vfs.NewMem()).Colliding()).Cache()
	})
}

// before calls do before every call of a cache.
type before struct {
	do    func()
	cache historytest.CacheStore
}

func (b before) Load(ctx context.Context, keys []history.Key) []history.Entry {
	b.do()
	return b.cache.Load(ctx, keys)
}

func (b before) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	b.do()
	return b.cache.Write(ctx, writes)
}

func (b before) Clear(ctx context.Context, uid string, what history.Clear) (int64, error) {
	b.do()
	return b.cache.Clear(ctx, uid, what)
}

func (b before) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	b.do()
	return b.cache.Pause(ctx, uid, from, to)
}

func (b before) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	b.do()
	return b.cache.Warm(ctx, uid, w)
}

func (b before) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	b.do()
	return b.cache.List(ctx, uid, q)
}

func (b before) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	b.do()
	return b.cache.Changes(ctx, uid, after, limit)
}

func (b before) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	b.do()
	return b.cache.Overdue(ctx, buckets, age, limit)
}

func (b before) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	b.do()
	return b.cache.Backlog(ctx, buckets)
}

func (b before) MarkClean(ctx context.Context, contents []history.Content) error {
	b.do()
	return b.cache.MarkClean(ctx, contents)
}

func (b before) Trim(ctx context.Context, uids []string) error {
	b.do()
	return b.cache.Trim(ctx, uids)
}

func TestDays(t *testing.T) {
	historytest.Days(t, func(t *testing.T) historytest.DayStore { return open(t, t.TempDir(), pebble.Config{}).Days() })
}

// TestDaysSurvive reopens the store on following days until the first day has expired.
func TestDaysSurvive(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	today := history.DayOf(now)
	for days, first := range []bool{true, false, false, false, true} {
		db := open(t, dir, pebble.Config{Now: func() time.Time { return now.AddDate(0, 0, days) }})
		if _, err := db.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := db.Days().See(t.Context(), []history.Sighting{{UID: "ann", Day: today}})[0]
		if seen.Err != nil || seen.First != first {
			t.Errorf("%d days later: got %+v, want first %t", days, seen, first)
		}
		pending, err := db.Days().PendingFirsts(t.Context(), []history.Bucket{history.BucketOf("ann")}, time.Hour, 10)
		if err != nil || len(pending) != min(days, 1) {
			t.Errorf("pending for an hour, %d days later: got %+v, %v", days, pending, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCallsShareSyncs applies from many goroutines: concurrent calls share an fsync.
func TestCallsShareSyncs(t *testing.T) {
	const callers, calls = 64, 50
	db := open(t, t.TempDir(), pebble.Config{})
	before := db.Syncs()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for n := range calls {
				mustApply(t, db.Cache(), []history.Write{{Key: viewing(c, n), Record: beat(now()), BeginsHold: true}})
			}
		})
	}
	all.Wait()
	if got := db.Syncs() - before; got == 0 || got > callers*calls/2 {
		t.Errorf("%d calls of %d goroutines made %d syncs, want at most half as many", callers*calls, callers, got)
	}
}

// TestMarkCleanNeedsNoSync: MarkClean and Trim do not sync.
func TestMarkCleanNeedsNoSync(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	r := put(t, db.Cache(), viewing(1, 1))
	before := db.Syncs()
	markClean(t, db.Cache(), viewing(1, 1), r)
	if err := db.Cache().Trim(t.Context(), []string{viewing(1, 1).UID}); err != nil {
		t.Fatal(err)
	}
	if got := db.Syncs() - before; got != 0 {
		t.Errorf("marking clean and trimming made %d syncs, want none", got)
	}
	wantDirty(t, db)
}

// TestEverythingAtOnce makes all kinds of calls for a few users, with checkpoints and sweeps. Afterwards
// readers see the same as after a restart, and every record has the mark of its last write.
func TestEverythingAtOnce(t *testing.T) {
	const users, objects, rounds = 3, 120, 20
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{Keep: 100})
	var all sync.WaitGroup
	for object := range objects {
		all.Go(func() {
			for n := range rounds {
				fold(t, db.Cache(), viewing(n%users, object))
			}
		})
	}
	for user := range users {
		uid := viewing(user, 0).UID
		all.Go(func() {
			for range rounds {
				_, err := db.Cache().List(t.Context(), uid, history.Query{Limit: 20})
				must(t, err)
				must(t, db.Cache().Trim(t.Context(), []string{uid}))
				_, err = db.Cache().Clear(t.Context(), uid, history.Clear{Type: 2, Until: now() - 1000})
				must(t, err)
				must(t, db.Cache().Warm(t.Context(), uid, history.WarmSet{}))
				_, err = db.Sweep(t.Context())
				must(t, err)
			}
		})
	}
	all.Go(func() {
		for range 10 {
			db.Checkpoint()
		}
	})
	all.Wait()

	before := views(t, db, users)
	closed(t, db)
	db = open(t, dir, pebble.Config{})
	if after := views(t, db, users); !reflect.DeepEqual(before, after) {
		t.Errorf("before the start:\n%v\nafter it:\n%v", before, after)
	}
	if got := len(allDirty(t, db)); got != users*objects+users {
		t.Errorf("got %d dirty marks, want one for each of %d records and %d users", got, users*objects, users)
	}
}

// TestBornOnce reads an absent key, then writes or warms it and moves it to Pebble. Memory forgets the absence,
// so a second write without a base conflicts.
func TestBornOnce(t *testing.T) {
	for name, config := range map[string]pebble.Config{"hashes": {}, "collisions": pebble.Config{}.Colliding()} {
		t.Run(name, func(t *testing.T) {
			db := open(t, t.TempDir(), config)
			cache := db.Cache()
			for n, write := range []func(history.Key){
				func(k history.Key) { born(t, cache, k, history.Applied) },
				func(k history.Key) {
					must(t, cache.Warm(t.Context(), k.UID, history.WarmSet{Items: []history.Item{{Object: k.Object, Record: beat(now())}}}))
				},
			} {
				k := viewing(n, 0)
				if e := cache.Load(t.Context(), []history.Key{k})[0]; e.Err != nil || e.Record != nil {
					t.Fatalf("load: %+v, want nothing", e)
				}
				write(k)
				db.Checkpoint()
				born(t, cache, k, history.Conflict)
			}
			var all sync.WaitGroup
			var applied [20]atomic.Int64
			for range 4 {
				all.Go(func() {
					for n := range applied {
						k := viewing(2, n)
						_ = cache.Load(t.Context(), []history.Key{k}) // may or may not find it
						if write(t, cache, k) == history.Applied {
							applied[n].Add(1)
						}
						if n%5 == 4 {
							db.Checkpoint()
						}
					}
				})
			}
			all.Wait()
			for n := range applied {
				if got := applied[n].Load(); got != 1 {
					t.Errorf("%d: born %d times", n, got)
				}
			}
		})
	}
}

func born(t *testing.T, cache history.Cache, k history.Key, want history.WriteStatus) {
	t.Helper()
	if got := write(t, cache, k); got != want {
		t.Errorf("%s without a base: %v, want %v", k, got, want)
	}
}

func write(t *testing.T, cache history.Cache, k history.Key) history.WriteStatus {
	t.Helper()
	r := beat(now())
	r.Revision, r.Partial = 1<<40, true
	out := cache.Write(t.Context(), []history.Write{{Key: k, Record: r}})[0]
	if out.Err != nil {
		t.Error(out.Err)
	}
	return out.Status
}

// fold retries a write until it has no conflict.
func fold(t *testing.T, cache history.Cache, k history.Key) {
	w := history.Write{Key: k, Record: beat(now()), BeginsHold: true}
	for {
		o := cache.Write(t.Context(), []history.Write{w})[0]
		if o.Status != history.Conflict {
			must(t, o.Err)
			return
		}
		w.Base = 0
		if o.Current.Record != nil {
			w.Base = o.Current.Record.Revision
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// view is the visible state of a user.
type view struct {
	page   history.Page
	loaded []history.Entry
}

func views(t *testing.T, db *pebble.DB, users int) (all []view) {
	t.Helper()
	for user := range users {
		page, err := db.Cache().List(t.Context(), viewing(user, 0).UID, history.Query{Limit: 50})
		must(t, err)
		keys := make([]history.Key, 0, 120)
		for object := range cap(keys) {
			keys = append(keys, viewing(user, object))
		}
		all = append(all, view{page, db.Cache().Load(t.Context(), keys)})
	}
	return all
}

func TestScans(t *testing.T) {
	historytest.CacheScan(t, open(t, t.TempDir(), pebble.Config{}).Cache())
	historytest.ArchiveScan(t, open(t, t.TempDir(), pebble.Config{}).Archive())
}
