package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history-job/replay"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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

// TestNoAcknowledgement ends at once where to send again is no use, and counts
// nothing that was not acknowledged.
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

// TestWrongUse has the service refuse the call itself: also for good.
func TestWrongUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var vs []replay.Viewing
		for i := range int64(600) {
			vs = append(vs, viewing(fmt.Sprintf("a/%d", i), noon+i, 10, 0))
		}
		began, driver := time.Now(), open(t, nil).driver()
		driver.Window = 1001
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

// TestPatience gives up when nothing gets through for long enough: no server, one
// that always fails, one that takes batches and says nothing.
func TestPatience(t *testing.T) {
	for name, set := range map[string]func(d *door){
		"nobody listens":  func(d *door) { _ = d.lis.Close() },
		"always fails":    func(d *door) { d.before = func(context.Context, int) error { return errGone } },
		"never answers":   func(d *door) { d.before = func(ctx context.Context, _ int) error { return pause(ctx, time.Hour) } },
		"stores, in vain": func(d *door) { d.after = func(ctx context.Context, _ int) error { return pause(ctx, time.Hour) } },
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
