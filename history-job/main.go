// Command history-job archives announced records: it consumes keys from Kafka, reads their records from Redis,
// and puts them into HBase.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/compaction"
	"github.com/playhead/playhead/history-job/counts"
	"github.com/playhead/playhead/history-job/recovery"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trust"
)

type flags struct {
	Admin         string        `help:"Address of health, metrics and profiles." default:"127.0.0.1:7072"`
	Hosts         trust.Hosts   `name:"host" help:"Names under which it is asked, such as api.example.com; * is any. Addresses, localhost and names without a dot always are."`
	Workers       int           `help:"Batches of keys under way at once." default:"16" positive:""`
	Batch         int           `help:"Keys of a batch." default:"500" positive:""`
	SweepEvery    time.Duration `help:"How often overdue marks are looked for." default:"30s" positive:""`
	SweepAge      time.Duration `help:"How old a mark is then; at least twice the hold of the services, or what they hold is archived more often than it need be." default:"240s" positive:""`
	Remember      int           `help:"Keys archived last that are compared with the archive after Redis was restarted." default:"100000" positive:""`
	CompactAbove  int           `help:"Records of a user from which on what is older than a day is moved into parts; 0 is never. It waits for the table to say that every process can read parts. See docs/retention.md." default:"2000"`
	CompactAfter  time.Duration `help:"How old that is. The first job that compacts says so for all, for good." default:"24h"`
	CompactMargin time.Duration `help:"More than clocks may differ and puts may take, also for good. Shorter than an hour is for tests, which start all processes after the first job." default:"1h" hidden:""`
	Summary       time.Duration `help:"For how long a summary of each object is kept after its record has expired, such as 43800h; 0 keeps to the time that was set before, and keeps none if there was none. First let every service and job have this version."`
	Retention     string        `help:"How long records live after they were last played, such as 90d, 36h or forever. The data has it, and another one is refused: playhead retention set changes it. See docs/retention.md." default:"90d"`
	Rules         []string      `sep:";" placeholder:"RULES" help:"The same rules as those of the services. Summaries need the bounds of completed; classes of types need how long records live, and how many the cache keeps. See docs/retention.md."`
	CountedTypes  []string      `placeholder:"TYPES" help:"Types of objects of which plays, viewers and watched time are counted, with commas between, or all; none by default. Every job has the same. See docs/counts.md."`
	Drain         time.Duration `help:"Longest time the stop may take." default:"20s" positive:""`
	LogLevel      string        `help:"debug, info, warn or error." default:"info"`
	LogFormat     string        `help:"text or json." default:"text"`
	LogUIDs       bool          `name:"log-uids" help:"Name users in logs by their ids instead of pseudonyms. See docs/operate.md."`

	connect.Flags
	obs.Traces
}

// Help returns the introduction to --help.
func (*flags) Help() string {
	return `Archives what was announced: it reads keys from Kafka, their records from Redis, and puts them into HBase.`
}

func main() { run.Main(work) }

func work(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("history-job", &f, args, getenv, out); err != nil {
		return err
	}
	rules, err := history.ParseRules(f.Retention, f.Rules)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	if err := rules.ValidateSummaryTTL(f.Summary); err != nil {
		return fmt.Errorf("--%w", err)
	}
	history.LogUIDs(f.LogUIDs)
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, f.LogFormat)
	if err != nil {
		return err
	}
	asked := f // wire completes the settings of engines
	registry := obs.NewRegistry()
	engines := &connect.Engines{Log: log, Registry: registry, Rules: rules}
	traces, err := f.Open(ctx, "history-job", log, registry)
	if err != nil {
		return err
	}
	defer traces.Close()
	engines.Tracer = traces.Tracer
	g, err := f.wire(ctx, engines, registry)
	if err != nil {
		return err
	}
	g.Add("reload", 0, run.Reloading(log, func() ([]string, error) {
		var next flags
		if err := run.Parse("history-job", &next, args, getenv, io.Discard); err != nil {
			return nil, err
		}
		if err := obs.SetLevel(log, next.LogLevel); err != nil {
			return nil, err
		}
		return run.Changed(asked, next, "log-level")
	}))
	return g.Run(ctx)
}

