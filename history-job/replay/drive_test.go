package replay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
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
		set  func(d *backend, driver *replay.Driver)
	}{
		{"without trouble", func(*backend, *replay.Driver) {}},
		{"one stream, one heartbeat at a time", func(_ *backend, driver *replay.Driver) { driver.Streams, driver.Batch, driver.Depth = 1, 1, 1 }},
		{"more streams than users", func(_ *backend, driver *replay.Driver) { driver.Streams = 100 }},
		{"everything in one batch", func(_ *backend, driver *replay.Driver) { driver.Batch = 1000 }},
		{"defaults", func(_ *backend, driver *replay.Driver) { *driver = replay.Driver{Conn: driver.Conn} }},
		{"streams break before batches are stored", func(d *backend, _ *replay.Driver) { d.before = every(4, gone) }},
		{"streams break after batches are stored", func(d *backend, _ *replay.Driver) { d.after = every(4, gone) }},
		{"streams end without an error", func(d *backend, _ *replay.Driver) { d.before = every(4, func(context.Context) error { return io.EOF }) }},
		{"the service breaks", func(d *backend, _ *replay.Driver) {
			d.before = every(4, func(context.Context) error { return status.Error(codes.Internal, "oops") })
		}},
		{"connections are cut", func(d *backend, _ *replay.Driver) {
			d.after = every(5, func(context.Context) error { d.cut(); return nil })
		}},
		{"slow", func(d *backend, _ *replay.Driver) {
			d.before = every(1, func(ctx context.Context) error { return pause(ctx, 4*time.Second) })
		}},
		{"down for almost as long as the patience", func(d *backend, _ *replay.Driver) {
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

// flaky is a cache that fails for some keys.
type flaky struct {
	history.Cache
	calls int
}

func (f *flaky) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	if f.calls++; f.calls%3 != 0 {
		return f.Cache.Write(ctx, writes)
	}
	outcomes := f.Cache.Write(ctx, writes[:len(writes)/2])
	for range writes[len(outcomes):] {
		outcomes = append(outcomes, history.Outcome{Err: history.ErrUnavailable})
	}
	return outcomes
}

// TestPartlyStored stores only some of a batch: the driver resends all of it and counts it once.
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

// TestInterrupted cancels the context at every stage.
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

// odd answers as the real service never does.
type odd struct {
	historyv1.UnimplementedHistoryServiceServer
	answer func(*historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse
}

func (o odd) ApplyStream(s grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]) error {
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(o.answer(req)); err != nil {
			return err
		}
	}
}

func statuses(s historyv1.Status, n int) *historyv1.ApplyResponse {
	r := &historyv1.ApplyResponse{}
	for range n {
		r.Statuses = append(r.Statuses, s)
	}
	return r
}

// TestNoAcknowledgement fails at once where a retry is useless, and counts nothing unacknowledged.
func TestNoAcknowledgement(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(*historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse
		want   string
	}{
		"no statuses": {func(r *historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse {
			return &historyv1.ApplyStreamResponse{Sequence: r.GetSequence()}
		}, "0 statuses for 10 heartbeats"},
		"too few statuses": {func(r *historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse {
			return &historyv1.ApplyStreamResponse{Sequence: r.GetSequence(), Result: statuses(historyv1.Status_STATUS_STORED, 9)}
		}, "9 statuses for 10 heartbeats"},
		"another batch's": {func(r *historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse {
			return &historyv1.ApplyStreamResponse{Sequence: r.GetSequence() + 1, Result: statuses(historyv1.Status_STATUS_STORED, 10)}
		}, "sequence 2, want 1"},
		"a status from the future": {func(r *historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse {
			return &historyv1.ApplyStreamResponse{Sequence: r.GetSequence(), Result: statuses(99, 10)}
		}, "status 99"},
		"an unspecified status": {func(r *historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse {
			return &historyv1.ApplyStreamResponse{Sequence: r.GetSequence(), Result: statuses(0, 10)}
		}, "status 0"},
		"a refusal": {func(r *historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse {
			result := statuses(historyv1.Status_STATUS_STORED, 10)
			result.Refusals = []*historyv1.Refusal{{Index: 3, Field: "session", Reason: "too long"}}
			return &historyv1.ApplyStreamResponse{Sequence: r.GetSequence(), Result: result}
		}, "refused by the service: session: too long"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver, began := open(t, odd{answer: tt.answer}).driver(), time.Now()
				driver.Streams = 1
				err := driver.Run(t.Context(), plan())
				if err == nil || !strings.Contains(err.Error(), tt.want) || time.Since(began) > 0 {
					t.Errorf("after %v: %v, want %q at once", time.Since(began), err, tt.want)
				}
				if driver.Acked() > 0 || len(driver.Statuses()) > 0 {
					t.Errorf("%d heartbeats count as acknowledged: %v", driver.Acked(), driver.Statuses())
				}
			})
		})
	}
}

// TestWrongUse has the service reject the call itself, which is final.
func TestWrongUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var vs []replay.Viewing
		for i := range int64(600) {
			vs = append(vs, viewing(fmt.Sprintf("a/%d", i), noon+i, 10, 0))
		}
		began, driver := time.Now(), open(t, nil).driver()
		driver.Batch = 1001
		if err := driver.Run(t.Context(), replay.Expand(vs, 0)); err == nil || !strings.Contains(err.Error(), "want at most 1000") {
			t.Errorf("batches of 1,001: %v", err)
		}
		driver = open(t, historyv1.UnimplementedHistoryServiceServer{}).driver()
		if err := driver.Run(t.Context(), plan()); status.Code(errors.Unwrap(err)) != codes.Unimplemented {
			t.Errorf("a server of something else: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v, want no second try", took)
		}
	})
}

// TestPatience gives up after a minute without progress: no server, a failing one, a silent one.
func TestPatience(t *testing.T) {
	for name, set := range map[string]func(d *backend){
		"nobody listens":  func(d *backend) { _ = d.lis.Close() },
		"always fails":    func(d *backend) { d.before = func(context.Context, int) error { return errGone } },
		"never answers":   func(d *backend) { d.before = func(ctx context.Context, _ int) error { return pause(ctx, time.Hour) } },
		"stores, in vain": func(d *backend) { d.after = func(ctx context.Context, _ int) error { return pause(ctx, time.Hour) } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, began := open(t, nil), time.Now()
				set(d)
				driver := d.driver()
				driver.Patience = 10 * time.Second
				err := driver.Run(t.Context(), plan())
				if took := time.Since(began); err == nil || took < 10*time.Second || took > 15*time.Second {
					t.Errorf("gave up after %v with %v, want 10 s and an error", took, err)
				}
			})
		})
	}
}
