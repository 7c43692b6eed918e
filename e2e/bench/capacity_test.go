package bench_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	jobarchive "github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/internal/run"
)

// The figures of docs/performance.md, assumed and measured. Times are in seconds, CPU in microseconds.
const (
	period, viewing, hold = 15., 1200., 120.
	usersADay             = 5.   // per viewer at the peak
	viewingsADay          = 5.   // per user
	cachedRecords         = 100. // per user
	serviceCPU, redisCPU  = 13., 15.
	redisFullCPU          = 8.
	recordMemory          = 420 + 110. // with metadata
	userMemory            = 190.
	keyBytes              = 21.
	jobCPU, putCPU        = 40., 150.
	archivedBytes         = 250.
	region                = 10e9 // bytes
	busy                  = 0.6  // maximum share of a core
	outage                = 3600.
)

// needs are the rows of the table in docs/performance.md.
var needs = []struct {
	what  string
	value func(viewers float64) float64
}{
	{"heartbeats a second", heartbeatsASecond},
	{"viewings a second", func(v float64) float64 { return v / viewing }},
	{"announced keys, puts a second", announcedKeys},
	{"cores of services", func(v float64) float64 { return heartbeatsASecond(v) * serviceCPU / 1e6 / busy }},
	{"Redis masters, flushed always", func(v float64) float64 { return heartbeatsASecond(v) * redisCPU / 1e6 / busy }},
	{"Redis masters, flushed each second", func(v float64) float64 { return heartbeatsASecond(v) * redisFullCPU / 1e6 / busy }},
	{"memory of Redis, GB", func(v float64) float64 { return v * usersADay * (userMemory + cachedRecords*recordMemory) / 1e9 }},
	{"Kafka, kB a second", func(v float64) float64 { return announcedKeys(v) * keyBytes / 1e3 }},
	{"cores of jobs", func(v float64) float64 { return v / viewing * jobCPU / 1e6 / busy }},
	{"cores of HBase", func(v float64) float64 { return announcedKeys(v) * putCPU / 1e6 / busy }},
	{"regions of HBase, of 10 GB", func(v float64) float64 { return v * usersADay * viewingsADay * 90 * archivedBytes / region }},
	{"different keys after an hour without HBase", func(v float64) float64 { return waiting(v, outage) }},
	{"minutes to catch up, with twice the CPU", func(v float64) float64 { return catchUp(v, outage, 2) / 60 }},
}

func heartbeatsASecond(viewers float64) float64 { return viewers / period }

func announcedKeys(viewers float64) float64 { return viewers / viewing * holds }

// holds is the number of holds of a viewing: between two of them a heartbeat must arrive.
var holds = math.Ceil(viewing / (hold + period))

// waiting returns the keys that wait after an outage of that many seconds.
func waiting(viewers, seconds float64) float64 { return viewers * (1 + seconds/viewing) }

// catchUp returns the seconds until the waiting keys are archived, at a multiple of the normal throughput.
func catchUp(viewers, seconds, times float64) float64 {
	return waiting(viewers, seconds) / (announcedKeys(viewers) * (times - 1))
}

// TestCapacityTable compares the page's table with its formulae.
func TestCapacityTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range needs {
		row := "| " + n.what
		for _, viewers := range []float64{1e6, 1e7, 1e8} {
			row += " | " + amount(n.value(viewers))
		}
		if t.Log(row + " |"); !strings.Contains(string(page), row+" |\n") {
			t.Errorf("docs/performance.md has no row %q", row+" |")
		}
	}
}

// amount formats a number with about three digits.
func amount(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.3g million", x/1e6)
	case x < 10:
		return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
	}
	unit := math.Pow(10, max(math.Floor(math.Log10(x))-2, 0))
	text := strconv.FormatFloat(math.Round(x/unit)*unit, 'f', 0, 64)
	if n := len(text); n > 3 {
		return text[:n-3] + "," + text[n-3:]
	}
	return text
}

// TestCapacity simulates hours in virtual time: the real service, aggregator and job between an in-memory cache
// and queue. The archive's puts take half of the time, and it is unavailable for an hour. The results must match
// the formulae of docs/performance.md.
func TestCapacity(t *testing.T) {
	viewers := 2000
	if testing.Short() {
		viewers = 400
	}
	l := lived{viewers: viewers, plan: replay.Expand(replay.Synthetic(viewers, 6, viewing/period), 0)}
	synctest.Test(t, l.run)
	v := float64(viewers)
	t.Logf("%d viewers, %d heartbeats: %.2f keys announced a viewing, %.1f bytes each; %d keys wait after the outage; all archived after %v; %d of %d puts of a content that was put before",
		viewers, l.plan.Len(), l.keysAViewing, l.keyBytes, l.waiting, l.caughtUp, l.again, l.puts)
	for _, c := range []struct {
		what            string
		got, want, most float64
	}{
		{"keys a viewing", l.keysAViewing, holds, 0.05},
		{"keys that wait", float64(l.waiting), waiting(v, outage), 0.05},
		{"seconds to catch up", l.caughtUp.Seconds(), catchUp(v, outage, 2), 0.25},
	} {
		if off := math.Abs(c.got/c.want - 1); off > c.most {
			t.Errorf("%s: %.2f, the formula says %.2f", c.what, c.got, c.want)
		}
	}
	if l.again > 0 {
		t.Errorf("%d puts of contents that were put before", l.again)
	}
}

// lived is some hours of viewers, and the observations.
type lived struct {
	viewers int
	plan    *replay.Plan

	keysAViewing, keyBytes float64
	waiting                int
	caughtUp               time.Duration
	puts, again            int
}

