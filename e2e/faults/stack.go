package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/redis"
)

// spec says what to start for a case. Zero values take the defaults.
type spec struct {
	services, jobs int // default 2 each; noJobs for jobs in this process
	// hold and sweep are those of the services and jobs (default 2 s and 6 s). A
	// request may take 1.5 s: hold + request + drift stay below the age of a sweep.
	hold, sweep time.Duration
	drain       time.Duration
	// redis are the addresses of Redis for each service, where they are not the server's own.
	redis   []string
	front   string        // the address of Redis for everybody, when it is not the server's own
	cluster bool          // Redis is one
	ttl     time.Duration // how long the cache keeps a record, 0 for the usual
	keep    int           // how many of a user, 0 for the usual
}

// noJobs leaves the jobs out.
const noJobs = -1

// withDefaults fills in what was left out.
func (sp spec) withDefaults() spec {
	sp.services, sp.jobs = cmp.Or(sp.services, 2), cmp.Or(sp.jobs, 2)
	sp.hold, sp.sweep = cmp.Or(sp.hold, 2*time.Second), cmp.Or(sp.sweep, 6*time.Second)
	sp.drain = cmp.Or(sp.drain, 8*time.Second)
	return sp
}

// stack is the product as processes, with a topic, a group and a table of its own,
// and the stores as the oracle reads them.
type stack struct {
	spec
	name     string
	opts     Options
	es       engines
	services []*unit
	jobs     []*unit
	bff      *unit
	doors    []rpcDoor
	edge     edgeDoor
	cache    *redis.Cache
	archive  *hbase.Archive

	conns []*grpc.ClientConn
	end   context.CancelFunc
	wg    sync.WaitGroup
}

// open empties Redis and starts everything; close ends it, also after a failure.
func (s *stack) open(ctx context.Context) error {
	s.spec = s.withDefaults()
	if err := s.flush(ctx); err != nil {
		return err
	}
	var watch context.Context
	watch, s.end = context.WithCancel(ctx)
	for i := range s.spec.services {
		if err := s.addService(ctx, watch, i); err != nil {
			return err
		}
	}
	for i := range s.spec.jobs {
		if err := s.addJob(ctx, watch, i); err != nil {
			return err
		}
	}
	if err := s.addEdge(ctx, watch); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	return s.openStores(ctx)
}

func (s *stack) awaitReady(ctx context.Context) error {
	for _, u := range s.units() {
		if err := u.awaitReady(ctx, 60*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// flush empties Redis, which is the run's own.
func (s *stack) flush(ctx context.Context) error {
	for _, n := range s.store().Nodes {
		c := goredis.NewClient(&goredis.Options{Addr: n.Addr()})
		err := errors.Join(c.FlushAll(ctx).Err(), c.Close())
		if err != nil {
			return fmt.Errorf("empty redis: %w", err)
		}
	}
	return nil
}

// store returns the engine that acknowledges: a server or a cluster.
func (s *stack) store() *engine.Engine {
	if s.cluster {
		return s.es["redis_cluster"]
	}
	return s.es["redis"]
}

func (s *stack) storeAddr() string { return cmp.Or(s.front, s.store().Addr()) }

// cacheFlags tell a command where Redis is.
func (s *stack) cacheFlags() []string {
	flags := []string{"--redis", s.storeAddr()}
	if s.cluster {
		flags = append(flags, "--redis-cluster")
	}
	if s.ttl > 0 {
		flags = append(flags, "--redis-ttl", s.ttl.String())
	}
	if s.keep > 0 {
		flags = append(flags, "--keep", strconv.Itoa(s.keep))
	}
	return flags
}

// cacheConfig is that of the oracle, and of jobs in this process.
func (s *stack) cacheConfig() redis.Config {
	return redis.Config{Addrs: strings.Split(s.storeAddr(), ","), Cluster: s.cluster, TTL: s.ttl, Keep: s.keep}
}

// redisClient is for cases with one server.
func (s *stack) redisClient() *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: s.es["redis"].Addr()})
}

func (s *stack) openStores(ctx context.Context) (err error) {
	if s.cache, err = redis.Open(ctx, s.cacheConfig()); err != nil {
		return err
	}
	s.archive, err = hbase.Open(ctx, hbase.Config{ZooKeeper: s.es["hbase"].Addr(), Table: s.name})
	return err
}

func (s *stack) units() []*unit {
	all := slices.Concat(s.services, s.jobs)
	if s.bff != nil {
		all = append(all, s.bff)
	}
	return all
}

// surprises lists the processes that ended without having been killed.
func (s *stack) surprises() (all []string) {
	for _, u := range s.units() {
		all = append(all, u.surprises()...)
	}
	return all
}

func (s *stack) close() error {
	if s.end != nil {
		s.end()
	}
	s.wg.Wait()
	var errs []error
	for _, c := range s.conns {
		errs = append(errs, c.Close())
	}
	if s.cache != nil {
		errs = append(errs, s.cache.Close())
	}
	if s.archive != nil {
		errs = append(errs, s.archive.Close())
	}
	return errors.Join(errs...)
}
