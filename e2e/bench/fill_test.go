//go:build e2e

package bench_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/embedded"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

var fillRecords = flag.Int("fill.records", 4_000_000, "new records of BenchmarkAfterFill")

// BenchmarkAfterFill measures the embedded store before, during and directly after new records in one go. A fill has
// one report a record; before and after it the same viewings report again, as players do. Use -benchtime 1x.
func BenchmarkAfterFill(b *testing.B) {
	for b.Loop() {
		p, err := embedded.Open(b.TempDir(), make([]byte, 32))
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		l := &filler{b: b, p: p, at: time.Now().Add(-24 * time.Hour).UnixMilli()}
		l.watch(watching) // begins the viewings
		quiet := l.watch(100 * watching)
		first := l.run(*fillRecords/8, l.fill) // into an almost empty store
		whole := l.run(*fillRecords*7/8, l.fill)
		after := l.watch(100 * watching)
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(quiet.rate, "quiet-beats/s")
		b.ReportMetric(first.rate, "empty-records/s")
		b.ReportMetric(whole.rate/first.rate, "fill-of-empty")
		b.ReportMetric(after.rate/quiet.rate, "after-of-quiet")
		b.ReportMetric(quiet.p99.Seconds()*1000, "quiet-p99-ms")
		b.ReportMetric(after.p99.Seconds()*1000, "after-p99-ms")
		b.ReportMetric(whole.p99.Seconds()*1000, "fill-p99-ms")
		b.ReportMetric(float64(max(first.memory, whole.memory, after.memory))/(1<<20), "peak-MiB")
	}
	b.ReportMetric(0, "ns/op")
}

// watching players have one viewing each, and report in turn.
const watching = 20_000

type filler struct {
	b      *testing.B
	p      *embedded.Playhead
	at     int64 // Unix milliseconds
	filled int
}

// watch has the players report n times in all. They watch on where they were: a fill takes no time of theirs.
func (l *filler) watch(n int) outcome {
	defer func() { l.at += 15_000 * int64(n/watching) }()
	return l.run(n, func(i int) *historyv1.Heartbeat {
		return l.report(fmt.Sprint("player", i%watching), "film", l.at+int64(i/watching)*15_000)
	})
}

// fill is the i-th new record. Its users have twenty each.
func (l *filler) fill(i int) *historyv1.Heartbeat {
	i += l.filled
	return l.report(fmt.Sprint("user", i/20), fmt.Sprint("film", i%20), l.at-int64(i%20)*3_600_000)
}

func (l *filler) report(uid, object string, at int64) *historyv1.Heartbeat {
	return &historyv1.Heartbeat{
		Uid: uid, ObjectId: object, ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: at,
		PositionMs: 60_000 + at%3_600_000, DurationMs: 7_200_000, Session: "0123456789abcdef",
	}
}

// outcome is a run's rate in reports a second, the 99th percentile of the time of a call, and the peak memory in bytes.
type outcome struct {
	rate   float64
	p99    time.Duration
	memory int64
}

// run has four callers send n reports, a hundred a call.
func (l *filler) run(n int, report func(i int) *historyv1.Heartbeat) outcome {
	const callers, size = 4, 100
	var next atomic.Int64
	var lock sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	stop := make(chan struct{})
	peak := make(chan int64)
	go func() { peak <- peakMemory(l.b, stop) }()
	began := time.Now()
	for range callers {
		wg.Go(func() {
			var took []time.Duration
			for {
				from := int(next.Add(size)) - size
				if from >= n {
					break
				}
				req := &historyv1.ApplyRequest{}
				for i := range min(size, n-from) {
					req.Heartbeats = append(req.Heartbeats, report(from+i))
				}
				sent := time.Now()
				resp, err := l.p.History.Apply(l.b.Context(), req)
				took = append(took, time.Since(sent))
				if err != nil || slices.ContainsFunc(resp.GetStatuses(), func(s historyv1.Status) bool { return s != historyv1.Status_STATUS_STORED }) {
					l.b.Error(resp, err)
					return
				}
			}
			lock.Lock()
			defer lock.Unlock()
			all = append(all, took...)
		})
	}
	wg.Wait()
	total := time.Since(began)
	close(stop)
	slices.Sort(all)
	o := outcome{float64(n) / total.Seconds(), all[len(all)*99/100], <-peak}
	l.filled += n
	l.b.Logf("%d reports: %.0f/s, p99 %v, %d MiB", n, o.rate, o.p99, o.memory>>20)
	return o
}

// peakMemory samples the resident memory of this process until stop.
func peakMemory(b *testing.B, stop <-chan struct{}) (peak int64) {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		peak = max(peak, resident(b, os.Getpid()))
		select {
		case <-t.C:
		case <-stop:
			return peak
		}
	}
}
