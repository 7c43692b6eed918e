package uplink_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/internal/obs/obstest"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// door is a listener with cuttable connections, which look like a killed process.
type door struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, conn)
	return conn, nil
}

func (d *door) cut() {
	_ = d.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		_ = conn.Close()
	}
}

// store is a cache that calls a function after a number of stored batches.
type store struct {
	history.Cache
	left atomic.Int64
	then func()
	lost bool // unreachable from here
}

func (s *store) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	if s.lost {
		return slices.Repeat([]history.Outcome{{Status: history.Unknown, Err: history.ErrUnavailable}}, len(writes))
	}
	out := s.Cache.Write(ctx, writes)
	if s.left.Add(-1) == 0 {
		s.then()
	}
	return out
}

func (s *store) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if s.lost {
		return slices.Repeat([]history.Entry{{Err: history.ErrUnavailable}}, len(keys))
	}
	return s.Cache.Load(ctx, keys)
}

// newWorld returns the doors of n real services over one embedded store. A test can fail each service's
// store separately.
func newWorld(tb testing.TB, n int) (doors []*door, stores []*store) {
	tb.Helper()
	db := servicetest.Store(tb)
	for range n {
		cache := &store{Cache: db.Cache()}
		s := servicetest.New(tb, rpc.Config{Cache: cache, Archive: db.Archive()})
		doors, stores = append(doors, serve(tb, s)), append(stores, cache)
	}
	return doors, stores
}

// serve runs a service until the test ends.
func serve(tb testing.TB, s *rpc.Server) *door {
	d := &door{Listener: listen(tb, "127.0.0.1:0")}
	ctx, cancel := context.WithCancel(tb.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = s.Serve(ctx, d, nil, time.Second) }) // returns when ctx or its listener ends
	parts.Go(func() { _ = s.Run(ctx) })
	tb.Cleanup(func() { cancel(); parts.Wait() })
	return d
}

// watch reports the positions 1 to n of one user in order, and fails on a rejected one.
func watch(ctx context.Context, c *uplink.Client, uid string, n int64) error {
	for position := range n {
		req := beats(uid, 1)
		req.Heartbeats[0].PositionMs, req.Heartbeats[0].EventTimeMs = position+1, time.Now().Add(-time.Hour).UnixMilli()+position
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		resp, err := c.Apply(ctx, req)
		cancel()
		if err != nil || resp.Statuses[0] != historyv1.Status_STATUS_STORED && resp.Statuses[0] != historyv1.Status_STATUS_UNCHANGED {
			return fmt.Errorf("%s at %d: %v, %w", uid, position+1, resp.GetStatuses(), err)
		}
	}
	return nil
}

// One of two services is killed under load, with a batch stored but not acknowledged. Every heartbeat is
// acknowledged, at most after a failover, and every acknowledged one is stored.
func TestAServiceIsKilledUnderLoad(t *testing.T) {
	const beats = 40
	doors, stores := newWorld(t, 2)
	stores[0].then = doors[0].cut
	stores[0].left.Store(20)
	registry := prometheus.NewRegistry()
	c := open(t, uplink.Config{Services: []string{doors[0].Addr().String(), doors[1].Addr().String()}, Registry: registry})
	viewers := users(100)
	var watching sync.WaitGroup
	for _, uid := range viewers {
		watching.Go(func() {
			if err := watch(t.Context(), c, uid, beats); err != nil {
				t.Error(err)
			}
		})
	}
	watching.Wait()
	for _, uid := range viewers {
		resp, err := c.Points(t.Context(), &historyv1.PointsRequest{Uid: uid, Objects: []*historyv1.Object{{Id: "100", Type: 1}}})
		if err != nil || resp.Items[0].GetPositionMs() != beats {
			t.Errorf("%s stopped at %v, %v; want %d", uid, resp, err, beats)
		}
	}
	batches, events := obstest.Sum(t, registry, "playhead_uplink_batches_total"), obstest.Sum(t, registry, "playhead_uplink_batched_heartbeats_total")
	again := obstest.Sum(t, registry, "playhead_uplink_retries_total")
	all := float64(len(viewers) * beats)
	// A call waiting for its batch when the service died is retried.
	if again < 1 || events < all || events > all+again || events/batches < 4 {
		t.Errorf("%v heartbeats in %v batches, %v of them sent again", events, batches, again)
	}
}

// One of two services cannot reach the cache. The other one serves its users.
func TestAServiceWithoutItsCache(t *testing.T) {
	doors, stores := newWorld(t, 2)
	stores[0].lost = true
	registry := prometheus.NewRegistry()
	c := open(t, uplink.Config{
		Services: []string{doors[0].Addr().String(), doors[1].Addr().String()}, Registry: registry,
		Patience: time.Minute, // a refusal that takes a tenth of it, as on a busy machine, is final
	})
	for began := time.Now(); obstest.Sum(t, registry, "playhead_uplink_instances") < 2; runtime.Gosched() {
		if time.Since(began) > 30*time.Second {
			t.Fatal("only one is up after 30 s")
		}
	}
	var watching sync.WaitGroup
	for _, uid := range users(100) {
		watching.Go(func() {
			if err := watch(t.Context(), c, uid, 5); err != nil {
				t.Error(err)
			}
			resp, err := c.Points(t.Context(), &historyv1.PointsRequest{Uid: uid, Objects: []*historyv1.Object{{Id: "100", Type: 1}}})
			if err != nil || resp.Items[0].GetPositionMs() != 5 {
				t.Errorf("%s stopped at %v, %v; want 5", uid, resp, err)
			}
		})
	}
	watching.Wait()
	if got := obstest.Sum(t, registry, "playhead_uplink_retries_total", "cache"); got == 0 {
		t.Error("no retry because of the cache is counted")
	}
}
