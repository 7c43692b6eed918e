package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/recovery"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// TestGenerationEnds ends the generation in the middle of every step. Nothing is committed, no error is
// reported, and the next generation retries.
func TestGenerationEnds(t *testing.T) {
	for _, step := range []string{"fetch", "load", "get", "apply", "clear", "put", "mark_clean", "commit"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				at := make(chan struct{})
				w.on(step, func(ctx context.Context) error {
					close(at)
					<-ctx.Done()
					return ctx.Err()
				})
				w.announce(w.write(progress(1, 0)), w.store(progress(2, 0), true, true), w.clear("other", 0, 0))
				stop := w.start(w.config())
				<-at
				if err := stop(); err != nil {
					t.Errorf("run: %v", err)
				}
				if len(w.marks()) == 0 && step != "commit" {
					t.Error("all marks were clean")
				}
				if got := w.did("commit"); len(got) > 0 && step != "commit" {
					t.Errorf("the job did %q", got)
				}
				w.on(step, nil)
				w.runs(w.config())
				synctest.Wait()
				if got, want := w.did("fetch", "commit"), []string{"fetch * 1 2", "commit * 1 2"}; !slices.Equal(got, want) {
					t.Errorf("the next generation did %q, want %q", got, want)
				}
				w.clean(object(1), object(2))
			})
		})
	}
}

// generations is a consumer whose generations the test ends.
type generations struct {
	history.Consumer
	end chan struct{}
}

func (g generations) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	for ctx.Err() == nil {
		err := g.Consumer.Consume(ctx, func(ctx context.Context, c history.Assignment) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				defer cancel()
				select {
				case <-g.end:
				case <-ctx.Done():
				}
			}()
			return handle(ctx, c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestNextGeneration revokes the assignment during an outage of the archive. The same job continues in its
// next generation.
func TestNextGeneration(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		end := make(chan struct{})
		cfg.recovery.Consumer = generations{cfg.recovery.Consumer, end}
		w.runs(cfg)
		w.on("put", func(context.Context) error { return errDown })
		w.announce(w.writes(1)...)
		for range 3 {
			w.wait(20 * time.Second)
			end <- struct{}{}
		}
		w.on("put", nil)
		w.wait(time.Minute)
		want := []string{"fetch 0", "fetch 0", "fetch 0", "fetch 0", "mark_clean 0", "commit 0"}
		if got := w.did("fetch", "mark_clean", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.clean(object(0))
	})
}

// TestJobComesBack fails the queue or a store permanently, or panics, during a generation. A foreign
// cancellation counts as a failure too: a job that ended silently would leave its keys unswept. The job
// counts the failure, restarts, and loses nothing.
func TestJobComesBack(t *testing.T) {
	errBroken := errors.New("broken")
	for _, tt := range []struct {
		step string
		err  error // nil for a panic
	}{
		{"fetch", errBroken},
		{"commit", errBroken},
		{"fetch", fmt.Errorf("fetch: %w", context.Canceled)},
		{"commit", fmt.Errorf("commit: %w", context.DeadlineExceeded)},
		{"overdue", fmt.Errorf("overdue: %w", history.ErrClosed)},
		{"fetch", nil},
		{"load", nil},
		{"put", nil},
		{"mark_clean", nil},
		{"commit", nil},
		{"overdue", nil},
	} {
		t.Run(fmt.Sprint(tt.step, tt.err), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.announce(w.writes(1)...)
				failures := 0
				w.on(tt.step, func(context.Context) error {
					if failures++; failures > 3 {
						return nil
					}
					if tt.err == nil {
						panic("nil map")
					}
					return tt.err
				})
				w.runs(w.config())
				w.wait(time.Minute)
				w.counted("failures_total", 3)
				w.clean(object(0))
			})
		})
	}
}

// broken is a queue that cannot join a group.
type broken struct {
	history.Consumer
	errs []error // nil for a panic
}

func (b *broken) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	if len(b.errs) == 0 {
		return b.Consumer.Consume(ctx, handle)
	}
	err := b.errs[0]
	if b.errs = b.errs[1:]; err == nil {
		panic("nil map")
	}
	return err
}

func TestNoGroup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.announce(w.writes(1)...)
		cfg := w.config()
		cfg.recovery.Consumer = &broken{cfg.recovery.Consumer, []error{errDown, nil}}
		w.runs(cfg)
		w.wait(time.Minute)
		w.counted("failures_total", 2)
		w.clean(object(0))
	})
}

func TestNew(t *testing.T) {
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	whole := config{
		archive:  archive.Config{Cache: db.Cache(), Archive: db.Archive()},
		recovery: recovery.Config{Consumer: memqueue.New(memqueue.Config{})},
	}
	for name, lack := range map[string]func(*config){
		"cache":    func(c *config) { c.archive.Cache = nil },
		"archive":  func(c *config) { c.archive.Archive = nil },
		"consumer": func(c *config) { c.recovery.Consumer = nil },
	} {
		cfg := whole
		lack(&cfg)
		if _, err := newJob(cfg); err == nil {
			t.Errorf("no error without %s", name)
		}
	}
	if _, err := newJob(whole); err != nil {
		t.Errorf("new: %v", err)
	}
}

// TestMetrics finds every series at zero from the start: an alert on a missing series never fires.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	if _, err := newJob(w.config()); err != nil {
		t.Fatal(err)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			series++
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != 0 {
				t.Errorf("%s is %v, want 0", f.GetName(), got)
			}
		}
	}
	if series < 18 {
		t.Errorf("%d series, want one for each counter and operation", series)
	}
}
