package rpc

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// panics answers a request whose handler panicked as any other error that a caller
// can do nothing about, so that one request does not end those of everybody. What the
// request has written has its marks, and the sweep finds them.
type panics struct {
	server *Server
	count  prometheus.Counter
}

func newPanics(s *Server) *panics {
	p := &panics{server: s, count: counter("playhead_rpc_panics_total", "Requests whose handler panicked.")}
	if s.cfg.Registry != nil {
		s.cfg.Registry.MustRegister(p.count)
	}
	return p
}

func (p *panics) options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(p.unary), grpc.StreamInterceptor(p.stream)}
}

func (p *panics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	defer p.answer(info.FullMethod, &err)
	return handle(ctx, req)
}

func (p *panics) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer p.answer(info.FullMethod, &err)
	return handle(srv, stream)
}

// answer is deferred: it must call recover itself.
func (p *panics) answer(method string, err *error) {
	v := recover()
	if v == nil {
		return
	}
	p.count.Inc()
	p.server.cfg.Logger.Error("handler panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
	*err = status(fmt.Errorf("panic: %v", v))
}
