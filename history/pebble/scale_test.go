package pebble_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// BenchmarkScale compares a large store with a small one, both with 40 records per user. It reports the rate
// and CPU time of heartbeats, pages of rarely read users, starts after Close and after a kill, and disk usage.
//
//	go test ./history/pebble -run '^$' -bench Scale -benchtime 1x -timeout 1h -args -records 10000000
func BenchmarkScale(b *testing.B) {
	const small = 100_000
	for b.Loop() {
		few, many := newScaled(b, small), newScaled(b, max(*preloaded, 2*small))
		var rates, used, p50, p99 []float64
		for range 5 {
			a, z := few.heartbeats(b), many.heartbeats(b)
			rates, used = append(rates, z.rate/a.rate), append(used, z.cpu/a.cpu)
		}
		for range 5 {
			a, z := few.newest(b), many.newest(b)
			p50, p99 = append(p50, z[0].Seconds()/a[0].Seconds()), append(p99, z[1].Seconds()/a[1].Seconds())
		}
		b.ReportMetric(median(rates), "rate-ratio")
		b.ReportMetric(median(used), "cpu-ratio")
		b.ReportMetric(median(p50), "newest-p50-ratio")
		b.ReportMetric(median(p99), "newest-p99-ratio")
		newest := many.newest(b)
		b.ReportMetric(float64(newest[0].Microseconds()), "newest-p50-us")
		b.ReportMetric(float64(newest[1].Microseconds()), "newest-p99-us")
		many.starts(b)
		few.close(b)
	}
	b.ReportMetric(0, "ns/op")
}

// scaled is a store with n records.
type scaled struct {
	pathStore
	dir string
	n   int
}

func newScaled(b *testing.B, n int) *scaled {
	s := &scaled{dir: b.TempDir(), n: n}
	s.open(b)
	began := time.Now()
	preload(b, s, n)
	b.Logf("%d records in %v", n, time.Since(began))
	return s
}

func (s *scaled) open(b *testing.B) {
	db, err := pebble.Open(s.dir, pebble.Config{})
	if err != nil {
		b.Fatal(err)
	}
	s.pathStore = journaled{db.Cache(), db.Archive(), db}
}

func (s *scaled) close(b *testing.B) {
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// cost is the heartbeats per second and the CPU seconds per heartbeat.
type cost struct{ rate, cpu float64 }

func (s *scaled) heartbeats(b *testing.B) cost {
	const n = 200_000
	began, before := time.Now(), cpu()
	runViewings(b, s, n, load{beats: 3, users: 25_000, first: rand.IntN(1<<40) + 1<<40})
	return cost{n / time.Since(began).Seconds(), (cpu() - before).Seconds() / n}
}

// newest returns the 50th and 99th percentile of the time of a page of 20.
func (s *scaled) newest(b *testing.B) [2]time.Duration {
	took := make([]time.Duration, 5000)
	for i := range took {
		uid := viewing(rand.IntN(preloadedUsers(s.n)), 0).UID
		began := time.Now()
		page, err := s.pathStore.(journaled).List(b.Context(), uid, history.Query{Limit: 20})
		took[i] = time.Since(began)
		if err != nil || len(page.Items) != 20 {
			b.Fatalf("%d items, %v; want 20", len(page.Items), err)
		}
	}
	slices.Sort(took)
	return [2]time.Duration{took[len(took)/2], took[len(took)*99/100]}
}

// starts measures starts after Close and after a kill with 50 MiB of journal.
func (s *scaled) starts(b *testing.B) {
	s.close(b)
	b.ReportMetric(float64(taken(b, s.dir))/float64(s.n), "disk-bytes/record")
	b.ReportMetric(s.start(b).Seconds(), "s/start-closed")
	kill(b, start(b, "fill", s.dir), 150_000, map[history.Key]int64{})
	b.ReportMetric(s.start(b).Seconds(), "s/start-killed")
}

// start returns the time until the store answers.
func (s *scaled) start(b *testing.B) time.Duration {
	began := time.Now()
	s.open(b)
	if _, err := s.pathStore.(journaled).List(b.Context(), viewing(0, 0).UID, history.Query{Limit: 20}); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	s.close(b)
	return took
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
