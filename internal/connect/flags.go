// Package connect defines the engines' flags and opens the adapters. history-service and history-job share it,
// which gives each setting one name.
package connect

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/clock"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trust"
)

// Flags are the engine settings common to services and jobs.
type Flags struct {
	Redis
	Kafka
	HBase
}

// Stores are the open adapters.
type Stores struct {
	*Engines

	Redis      *redis.Cache
	Kafka      *kafka.Queue
	FirstOfDay *kafka.FirstOfDay
	HBase      *hbase.Archive
	// Clock follows the clock of Redis. The caller runs it.
	Clock *clock.Clock
	// Trusted follows Clock unless it is far from the last trusted time. The caller runs [Stores.Trust].
	Trusted *clock.Trusted
	clocks  []*clock.Engine
}

// Connect adds the engines to e and tries them once. It fails for permanent errors only; [Engines.Run] retries
// the rest.
func (f *Flags) Connect(ctx context.Context, e *Engines) (s *Stores, err error) {
	s = &Stores{Engines: e}
	if s.Redis, err = f.Redis.Connect(e); err != nil {
		return nil, err
	}
	if s.Kafka, err = f.Kafka.Connect(e); err != nil {
		return nil, err
	}
	if s.FirstOfDay, err = f.ConnectFirst(e); err != nil {
		return nil, err
	}
	s.Clock = clock.New(clock.Config{Reference: s.Redis.Time, Logger: e.Log, Registry: e.Registry})
	s.Trusted = clock.NewTrusted(clock.TrustedConfig{
		Load: s.Redis.LoadTrusted, Save: s.Redis.SaveTrusted, Wall: s.Clock.Now, Logger: e.Log, Registry: e.Registry,
	})
	if s.HBase, err = f.HBase.Connect(s); err != nil {
		return nil, err
	}
	for name, ahead := range map[string]func(context.Context) (time.Duration, error){
		"redis": func(ctx context.Context) (time.Duration, error) { return s.Redis.ClockAhead(ctx, s.Trusted.Now) },
		"hbase": s.HBase.ClockAhead,
	} {
		s.clocks = append(s.clocks, clock.NewEngine(clock.EngineConfig{Name: name, Ahead: ahead, Logger: e.Log, Registry: e.Registry}))
	}
	return s, e.First(ctx)
}

