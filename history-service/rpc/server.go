// Package rpc is the door of history-service: it validates heartbeats, folds them
// into the records that the aggregator holds or the cache has, writes them back by
// compare-and-set, and answers readers from the cache down to its floor and from
// the archive below it.
package rpc

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/firstday"
	"github.com/playhead/playhead/history-service/notify"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Cache is what the service needs of a [history.Cache].
type Cache interface {
	history.Loader
	history.Applier
	history.Lister
}

// Config wires a server. Zero values take the defaults.
type Config struct {
	Cache     Cache
	Archive   history.Archive
	Aggregate *aggregate.Aggregator
	// Queue takes the records that are to be acknowledged as queued.
	Queue history.Publisher
	// Feed tells other services what this one has changed, and this one what they have;
	// without one nobody can watch.
	Feed history.Feed
	// Days remembers who was seen on which day, and Announcer tells of first sightings.
	// Without both nobody is told what day it is.
	Days      history.Days
	Announcer history.Announcer
	// Life names the lives that the servers of the cache are in, see [Server.Confirm]. Nil
	// is for a cache that never loses anything.
	Life func(context.Context) (string, error)
	// Deadline bounds a request whose caller set no earlier one (default 5 s).
	Deadline time.Duration
	// Keep is how many records of a user a warm-up puts into the cache (default
	// 1,000), Warmers how many users are warmed at once (default 8), and WarmRate how
	// many in a second (default 1,000).
	Keep, Warmers, WarmRate int
	// Rules say what counts as what, by type of object (default the standard ones).
	Rules *history.Rulebook
	// Now is the clock (default time.Now). Timeless fails while it is not to be relied on:
	// nothing is stored then. Nil means that it always is.
	Now      func() time.Time
	Timeless func() error
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Server implements historyv1.HistoryServiceServer.
type Server struct {
	historyv1.UnimplementedHistoryServiceServer

	cfg     Config
	metrics *metrics
	warm    *warmer
	notify  *notify.Notifier
	nodes   *nodes // nil where the cache has one
	days    *firstday.Tracker
	life    string // of the cache, as it was last confirmed
	decided decided
}

// New checks the configuration. [Server.Run] serves what happens in the background.
func New(cfg Config) (*Server, error) {
	if cfg.Cache == nil || cfg.Archive == nil || cfg.Aggregate == nil || cfg.Queue == nil {
		return nil, errors.New("rpc: cache, archive, aggregate and queue are needed")
	}
	if cfg.Deadline <= 0 {
		cfg.Deadline = 5 * time.Second
	}
	if cfg.Keep <= 0 {
		cfg.Keep = 1000
	}
	if cfg.Warmers <= 0 {
		cfg.Warmers = 8
	}
	if cfg.WarmRate <= 0 {
		cfg.WarmRate = 1000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Timeless == nil {
		cfg.Timeless = func() error { return nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(cfg.Registry)
	cfg.Archive = newBreaker(&sound{Archive: cfg.Archive, log: cfg.Logger, damaged: m.damaged}, cfg)
	s := &Server{metrics: m}
	if cache, ok := cfg.Cache.(sharded); ok {
		s.nodes = newNodes(cfg, cache)
		cfg.Cache = s.nodes
	}
	s.cfg = cfg
	s.warm = newWarmer(cfg, s.metrics, s.nodes.of)
	var err error
	s.days, err = firstday.New(firstday.Config{Days: cfg.Days, Announcer: cfg.Announcer, Now: cfg.Now, Logger: cfg.Logger, Registry: cfg.Registry})
	if err != nil {
		return nil, err
	}
	s.notify = notify.New(notify.Config{
		Feed: cfg.Feed, Cache: cfg.Cache, NodeOf: s.nodes.of, Deadline: cfg.Deadline, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	return s, nil
}

// Run warms cold users, tells of changes and of who is seen for the first time on a day,
// until ctx is done. It ends after [Server.Serve], so that the last change is told too.
func (s *Server) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return s.warm.run(ctx) })
	g.Go(func() error { return s.notify.Run(ctx) })
	if s.cfg.Days != nil {
		g.Go(func() error { return s.days.Run(ctx) })
	}
	return g.Wait()
}

// Watch tells what changes in the histories of the users that the stream names.
func (s *Server) Watch(stream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]) error {
	err := s.notify.Watch(stream)
	if _, ok := grpcstatus.FromError(err); ok || err == nil {
		return err
	}
	return status(err)
}

// bounded gives a request its deadline.
func (s *Server) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.Deadline)
}

func (s *Server) nowMS() int64 { return s.cfg.Now().UnixMilli() }
