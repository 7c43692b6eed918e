package uplink_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// instance is a history-service that records its requests.
type instance struct {
	historyv1.UnimplementedHistoryServiceServer

	addr   string
	server *grpc.Server
	health *health.Server
	lose   func() // breaks its connections silently; in a bubble only

	points, slow atomic.Int64 // point reads, and the duration of each in nanoseconds

	lists   atomic.Int64
	listErr error

	asked chan struct{} // receives a token for each incoming batch or read of points, up to its capacity
	hang  chan struct{} // if set, delays the answers to these until closed

	broken error  // ends streams after the next batch
	skew   uint64 // added to answers' sequence numbers

	desk    desk          // for watchers
	sending chan struct{} // a semaphore of one: a mutex would stop the time of a bubble

	serve func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) // if set, answers batches concurrently

	mu      sync.Mutex
	batches [][]*historyv1.Heartbeat // from streams
	alone   []int                    // sizes of unary calls
	queued  int                      // heartbeats to acknowledge as queued
	still   chan struct{}            // closed by resume; nil while the instance runs
	answer  func(*historyv1.ApplyRequest) *historyv1.ApplyResponse
}

func start(tb testing.TB) *instance {
	tb.Helper()
	return serveOn(tb, listen(tb, "127.0.0.1:0"))
}

func restart(tb testing.TB, i *instance) *instance {
	tb.Helper()
	return serveOn(tb, listen(tb, i.addr))
}

func listen(tb testing.TB, addr string) net.Listener {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// writeBuffer is small: gRPC clears a buffer for every write, and the race detector tracks each byte.
const writeBuffer = 1 << 10

func serveOn(tb testing.TB, l net.Listener) *instance {
	i := &instance{health: health.NewServer(), addr: l.Addr().String(), asked: make(chan struct{}, 1000), sending: make(chan struct{}, 1)}
	i.server = grpc.NewServer(grpc.WriteBufferSize(writeBuffer), grpc.UnaryInterceptor(i.unary), grpc.StreamInterceptor(i.stream),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}))
	historyv1.RegisterHistoryServiceServer(i.server, i)
	healthv1.RegisterHealthServer(i.server, i.health)
	go func() { _ = i.server.Serve(l) }() // returns after Stop
	tb.Cleanup(i.server.Stop)
	return i
}

func open(tb testing.TB, cfg uplink.Config, instances ...*instance) *uplink.Client {
	tb.Helper()
	for _, i := range instances {
		cfg.Services = append(cfg.Services, i.addr)
	}
	c, err := uplink.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// stop blocks all answers until resume, and keeps connections open.
func (i *instance) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.still = make(chan struct{})
}

func (i *instance) resume() {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.still)
	i.still = nil
}

// runs waits until the instance is not stopped.
func (i *instance) runs(ctx context.Context) {
	i.mu.Lock()
	still := i.still
	i.mu.Unlock()
	if still != nil {
		select {
		case <-still:
		case <-ctx.Done():
		}
	}
}

func (i *instance) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if i.runs(ctx); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return handle(ctx, req)
}

func (i *instance) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	i.runs(stream.Context())
	return handle(srv, running{stream, i})
}

// running is a stream of an instance that may be stopped.
type running struct {
	grpc.ServerStream
	instance *instance
}

func (r running) SendMsg(m any) error {
	r.instance.runs(r.Context())
	return r.ServerStream.SendMsg(m)
}

// awaitUp waits until each of the instances serves some user.
func awaitUp(tb testing.TB, c *uplink.Client, instances ...*instance) {
	tb.Helper()
	began := time.Now()
	for _, i := range instances {
		for n := 0; ; n++ {
			if who, err := list(tb.Context(), c, fmt.Sprint("await", n)); err == nil && who == i.addr {
				break
			}
			if time.Since(began) > 30*time.Second {
				tb.Fatalf("%s serves nobody after 30 s", i.addr)
			}
		}
	}
}

func (i *instance) ApplyStream(stream grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		i.mu.Lock()
		i.batches = append(i.batches, req.Batch.Heartbeats)
		if req.Batch.Ack == historyv1.Ack_ACK_QUEUED {
			i.queued += len(req.Batch.Heartbeats)
		}
		serve := i.serve
		i.mu.Unlock()
		if serve != nil {
			go serve(req, func(resp *historyv1.ApplyStreamResponse) { i.send(stream, resp) }) // returns by itself
			continue
		}
		resp := i.store(stream.Context(), req.Batch)
		if broken := i.breaks(); broken != nil {
			return broken
		}
		if err := stream.Send(&historyv1.ApplyStreamResponse{Sequence: req.Sequence + i.skew, Result: resp}); err != nil {
			return err
		}
	}
}

