// Package servicetest makes history-services for tests: on an embedded store, with a queue in memory.
package servicetest

import (
	"testing"

	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// Store opens an embedded store, which is closed when the test has ended.
func Store(tb testing.TB) *pebble.DB {
	tb.Helper()
	db, err := pebble.Open(tb.TempDir(), pebble.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// New returns a service with an aggregator and, where cfg has none, a queue of its own. It does nothing in the
// background until it is run.
func New(tb testing.TB, cfg rpc.Config) *rpc.Server {
	tb.Helper()
	queue := memqueue.New(memqueue.Config{})
	held, err := aggregate.New(aggregate.Config{Publisher: queue})
	if err != nil {
		tb.Fatal(err)
	}
	if cfg.Aggregate = held; cfg.Queue == nil {
		cfg.Queue = queue
	}
	s, err := rpc.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
