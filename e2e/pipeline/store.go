package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/playhead/playhead/history"
)

// Flush empties Redis, which is the tests' own.
func Flush(t testing.TB, e Engines) {
	t.Helper()
	for addr := range strings.SplitSeq(e.Redis, ",") {
		c := goredis.NewClient(&goredis.Options{Addr: addr})
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatalf("empty redis %s: %v", addr, err)
		}
		_ = c.Close()
	}
}

// Dial spreads streams over all services.
func Dial(t testing.TB, addrs []string) *grpc.ClientConn {
	t.Helper()
	r := manual.NewBuilderWithScheme("services")
	var state resolver.State
	for _, a := range addrs {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient("services:///", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	if err != nil {
		t.Fatalf("dial %v: %v", addrs, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Settled fails while a record may be newer than the archive.
func Settled(ctx context.Context, c history.Ledger) error {
	all := make([]history.Bucket, 0, history.Buckets)
	for b := range history.Bucket(history.Buckets) {
		all = append(all, b)
	}
	left, err := c.Overdue(ctx, all, 0, 100)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%d or more keys are marked", len(left))
	}
	return nil
}
