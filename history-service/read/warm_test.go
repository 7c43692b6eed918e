package read

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stores"
)

// warmCache has every user warm: a warm-up is one look.
type warmCache struct{ stores.Cache }

func (warmCache) Load(_ context.Context, keys []history.Key) []history.Entry {
	out := make([]history.Entry, len(keys))
	for i := range out {
		out[i].User.Warm = true
	}
	return out
}

// A user who has to wait for a worker of the node is never left behind, although the last
// one leaves at that moment.
func TestWarmersLeaveNobodyBehind(t *testing.T) {
	w := newWarmer(Config{
		Cache: warmCache{}, Deadline: time.Second, Warmers: 4, WarmRate: 1 << 30, Logger: slog.New(slog.DiscardHandler),
		NodeOf: func(string) string { return "node" },
	}, newMetrics(nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); _ = w.run(ctx) }()
	defer func() { cancel(); <-done }()
	for round := range 20_000 {
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				if err := w.wait(ctx, fmt.Sprint("u", round, "-", i)); err != nil {
					w.mu.Lock()
					t.Errorf("round %d: user %d is stuck: %v; flights %d, busy %v, backlog %v, queue %d", round, i, err, len(w.flights), w.busy, w.backlog, len(w.queue))
					w.mu.Unlock()
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}
