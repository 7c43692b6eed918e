package rpc_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/internal/obs/obstest"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// broken is a cache whose first loads panic.
type broken struct {
	history.Cache
	panics int
}

func (b *broken) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if b.panics--; b.panics >= 0 {
		panic("nil map")
	}
	return b.Cache.Load(ctx, keys)
}

// TestPanicsEndTheirRequestAlone: a panic in a unary or stream handler is an internal error without details. It is
// counted and logged with its stack, and the service continues.
func TestPanicsEndTheirRequestAlone(t *testing.T) {
	h, registry := newHouse(t), prometheus.NewRegistry()
	var log bytes.Buffer
	s := h.service(t, func(c *rpc.Config) {
		c.Cache, c.Registry = &broken{c.Cache, 2}, registry
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	client, stop := served(t, s)
	req := &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat("u/o", historyv1.Kind_KIND_PROGRESS, 0, 7)}}
	_, err := client.Apply(t.Context(), req)
	wantCode(t, "apply", err, codes.Internal)
	stream, err := client.ApplyStream(t.Context())
	if err == nil {
		err = stream.Send(&historyv1.ApplyStreamRequest{Sequence: 1, Batch: req})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantCode(t, "stream", err, codes.Internal)
	resp, err := client.Apply(t.Context(), req)
	if err != nil || resp.GetStatuses()[0] != historyv1.Status_STATUS_STORED {
		t.Errorf("apply after the panics: %v, %v, want it stored", resp, err)
	}
	stop()
	if text := log.String(); strings.Count(text, "handler panicked") != 2 || !strings.Contains(text, "broken).Load") {
		t.Errorf("log %q, want two lines with their stacks", text)
	}
	if got := obstest.Sum(t, registry, "playhead_rpc_panics_total"); got != 2 {
		t.Errorf("counted %v panics, want 2", got)
	}
}

// fragile is an archive whose first reads panic.
type fragile struct {
	history.Archive
	panics atomic.Int64
}

func (f *fragile) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if f.panics.Add(-1) >= 0 {
		panic("nil map")
	}
	return f.Archive.Page(ctx, uid, q)
}

// TestWarmerComesBack: a panic fails the waiting callers, and the next try succeeds.
func TestWarmerComesBack(t *testing.T) {
	h := newHouse(t)
	s := h.service(t, func(c *rpc.Config) {
		f := &fragile{Archive: c.Archive}
		f.panics.Store(3)
		c.Archive = f
	})
	req := &historyv1.PointsRequest{Uid: "u", Objects: []*historyv1.Object{{Id: "o", Type: 1}}}
	for range 3 {
		_, err := s.Points(t.Context(), req)
		wantCode(t, "points", err, codes.Unavailable)
	}
	if it := point(t, s, "u", "o"); it != nil {
		t.Errorf("points of a user without any: %v", it)
	}
}

// served serves a server on loopback until stop.
func served(t *testing.T, s *rpc.Server) (client historyv1.HistoryServiceClient, stop func()) {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, lis, nil, time.Second) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return historyv1.NewHistoryServiceClient(conn), func() {
		_ = conn.Close() // the service ends either way
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
}
