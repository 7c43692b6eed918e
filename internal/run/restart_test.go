package run_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// worker ends its n-th run with runs[n], and later runs only when stopped.
type worker struct {
	runs   []func() error
	starts []time.Time
	out    bytes.Buffer
	count  int
}

func (w *worker) work(ctx context.Context) error {
	w.starts = append(w.starts, time.Now())
	if n := len(w.starts) - 1; n < len(w.runs) {
		return w.runs[n]()
	}
	<-ctx.Done()
	return ctx.Err()
}

func (w *worker) part() func(context.Context) error {
	log := slog.New(slog.NewTextHandler(&w.out, nil))
	return run.Restarting(log, "job", func() { w.count++ }, w.work)
}

func fails() error { return errBroken }

func panics() error { panic("nil map") }

func ends() error { return nil }

func TestRestartingComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worker{runs: []func() error{fails, panics}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Minute, cancel)
		if err := w.part()(ctx); err != nil {
			t.Errorf("got %v, want nil once stopped", err)
		}
		if len(w.starts) != 3 || w.count != 2 {
			t.Errorf("%d starts, %d counted, want 3 and 2", len(w.starts), w.count)
		}
		lines := strings.Split(strings.TrimSpace(w.out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("log %q, want one line per restart", lines)
		}
		if got, want := lines[0], "error=broken"; !strings.Contains(got, want) || strings.Contains(got, "stack") {
			t.Errorf("log %q, want %q and no stack", got, want)
		}
		if got, want := lines[1], `error="panic: nil map"`; !strings.Contains(got, want) || !strings.Contains(got, "run_test.panics") {
			t.Errorf("log %q, want %q and a stack", got, want)
		}
	})
}

func TestBackoff(t *testing.T) {
	b := run.Backoff{First: time.Second, Longest: 5 * time.Second}
	for round := range 2 {
		if b.Paused() {
			t.Errorf("round %d: it has paused before its first pause", round)
		}
		for n, want := range []int{1, 2, 4, 5, 5} {
			wantPause(t, n, b.Next(t.Context()), time.Duration(want)*time.Second)
		}
		if !b.Paused() {
			t.Errorf("round %d: it has not paused after five", round)
		}
		b.Reset()
	}
	long := run.Backoff{First: time.Minute, Longest: time.Second}
	for n := range 2 {
		wantPause(t, n, long.Next(t.Context()), time.Minute)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if long.Sleep(ctx) {
		t.Error("it slept although ctx was done")
	}
}

func TestRestartingBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worker{runs: make([]func() error, 12)}
		for i := range w.runs {
			w.runs[i] = fails
		}
		w.runs[10] = func() error { time.Sleep(time.Minute); return errBroken }
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		if err := w.part()(ctx); err != nil {
			t.Fatal(err)
		}
		pause := 100 * time.Millisecond
		for i := range 9 {
			wantPause(t, i, w.starts[i+1].Sub(w.starts[i]), pause)
			pause = min(2*pause, 30*time.Second)
		}
		wantPause(t, 10, w.starts[11].Sub(w.starts[10])-time.Minute, 100*time.Millisecond) // the run lasted long enough to reset the backoff
		wantPause(t, 11, w.starts[12].Sub(w.starts[11]), 200*time.Millisecond)
	})
}

func wantPause(t *testing.T, run int, got, want time.Duration) {
	t.Helper()
	if got < want/2 || got >= want {
		t.Errorf("pause after run %d is %v, want %v to %v", run, got, want/2, want)
	}
}

func TestRestartingStopsDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worker{runs: []func() error{fails, fails}}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := w.part()(ctx); err != nil || len(w.starts) != 1 {
			t.Errorf("got %v after %d starts, want nil after 1: the failure was logged", err, len(w.starts))
		}
		if got := time.Since(began); got != 10*time.Millisecond {
			t.Errorf("stopped after %v, want 10ms", got)
		}
	})
}

func TestRestartingReturns(t *testing.T) {
	tests := []struct {
		name    string
		stopped bool
		run     func() error
		want    error
	}{
		{"work done", false, ends, nil},
		{"work done when stopped", true, ends, nil},
		{"failed drain", true, fails, errBroken},
		{"cancelled", true, func() error { return context.Canceled }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := worker{runs: []func() error{func() error {
				if tt.stopped {
					cancel()
				}
				return tt.run()
			}}}
			if err := w.part()(ctx); !errors.Is(err, tt.want) || w.count != 0 {
				t.Errorf("got %v, counted %d, want %v and 0", err, w.count, tt.want)
			}
		})
	}
}

func TestRestartingReportsAPanicWhileDraining(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := worker{runs: []func() error{func() error { cancel(); panic("nil map") }}}
	if _, ok := errors.AsType[*run.PanicError](w.part()(ctx)); !ok {
		t.Error("the panic of a drain was not returned")
	}
}
