package faults

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// dial connects to a service that may come back at any moment: it is tried again at
// once, not after gRPC's minutes.
func dial(addr string) (*grpc.ClientConn, error) {
	retry := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: time.Second,
	}
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(retry))
}
