package rpc_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// house is a store shared by several services, like Redis.
type house struct {
	db    *pebble.DB
	clock atomic.Int64 // Unix ms
}

func (h *house) now() time.Time { return time.UnixMilli(h.clock.Load()) }

// start is the clock's initial time, Unix ms.
const start = int64(1_790_000_000_000)

func newHouse(t *testing.T) *house { return smallHouse(t, 0) }

// smallHouse caches keep records per user, 0 for the default.
func smallHouse(t testing.TB, keep int) *house { return houseOf(t, pebble.Config{Keep: keep}) }

// houseOf is a house with a custom store.
func houseOf(t testing.TB, config pebble.Config) *house {
	t.Helper()
	h := &house{}
	h.clock.Store(start)
	config.Now = h.now
	db, err := pebble.Open(t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	h.db = db
	return h
}

// service starts a service on the house's store; wrap may change its config.
func (h *house) service(t testing.TB, wrap ...func(*rpc.Config)) *rpc.Server {
	t.Helper()
	s := h.idle(t, wrap...)
	t.Cleanup(running(t, s))
	return s
}

// running runs the service's background work until stop.
func running(t testing.TB, s *rpc.Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	return func() { cancel(); <-done }
}

// idle returns a service without background work, so without warm-ups.
func (h *house) idle(t testing.TB, wrap ...func(*rpc.Config)) *rpc.Server {
	t.Helper()
	cfg := rpc.Config{Cache: h.db.Cache(), Archive: h.db.Archive(), Now: h.now}
	for _, w := range wrap {
		w(&cfg)
	}
	return servicetest.New(t, cfg)
}

// beat is a heartbeat on "user/id" of type 1, ago milliseconds before start, at a position in seconds.
func beat(key string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat {
	uid, id, _ := strings.Cut(key, "/")
	return &historyv1.Heartbeat{
		Uid: uid, ObjectId: id, ObjectType: 1, Kind: kind, EventTimeMs: start - ago,
		PositionMs: seconds * 1000, DurationMs: 100_000, Session: "s1", Device: "tv",
	}
}

func apply(t *testing.T, s *rpc.Server, hbs ...*historyv1.Heartbeat) []historyv1.Status {
	t.Helper()
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: hbs})
	if err != nil {
		t.Fatalf("apply %v: %v", hbs, err)
	}
	return resp.GetStatuses()
}

// point reads one object of type 1; nil if absent.
func point(t *testing.T, s *rpc.Server, uid, id string) *historyv1.Item {
	t.Helper()
	resp, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: uid, Objects: []*historyv1.Object{{Id: id, Type: 1}}})
	if err != nil {
		t.Fatalf("point %s/%s: %v", uid, id, err)
	}
	if it := resp.GetItems()[0]; it.GetObject() != nil {
		return it
	}
	return nil
}

// list reads all pages of a user and returns the ids in order.
func list(t *testing.T, s *rpc.Server, req *historyv1.ListRequest) (ids []string) {
	t.Helper()
	for range 1000 {
		resp, err := s.List(t.Context(), req)
		if err != nil {
			t.Fatalf("list %v: %v", req, err)
		}
		for _, it := range resp.GetItems() {
			ids = append(ids, it.GetObject().GetId())
		}
		if !resp.GetHasMore() {
			return ids
		}
		if len(resp.GetItems()) == 0 {
			t.Fatalf("list %v: an empty page that says there is more", req)
		}
		req.Cursor = resp.GetCursor()
	}
	t.Fatal("a list without end")
	return nil
}

// field returns the invalid field of an error.
func field(err error) string {
	for _, d := range grpcstatus.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			return bad.GetFieldViolations()[0].GetField()
		}
	}
	return ""
}

func wantCode(t *testing.T, what string, err error, code codes.Code) {
	t.Helper()
	if got := grpcstatus.Code(err); got != code {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, code)
	}
}

var errDown = errors.Join(history.ErrUnavailable, errors.New("down"))
