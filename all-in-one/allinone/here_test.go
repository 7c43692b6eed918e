package allinone_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
)

// patience bounds any wait, even on a busy machine. Only failed tests reach it.
const patience = time.Minute

// here is an all-in-one in the test's process.
type here struct {
	testing.TB
	*allinone.Process
	token string
	end   context.CancelFunc
	done  chan error
}

func open(t testing.TB, dir string) *here {
	t.Helper()
	return openWith(t, func(c *allinone.Config) { c.Dir = dir })
}

func openWith(t testing.TB, change func(*allinone.Config)) *here {
	t.Helper()
	cfg := config("")
	change(&cfg)
	p, err := allinone.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var greeting strings.Builder
	p.Greet(&greeting, "demo")
	_, token, _ := strings.Cut(greeting.String(), "export TOKEN=")
	token, _, _ = strings.Cut(token, "\n")
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	h := &here{TB: t, Process: p, token: token, end: end, done: make(chan error, 1)}
	go func() { h.done <- p.Run(ctx) }()
	t.Cleanup(h.stop)
	return h
}

// stop ends it like a signal. A second call does nothing.
func (h *here) stop() {
	h.Helper()
	h.end()
	if h.done == nil {
		return
	}
	if err := <-h.done; err != nil {
		h.Errorf("run: %v", err)
	}
	h.done = nil
}

// clean waits until everything is archived, at most for limit.
func (h *here) clean(limit time.Duration) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), limit)
	defer cancel()
	for {
		left, err := h.Cache().Overdue(h.Context(), buckets(), 0, 1)
		if err != nil {
			h.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			h.Fatalf("%s is still not archived after %v", left[0], limit)
		}
	}
}

func buckets() []history.Bucket {
	return slices.Collect(func(yield func(history.Bucket) bool) {
		for b := range history.Bucket(history.Buckets) {
			if !yield(b) {
				return
			}
		}
	})
}
