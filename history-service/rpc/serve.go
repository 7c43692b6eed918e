package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"

	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Serve serves gRPC on lis until ctx is done, then drains running requests for at most drain. A non-nil conf
// enables TLS. It closes lis and [Config.Edge].
func (s *Server) Serve(ctx context.Context, lis net.Listener, conf *tls.Config, drain time.Duration) error {
	panics := newPanics(s)
	srv := grpc.NewServer(append(options(conf), grpc.ChainUnaryInterceptor(s.traceUnary, s.timeUnary, panics.unary, s.authorizeUnary, s.audited),
		grpc.ChainStreamInterceptor(panics.stream, s.authorizeStream, s.decoded))...)
	healthy := health.NewServer()
	healthv1.RegisterHealthServer(srv, healthy)
	historyv1.RegisterHistoryServiceServer(srv, s)
	historyv1.RegisterErasureServiceServer(srv, s)
	historyv1.RegisterRebaseServiceServer(srv, s)
	reflection.Register(srv)
	failed := make(chan error, 2)
	go func() { failed <- srv.Serve(lis) }()
	if s.cfg.Edge != nil {
		go func() { failed <- srv.Serve(s.cfg.Edge) }()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve gRPC: %w", err)
	case <-ctx.Done():
	}
	healthy.Shutdown() // callers that watch health switch to another service
	s.notify.Leave()
	stop := time.AfterFunc(drain, srv.Stop)
	defer stop.Stop()
	srv.GracefulStop()
	return nil
}

func options(conf *tls.Config) []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(10 * time.Second),
	}
	if conf != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(conf)))
	}
	return opts
}

// traceUnary traces a call with a sampled traceparent, or a sample of those without one.
func (s *Server) traceUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	if s.cfg.Tracer == nil || strings.HasPrefix(info.FullMethod, healthService) {
		return handle(ctx, req)
	}
	parent := strings.Join(metadata.ValueFromIncomingContext(ctx, trace.Header), "")
	ctx, span := s.cfg.Tracer.Accept(ctx, info.FullMethod, parent)
	defer func() { span.End(err) }()
	return handle(ctx, req)
}

// timeUnary observes the time of a call of our services.
func (s *Server) timeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if !strings.HasPrefix(info.FullMethod, "/history.v1.") {
		return handle(ctx, req)
	}
	began := time.Now()
	defer func() {
		trace.Observe(ctx, s.seconds.WithLabelValues(info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]), time.Since(began))
	}()
	return handle(ctx, req)
}

const healthService = "/grpc.health.v1."

func (s *Server) authorize(ctx context.Context, method string) error {
	if s.cfg.Authorize == nil || strings.HasPrefix(method, healthService) {
		return nil
	}
	return s.cfg.Authorize(ctx)
}

func (s *Server) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := s.authorize(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

func (s *Server) authorizeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := s.authorize(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handle(srv, stream)
}

// panics turns a handler's panic into an internal error, so one request does not end all others. The request's
// writes keep their dirty marks, and the sweep finds them.
type panics struct {
	server *Server
	count  prometheus.Counter
}

func newPanics(s *Server) *panics {
	return &panics{server: s, count: promauto.With(s.cfg.Registry).NewCounter(prometheus.CounterOpts{
		Name: "playhead_rpc_panics_total", Help: "Requests whose handler panicked.",
	})}
}

func (p *panics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	defer p.answer(ctx, info.FullMethod, &err)
	return handle(ctx, req)
}

func (p *panics) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer p.answer(stream.Context(), info.FullMethod, &err)
	return handle(srv, stream)
}

// answer must be deferred directly, because it calls recover.
func (p *panics) answer(ctx context.Context, method string, err *error) {
	v := recover()
	if v == nil {
		return
	}
	p.count.Inc()
	stack := debug.Stack()
	if elsewhere, ok := v.(*run.PanicError); ok { // from another goroutine of the request
		v, stack = elsewhere.Value, elsewhere.Stack
	}
	p.server.cfg.Logger.ErrorContext(ctx, "handler panicked", "method", method, "panic", v, "stack", string(stack))
	*err = status(fmt.Errorf("panic: %v", v))
}
