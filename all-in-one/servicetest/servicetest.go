// Package servicetest makes history-services for tests, with an embedded store and an in-memory queue.
package servicetest

import (
	"testing"

	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// Store opens an embedded store and closes it after the test.
func Store(tb testing.TB) *pebble.DB {
	tb.Helper()
	db, err := pebble.Open(tb.TempDir(), pebble.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// New returns a service with an aggregator and, unless cfg has one, a queue. Background work needs Run.
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
