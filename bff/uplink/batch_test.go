package uplink_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// bubble runs fn in virtual time, with a client of one instance.
func bubble(t *testing.T, cfg uplink.Config, fn func(t *testing.T, i *instance, c *uplink.Client)) {
	t.Helper()
	bubbles(t, 1, cfg, func(t *testing.T, all []*instance, c *uplink.Client) { fn(t, all[0], c) })
}

// bubbles is bubble with n instances.
func bubbles(t *testing.T, n int, cfg uplink.Config, fn func(t *testing.T, all []*instance, c *uplink.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var all []*instance
		doors := map[string]*pipes{}
		for len(all) < n {
			l := newPipes()
			i := serveOn(t, l)
			i.addr = fmt.Sprintf("10.0.0.%d:1", len(all))
			i.lose = l.lose
			doors[i.addr] = l
			all = append(all, i)
		}
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if door := doors[addr]; door != nil {
				return door.dial(ctx)
			}
			<-ctx.Done() // unreachable, without a refusal
			return nil, ctx.Err()
		}
		var served []*instance
		if len(cfg.Services) == 0 {
			served = all
		}
		c := open(t, cfg, served...)
		awaitUp(t, c, served...)
		fn(t, all, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, i := range all {
			i.server.Stop()
		}
	})
}

// each calls Apply concurrently for all requests, sent in order, and returns the responses.
func each(t *testing.T, c *uplink.Client, reqs ...*historyv1.ApplyRequest) []*historyv1.ApplyResponse {
	t.Helper()
	answers := make([]*historyv1.ApplyResponse, len(reqs))
	var wg sync.WaitGroup
	for n, req := range reqs {
		wg.Go(func() {
			var err error
			if answers[n], err = c.Apply(t.Context(), req); err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		})
		synctest.Wait() // it is queued or answered
	}
	wg.Wait()
	return answers
}

func TestOneHeartbeatLeavesAfterTheLinger(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		for range 3 {
			began := time.Now()
			each(t, c, beats("u1", 1))
			if took := time.Since(began); took != 2*time.Millisecond {
				t.Errorf("it took %v, want 2ms", took)
			}
		}
		if got := i.sizes(); !slices.Equal(got, []int{1, 1, 1}) {
			t.Errorf("batches of %v", got)
		}
	})
}

func TestCallsShareABatch(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		var reqs []*historyv1.ApplyRequest
		for _, uid := range users(60) {
			reqs = append(reqs, beats(uid, 1))
		}
		began := time.Now()
		for n, a := range each(t, c, reqs...) {
			if len(a.Statuses) != 1 || a.Statuses[0] != historyv1.Status_STATUS_STORED || len(a.Records) > 0 {
				t.Errorf("call %d was answered %v", n, a)
			}
		}
		if got, took := i.sizes(), time.Since(began); !slices.Equal(got, []int{60}) || took != 2*time.Millisecond {
			t.Errorf("60 calls: batches of %v after %v, want one after 2ms", got, took)
		}
	})
}

func TestAFullBatchLeavesAtOnce(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		began := time.Now()
		each(t, c, beats("u1", 40), beats("u2", 40), beats("u3", 40))
		if took := time.Since(began); took != 0 {
			t.Errorf("a full batch left after %v", took)
		}
		each(t, c, beats("u1", 1)) // the previous batch's signal does not send this one
		if got := i.sizes(); !slices.Equal(got, []int{120, 1}) || time.Since(began) != 2*time.Millisecond {
			t.Errorf("batches of %v after %v", got, time.Since(began))
		}
	})
}

