package stores

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

type panickingArchive struct{ history.Archive }

func (panickingArchive) Page(context.Context, string, history.Query) (history.Page, error) {
	panic("boom")
}

// Get never answers.
func (panickingArchive) Get(context.Context, []history.Key) ([]history.Entry, error) {
	return nil, history.ErrUnavailable
}

// A panic is no answer, so it does not delay the detection of a standstill.
func TestPanicIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewArchive(panickingArchive{}, slog.New(slog.DiscardHandler), nil)
		refused := false
		for range 20 {
			func() {
				defer func() { refused = refused || recover() == nil }()
				_, _ = a.Page(t.Context(), "ann", history.Query{Limit: 1})
			}()
			time.Sleep(100 * time.Millisecond)
		}
		if !refused {
			t.Error("panics for 2 s count as answers")
		}
	})
}

// silentArchive never answers.
type silentArchive struct{ history.Archive }

func (silentArchive) Page(ctx context.Context, _ string, _ history.Query) (history.Page, error) {
	<-ctx.Done()
	return history.Page{}, ctx.Err()
}

func (a silentArchive) Get(ctx context.Context, _ []history.Key) ([]history.Entry, error) {
	_, err := a.Page(ctx, "", history.Query{})
	return nil, err
}

// TestPagesOfAStandstill: pages that are refused at once come with an error and an empty page for each user.
func TestPagesOfAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewArchive(silentArchive{}, slog.New(slog.DiscardHandler), nil)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			pages, errs := history.Pages(ctx, a, []string{"ann", "bob"}, history.Query{Limit: 1})
			cancel()
			if len(pages) != 2 || len(errs) != 2 || errs[0] == nil || errs[1] == nil {
				t.Errorf("%d pages with errors %v, want 2 pages and 2 errors", len(pages), errs)
			}
		}
	})
}

// panickingCache is a cache of three nodes; its loads panic.
type panickingCache struct{ history.Cache }

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