// wire builds the components in data-flow order. It retries unreachable engines; the job is ready once all have
// answered.
func (f *flags) wire(ctx context.Context, engines *connect.Engines, registry *prometheus.Registry) (_ *run.Group, err error) {
	log, rules := engines.Log, engines.Rules
	admin, err := run.Listen(ctx, "admin", f.Admin)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, admin.Close())
		}
	}()
	f.HBase.CompactAbove, f.HBase.CompactAfter, f.HBase.CompactMargin = f.CompactAbove, f.CompactAfter, f.CompactMargin
	f.HBase.Summary = f.Summary
	counted, err := count.ParseTypes(f.CountedTypes)
	if err != nil {
		return nil, fmt.Errorf("--counted-types: %w", err)
	}
	f.Counts = counted.Any()
	dead, err := f.ConnectDead(engines)
	if err != nil {
		return nil, err
	}
	var statements *kafka.Counts
	if counted.Any() {
		if statements, err = f.ConnectCounts(engines); err != nil {
			return nil, err
		}
	}
	plays, err := f.ConnectPlays(engines)
	if err != nil {
		return nil, err
	}
	s, err := f.Connect(ctx, engines)
	if err != nil {
		return nil, err
	}
	engines.Register(registry)
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "playhead_job_skipped_messages_total", Help: "Messages that were gone from Kafka before a job had read them: their keys are left to the sweep.",
	}, func() float64 { return float64(s.Kafka.Skipped()) }))
	registerProgress(registry, s.Kafka)
	metrics := counts.NewMetrics(registry)
	conf := config{
		archive: archive.Config{
			Cache: s.Cache(s.Redis), Archive: s.Archive(s.HBase), Dead: dead, Days: s.Days(s.Redis), Announcer: s.Announcer(s.FirstOfDay),
			Workers: f.Workers, Batch: f.Batch, SweepEvery: f.SweepEvery, SweepAge: f.SweepAge, Tracer: engines.Tracer, Logger: log, Registry: registry,
		},
		machine:  recovery.MachineConfig{Epoch: s.Redis.Epoch, Remember: f.Remember},
		recovery: recovery.Config{Consumer: s.Kafka, Queue: s.Kafka, Rules: rules},
		compaction: compaction.Config{
			Notes: s.Redis, Summarizer: s.HBase, Rules: rules, ClockErr: func() error { _, err := s.Trusted.Expiry(); return err },
		},
	}
	if plays != nil {
		conf.archive.Plays = plays
	}
	if f.CompactAbove > 0 {
		conf.compaction.Compactor = s.HBase
	}
	if statements != nil {
		conf.archive.Counts, conf.archive.Counted = statements, counted
	}
	j, err := newJob(conf)
	if err != nil {
		return nil, err
	}
	g := &run.Group{Drain: f.Drain, Log: log}
	g.Add("engines", time.Second, engines.Run)
	g.Add("judge", time.Second, engines.Judge)
	g.Add("clock", time.Second, s.Clock.Run)
	g.Add("trusted time", time.Second, s.Trust)
	j.add(g, f.Drain/2)
	if statements != nil {
		counter := counts.New(counts.Config{Counters: s.HBase.Counters(), Metrics: metrics, Logger: log})
		metrics.Follow(func() (int64, time.Duration) {
			p := statements.Progress()
			return p.Lag, p.Oldest
		})
		g.Add("counts", f.Drain/4, counter.Run(statements))
		g.Add("statements", 0, run.Closing(statements.Close))
	}
	g.Add("dead letters", 0, run.Closing(dead.Close))
	if plays != nil {
		g.Add("plays", 0, run.Closing(plays.Close))
	}
	s.Closing(g)
	g.Add("admin", 0, obs.NewAdmin(obs.AdminConfig{
		Listener: netutil.LimitListener(admin, 64), Hosts: f.Hosts, Metrics: registry, Log: log, Checks: engines.Checks("redis", "kafka", "dead letters", "hbase"),
		Degraded: s.Clocks(map[string]func(context.Context) error{"redis": engines.Part("redis")}), ConfirmClock: s.ConfirmClock, Terminate: run.Terminate,
	}).Run)
	return g, nil
}

// registerProgress adds what the consumer group and its lag look like from this process.
func registerProgress(reg prometheus.Registerer, q *kafka.Queue) {
	gauge := func(name, help string, read func(kafka.Progress) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "playhead_kafka_" + name, Help: help}, func() float64 { return read(q.Progress()) }))
	}
	gauge("consumer_lag_messages", "Messages in this job's partitions that it has not committed, 0 without partitions.", func(p kafka.Progress) float64 { return float64(p.Lag) })
	gauge("consumer_lag_seconds", "Age of the oldest message that this job has read and not committed.", func(p kafka.Progress) float64 { return p.Oldest.Seconds() })
	gauge("generation", "Generation of the consumer group, 0 while this job is in none.", func(p kafka.Progress) float64 { return float64(p.Generation) })
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "playhead_kafka_rebalances_total", Help: "Generations of the consumer group that this job has begun.",
	}, func() float64 { return float64(q.Progress().Generations) }))
}

// config configures a job.
type config struct {
	archive    archive.Config
	machine    recovery.MachineConfig
	recovery   recovery.Config
	compaction compaction.Config
}

// job is the loops of the process.
type job struct {
	archiver *archive.Archiver
	recovery *recovery.Recovery
	worker   *compaction.Worker
}

func newJob(cfg config) (j job, err error) {
	cfg.compaction.Deadline, cfg.compaction.Logger, cfg.compaction.Registry = cfg.archive.Deadline, cfg.archive.Logger, cfg.archive.Registry
	if j.worker, err = compaction.New(cfg.compaction); err != nil {
		return job{}, err
	}
	machine := recovery.NewMachine(cfg.machine)
	cfg.archive.Epochs, cfg.archive.Archived = machine, j.worker.Archived
	if j.archiver, err = archive.New(cfg.archive); err != nil {
		return job{}, err
	}
	cfg.recovery.Machine, cfg.recovery.Archiver = machine, j.archiver
	j.recovery, err = recovery.New(cfg.recovery)
	return j, err
}

// add adds the loops. Those of a generation work on the buckets that the queue assigns to this process.
func (j job) add(g *run.Group, drain time.Duration) {
	g.Add("generations", drain, j.archiver.Generations(j.recovery, archive.Loops{
		"consume":   j.archiver.Consume,
		"sweep":     j.archiver.Sweep,
		"announce":  j.archiver.Announce,
		"restore":   j.recovery.Restore,
		"compact":   j.worker.Compact,
		"recall":    j.worker.Recall,
		"summarize": j.worker.Summarize,
	}))
	g.Add("lone sweep", drain/2, j.archiver.SweepAlone())
	g.Add("measure", time.Second, j.archiver.Measure())
	g.Add("recovery", drain/2, j.recovery.Follow())
}
