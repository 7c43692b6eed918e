package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/run"
)

var errBroken = errors.New("broken")

// draining returns a part that drains for d. It reports when it was stopped and when it returned.
func draining(events chan<- string, name string, d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		events <- name + " told"
		time.Sleep(d)
		events <- name + " drained"
		return ctx.Err()
	}
}

// failing returns a part that returns err after d, stopped or not.
func failing(d time.Duration, err error) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return err
	}
}

func told(events <-chan string) (all []string) {
	for len(events) > 0 {
		all = append(all, <-events)
	}
	return all
}

func wantEvents(t *testing.T, events chan string, want ...string) {
	t.Helper()
	if got := told(events); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGroupStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan string, 10)
		var g run.Group
		for i, name := range []string{"edge", "aggregate", "clients"} {
			g.Add(name, 0, draining(events, name, time.Duration(3-i)*time.Second))
		}
		time.AfterFunc(time.Hour, cancel)
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
		wantEvents(t, events, "edge told", "edge drained", "aggregate told", "aggregate drained",
			"clients told", "clients drained")
	})
}

func TestGroupStopsWhenAPartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan string, 10)
		var g run.Group
		g.Add("edge", 0, draining(events, "edge", time.Second))
		g.Add("job", 0, failing(time.Minute, errBroken))
		g.Add("clients", 0, draining(events, "clients", 0))
		err := g.Run(t.Context())
		if !errors.Is(err, errBroken) || err.Error() != "job: broken" {
			t.Errorf("Run: %v, want job: broken", err)
		}
		wantEvents(t, events, "edge told", "edge drained", "clients told", "clients drained")
	})
}

func TestGroupNamesTheCauseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g run.Group
		g.Add("edge", 0, func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("cut off")
		})
		g.Add("job", 0, failing(time.Minute, errBroken))
		if got, want := fmt.Sprint(g.Run(t.Context())), "job: broken\nedge: cut off"; got != want {
			t.Errorf("Run: %q, want %q", got, want)
		}
	})
}

func TestGroupReportsAPanicAndDrainsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan string, 10)
		var g run.Group
		g.Add("edge", 0, draining(events, "edge", time.Second))
		g.Add("job", 0, func(context.Context) error { panic("index out of range") })
		err := g.Run(t.Context())
		if got, want := fmt.Sprint(err), "job: panic: index out of range"; got != want {
			t.Errorf("Run: %q, want %q", got, want)
		}
		p, ok := errors.AsType[*run.PanicError](err)
		if !ok || !bytes.Contains(p.Stack, []byte("TestGroupReportsAPanicAndDrainsTheOthers")) {
			t.Errorf("no stack of the part that panicked in %+v", p)
		}
		wantEvents(t, events, "edge told", "edge drained")
	})
}

func TestGroupDeadlines(t *testing.T) {
	const never = time.Hour
	type part struct{ drain, takes time.Duration }
	tests := []struct {
		name  string
		total time.Duration
		parts []part
		late  string
		took  time.Duration
	}{
		{"in time", 0, []part{{0, time.Second}, {0, 2 * time.Second}}, "", 3 * time.Second},
		{"own deadline", 0, []part{{time.Second, never}, {0, 2 * time.Second}}, "0 after 1s", 3 * time.Second},
		{"a share of 20 s", 0, []part{{0, never}, {0, time.Second}}, "0 after 10s", 11 * time.Second},
		{"the share of the quick", 0, []part{{0, 0}, {0, never}}, "1 after 20s", 20 * time.Second},
		{"all late", 9 * time.Second, []part{{0, never}, {0, never}, {0, never}}, "0 after 3s, 1 after 3s, 2 after 3s", 9 * time.Second},
		{"more than the total", time.Second, []part{{never, never}, {never, never}}, "0 after 1s, 1 after 0s", time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				events := make(chan string, 10)
				g := run.Group{Drain: tt.total}
				for i, p := range tt.parts {
					g.Add(fmt.Sprint(i), p.drain, draining(events, fmt.Sprint(i), p.takes))
				}
				cancel()
				began := time.Now()
				err := g.Run(ctx)
				if got := time.Since(began); got != tt.took {
					t.Errorf("took %v, want %v", got, tt.took)
				}
				if got := lateness(err); got != tt.late {
					t.Errorf("late: %q, want %q", got, tt.late)
				}
				time.Sleep(2 * never) // the abandoned parts return: all were stopped
				if got := strings.Count(strings.Join(told(events), " "), "told"); got != len(tt.parts) {
					t.Errorf("%d parts told to stop, want %d", got, len(tt.parts))
				}
			})
		})
	}
}

