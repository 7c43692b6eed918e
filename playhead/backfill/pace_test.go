package backfill_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/playhead/backfill"
)

// loaded is a target whose answers take longer, the more items a second it gets.
type loaded struct {
	capacity float64 // items per second
	limit    time.Duration

	mu          sync.Mutex
	busy        time.Time
	slow, calls int
}

func (l *loaded) Fold(ctx context.Context, items []backfill.Item) ([]backfill.Result, error) {
	l.mu.Lock()
	if l.busy.Before(time.Now()) {
		l.busy = time.Now()
	}
	l.busy = l.busy.Add(time.Duration(float64(len(items)) / l.capacity * float64(time.Second)))
	wait := time.Until(l.busy)
	if l.calls++; wait > l.limit {
		l.slow++
	}
	l.mu.Unlock()
	time.Sleep(wait)
	return backfill.Discard{}.Fold(ctx, items)
}

// TestPace: with a limit of answer times a copy slows down to what the target can take, and not below. The limit is also
// twice the answer time at the begin.
func TestPace(t *testing.T) {
	for name, tt := range map[string]struct {
		capacity float64
		lanes    int
		limit    time.Duration // of the answers
	}{
		"slow target":  {500, 1, 50 * time.Millisecond},
		"quick target": {20_000, 16, 2 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var users []string
				for i := range 20_000 {
					users = append(users, time.UnixMilli(int64(i)).String())
				}
				l := &loaded{capacity: tt.capacity, limit: tt.limit}
				began := time.Now()
				c := &backfill.Copy{Source: items(users), Target: l, Lanes: tt.lanes, P99: 50 * time.Millisecond, MaxRejects: -1}
				if _, err := c.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				if rate := 20_000 / took.Seconds(); rate < min(tt.capacity, 5000)*0.4 || l.slow*10 > l.calls {
					t.Errorf("%.0f items a second of %.0f, %d of %d answers slow", rate, tt.capacity, l.slow, l.calls)
				}
			})
		})
	}
}
