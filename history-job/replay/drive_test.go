package replay_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

var errGone = status.Error(codes.Unavailable, "going away")

func TestDriver(t *testing.T) {
	every := func(n int, f func(context.Context) error) func(context.Context, int) error {
		return func(ctx context.Context, batch int) error {
			if batch%n == 0 {
				return f(ctx)
			}
			return nil
		}
	}
	gone := func(context.Context) error { return errGone }
	for _, tt := range []struct {
		name string
		set  func(d *door, driver *replay.Driver)
	}{
		{"without trouble", func(*door, *replay.Driver) {}},
		{"one stream, one heartbeat at a time", func(_ *door, driver *replay.Driver) { driver.Streams, driver.Window, driver.Depth = 1, 1, 1 }},
		{"more streams than users", func(_ *door, driver *replay.Driver) { driver.Streams = 100 }},
		{"everything in one batch", func(_ *door, driver *replay.Driver) { driver.Window = 1000 }},
		{"defaults", func(_ *door, driver *replay.Driver) { *driver = replay.Driver{Conn: driver.Conn} }},
		{"streams break before batches are stored", func(d *door, _ *replay.Driver) { d.before = every(4, gone) }},
		{"streams break after batches are stored", func(d *door, _ *replay.Driver) { d.after = every(4, gone) }},
		{"streams end without an error", func(d *door, _ *replay.Driver) { d.before = every(4, func(context.Context) error { return io.EOF }) }},
		{"the service breaks", func(d *door, _ *replay.Driver) {
			d.before = every(4, func(context.Context) error { return status.Error(codes.Internal, "oops") })
		}},
		{"connections are cut", func(d *door, _ *replay.Driver) {
			d.after = every(5, func(context.Context) error { d.cut(); return nil })
		}},
		{"slow", func(d *door, _ *replay.Driver) {
			d.before = every(1, func(ctx context.Context) error { return pause(ctx, 4*time.Second) })
		}},
		{"down for almost as long as the patience", func(d *door, _ *replay.Driver) {
			until := time.Now().Add(55 * time.Second)
			d.before = every(1, func(context.Context) error {
				if time.Now().Before(until) {
					return errGone
				}
				return nil
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, p := open(t, nil), plan()
				driver := d.driver()
				tt.set(d, driver)
				if err := driver.Run(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				d.complete(driver, p)
			})
		})
	}
}

// flaky is a cache that does not answer for some keys.
type flaky struct {
	history.Cache
	calls int
}

func (f *flaky) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	if f.calls++; f.calls%3 != 0 {
		return f.Cache.Apply(ctx, writes)
	}
	outcomes := f.Cache.Apply(ctx, writes[:len(writes)/2])
	for range writes[len(outcomes):] {
		outcomes = append(outcomes, history.Outcome{Err: history.ErrUnavailable})
	}
	return outcomes
}

// TestPartlyStored has a part of a batch stored and the rest not: all of it is sent
// again, and counted once.
func TestPartlyStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := open(t, nil), plan()
		broken := open(t, d.serviceOver(&flaky{Cache: d.cache}))
		driver := broken.driver()
		driver.Streams = 1
		if err := driver.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		broken.cache = d.cache
		broken.complete(driver, p)
		if again := driver.Statuses()[historyv1.Status_STATUS_UNCHANGED]; again == 0 {
			t.Error("no heartbeat was sent again")
		}
	})
}

func TestEmptyPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, nil)
		driver := d.driver()
		if err := driver.Run(t.Context(), replay.Expand(nil, 0)); err != nil || d.batches > 0 {
			t.Errorf("%d batches, %v, want none", d.batches, err)
		}
	})
}

// TestInterrupted ends the context at every stage.
func TestInterrupted(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t, nil)
				d.before = func(ctx context.Context, n int) error {
					if n%3 == 0 {
						return errGone
					}
					return pause(ctx, 700*time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				driver, p, began := d.driver(), plan(), time.Now()
				if err := driver.Run(ctx, p); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != after {
					t.Errorf("after %v: %v, want the end of the context", time.Since(began), err)
				}
				if n := driver.Acked(); n >= int64(p.Len()) {
					t.Errorf("%d heartbeats acknowledged in %v", n, after)
				}
			})
		})
	}
}
