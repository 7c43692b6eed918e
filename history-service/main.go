// Command history-service is the server of histories: it stores heartbeats in Redis, announces keys on Kafka when a
// viewing ends, and serves reads.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
	_ "time/tzdata" // images have no time zone files

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/net/netutil"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/admin"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	"github.com/playhead/playhead/internal/trust"
)

type flags struct {
	Listen    string        `help:"Address of the gRPC server." default:"127.0.0.1:7070"`
	MaxConns  int           `name:"max-connections" help:"Connections of the gRPC server at once; more wait." default:"1024"`
	Insecure  bool          `name:"insecure-rpc" help:"Serve gRPC to other machines without asking for certificates (--tls-client-ca): who reaches the port may read and erase every user."`
	Admin     string        `help:"Address of health, metrics and profiles." default:"127.0.0.1:7071"`
	Hosts     trust.Hosts   `name:"host" help:"Names under which it is asked, such as api.example.com; * is any. Addresses, localhost and names without a dot always are."`
	Hold      time.Duration `help:"Longest time a key waits for its viewing to end." default:"120s" positive:"" most:"24h"`
	MaxHeld   int           `help:"Keys held in memory at most." default:"1000000" positive:""`
	WarmRate  int           `help:"Cold users filled from HBase in a second, at most." default:"1000" positive:""`
	Deadline  time.Duration `help:"Longest time a request may take." default:"5s" positive:""`
	LameDuck  time.Duration `help:"How long it serves on after SIGTERM, while /readyz fails and load balancers turn away." default:"5s"`
	Drain     time.Duration `help:"Longest time the stop may take after that." default:"20s" positive:""`
	Retention string        `help:"How long records live after they were last played, such as 90d, 36h or forever. The data has it, and another one is refused: playhead retention set changes it. See docs/retention.md." default:"90d"`
	Rules     []string      `sep:";" placeholder:"RULES" help:"Rules of types: begun=5,done=90 (percent), short=300s, grace=10s for all types, or 3:done=95,grace=5s for one. Classes of types: previews: types=7,8 keep=14d list=200 least=2s. See docs/retention.md."`
	Counted   []string      `name:"counted-types" placeholder:"TYPES" help:"Types of objects that the jobs count, with commas between, or all: their totals can be read, and an erasure removes what was counted of a user. See docs/counts.md."`
	LogLevel  string        `help:"debug, info, warn or error." default:"info"`
	LogFormat string        `help:"text or json." default:"text"`
	LogUIDs   bool          `name:"log-uids" help:"Name users in logs by their ids instead of pseudonyms. See docs/operate.md."`

	trust.Server
	connect.Flags
	webhook.Endpoint
	obs.Traces
}

// Help is the introduction of --help.
func (*flags) Help() string {
	return `Takes reports of players and acknowledges them from Redis, holds them until a viewing ends, announces them on Kafka, ` +
		`and answers readers from Redis and HBase.`
}

func main() { run.Main(service) }

func service(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("history-service", &f, args, getenv, out); err != nil {
		return err
	}
	if f.MaxConns < 1 {
		return fmt.Errorf("--max-connections %d must be 1 or more", f.MaxConns)
	}
	rules, err := history.ParseRules(f.Retention, f.Rules)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	history.LogUIDs(f.LogUIDs)
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, f.LogFormat)
	if err != nil {
		return err
	}
	p := parts{log: log, registry: obs.NewRegistry(), rules: rules}
	traces, err := f.Traces.Open(ctx, "history-service", log, p.registry)
	if err != nil {
		return err
	}
	defer traces.Close()
	p.tracer = traces.Tracer
	g, err := f.wire(ctx, p)
	if err != nil {
		return err
	}
	g.Add("reload", 0, run.Reloading(log, func() ([]string, error) {
		var next flags
		if err := run.Parse("history-service", &next, args, getenv, io.Discard); err != nil {
			return nil, err
		}
		if err := obs.SetLevel(log, next.LogLevel); err != nil {
			return nil, err
		}
		return run.Changed(f, next, "log-level")
	}))
	return g.Run(ctx)
}

