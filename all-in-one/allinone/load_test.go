package allinone_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// load is the players' traffic and the log of acknowledgements.
type load struct {
	*testing.T
	viewers []*viewer
	acked   atomic.Int64
}

// viewer is one user with sequential batches.
type viewer struct {
	uid   string
	known map[history.Key]*history.Record // fold of acknowledged events
}

func newLoad(t *testing.T) *load {
	t.Helper()
	l := &load{T: t}
	for i := range 12 {
		l.viewers = append(l.viewers, &viewer{uid: fmt.Sprint("viewer", i), known: make(map[history.Key]*history.Record)})
	}
	return l
}

// run sends to an address until the server ends or stop is called.
func (l *load) run(addr string) (stop func()) {
	l.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.Context())
	var wg sync.WaitGroup
	for _, v := range l.viewers {
		wg.Go(func() { v.stream(ctx, historyv1.NewHistoryServiceClient(conn), &l.acked) })
	}
	return func() {
		cancel()
		wg.Wait()
		_ = conn.Close()
	}
}

// until waits for n more acknowledgements.
func (l *load) until(n int64) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	for n += l.acked.Load(); l.acked.Load() < n; {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			l.Fatalf("only %d heartbeats were acknowledged", l.acked.Load())
		}
	}
}

// stream keeps two batches in flight.
func (v *viewer) stream(ctx context.Context, c historyv1.HistoryServiceClient, acked *atomic.Int64) {
	s, err := c.ApplyStream(ctx, grpc.WaitForReady(true))
	if err != nil {
		return
	}
	var sent [][]history.Event
	for {
		events := v.events()
		if err := s.Send(&historyv1.ApplyStreamRequest{Batch: batch(events)}); err != nil {
			return
		}
		if sent = append(sent, events); len(sent) < 2 {
			continue
		}
		resp, err := s.Recv()
		if err != nil {
			return
		}
		v.acknowledged(sent[0], resp.GetResult().GetStatuses())
		acked.Add(int64(len(sent[0])))
		sent = sent[1:]
	}
}

// events returns events of running viewings, which are not announced before the process dies, and of a few that end.
func (v *viewer) events() []history.Event {
	events := make([]history.Event, 20)
	for i := range events {
		kind := history.KindProgress
		if rand.IntN(10) == 0 {
			kind = history.KindStop
		}
		// With eight positions above 0, a record remembers every peak.
		events[i] = history.Event{
			Key:  history.Key{UID: v.uid, Object: history.Object{ID: fmt.Sprint(rand.IntN(50)), Type: 1}},
			Kind: kind, At: time.Now().UnixMilli() - rand.Int64N(60_000), Position: rand.Int64N(history.MaxPeaks+1) * 100_000 / history.MaxPeaks,
			Duration: 100_000, Session: fmt.Sprint(rand.IntN(5)),
		}
	}
	return events
}

func batch(events []history.Event) *historyv1.ApplyRequest {
	req := &historyv1.ApplyRequest{}
	for _, e := range events {
		req.Heartbeats = append(req.Heartbeats, &historyv1.Heartbeat{
			Uid: e.Key.UID, ObjectId: e.Key.Object.ID, ObjectType: e.Key.Object.Type, Kind: historyv1.Kind(e.Kind), //nolint:gosec // few kinds
			EventTimeMs: e.At, PositionMs: e.Position, DurationMs: e.Duration, Session: e.Session,
		})
	}
	return req
}

func (v *viewer) acknowledged(events []history.Event, statuses []historyv1.Status) {
	for i, e := range events {
		if statuses[i] != historyv1.Status_STATUS_UNAVAILABLE {
			v.known[e.Key] = history.Merge(v.known[e.Key], e.Record())
		}
	}
}

// held checks that the cache includes all acknowledged events: another fold changes nothing.
func (l *load) held(c history.Cache) {
	l.Helper()
	lost := 0
	l.each(c, func(k history.Key, known, cached *history.Record) {
		again := history.Merge(cached, known)
		if cached == nil || again.Partial != cached.Partial || !history.Same(again, cached) {
			if lost++; lost <= 3 {
				l.Errorf("%s lacks what was acknowledged:\ncached %+v\nknown  %+v", k, cached, known)
			}
		}
	})
	if lost > 0 {
		l.Errorf("%d records lack what was acknowledged", lost)
	}
}

func (l *load) archived(c history.Cache, a history.Archive) {
	l.Helper()
	l.each(c, func(k history.Key, _, cached *history.Record) {
		got, err := a.Get(l.Context(), []history.Key{k})
		if err != nil || !history.Same(got[0].Record, cached) {
			l.Errorf("%s in the archive: %v\ngot  %+v\nwant %+v", k, err, got, cached)
		}
	})
}

// each visits every key with an acknowledged event.
func (l *load) each(c history.Cache, visit func(k history.Key, known, cached *history.Record)) {
	l.Helper()
	for _, v := range l.viewers {
		for k, known := range v.known {
			e := c.Load(l.Context(), []history.Key{k})[0]
			if e.Err != nil {
				l.Fatalf("load %s: %v", k, e.Err)
			}
			visit(k, known, e.Record)
		}
	}
}
