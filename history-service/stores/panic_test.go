package stores

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

type panickingArchive struct{ history.Archive }

func (panickingArchive) Page(context.Context, string, history.Query) (history.Page, error) {
	panic("boom")
}

// A panic is no answer, so it does not end a stall.
func TestPanicDoesNotEndAStall(t *testing.T) {
	b := NewArchive(panickingArchive{}, slog.New(slog.DiscardHandler), nil).(*breaker)
	b.stalled, b.retried = true, time.Time{}
	func() {
		defer func() { _ = recover() }()
		_, _ = b.Page(t.Context(), "ann", history.Query{Limit: 1})
	}()
	if !b.stalled {
		t.Error("a panic has ended the stall: the archive counts as answering")
	}
}

// panickingCache is a cache of three nodes; its loads panic.
type panickingCache struct{ Cache }

func (panickingCache) Load(context.Context, []history.Key) []history.Entry { panic("boom") }

func (panickingCache) Node(b history.Bucket) string { return string('a' + rune(b%3)) }

// A panic in a call to several nodes reaches the request's goroutine, which is guarded.
func TestPanicInAPartReachesTheCaller(t *testing.T) {
	cache := panickingCache{}
	n := NewNodes(cache, cache, slog.New(slog.DiscardHandler), nil)
	keys := make([]history.Key, 8)
	for i := range keys {
		keys[i] = history.UserKey(string('a' + rune(i)))
	}
	defer func() {
		if p, ok := recover().(*run.PanicError); !ok || p.Value != "boom" {
			t.Errorf("recovered %v, want the panic of the cache", p)
		}
	}()
	n.Load(t.Context(), keys)
}
