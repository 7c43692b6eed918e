package hbase_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// silent answers nothing, as the client does while it cannot reach a server.
func silent(ctx context.Context, batch []hrpc.Call) []error {
	<-ctx.Done()
	errs := make([]error, len(batch))
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

// gated is an archive over a fake; put returns how long a Put took.
type gated struct {
	*fake
	a   *hbase.Archive
	out bytes.Buffer
}

func newGated(answer func(context.Context, []hrpc.Call) []error) *gated {
	g := &gated{fake: &fake{answer: answer}}
	g.a = hbase.NewWith(g.fake, slog.New(slog.NewTextHandler(&g.out, nil)))
	return g
}

func (g *gated) put(ctx context.Context, t *testing.T, ok bool) time.Duration {
	t.Helper()
	start := time.Now()
	errs := g.a.Put(ctx, cells(1))
	if ok && errs != nil || !ok && !errors.Is(errs[0], history.ErrUnavailable) {
		t.Errorf("put: got %v, want stored %v", errs, ok)
	}
	return time.Since(start)
}

func TestOutageCostsFewDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(silent)
		for i := range 3 {
			if took := g.put(t.Context(), t, false); took != 10*time.Second {
				t.Errorf("call %d into the outage took %v, want the deadline of 10s", i, took)
			}
		}
		for range 100 {
			if took := g.put(t.Context(), t, false); took != 0 {
				t.Errorf("took %v, want none: the gate is shut", took)
			}
		}
		time.Sleep(time.Second)
		if took := g.put(t.Context(), t, false); took != 10*time.Second {
			t.Errorf("took %v, want 10s: one call a second goes through", took)
		}
		g.answer = stored
		for range 3 {
			g.put(t.Context(), t, true)
		}
		want := []string{"server does not answer", "server answers again"}
		if got := strings.Split(strings.TrimSpace(g.out.String()), "\n"); len(got) != 2 || !strings.Contains(got[0], want[0]) || !strings.Contains(got[1], want[1]) {
			t.Errorf("log %q, want %q", got, want)
		}
	})
}

func TestImpatientCallersSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(silent)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			if took := g.put(ctx, t, false); took != time.Second/2 {
				t.Errorf("took %v, want the caller's 500ms", took)
			}
			cancel()
		}
		if g.out.Len() > 0 {
			t.Errorf("log %q, want none", &g.out)
		}
	})
}

func TestRefusalsAreAnswers(t *testing.T) {
	g := newGated(func(_ context.Context, batch []hrpc.Call) []error {
		errs := make([]error, len(batch))
		for i := range errs {
			errs[i] = java("org.apache.hadoop.hbase.RegionTooBusyException", "over memstore limit")
		}
		return errs
	})
	for range 10 {
		g.put(t.Context(), t, false)
	}
	if len(g.batches) != 10 || g.out.Len() > 0 {
		t.Errorf("%d batches of 10, log %q", len(g.batches), &g.out)
	}
}

// TestTurns has more batches than may be under way at once.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, most := 0, 0
		g := newGated(nil)
		g.answer = func(_ context.Context, batch []hrpc.Call) []error {
			g.mu.Lock()
			now++
			most = max(most, now)
			g.mu.Unlock()
			time.Sleep(time.Second)
			g.mu.Lock()
			now--
			g.mu.Unlock()
			return make([]error, len(batch))
		}
		if errs := g.a.Put(t.Context(), cells(20*500)); errs != nil || most != 3 {
			t.Errorf("20 batches: got %v, %d at once, want 3", errs, most)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		errs := g.a.Put(ctx, cells(20*500)) // the third round has no turn before the deadline
		if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }) {
			t.Error("no deadline exceeded")
		}
	})
}