func (l *lived) run(t *testing.T) {
	first := l.plan.Event(0).At
	l.plan.EndAt(time.Now().Add(time.Second).UnixMilli() + l.plan.Event(l.plan.Len()-1).At - first)
	queue := &counted{announced: announced{t: t}, queue: memqueue.New(memqueue.Config{})}
	cache := &marked{memory: memory{records: make(map[history.Key]*history.Record)}, marks: make(map[history.Key]time.Time)}
	archive := &slowly{
		turn: make(chan struct{}, 1), seen: make(map[history.Content]bool),
		each: time.Duration(float64(time.Second) / 2 / announcedKeys(float64(l.viewers))),
	}
	held, errHeld := aggregate.New(aggregate.Config{Publisher: queue})
	server, errServer := rpc.New(rpc.Config{Cache: cache, Archive: archive, Aggregate: held, Queue: queue})
	second := int(time.Second / archive.each) // puts per batch; a record that changes before its batch is put stays dirty
	j, errJob := jobarchive.New(jobarchive.Config{Cache: cache, Archive: archive, Workers: 2, Batch: second, Deadline: time.Hour})
	if err := cmp.Or(errHeld, errServer, errJob); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = held.Run(ctx) })
	all.Go(func() { _ = j.Generations(queue.queue, jobarchive.Loops{"consume": j.Consume, "sweep": j.Sweep})(ctx) })
	over := make(chan struct{})
	all.Go(func() {
		defer close(over)
		l.story(cache, archive, queue)
	})
	for from := 0; from < l.plan.Len() && !isClosed(over); {
		time.Sleep(time.Until(time.UnixMilli(l.plan.Event(from).At).Truncate(gather).Add(gather * 3 / 2)))
		from += beat(t, server, l.plan, from)
	}
	<-over
	cancel()
	all.Wait()
	l.puts, l.again = archive.puts, archive.again
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// story stops the archive for an hour, and waits until everything except held keys is archived again.
func (l *lived) story(cache *marked, archive *slowly, queue *counted) {
	time.Sleep(viewing * time.Second) // until every viewing has begun
	keys, bytes := queue.so()
	time.Sleep(viewing * time.Second)
	more, longer := queue.so()
	l.keysAViewing, l.keyBytes = float64(more-keys)/float64(l.viewers), float64(longer-bytes)/float64(more-keys)
	archive.away.Store(true)
	time.Sleep(outage * time.Second)
	archive.away.Store(false)
	back := time.Now()
	for l.waiting = cache.waiting(0); cache.waiting(2*hold*time.Second) > 0; {
		time.Sleep(time.Second)
	}
	l.caughtUp = time.Since(back)
}

type counted struct {
	mu sync.Mutex
	announced
	queue *memqueue.Queue
}

// Publish implements [history.Publisher].
func (c *counted) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	c.mu.Lock()
	_, _ = c.announced.Publish(ctx, keys)
	c.mu.Unlock()
	return c.queue.Publish(ctx, keys)
}

func (c *counted) so() (keys, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys, c.bytes
}

// marked is an in-memory cache with dirty marks.
type marked struct {
	mu sync.Mutex
	memory
	marks map[history.Key]time.Time
}

// Load implements [history.Cache].
func (m *marked) Load(ctx context.Context, keys []history.Key) []history.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory.Load(ctx, keys)
}

// Write implements [history.Cache].
func (m *marked) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.memory.Write(ctx, writes)
	for i, w := range writes {
		if _, is := m.marks[w.Key]; !is && out[i].Status == history.Applied {
			m.marks[w.Key] = time.Now()
		}
	}
	return out
}

// MarkClean implements [history.Ledger].
func (m *marked) MarkClean(_ context.Context, contents []history.Content) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range contents {
		if r := m.records[c.Key]; r != nil && r.Revision == c.Revision {
			clean := *r
			clean.Revision |= history.CleanBit
			m.records[c.Key] = &clean
			delete(m.marks, c.Key)
		}
	}
	return nil
}

// Overdue implements [history.Ledger] for one job with all buckets.
func (m *marked) Overdue(_ context.Context, _ []history.Bucket, age time.Duration, limit int) (keys []history.Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, at := range m.marks {
		if time.Since(at) >= age {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b history.Key) int {
		return cmp.Or(m.marks[a].Compare(m.marks[b]), strings.Compare(a.String(), b.String()))
	})
	return keys[:min(limit, len(keys))], nil
}

// Backlog implements [history.Ledger].
func (m *marked) Backlog(_ context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	return make([]history.Backlog, len(buckets)), nil
}

// Trim implements [history.Ledger].
func (m *marked) Trim(context.Context, []string) error { return nil }

// waiting returns the number of marks of at least that age.
func (m *marked) waiting(age time.Duration) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.marks {
		if time.Since(at) >= age {
			n++
		}
	}
	return n
}

// slowly is an archive with sequential puts that take time, and with outages.
type slowly struct {
	history.Archive // nil

	turn chan struct{}
	each time.Duration
	away atomic.Bool

	seen        map[history.Content]bool
	puts, again int
}

// Put implements [history.Archive].
func (s *slowly) Put(ctx context.Context, cells []history.Cell) []error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.away.Load() {
		run.Sleep(ctx, time.Second)
		return slices.Repeat([]error{history.ErrUnavailable}, len(cells))
	}
	run.Sleep(ctx, time.Duration(len(cells))*s.each)
	for _, c := range cells {
		content := history.Content{Key: c.Key, Revision: c.Record.Revision}
		if s.puts++; s.seen[content] {
			s.again++
		}
		s.seen[content] = true
	}
	return nil
}