func TestEachCallGetsItsOwn(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.answer = func(req *historyv1.ApplyRequest) *historyv1.ApplyResponse {
			resp := &historyv1.ApplyResponse{}
			for n, h := range req.Heartbeats {
				resp.Statuses = append(resp.Statuses, historyv1.Status(1+h.PositionMs))
				if req.ReturnRecords {
					resp.Records = append(resp.Records, &historyv1.Item{Session: h.Uid})
				}
				if h.PositionMs == 1 {
					resp.Refusals = append(resp.Refusals, &historyv1.Refusal{Index: uint32(n), Field: h.Uid})
				}
				if h.Day != nil {
					resp.Days = append(resp.Days, &historyv1.DaySeen{Index: uint32(n), Date: h.Day.Known, First: h.PositionMs == 0})
				}
			}
			return resp
		}
		reqs := []*historyv1.ApplyRequest{beats("u0", 1), beats("u1", 3), beats("u2", 2), beats("u3", 2), beats("u4", 1), beats("u5", 1), beats("u6", 1)}
		reqs[2].ReturnRecords, reqs[4].ReturnRecords = true, true
		for n, req := range reqs[:4] {
			last := req.Heartbeats[len(req.Heartbeats)-1]
			last.Day = &historyv1.DayCheck{Known: uint32(n + 1)}
		}
		reqs[5].Ack, reqs[6].Ack = historyv1.Ack_ACK_QUEUED, historyv1.Ack_ACK_QUEUED
		for n, a := range each(t, c, reqs...) {
			want, uid := len(reqs[n].Heartbeats), reqs[n].Heartbeats[0].Uid
			ok := len(a.Statuses) == want && len(a.Refusals) == min(want-1, 1) && len(a.Records) == 0
			if reqs[n].ReturnRecords {
				ok = len(a.Statuses) == want && len(a.Records) == want && a.Records[want-1].Session == uid
			}
			for k, s := range a.Statuses {
				ok = ok && s == historyv1.Status(1+k)
			}
			for _, r := range a.Refusals {
				ok = ok && r.Index == 1 && r.Field == uid
			}
			ok = ok && len(a.Days) == min(max(4-n, 0), 1)
			for _, d := range a.Days {
				ok = ok && int(d.Index) == want-1 && int(d.Date) == n+1 && d.First == (want == 1)
			}
			if !ok {
				t.Errorf("%s with %d heartbeats was answered %v", uid, want, a)
			}
		}
		if got := i.sizes(); !slices.Equal(slices.Sorted(slices.Values(got)), []int{2, 3, 6}) || i.queued != 2 {
			t.Errorf("batches of %v, %d heartbeats to be queued; want one with records, one queued, and one of the others", got, i.queued)
		}
	})
}

// TestAConflictIsItsOwnersAlone: a caller without a request for records gets none, even in a batch with
// another caller's conflict.
func TestAConflictIsItsOwnersAlone(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.answer = func(req *historyv1.ApplyRequest) *historyv1.ApplyResponse {
			resp := &historyv1.ApplyResponse{}
			for _, h := range req.Heartbeats {
				s, it := historyv1.Status_STATUS_STORED, &historyv1.Item{}
				if h.Uid == "u1" {
					s, it = historyv1.Status_STATUS_CONFLICT, &historyv1.Item{Object: &historyv1.Object{Id: h.ObjectId, Type: 1}}
				}
				resp.Statuses, resp.Records = append(resp.Statuses, s), append(resp.Records, it)
			}
			return resp
		}
		for n, a := range each(t, c, beats("u0", 2), beats("u1", 2), beats("u2", 1)) {
			if want := map[int]int{1: 2}[n]; len(a.Records) != want {
				t.Errorf("call %d was answered %v, want %d records", n, a, want)
			}
		}
		if got := i.sizes(); !slices.Equal(got, []int{5}) {
			t.Errorf("batches of %v, want one", got)
		}
	})
}

func TestOrderIsKept(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		var reqs []*historyv1.ApplyRequest
		for n := range 500 {
			req := beats([]string{"u1", "u2", "u3"}[n%3], 1)
			req.Heartbeats[0].PositionMs = int64(n)
			reqs = append(reqs, req)
		}
		each(t, c, reqs...)
		last := map[string]int64{}
		for _, batch := range i.batches {
			for _, h := range batch {
				if was, ok := last[h.Uid]; ok && h.PositionMs <= was {
					t.Fatalf("%s: %d after %d", h.Uid, h.PositionMs, was)
				}
				last[h.Uid] = h.PositionMs
			}
		}
	})
}

// keepBusy sends calls of 50 heartbeats, one user each, to an instance that does not answer until letGo.
func keepBusy(t *testing.T, i *instance, c *uplink.Client, calls int) (letGo func()) {
	t.Helper()
	i.hang = make(chan struct{})
	var wg sync.WaitGroup
	for k := range calls {
		wg.Go(func() {
			if _, err := c.Apply(t.Context(), beats(fmt.Sprint("held", k), 50)); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Millisecond) // virtual time; sent by then, if possible
	}
	return func() {
		close(i.hang)
		wg.Wait()
	}
}

func TestABatchGrowsWhileOthersAreOnTheirWay(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		keepBusy(t, i, c, 4+21)()
		if got := i.sizes(); !slices.Equal(got[:4], []int{50, 50, 50, 50}) || len(got) > 12 || slices.Max(got) < 300 {
			t.Errorf("batches of %v", got)
		}
	})
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	bubble(t, uplink.Config{Queue: 100}, func(t *testing.T, i *instance, c *uplink.Client) {
		letGo := keepBusy(t, i, c, 4+2)
		began := time.Now()
		if _, err := c.Apply(t.Context(), beats("u2", 1)); status.Code(err) != codes.Unavailable || time.Since(began) > 0 {
			t.Errorf("got %v after %v, want %v at once", err, time.Since(began), codes.Unavailable)
		}
		letGo()
		if got := i.sizes(); !slices.Equal(got, []int{50, 50, 50, 50, 100}) {
			t.Errorf("batches of %v", got)
		}
	})
}

