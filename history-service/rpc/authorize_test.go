package rpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestAuthorize refuses every kind of call but health checks, before anything is read.
func TestAuthorize(t *testing.T) {
	s := newHouse(t).service(t, func(c *rpc.Config) {
		c.Authorize = func(context.Context) error { return grpcstatus.Error(codes.Unauthenticated, "no token") }
	})
	conn := dialed(t, s)
	client := historyv1.NewHistoryServiceClient(conn)
	_, err := client.List(t.Context(), &historyv1.ListRequest{Uid: "u"}, grpc.WaitForReady(true))
	wantCode(t, "list", err, codes.Unauthenticated)
	_, err = historyv1.NewErasureServiceClient(conn).Erase(t.Context(), &historyv1.EraseRequest{Uid: "u"})
	wantCode(t, "erase", err, codes.Unauthenticated)
	stream, err := client.ApplyStream(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "apply", err, codes.Unauthenticated)
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
}

// dialed serves a service over TCP and returns a connection.
func dialed(t *testing.T, s *rpc.Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, lis, nil, time.Second) }()
	conn, err := grpc.NewClient(lis.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close() // the service ends either way
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}
