// Command naive is the path that most teams write first, to compare with: an HTTP
// request for each heartbeat, an RPC for each request, and a pipeline of ZADD and SET
// for each RPC, acknowledged when Redis has answered.
//
//	naive --listen 127.0.0.1:9001 --redis 127.0.0.1:6379            the service
//	naive --listen 127.0.0.1:9000 --service 127.0.0.1:9001          the edge
//
// The edge takes its token secret from $PLAYHEAD_TOKEN_SECRET.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type flags struct {
	Listen  string `help:"Address." required:""`
	Redis   string `help:"Address of Redis: be the service."`
	Service string `help:"Address of the service: be the edge."`
}

func main() { run.Main(naive) }

func naive(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("naive", &f, args, getenv, out); err != nil {
		return err
	}
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", f.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if f.Redis != "" {
		return serve(ctx, lis, &service{client: goredis.NewClient(&goredis.Options{Addr: f.Redis, Protocol: 2})})
	}
	tokens, err := token.NewVerifier([]byte(getenv("PLAYHEAD_TOKEN_SECRET")), "")
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(f.Service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	srv := &http.Server{Handler: &edge{tokens, historyv1.NewHistoryServiceClient(conn)}, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	return srv.Serve(lis)
}

func serve(ctx context.Context, lis net.Listener, s *service) error {
	srv := grpc.NewServer()
	historyv1.RegisterHistoryServiceServer(srv, s)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	return srv.Serve(lis)
}