func TestWhoLeavesIsNotWaitedFor(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Apply(ctx, beats("u1", 1)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v, want %v", err, codes.DeadlineExceeded)
		}
		each(t, c, beats("u2", 2))
		if got := i.sizes(); !slices.Equal(got, []int{2}) {
			t.Errorf("batches of %v: what nobody waits for was sent", got)
		}
	})
}

// A heartbeat too large for a stream message does not end the stream for others.
func TestALargeCallTravelsAlone(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		long := beats("u2", 1)
		long.Heartbeats[0].Session = strings.Repeat("s", 600<<10)
		each(t, c, beats("u1", 100), long, beats("u3", 99), beats("u4", 1001))
		if got := i.sizes(); !slices.Equal(got, []int{100, 99}) || !slices.Equal(i.alone, []int{1, 1001}) {
			t.Errorf("batches of %v, alone %v", got, i.alone)
		}
	})
}

// Text that protobuf rejects would end the stream and fail all its calls.
func TestBadTextIsRefusedAlone(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		bad := map[string]*historyv1.Heartbeat{
			"meta": {Meta: map[string]string{"a": "\xff"}}, "removed": {RemovedMeta: []string{"\xff"}}, "zone": {Day: &historyv1.DayCheck{Zone: "\xff"}},
		}
		fields := (&historyv1.Heartbeat{}).ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if f := fields.Get(i); f.Kind() == protoreflect.StringKind && !f.IsMap() && !f.IsList() {
				req := &historyv1.Heartbeat{}
				req.ProtoReflect().Set(f, protoreflect.ValueOfString("\xff"))
				bad[string(f.Name())] = req
			}
		}
		for field, req := range bad {
			if _, err := c.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{req}}); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v, want %v", field, err, codes.InvalidArgument)
			}
		}
		if len(i.sizes()) > 0 {
			t.Error("it was sent")
		}
	})
}

func TestAStoreThatIsDown(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.answer = func(req *historyv1.ApplyRequest) *historyv1.ApplyResponse {
			resp := &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, len(req.Heartbeats))}
			for n, h := range req.Heartbeats {
				if resp.Statuses[n] = historyv1.Status_STATUS_UNAVAILABLE; h.PositionMs > 0 {
					resp.Statuses[n] = historyv1.Status_STATUS_STORED
				}
			}
			return resp
		}
		if _, err := c.Apply(t.Context(), beats("u1", 1)); status.Code(err) != codes.Unavailable {
			t.Errorf("none of it: %v, want %v", err, codes.Unavailable)
		}
		if resp, err := c.Apply(t.Context(), beats("u1", 2)); err != nil || resp.Statuses[0] != historyv1.Status_STATUS_UNAVAILABLE {
			t.Errorf("half of it: %v, %v", resp, err)
		}
		if got := i.sizes(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("batches of %v: an answer was asked for again", got)
		}
	})
}

func TestAnAnswerThatDoesNotFit(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.answer = func(*historyv1.ApplyRequest) *historyv1.ApplyResponse {
			return &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, 1)}
		}
		if _, err := c.Apply(t.Context(), beats("u1", 2)); status.Code(err) != codes.Internal {
			t.Errorf("got %v, want %v", err, codes.Internal)
		}
	})
}

// TestTheTime returns the service's time to each call of a batch and to an empty call.
func TestTheTime(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		const ahead = 5 * time.Hour // of the local clock
		i.answer = func(req *historyv1.ApplyRequest) *historyv1.ApplyResponse {
			return &historyv1.ApplyResponse{
				Statuses: make([]historyv1.Status, len(req.Heartbeats)), NowMs: time.Now().Add(ahead).UnixMilli(),
			}
		}
		for n, req := range []*historyv1.ApplyRequest{{}, beats("u1", 1), {}, beats("u1", 2)} {
			resp, err := c.Apply(t.Context(), req)
			if err != nil || resp.GetNowMs() != time.Now().Add(ahead).UnixMilli() {
				t.Errorf("call %d: got %v, %v, want %d", n, resp, err, time.Now().Add(ahead).UnixMilli())
			}
			time.Sleep(1234 * time.Millisecond) // virtual time
		}
		if alone := i.alone; !slices.Equal(alone, []int{0, 0}) {
			t.Errorf("calls of their own: %v", alone)
		}
	})
}
