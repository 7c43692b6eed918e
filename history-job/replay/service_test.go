package replay_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// backend is the real service on the embedded store behind an in-memory connection. It records arrivals and fails
// on demand.
type backend struct {
	*testing.T
	cache   history.Cache
	archive history.Archive
	lis     *bufconn.Listener

	mu      sync.Mutex
	arrived map[string][]history.Event // by user
	batches int
	conns   []net.Conn // the service's side
	// before and after run around the storing of batch n. An error ends the stream.
	before, after func(ctx context.Context, n int) error
}

// open starts a backend over service, or over the real one if nil.
func open(t *testing.T, service historyv1.HistoryServiceServer) *backend {
	t.Helper()
	d := &backend{T: t, lis: bufconn.Listen(1 << 20), arrived: make(map[string][]history.Event)}
	nothing := func(context.Context, int) error { return nil }
	d.before, d.after = nothing, nothing
	if service == nil {
		service = d.service()
	}
	srv := grpc.NewServer(grpc.StreamInterceptor(d.intercept), grpc.WaitForHandlers(true))
	historyv1.RegisterHistoryServiceServer(srv, service)
	go func() { _ = srv.Serve(tracked{d.lis, d}) }() // until Stop
	t.Cleanup(srv.Stop)
	return d
}

func (d *backend) service() *rpc.Server {
	d.Helper()
	db := servicetest.Store(d)
	d.cache, d.archive = db.Cache(), db.Archive()
	return d.serviceOver(d.cache)
}

func (d *backend) serviceOver(cache history.Cache) *rpc.Server {
	d.Helper()
	return servicetest.New(d, rpc.Config{Cache: cache, Archive: d.archive})
}

func (d *backend) driver() *replay.Driver {
	d.Helper()
	conn, err := grpc.NewClient("passthrough:///backend", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d.lis.DialContext(ctx) }))
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = conn.Close() })
	return &replay.Driver{Conn: conn, Streams: 3, Batch: 10, Depth: 2}
}

// tracked records its connections for cut.
type tracked struct {
	net.Listener
	backend *backend
}

func (l tracked) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.backend.mu.Lock()
	defer l.backend.mu.Unlock()
	l.backend.conns = append(l.backend.conns, c)
	return c, err
}

func (d *backend) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

func (d *backend) intercept(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(srv, &hooked{ServerStream: s, backend: d})
}

// hooked lets the backend interfere with batches, which the service answers concurrently.
type hooked struct {
	grpc.ServerStream
	backend *backend
	n       sync.Map     // by sequence: number of the batch
	last    atomic.Int64 // latest batch, for answers with another sequence
}

func (h *hooked) RecvMsg(m any) error {
	if err := h.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	req := m.(*historyv1.ApplyStreamRequest)
	n := h.backend.note(req.GetBatch().GetHeartbeats())
	h.n.Store(req.GetSequence(), n)
	h.last.Store(int64(n))
	return h.backend.before(h.Context(), n)
}

func (h *hooked) SendMsg(m any) error {
	n, ok := h.n.Load(m.(*historyv1.ApplyStreamResponse).GetSequence())
	if !ok {
		n = int(h.last.Load())
	}
	if err := h.backend.after(h.Context(), n.(int)); err != nil {
		return err
	}
	return h.ServerStream.SendMsg(m)
}

// pause sleeps, or returns when the stream ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *backend) note(hbs []*historyv1.Heartbeat) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, hb := range hbs {
		d.arrived[hb.GetUid()] = append(d.arrived[hb.GetUid()], history.Event{
			Key:  history.Key{UID: hb.GetUid(), Object: history.Object{ID: hb.GetObjectId(), Type: hb.GetObjectType()}},
			Kind: history.Kind(hb.GetKind()), At: hb.GetEventTimeMs(), Position: hb.GetPositionMs(), Duration: hb.GetDurationMs(),
			Session: hb.GetSession(), Device: hb.GetDevice(),
		})
	}
	d.batches++
	return d.batches
}

// plan has five viewings for each of eight users, ending now.
func plan() *replay.Plan {
	var vs []replay.Viewing
	for i := range int64(40) {
		vs = append(vs, viewing(fmt.Sprintf("%c/%c", 'a'+i%8, 'a'+i%5), noon+i*9000, i%7*11_000, 30_000))
	}
	p := replay.Expand(vs, 0)
	p.EndAt(time.Now().UnixMilli())
	return p
}

// complete expects every heartbeat stored and acknowledged once, and each user's heartbeats in order, whatever
// was resent.
func (d *backend) complete(driver *replay.Driver, p *replay.Plan) {
	d.Helper()
	counted := int64(0)
	for _, n := range driver.Statuses() {
		counted += n
	}
	if n := int64(p.Len()); driver.Acked() != n || counted != n {
		d.Errorf("%d heartbeats acknowledged, %d statuses, want %d", driver.Acked(), counted, n)
	}
	if d.cache != nil {
		rep, err := replay.Check(d.Context(), replay.Model(p), map[string]replay.Reader{"cache": replay.FromCache(d.cache)})
		if err != nil || !rep.OK() {
			d.Errorf("check: %+v, %v", rep, err)
		}
	}
	d.ordered(p)
}

func (d *backend) ordered(p *replay.Plan) {
	d.Helper()
	sent := make(map[string][]history.Event)
	for i := range p.Len() {
		e := p.Event(i)
		sent[e.Key.UID] = append(sent[e.Key.UID], e)
	}
	for uid, want := range sent {
		next := 0
		for _, got := range d.arrived[uid] {
			if next < len(want) && same(got, want[next]) {
				next++
			}
		}
		if next < len(want) {
			d.Errorf("user %s: %d heartbeats came in order, want %d", uid, next, len(want))
		}
	}
}

func same(a, b history.Event) bool {
	return a.Key == b.Key && a.Kind == b.Kind && a.At == b.At && a.Position == b.Position &&
		a.Duration == b.Duration && a.Session == b.Session && a.Device == b.Device
}
