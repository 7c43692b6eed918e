package pebble_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/pebble"
)

const window = 200 // writes per call

// BenchmarkApply overwrites the records of 20,000 viewers in windows; every third write sets a new mark. An
// operation is a write.
func BenchmarkApply(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			cache := open(b, b.TempDir(), pebble.Config{}).Cache()
			shares := make([]*viewings, callers)
			for i := range shares {
				shares[i] = newViewings(i, 80_000/callers)
			}
			measured(b, "write", func() {
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for _, share := range shares {
					all.Go(func() {
						for left.Add(-window) > -window {
							share.apply(b, cache)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// BenchmarkArchivePut puts cells of new viewings in calls of 500. An operation is a cell.
func BenchmarkArchivePut(b *testing.B) {
	archive := open(b, b.TempDir(), pebble.Config{}).Archive()
	start := now()
	measured(b, "write", func() {
		for n := 0; n < b.N; n += 500 {
			cells := make([]history.Cell, 500)
			for i := range cells {
				cells[i] = history.Cell{Key: viewing((n+i)%20_000, n+i), Record: beat(start + int64(n+i))}
			}
			for _, err := range archive.Put(b.Context(), cells) {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCount counts completions, each of another user, of one object or of 10,000. An operation is a completion.
func BenchmarkCount(b *testing.B) {
	for _, objects := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			c := open(b, b.TempDir(), pebble.Config{}).Counters()
			measured(b, "completion", func() { countCompletions(b, c, b.N, objects) })
		})
	}
}

// BenchmarkPromote archives completed plays of 20,000 users and 5,000 objects, without counts and with them. An
// operation is a record, without its write to the cache.
func BenchmarkPromote(b *testing.B) {
	for _, counted := range []bool{false, true} {
		b.Run(fmt.Sprintf("counted=%v", counted), func(b *testing.B) {
			cfg := pebble.Config{Alone: true}
			if counted {
				cfg.Counting = counting(b)
			}
			db := open(b, b.TempDir(), cfg)
			at, took := now(), time.Duration(0)
			for n := 0; n < b.N; n += window {
				writes, keys := make([]history.Write, window), make([]history.Key, window)
				for i := range writes {
					e := history.Event{Kind: history.KindFinish, At: at, Position: 600_000, Duration: 600_000, Session: fmt.Sprint("s", n+i)}
					keys[i] = viewing(rand.IntN(20_000), rand.IntN(rand.IntN(5_000)+1))
					r := e.Record().Successor(nil)
					r.Partial = false
					writes[i] = history.Write{Key: keys[i], Record: r}
					must(b, db.Cache().Warm(b.Context(), keys[i].UID, history.WarmSet{}))
				}
				db.Cache().Write(b.Context(), writes) // a few keys are there already
				began := cpu()
				if put, _, err := db.Promote(b.Context(), keys); err != nil || put < window*9/10 {
					b.Fatal(put, err)
				}
				took += cpu() - began
			}
			b.ReportMetric(float64(took.Nanoseconds())/1000/float64(b.N), "cpu-us/record")
		})
	}
}

// BenchmarkTotals compares a read of an object's totals with a point read of a record.
func BenchmarkTotals(b *testing.B) {
	db := open(b, b.TempDir(), pebble.Config{})
	o := []history.Object{viewing(0, 0).Object}
	for _, viewers := range []int{1, 100_000} {
		countCompletions(b, db.Counters(), viewers, 1)
		b.Run(fmt.Sprintf("viewers=%d", viewers), func(b *testing.B) {
			measured(b, "read", func() {
				for range b.N {
					if all, err := db.Counters().Totals(b.Context(), o); err != nil || all[0].All.Plays == 0 {
						b.Fatal(all, err)
					}
				}
			})
		})
	}
	k := viewing(0, 0)
	for _, err := range db.Archive().Put(b.Context(), []history.Cell{{Key: k, Record: beat(now())}}) {
		b.Fatal(err)
	}
	b.Run("record", func(b *testing.B) {
		measured(b, "read", func() {
			for range b.N {
				if e, err := db.Archive().Get(b.Context(), []history.Key{k}); err != nil || e[0].Record == nil {
					b.Fatal(e, err)
				}
			}
		})
	})
}

// countCompletions counts n completions in calls of 1,000.
func countCompletions(b *testing.B, c *pebble.Counters, n, objects int) {
	b.Helper()
	at := now()
	for i := 0; i < n; {
		var some []count.Statement
		for ; len(some) < 1000 && i < n; i++ {
			some = append(some, count.Statement{
				UID: fmt.Sprint("user", i), Object: viewing(0, i%objects).Object, CellTime: at, Played: []history.Played{{At: at, Plays: 1, Watched: 1}},
			})
		}
		for _, r := range c.Count(b.Context(), some) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}

// BenchmarkList reads the newest 20 records of users with 1,000 each.
func BenchmarkList(b *testing.B) {
	const users, objects = 50, 1000
	cache := open(b, b.TempDir(), pebble.Config{}).Cache()
	start := now()
	for n := range objects {
		writes := make([]history.Write, users)
		for u := range writes {
			writes[u] = history.Write{Key: viewing(u, (n*7919)%objects), Record: beat(start + int64(n))}
		}
		mustApply(b, cache, writes)
	}
	measured(b, "read", func() {
		for n := range b.N {
			page, err := cache.List(b.Context(), viewing(n%users, 0).UID, history.Query{Limit: 20})
			if err != nil || len(page.Items) != 20 {
				b.Fatalf("got %d items, %v", len(page.Items), err)
			}
		}
	})
}

// measured reports the cost of run, including background work of the store.
func measured(b *testing.B, unit string, run func()) {
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	run()
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), unit+"s/s")
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/1000/n, "cpu-us/"+unit)
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// viewings are the keys of one caller, written in turn.
type viewings struct {
	keys      []history.Key
	revisions []uint64
	next      int
	writes    []history.Write
	at        int64
}

func newViewings(caller, n int) *viewings {
	v := &viewings{
		keys: make([]history.Key, n), revisions: make([]uint64, n),
		writes: make([]history.Write, window), at: now(),
	}
	for i := range v.keys {
		v.keys[i] = viewing(caller*n+i/4, i)
	}
	rand.Shuffle(n, func(i, j int) { v.keys[i], v.keys[j] = v.keys[j], v.keys[i] })
	return v
}

func (v *viewings) apply(tb testing.TB, cache history.Cache) {
	for i := range v.writes {
		r := beat(v.at)
		v.writes[i] = history.Write{Key: v.keys[v.next], Record: r, Base: v.revisions[v.next], BeginsHold: i%3 == 0}
		v.revisions[v.next] = r.Revision
		v.next = (v.next + 1) % len(v.keys)
		v.at++
	}
	mustApply(tb, cache, v.writes)
}

func mustApply(tb testing.TB, cache history.Cache, writes []history.Write) {
	for i, o := range cache.Write(tb.Context(), writes) {
		if o.Status != history.Applied {
			tb.Errorf("apply %s: got status %d, %v; want applied", writes[i].Key, o.Status, o.Err)
		}
	}
}

func viewing(user, object int) history.Key {
	return history.Key{UID: fmt.Sprintf("viewer-%08d", user), Object: history.Object{ID: fmt.Sprintf("title-%07d", object), Type: 1}}
}

// beat returns a record of about 150 bytes.
func beat(at int64) *history.Record {
	e := history.Event{
		Kind: history.KindProgress, At: at, Position: 1_234_567, Duration: 7_200_000,
		Session: "0192f5c8-6f0e-7d5a-a6a7-3d3b5f1c2e4d", Device: "living-room-television-0042",
		Meta: history.NewMeta(map[string]string{"title": "The Long Way", "series": "north"}),
	}
	r := e.Record()
	return r.Successor(nil)
}

func now() int64 { return time.Now().UnixMilli() }

// BenchmarkCompact grows a user to 20,000 records by 1,000 a round, a fifth of them repeats. It reports the CPU
// time of a put and of a compacted record, and the bytes written per byte of segments.
func BenchmarkCompact(b *testing.B) {
	for b.Loop() {
		a := open(b, b.TempDir(), pebble.Config{CompactAbove: 1, CompactAfter: time.Nanosecond}).Archive()
		start := now() - 100_000_000
		var puts, compactions time.Duration
		records := 0
		for round := range 25 {
			var cells []history.Cell
			for i := range 1000 {
				n := round*800 + i
				if i < 200 {
					n = rand.IntN(round*800 + 1)
				}
				r := beat(start + int64(round*1000+i)*1000)
				r.Session = fmt.Sprintf("%016x", rand.Uint64())
				cells = append(cells, history.Cell{Key: viewing(1, n), Record: r})
			}
			began := cpu()
			for some := range slices.Chunk(cells, 100) {
				if errs := a.Put(b.Context(), some); errs != nil {
					b.Fatal(errs)
				}
			}
			puts += cpu() - began
			began = cpu()
			n, err := a.Compact(b.Context(), cells[0].Key.UID)
			if err != nil {
				b.Fatal(err)
			}
			compactions += cpu() - began
			records += n
		}
		i, err := a.Inspect(b.Context(), viewing(1, 0).UID, false)
		if err != nil {
			b.Fatal(err)
		}
		list, err := i.Segments.Append(nil)
		if err != nil {
			b.Fatal(err)
		}
		size := len(list)
		for _, c := range i.Segments.Chunks {
			size += c.Bytes
		}
		b.ReportMetric(float64(puts.Nanoseconds())/25_000, "cpu-ns/put")
		b.ReportMetric(float64(compactions.Nanoseconds())/float64(records), "cpu-ns/compacted")
		b.ReportMetric(a.WrittenSegments()/float64(size), "written/byte")
	}
}
