package redis

import (
	"context"
	"runtime"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// A call that finds no free connection opens one, which costs an exchange of its own. A
// server that has become slow needs more of them, and takes as long over each. So some are
// kept open while it is quick.
const (
	spare     = 32 // at least, to each server
	mostConns = 64 // at most on a small machine; more wait for each other
)

// poolSize is how many connections there may be to one server.
func poolSize() int { return max(mostConns, 10*runtime.GOMAXPROCS(0)) }

// reserve opens what is missing of the spare connections. What cannot be opened now is
// looked for the next time.
func reserve(ctx context.Context, node *goredis.Client) {
	if node.PoolStats().TotalConns >= spare {
		return
	}
	var conns [spare]*goredis.Conn
	var opening sync.WaitGroup
	for i := range conns {
		conns[i] = node.Conn()
		opening.Go(func() { _ = conns[i].Ping(ctx).Err() })
	}
	opening.Wait()
	for _, c := range conns {
		_ = c.Close() // back to the others
	}
}
