package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/internal/run"
)

// table maps errors to gRPC codes. Any other error is internal, and its text
// stays in the log.
var table = []struct {
	err  error
	code codes.Code
}{
	{history.ErrInvalid, codes.InvalidArgument},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
	{history.ErrConflict, codes.FailedPrecondition},
	{history.ErrUnavailable, codes.Unavailable},
	{history.ErrClosed, codes.Unavailable},
}

// status turns an error into one that gRPC carries: code, text, the field of
// an invalid request as google.rpc.BadRequest, and when to try again, where that is known,
// as google.rpc.RetryInfo. An error that gRPC carries already stays as it is.
func status(err error) error {
	if _, ok := grpcstatus.FromError(err); ok { // nil is one
		return err
	}
	for _, row := range table {
		if !errors.Is(err, row.err) {
			continue
		}
		st := grpcstatus.New(row.code, err.Error())
		if field, ok := errors.AsType[*history.FieldError](err); ok {
			st = detailed(st, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: field.Field, Description: field.Reason},
			}})
		}
		if retry, ok := errors.AsType[*stores.RetryError](err); ok {
			st = detailed(st, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry.After)})
		}
		return st.Err()
	}
	return grpcstatus.Error(codes.Internal, "internal error")
}

// detailed adds a detail to a status. Without it the bare status still says it in words.
func detailed(st *grpcstatus.Status, detail protoadapt.MessageV1) *grpcstatus.Status {
	with, err := st.WithDetails(detail)
	if err != nil {
		return st
	}
	return with
}

// panics answers a request whose handler panicked as any other error that a caller
// can do nothing about, so that one request does not end those of everybody. Whatever the
// request has written has its marks, and the sweep finds them.
type panics struct {
	server *Server
	count  prometheus.Counter
}

func newPanics(s *Server) *panics {
	p := &panics{server: s, count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "playhead_rpc_panics_total", Help: "Requests whose handler panicked.",
	})}
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
	stack := debug.Stack()
	if elsewhere, ok := v.(*run.PanicError); ok { // in a goroutine of the request
		v, stack = elsewhere.Value, elsewhere.Stack
	}
	p.server.cfg.Logger.Error("handler panicked", "method", method, "panic", v, "stack", string(stack))
	*err = status(fmt.Errorf("panic: %v", v))
}
