package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
)

// Engines is the product between real Redis, Kafka and HBase: one service and one job, new
// ones in each turn, with a table and topics of their own.
type Engines struct {
	Bin  string         // folder of the built commands
	Addr [3]string      // of Redis, Kafka and HBase
	PIDs map[string]int // of the servers
}

// engineNames are the engines in the order of their addresses.
var engineNames = [3]string{"redis", "kafka", "hbase"}

// StartEngines starts the servers side by side and returns what ends them. Redis flushes
// its file before it answers, as PostgreSQL does, and does not rewrite it meanwhile.
func StartEngines(ctx context.Context, cfg engine.Config) (all []*engine.Engine, err error) {
	cfg.Redis = []string{"--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"}
	started := make(chan error, len(engineNames))
	for _, name := range engineNames {
		e, err := engine.Open(name, cfg)
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	for _, e := range all {
		go func() { started <- e.Start(ctx) }()
	}
	for range all {
		err = errors.Join(err, <-started)
	}
	return all, err
}

// stack is a service and a job that run.
type stack struct {
	service, job           *process.Process
	rpc, serving, archives string // addresses: of the service's door, and of the admin ports
}

func (e *Engines) start(ctx context.Context) (*stack, error) {
	s := &stack{}
	for _, addr := range []*string{&s.rpc, &s.serving, &s.archives} {
		var err error
		if *addr, err = process.FreeAddr(ctx); err != nil {
			return nil, err
		}
	}
	p := process.Product{
		Bin: e.Bin, Name: "bench_" + strings.ToLower(rand.Text()[:10]),
		Redis: e.Addr[0], Kafka: e.Addr[1], HBase: e.Addr[2],
	}
	var err error
	if s.service, err = begin(ctx, s.serving, p.Command("history-service", s.serving, "--listen", s.rpc)); err != nil {
		return s, err
	}
	s.job, err = begin(ctx, s.archives, p.Command("history-job", s.archives))
	return s, err
}

// begin starts a command and waits until it is ready.
func begin(ctx context.Context, admin string, argv []string) (*process.Process, error) {
	p, err := process.Start(argv[0], argv[1:]...)
	if err != nil {
		return nil, err
	}
	err = process.Await(ctx, time.Minute, argv[0], func(ctx context.Context) error { return p.Ready(ctx, admin) })
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, p.Log())
	}
	return p, err
}

func (s *stack) end() {
	for _, p := range []*process.Process{s.service, s.job} {
		if p != nil {
			p.Kill()
		}
	}
}

// Measure sends a load of users whom an empty Redis does not know over gRPC, until
// everything is archived.
func (e *Engines) Measure(ctx context.Context, l *Load, shape Shape) (f Figures, err error) {
	if err := process.Flush(ctx, e.Addr[0]); err != nil {
		return nil, err
	}
	s, err := e.start(ctx)
	if s != nil {
		defer s.end()
	}
	if err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	l.EndAt(time.Now().UnixMilli())
	w, err := streams(ctx, s.rpc, l, shape)
	if err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(e.PIDs)}
	t.meter.PIDs["service"], t.meter.PIDs["job"] = s.service.PID(), s.job.PID()
	if f, err = t.acked(ctx); err == nil {
		err = t.archived(ctx, f, s.backlog)
	}
	if err != nil {
		return nil, fmt.Errorf("engines: %w\n%s%s", err, s.service.Log(), s.job.Log())
	}
	return f, s.queued(ctx, f, l)
}

func (s *stack) backlog(ctx context.Context) (b backlog, err error) {
	if b.held, err = Metric(ctx, s.serving, "playhead_aggregate_held_keys"); err != nil {
		return b, err
	}
	b.puts, err = Metric(ctx, s.archives, "playhead_job_puts_total")
	return b, err
}

// queued adds what went through Kafka, for each viewing.
func (s *stack) queued(ctx context.Context, f Figures, l *Load) error {
	for figure, metric := range map[string]string{
		"kafka messages": "playhead_kafka_published_messages_total", "kafka bytes": "playhead_kafka_published_bytes_total",
	} {
		n, err := Metric(ctx, s.serving, metric)
		if err != nil {
			return err
		}
		f[figure] = n / float64(l.Viewings())
	}
	return nil
}
