package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// Await tries a condition every 50 ms until it holds, for a bounded time.
func Await(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := error(nil); ; {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // the answer that the end cut off says nothing
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait %v for %s: %w", limit, what, last)
		}
	}
}

// Ports that the kernel gives to no outgoing connection: one of those could take the
// address between here and the command that is to listen there, and keep it.
const (
	firstPort = 23000
	lastPort  = 32000
)

// FreeAddr returns an address of the loopback interface where nobody listens.
func FreeAddr(ctx context.Context) (addr string, err error) {
	for range 100 {
		addr = fmt.Sprintf("127.0.0.1:%d", firstPort+rand.N(lastPort-firstPort))
		var lis net.Listener
		if lis, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err == nil {
			return addr, lis.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}
