package process

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Await tries a condition every 50 ms until it holds, for a bounded time.
func Await(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait %v for %s: %w", limit, what, err)
		}
	}
}

// FreeAddr returns a loopback address that nobody listens on.
func FreeAddr(ctx context.Context) (string, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer lis.Close()
	return lis.Addr().String(), nil
}
