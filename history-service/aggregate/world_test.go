package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/internal/obs/obstest"
)

const (
	hold = 120 * time.Second
	tick = time.Second
)

var errDown = errors.New("queue down")

// queue is a publisher that takes, refuses or hangs.
type queue struct {
	mu    sync.Mutex
	taken []history.Key
	calls int
	// refuses selects the refused keys; nil takes all.
	refuses func(history.Key) bool
	hangs   bool
}

func (q *queue) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	q.mu.Lock()
	q.calls++
	hangs, refuses := q.hangs, q.refuses
	q.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return keys, ctx.Err()
	}
	var unsent []history.Announcement
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range keys {
		if refuses != nil && refuses(d.Key) {
			unsent = append(unsent, d)
		} else {
			q.taken = append(q.taken, d.Key)
		}
	}
	if len(unsent) > 0 {
		return unsent, errDown
	}
	return nil, nil
}

func (q *queue) set(hangs bool, refuses func(history.Key) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hangs, q.refuses = hangs, refuses
}

func all(history.Key) bool { return true }

// world is an aggregator running in virtual time.
type world struct {
	*aggregate.Aggregator
	queue *queue
	reg   *prometheus.Registry
	stop  func() // returns after Run
	cell  int64  // cell time of the last record
}

// inBubble runs a test in virtual time with a new aggregator.
func inBubble(t *testing.T, cfg aggregate.Config, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.stop()
		test(t, w)
	})
}

func newWorld(t obstest.T, cfg aggregate.Config) *world {
	t.Helper()
	w := &world{queue: &queue{}, reg: prometheus.NewRegistry()}
	cfg.Registry = w.reg
	if cfg.Publisher == nil {
		cfg.Publisher = w.queue
	}
	var err error
	if w.Aggregator, err = aggregate.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	synctest.Wait() // the ticker has started
	return w
}

// pass advances virtual time and waits for due work.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func key(uid string, n int) history.Key {
	return history.Key{UID: uid, Object: history.Object{ID: fmt.Sprint(n), Type: 1}}
}

// record returns the next record.
func (w *world) record() *history.Record {
	w.cell++
	return &history.Record{CellTime: w.cell}
}

// write puts a new record of a key.
func (w *world) write(k history.Key, ended bool) history.Key {
	w.Put(k, aggregate.Held{Record: w.record()}, ended)
	return k
}

// wantTaken checks the keys taken since the last check, in any order.
func (w *world) wantTaken(t *testing.T, when string, want ...history.Key) {
	t.Helper()
	synctest.Wait()
	w.queue.mu.Lock()
	got := w.queue.taken
	w.queue.taken = nil
	w.queue.mu.Unlock()
	byText := func(a, b history.Key) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(got, byText)
	if slices.SortFunc(want, byText); !slices.Equal(got, want) {
		t.Errorf("%s: the queue got %v, want %v", when, got, want)
	}
}

// metric returns the value of a counter or gauge.
func (w *world) metric(t obstest.T, name string) int {
	t.Helper()
	return int(obstest.Sum(t, w.reg, "playhead_aggregate_"+name))
}

func (w *world) wantMetrics(t *testing.T, when string, want map[string]int) {
	t.Helper()
	for name, n := range want {
		if got := w.metric(t, name); got != n {
			t.Errorf("%s: %s is %d, want %d", when, name, got, n)
		}
	}
}
