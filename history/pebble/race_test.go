package pebble_test

import (
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestEverythingAtOnce lets all kinds of calls at a few users, with checkpoints and
// sweeps. Afterwards readers see what a fresh start sees, and every record has the
// mark that its last write set.
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

// TestBornOnce has a key that a read found absent written, warmed and moved to Pebble: memory
// forgets that it was absent, and a second write without a base is in conflict.
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
						_ = cache.Load(t.Context(), []history.Key{k}) // whatever it finds
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
	out := cache.Apply(t.Context(), []history.Write{{Key: k, Record: r}})[0]
	if out.Err != nil {
		t.Error(out.Err)
	}
	return out.Status
}

// fold writes until no conflict is left.
func fold(t *testing.T, cache history.Cache, k history.Key) {
	w := history.Write{Key: k, Record: beat(now()), Mark: true}
	for {
		o := cache.Apply(t.Context(), []history.Write{w})[0]
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// view is what readers see of a user.
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