// wire builds the service, in order of data flow. Unavailable engines do not stop the start, but the service is
// ready only once Redis answers, since it stores nothing before.
func (f *flags) wire(ctx context.Context, p parts) (_ *run.Group, err error) {
	log := p.log
	listen, admin, err := run.ListenBoth(ctx, f.Listen, f.Admin)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, listen.Close(), admin.Close())
		}
	}()
	conf, err := f.Config()
	if err == nil && !f.Insecure {
		err = trust.CheckOpen(listen, conf)
	}
	if err != nil {
		return nil, err
	}
	files, err := run.Files()
	if err != nil {
		return nil, err
	}
	if p.counted, err = count.ParseTypes(f.Counted); err != nil {
		return nil, fmt.Errorf("--counted-types: %w", err)
	}
	f.Counts = p.counted.Any()
	trust.RegisterExpiry(p.registry, "server", conf)
	engines := &connect.Engines{Log: log, Registry: p.registry, Tracer: p.tracer, Rules: p.rules}
	if p.stores, err = f.Connect(ctx, engines); err != nil {
		return nil, err
	}
	p.stores.Register(p.registry)
	registerPublished(p.registry, p.stores.Kafka)
	promauto.With(p.registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_counts_behind_seconds", Help: "How long ago everything archived was counted; 0 without counted types.",
	}, func() float64 {
		if p.statements == nil {
			return 0
		}
		return p.statements.Behind().Seconds()
	})
	if p.counted.Any() {
		if p.statements, err = f.FollowCounts(engines); err != nil {
			return nil, err
		}
	}
	held, server, err := f.server(p)
	if err != nil {
		return nil, err
	}
	lis := netutil.LimitListener(listen, min(f.MaxConns, files/2))
	serve := func(ctx context.Context) error { return server.Serve(ctx, lis, conf, f.Drain/5) }
	log.Info("serving", "rpc", lis.Addr().String(), "admin", admin.Addr().String())
	g := &run.Group{Drain: f.Drain, LameDuck: f.LameDuck, Log: log}
	g.Add("engines", time.Second, p.stores.Run)
	g.Add("judge", time.Second, p.stores.Judge)
	g.Add("clock", time.Second, p.stores.Clock.Run)
	g.Add("trusted time", time.Second, p.stores.Trust)
	g.Add("rpc", f.Drain/4, serve)
	g.Add("warm", webhook.LastTries+time.Second/2, server.Run)
	g.Add("aggregate", f.Drain*9/20, held.Run)
	if p.statements != nil {
		g.Add("counts", time.Second, p.statements.Follow)
		g.Add("statements", 0, run.Closing(p.statements.Close))
	}
	p.stores.Closing(g)
	checks := p.stores.Checks("redis")
	checks["clock"], checks["stopping"] = p.stores.Clock.Check, g.Check
	degraded := p.stores.Clocks(p.stores.Checks("kafka", "hbase"))
	degraded["redis"] = p.stores.Part("redis")
	g.Add("admin", 0, obs.NewAdmin(obs.AdminConfig{
		Listener: netutil.LimitListener(admin, 64), Hosts: f.Hosts, Metrics: p.registry, Log: log, Checks: checks, Degraded: degraded,
		ConfirmClock: p.stores.ConfirmClock, Terminate: run.Terminate, Hot: server.Hot,
	}).Run)
	return g, nil
}

// parts are the components of the server.
type parts struct {
	stores   *connect.Stores
	rules    *history.Rulebook
	counted  count.Types
	tracer   *trace.Tracer
	log      *slog.Logger
	registry *prometheus.Registry
	// statements is the topic of counts, nil without counted types.
	statements *kafka.Counts
}

func (f *flags) server(p parts) (*aggregate.Aggregator, *rpc.Server, error) {
	s := p.stores
	publisher := s.Publisher(s.Kafka)
	hook, err := f.Endpoint.Open(p.log, p.registry)
	if err != nil {
		return nil, nil, err
	}
	var server *rpc.Server
	held, err := aggregate.New(aggregate.Config{
		Publisher: publisher, Confirm: func(ctx context.Context) error { return server.Confirm(ctx) },
		Hold: f.Hold, Max: f.MaxHeld, Logger: p.log, Registry: p.registry,
	})
	if err != nil {
		return nil, nil, err
	}
	var counters count.Counters
	var counts count.Publisher
	if p.counted.Any() {
		counters, counts = count.Following(s.HBase.Counters(), p.statements.Through), p.statements
	}
	server, err = rpc.New(rpc.Config{
		Now: s.Trusted.Now, ClockErr: s.Clock.Err, Horizon: s.Trusted.Horizon, Epoch: s.Redis.Epoch, Cache: s.Cache(s.Redis), Archive: s.Archive(s.HBase), Summaries: s.HBase, Counters: counters, Counts: counts, Counted: p.counted, Aggregate: held, Queue: publisher, Feed: s.Redis,
		Erasers: f.erasers(s), Days: s.Days(s.Redis), Announcer: s.Announcer(s.FirstOfDay), Webhook: hook,
		Deadline: f.Deadline, Keep: f.Keep, WarmRate: f.WarmRate, Rules: p.rules, Tracer: p.tracer, Logger: p.log, Registry: p.registry,
	})
	return held, server, err
}

// erasers returns the stores with data of users.
func (f *flags) erasers(s *connect.Stores) []admin.Eraser {
	all, topics := []admin.Eraser{s.Redis, s.HBase}, f.TopicNames()
	if f.Counts {
		all, topics = append(all, s.HBase.Counters()), append(topics, f.CountsTopic)
	}
	return append(all, s.Kafka.Topics(topics...))
}

// registerPublished registers the counters of published messages.
func registerPublished(reg prometheus.Registerer, q *kafka.Queue) {
	auto := promauto.With(reg)
	auto.NewCounterFunc(prometheus.CounterOpts{
		Name: "playhead_kafka_published_messages_total", Help: "Messages that Kafka has acknowledged.",
	}, func() float64 { n, _ := q.Stats(); return float64(n) })
	auto.NewCounterFunc(prometheus.CounterOpts{
		Name: "playhead_kafka_published_bytes_total", Help: "Their payload, before compression.",
	}, func() float64 { _, n := q.Stats(); return float64(n) })
}
