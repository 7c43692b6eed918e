package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Limits of the door.
const (
	// MaxMessage bounds a request, in bytes.
	MaxMessage = 1 << 20
	// maxStreams bounds the requests under way on one connection.
	maxStreams = 4096
)

// Serve answers gRPC on lis until ctx is done, and then what is already under way,
// for at most drain. TLS is used when conf is not nil. It closes lis.
func (s *Server) Serve(ctx context.Context, lis net.Listener, conf *tls.Config, drain time.Duration) error {
	srv := grpc.NewServer(append(options(conf), newPanics(s).options()...)...)
	healthy := health.NewServer()
	healthv1.RegisterHealthServer(srv, healthy)
	historyv1.RegisterHistoryServiceServer(srv, s)
	reflection.Register(srv)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(lis) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve gRPC: %w", err)
	case <-ctx.Done():
	}
	healthy.Shutdown() // callers that watch health go elsewhere
	s.notify.Leave()
	stop := time.AfterFunc(drain, srv.Stop)
	defer stop.Stop()
	srv.GracefulStop()
	return nil
}

func options(conf *tls.Config) []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
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