// breaking ends streams with an error after their next batch.
func (i *instance) breaking(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken = err
}

func (i *instance) breaks() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.broken
}

func (i *instance) send(stream grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse], resp *historyv1.ApplyStreamResponse) {
	i.sending <- struct{}{}
	_ = stream.Send(resp) // the test detects a missing message
	<-i.sending
}

// serving answers batches concurrently with fn.
func (i *instance) serving(fn func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse))) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.serve = fn
}

// whole is the answer for a completely stored batch.
func whole(req *historyv1.ApplyStreamRequest) *historyv1.ApplyStreamResponse {
	n := len(req.Batch.Heartbeats)
	return &historyv1.ApplyStreamResponse{Sequence: req.Sequence, Result: &historyv1.ApplyResponse{
		Statuses: slices.Repeat([]historyv1.Status{historyv1.Status_STATUS_STORED}, n),
	}}
}

func (i *instance) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	i.mu.Lock()
	i.alone = append(i.alone, len(req.Heartbeats))
	i.mu.Unlock()
	return i.store(ctx, req), nil
}

// wait reports a call, and delays it while the instance hangs.
func (i *instance) wait(ctx context.Context) {
	select {
	case i.asked <- struct{}{}:
	default:
	}
	if i.hang != nil {
		select {
		case <-i.hang:
		case <-ctx.Done():
		}
	}
}

func (i *instance) store(ctx context.Context, req *historyv1.ApplyRequest) *historyv1.ApplyResponse {
	i.wait(ctx)
	if i.answer != nil {
		return i.answer(req)
	}
	resp := &historyv1.ApplyResponse{}
	for _, h := range req.Heartbeats {
		resp.Statuses = append(resp.Statuses, historyv1.Status_STATUS_STORED)
		if req.ReturnRecords {
			resp.Records = append(resp.Records, &historyv1.Item{Session: h.Uid, PositionMs: h.PositionMs})
		}
	}
	return resp
}

func (i *instance) List(context.Context, *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	i.lists.Add(1)
	return &historyv1.ListResponse{Cursor: i.addr}, i.listErr
}

func (i *instance) Points(ctx context.Context, _ *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	i.points.Add(1)
	if i.wait(ctx); i.slow.Load() > 0 {
		time.Sleep(time.Duration(i.slow.Load())) // virtual time
	}
	return &historyv1.PointsResponse{Items: []*historyv1.Item{{Session: "p"}}}, nil
}

func (i *instance) Delete(context.Context, *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	return &historyv1.DeleteResponse{Deleted: 7}, nil
}

func (i *instance) Changes(context.Context, *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error) {
	return &historyv1.ChangesResponse{Token: "t"}, nil
}

func (i *instance) Viewings(context.Context, *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error) {
	return &historyv1.ViewingsResponse{Found: true}, nil
}

func (i *instance) Search(context.Context, *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return &historyv1.SearchResponse{Searched: 8}, nil
}

func (i *instance) Dismiss(context.Context, *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	return &historyv1.DismissResponse{Found: 6}, nil
}

func (i *instance) Mark(context.Context, *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	return &historyv1.MarkResponse{Statuses: make([]historyv1.Status, 5)}, nil
}

func (i *instance) Clear(context.Context, *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	return &historyv1.ClearResponse{ClearedMs: 8}, nil
}

func (i *instance) Import(_ context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	return &historyv1.ImportResponse{Statuses: make([]historyv1.Status, len(req.GetRecords()))}, nil
}

func (i *instance) GetSettings(context.Context, *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return &historyv1.GetSettingsResponse{Settings: &historyv1.Settings{PausedMs: 9}}, nil
}

func (i *instance) PutSettings(_ context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	return &historyv1.PutSettingsResponse{Settings: &historyv1.Settings{Recording: req.Recording}}, nil
}

// sizes returns the number of heartbeats of each batch from a stream.
func (i *instance) sizes() (n []int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, b := range i.batches {
		n = append(n, len(b))
	}
	return n
}

func users(n int) (uids []string) {
	for i := range n {
		uids = append(uids, fmt.Sprint("user", i))
	}
	return uids
}

// beats are n heartbeats of one user, at the positions 0 to n-1.
func beats(uid string, n int) *historyv1.ApplyRequest {
	req := &historyv1.ApplyRequest{}
	for i := range n {
		req.Heartbeats = append(req.Heartbeats, &historyv1.Heartbeat{
			Uid: uid, ObjectId: "100", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS,
			EventTimeMs: 1_790_000_000_000 + int64(i), PositionMs: int64(i), DurationMs: 600_000, Session: "s1", Device: "tv",
		})
	}
	return req
}

func apply(ctx context.Context, c *uplink.Client, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.Apply(ctx, beats(uid, 1))
	return err
}