// Trust waits until Clock is set, then runs Trusted and compares the engines' clocks with it.
func (s *Stores) Trust(ctx context.Context) error {
	for s.Clock.Err() != nil {
		if !run.Sleep(ctx, time.Second/4) {
			return nil
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Trusted.Run(ctx) })
	for _, c := range s.clocks {
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

// Clocks adds the clocks' degraded checks to checks.
func (s *Stores) Clocks(checks map[string]func(context.Context) error) map[string]func(context.Context) error {
	checks["clock"] = s.Trusted.Check
	for _, c := range s.clocks {
		checks["clock of "+c.Name()] = c.Check
	}
	return checks
}

// ConfirmClock makes the time on which this machine and Redis agree the trusted time of all processes.
func (s *Stores) ConfirmClock(ctx context.Context) error {
	if err := s.Clock.Err(); err != nil {
		return err
	}
	return s.Trusted.Confirm(ctx)
}

// Closing adds a part to g for closing each adapter.
func (s *Stores) Closing(g *run.Group) {
	g.Add("queue", 0, run.Closing(s.Kafka.Close))
	g.Add("first of day", 0, run.Closing(s.FirstOfDay.Close))
	g.Add("cache", 0, run.Closing(s.Redis.Close))
	g.Add("archive", 0, run.Closing(s.HBase.Close))
}

// Redis has the settings of the cache.
type Redis struct {
	Addrs    []string      `name:"redis" help:"Redis addresses, host:port; several for a cluster." default:"127.0.0.1:6379"`
	Cluster  bool          `name:"redis-cluster" help:"The address is a node of a Redis Cluster; several always are."`
	Username string        `name:"redis-username" help:"Redis user."`
	Password string        `name:"redis-password" help:"Redis password; better in a file or the environment."`
	Secret   string        `name:"redis-password-file" help:"File with the Redis password; read for each new connection."`
	Peer     trust.Peer    `embed:"" prefix:"redis-"`
	Keep     int           `name:"keep" help:"Records of a user that the cache keeps." default:"1000" positive:""`
	TTL      time.Duration `name:"redis-ttl" help:"Life of a record in the cache; never shorter than the longest outage to survive." default:"2160h"`
	Volatile bool          `name:"redis-allow-volatile" help:"Accept a Redis that may lose acknowledged writes: one that evicts, or has no append-only file or never flushes it."`
}

// cluster reports whether the addresses are a cluster's: several can be nothing else.
func (f *Redis) cluster() bool { return f.Cluster || len(f.Addrs) > 1 }

// Connect adds Redis to e.
func (f *Redis) Connect(e *Engines) (*redis.Cache, error) {
	if err := Addresses("--redis", f.Addrs...); err != nil {
		return nil, err
	}
	conf, err := f.Peer.Config()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	changing, err := secret(f.Secret)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	c, err := redis.New(redis.Config{
		Addrs: f.Addrs, Cluster: f.cluster(), Username: f.Username, Password: f.Password, Secret: changing, TLS: conf,
		Keep: f.Keep, Rules: e.Rules, TTL: f.TTL, AllowVolatile: f.Volatile, Registry: e.Registry, Log: e.Log,
	})
	if err == nil {
		trust.RegisterExpiry(e.Registry, "redis", conf)
		e.Add("redis", "--redis", c.Prepare)
		e.Probe("redis", c.Ping)
		if f.cluster() {
			e.Whole("redis", func(ctx context.Context) error { _, err := c.Time(ctx); return err })
		}
		e.Fit("redis", c.Fit, f.Volatile)
	}
	return c, err
}

// Kafka has the settings of the queue.
type Kafka struct {
	Brokers     []string   `name:"kafka" help:"Kafka brokers, host:port." default:"127.0.0.1:9092"`
	Topic       string     `name:"kafka-topic" help:"Topic of announced keys." default:"history.flush"`
	Group       string     `name:"kafka-group" help:"Consumer group of the jobs." default:"history-job"`
	Partitions  int        `name:"kafka-partitions" help:"Partitions of a new topic; an existing one keeps its own." default:"16" positive:""`
	Replication int        `name:"kafka-replication" help:"Replicas of a topic that must be created; 0 is three, or one on each broker."`
	DeadTopic   string     `name:"kafka-dead-topic" help:"Topic of what could not be archived." default:"history.dead"`
	CountsTopic string     `name:"kafka-counts-topic" help:"Topic of what archived records of counted types say." default:"history.counts"`
	FirstTopic  string     `name:"kafka-first-of-day-topic" help:"Topic of users who were seen for the first time on a day." default:"history.first-of-day"`
	PlaysTopic  string     `name:"plays-topic" help:"Topic into which jobs send completed plays, retractions and removals, such as history.plays; none by default. See docs/plays.md."`
	Username    string     `name:"kafka-username" help:"SASL user."`
	Password    string     `name:"kafka-password" help:"SASL password; better in a file or the environment."`
	Secret      string     `name:"kafka-password-file" help:"File with the SASL password; read for each new connection."`
	Mechanism   string     `name:"kafka-mechanism" help:"plain, scram-sha-256 or scram-sha-512." default:"plain"`
	Peer        trust.Peer `embed:"" prefix:"kafka-"`
}

// Connect adds Kafka to e.
func (f *Kafka) Connect(e *Engines) (*kafka.Queue, error) {
	cfg, err := f.config(e.Log)
	if err != nil {
		return nil, err
	}
	cfg.Topic, cfg.Group, cfg.Tracer = f.Topic, f.Group, e.Tracer
	q, err := kafka.New(cfg)
	if err == nil {
		trust.RegisterExpiry(e.Registry, "kafka", cfg.TLS)
		e.Add("kafka", "--kafka", q.Prepare)
		e.Probe("kafka", q.Ping)
		e.shown("kafka", q.Silent)
		e.Fit("kafka", q.Fit, true)
	}
	return q, err
}

// ConnectDead adds the topic of dead letters to e.
func (f *Kafka) ConnectDead(e *Engines) (*kafka.DeadLetters, error) {
	cfg, err := f.config(e.Log)
	if err != nil {
		return nil, err
	}
	cfg.Topic, cfg.Group = f.DeadTopic, f.Group+"-redrive"
	d, err := kafka.NewDead(cfg)
	if err == nil {
		e.Add("dead letters", "--kafka", d.Prepare)
		e.Fit("dead letters", d.Fit, true)
	}
	return d, err
}

// FollowCounts returns the topic of counts for a process whose health does not depend on it.
func (f *Kafka) FollowCounts(e *Engines) (*kafka.Counts, error) {
	cfg, err := f.config(e.Log)
	if err != nil {
		return nil, err
	}
	cfg.Topic, cfg.Group, cfg.Tracer = f.CountsTopic, f.Group+"-counts", e.Tracer
	return kafka.NewCounts(cfg)
}

// ConnectCounts adds the topic of counts to e.
func (f *Kafka) ConnectCounts(e *Engines) (*kafka.Counts, error) {
	c, err := f.FollowCounts(e)
	if err == nil {
		e.Add("counts", "--kafka", c.Prepare)
		e.Fit("counts", c.Fit, true)
	}
	return c, err
}

// ConnectPlays adds the topic of plays to e, nil without one.
func (f *Kafka) ConnectPlays(e *Engines) (*kafka.Plays, error) {
	if f.PlaysTopic == "" {
		return nil, nil
	}
	cfg, err := f.config(e.Log)
	if err != nil {
		return nil, err
	}
	cfg.Topic = f.PlaysTopic
	p, err := kafka.NewPlays(cfg)
	if err == nil {
		e.Add("plays", "--kafka", p.Prepare)
		e.Fit("plays", p.Fit, true)
	}
	return p, err
}

// ConnectFirst adds the first-of-day topic to e.
func (f *Kafka) ConnectFirst(e *Engines) (*kafka.FirstOfDay, error) {
	cfg, err := f.config(e.Log)
	if err != nil {
		return nil, err
	}
	cfg.Topic = f.FirstTopic
	d, err := kafka.NewFirstOfDay(cfg)
	if err == nil {
		e.Add("first of day", "--kafka", d.Prepare)
		e.Fit("first of day", d.Fit, true)
	}
	return d, err
}

// TopicNames returns all topics.
func (f *Kafka) TopicNames() []string {
	names := []string{f.Topic, f.DeadTopic, f.FirstTopic}
	if f.PlaysTopic != "" {
		names = append(names, f.PlaysTopic)
	}
	return names
}

// Topics returns a queue for each topic, without any I/O. The caller closes them.
func (f *Kafka) Topics(log *slog.Logger) (all []*kafka.Queue, err error) {
	cfg, err := f.config(log)
	if err != nil {
		return nil, err
	}
	for _, cfg.Topic = range f.TopicNames() {
		q, err := kafka.New(cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

func (f *Kafka) config(log *slog.Logger) (kafka.Config, error) {
	if err := Addresses("--kafka", f.Brokers...); err != nil {
		return kafka.Config{}, err
	}
	conf, err := f.Peer.Config()
	if err != nil {
		return kafka.Config{}, fmt.Errorf("kafka: %w", err)
	}
	changing, err := secret(f.Secret)
	if err != nil {
		return kafka.Config{}, fmt.Errorf("kafka: %w", err)
	}
	return kafka.Config{
		Brokers: f.Brokers, Partitions: f.Partitions, Replication: f.Replication, TLS: conf,
		Username: f.Username, Password: f.Password, Secret: changing, Mechanism: f.Mechanism, Logger: log,
	}, nil
}

// HBase has the settings of the archive.
type HBase struct {
	ZooKeeper   string `name:"hbase" help:"ZooKeeper quorum of HBase, host:port with commas between." default:"127.0.0.1:2181"`
	Table       string `name:"hbase-table" help:"Table of the archive, created when missing." default:"history"`
	Regions     int    `name:"hbase-regions" help:"Regions of the table when it must be created." default:"16" positive:""`
	Compression string `name:"hbase-compression" help:"Compression of the table when it must be created." default:"none"`
	Puts        int    `name:"hbase-puts" help:"Batches of puts under way at once, about three for each region server." default:"3" positive:""`

	// Set by jobs only: compaction.
	CompactAbove                int           `kong:"-"`
	CompactAfter, CompactMargin time.Duration `kong:"-"`
	// Set by jobs only: summaries.
	Summary time.Duration `kong:"-"`
	// Set with counted types: the table of counters.
	Counts bool `kong:"-"`
}

// Connect adds HBase to the engines of s.
func (f *HBase) Connect(s *Stores) (*hbase.Archive, error) {
	long := func(ctx context.Context, uid string) error {
		return s.Redis.Note(ctx, uid, s.Trusted.Now().UnixMilli())
	}
	a, err := hbase.New(hbase.Config{
		ZooKeeper: f.ZooKeeper, Table: f.Table, Regions: f.Regions, Compression: f.Compression,
		Puts: f.Puts, Rules: s.Rules, CompactAbove: f.CompactAbove, CompactAfter: f.CompactAfter, CompactMargin: f.CompactMargin, Summary: f.Summary, Counts: f.Counts, Long: long, Now: s.Trusted.Now, ClockErr: s.Clock.Err, Horizon: s.Trusted.Expiry,
		Registry: s.Registry, Logger: s.Log,
	})
	if err == nil {
		s.Add("hbase", "--hbase", func(ctx context.Context) error {
			if err := a.Prepare(ctx); err != nil || s.Rules == nil {
				return err
			}
			if err := s.Redis.AddRetention(ctx, s.Rules.Retention()); err != nil { // the next process does
				s.Log.Warn("retention not copied to Redis", "error", err)
			}
			return nil
		})
		s.Probe("hbase", a.Probe)
		s.shown("hbase", a.Silent)
	}
	return a, err
}

// Addresses fails for a value other than host:port. The error names the flag.
func Addresses(flag string, addrs ...string) error {
	for _, a := range addrs {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return fmt.Errorf("%s: want host:port, got %q", flag, a)
		}
	}
	return nil
}

// secret returns a function that reads a file's secret again each time, nil without a file. It fails if the file cannot
// be read now.
func secret(file string) (func() (string, error), error) {
	if file == "" {
		return nil, nil
	}
	read := func() (string, error) {
		text, err := trust.Secret(file)
		return string(text), err
	}
	_, err := read()
	return read, err
}
