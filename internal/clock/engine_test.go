package clock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/clock"
)

// TestEngine: Check reports a wrong clock until it is right, also while the engine does not answer.
func TestEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ahead time.Duration
		var away error
		e := clock.NewEngine(clock.EngineConfig{Name: "hbase", Ahead: func(context.Context) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			return ahead, away
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		for _, step := range []struct {
			name  string
			ahead time.Duration
			away  error
			wrong bool
		}{
			{"a little off", time.Second, nil, false},
			{"days ahead", 48 * time.Hour, nil, true},
			{"away", 0, errors.New("away"), true},
			{"right", 0, nil, false},
			{"behind", -time.Minute, nil, true},
		} {
			mu.Lock()
			ahead, away = step.ahead, step.away
			mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			if err := e.Check(ctx); (err != nil) != step.wrong {
				t.Errorf("%s: %v, want an error: %v", step.name, err, step.wrong)
			}
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestOutside(t *testing.T) {
	began := time.Now()
	for _, c := range []struct{ at, want time.Duration }{{-3, -3}, {0, 0}, {5, 0}, {10, 0}, {12, 2}} {
		if got := clock.Outside(began.Add(c.at), began, began.Add(10)); got != c.want {
			t.Errorf("at %d: got %d, want %d", c.at, got, c.want)
		}
	}
}
