package backfill_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/playhead/backfill"
)

// loaded is a target whose answers take longer, the more items a second it gets.
type loaded struct {
	capacity float64 // items per second
	busy     time.Time
	slow     int
	calls    int
}

func (l *loaded) Fold(ctx context.Context, items []backfill.Item) ([]backfill.Result, error) {
	if l.busy.Before(time.Now()) {
		l.busy = time.Now()
	}
	l.busy = l.busy.Add(time.Duration(float64(len(items)) / l.capacity * float64(time.Second)))
	wait := time.Until(l.busy)
	if l.calls++; wait > 50*time.Millisecond {
		l.slow++
	}
	time.Sleep(wait)
	return backfill.Discard{}.Fold(ctx, items)
}

// TestPace: with a limit of answer times a copy slows down to what the target can take, and not below.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var users []string
		for i := range 20_000 {
			users = append(users, time.UnixMilli(int64(i)).String())
		}
		l := &loaded{capacity: 500}
		began := time.Now()
		c := &backfill.Copy{Source: items(users), Target: l, Lanes: 1, P99: 50 * time.Millisecond, MaxRejects: -1}
		if _, err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if rate := 20_000 / took.Seconds(); rate < 200 || l.slow*10 > l.calls {
			t.Errorf("%.0f items a second of 500, %d of %d answers slow", rate, l.slow, l.calls)
		}
	})
}