func lateness(err error) string {
	if err == nil {
		return ""
	}
	r := strings.NewReplacer(": still running", " after", " after it was stopped", "", "\n", ", ")
	return r.Replace(err.Error())
}

func TestGroupErrorsOfStoppedParts(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want bool // reported
	}{
		{"nil", nil, false},
		{"cancelled", context.Canceled, false},
		{"cancelled fetch", fmt.Errorf("fetch: %w", context.Canceled), false},
		{"cancelled twice", errors.Join(context.Canceled, fmt.Errorf("fetch: %w", context.Canceled)), false},
		{"failed drain", errBroken, true},
		{"failed drain, cancelled", errors.Join(context.Canceled, errBroken), true},
		{"drain over its deadline", fmt.Errorf("flush: %w", context.DeadlineExceeded), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var g run.Group
				g.Add("aggregate", 0, func(ctx context.Context) error {
					<-ctx.Done()
					return tt.err
				})
				cancel()
				if err := g.Run(ctx); (err != nil) != tt.want {
					t.Errorf("Run: %v for a part that returned %v, want an error: %v", err, tt.err, tt.want)
				}
			})
		})
	}
}

func TestGroupTakesACancellationOfItsOwnMakingForAFailure(t *testing.T) {
	var g run.Group
	g.Add("job", 0, func(context.Context) error { return context.Canceled })
	if err := g.Run(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want %v: nobody stopped the part", err, context.Canceled)
	}
}

func TestGroupEndsWithItsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g run.Group
		g.Add("quick", 0, failing(0, nil))
		g.Add("slow", 0, failing(time.Hour, nil))
		began := time.Now()
		if err := g.Run(t.Context()); err != nil || time.Since(began) != time.Hour {
			t.Errorf("Run: %v after %v, want nil after 1h: a part that is done stops nobody", err, time.Since(began))
		}
	})
	if err := new(run.Group).Run(t.Context()); err != nil {
		t.Errorf("Run without parts: %v, want nil", err)
	}
}

func TestGroupIsAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan string, 10)
		var inner, outer run.Group
		inner.Add("rpc", 0, draining(events, "rpc", time.Second))
		inner.Add("aggregate", 0, run.Closing(func() error { return errBroken }))
		outer.Add("service", 0, inner.Run)
		outer.Add("clients", 0, draining(events, "clients", 0))
		cancel()
		if got, want := fmt.Sprint(outer.Run(ctx)), "service: aggregate: broken"; got != want {
			t.Errorf("Run: %q, want %q", got, want)
		}
		wantEvents(t, events, "rpc told", "rpc drained", "clients told", "clients drained")
	})
}

func TestGroupLogsEachPartStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		g := run.Group{Log: slog.New(slog.NewTextHandler(&out, nil))}
		g.Add("edge", 0, draining(make(chan string, 2), "edge", 2*time.Second))
		cancel()
		if err := g.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), `msg="component stopped" part=edge took=2s`; !strings.Contains(got, want) {
			t.Errorf("log %q, want %q in it", got, want)
		}
	})
}

// TestLameDuck: SIGTERM alone delays the stop, and readiness fails meanwhile.
func TestLameDuck(t *testing.T) {
	for cause, want := range map[error]time.Duration{run.ErrTerminated: 5 * time.Second, nil: 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			began, stopped := time.Now(), time.Duration(0)
			g := run.Group{LameDuck: 5 * time.Second}
			g.Add("intake", 0, func(ctx context.Context) error {
				<-ctx.Done()
				stopped = time.Since(began)
				return nil
			})
			if err := g.Check(ctx); err != nil {
				t.Errorf("before: %v", err)
			}
			go func() {
				cancel(cause)
				synctest.Wait()
				if g.Check(ctx) == nil {
					t.Error("it is ready while it stops")
				}
			}()
			if err := g.Run(ctx); err != nil || stopped != want {
				t.Errorf("cause %v: stopped after %v, %v; want %v", cause, stopped, err, want)
			}
		})
	}
}

// TestLameDuckEndsWithAFailure: a part that fails meanwhile stops the rest at once.
func TestLameDuckEndsWithAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(run.ErrTerminated)
		began := time.Now()
		g := run.Group{LameDuck: time.Hour}
		g.Add("intake", 0, func(context.Context) error { time.Sleep(time.Second); return errBroken })
		if err := g.Run(ctx); !errors.Is(err, errBroken) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v, want %v after 1s", err, time.Since(began), errBroken)
		}
	})
}
