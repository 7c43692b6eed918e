package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/wire"
)

// Engines measures the product between real Redis, Kafka and HBase. Each turn has a new service and job with
// their own table and topics.
type Engines struct {
	Bin    string         // folder of the built commands
	Dir    string         // folder for data
	Addr   [3]string      // of Redis, Kafka and HBase
	PIDs   map[string]int // of the servers
	Config engine.Config  // for further installations
}

// engineNames are the engines in the order of their addresses.
var engineNames = [3]string{"redis", "kafka", "hbase"}

// startEngines starts the servers concurrently, and returns them even after a failure. Redis flushes its file before
// it answers, like PostgreSQL, and never rewrites it.
func startEngines(ctx context.Context, cfg engine.Config) (all []*engine.Engine, err error) {
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

// stack is a running service and job, and an edge for players' connections.
type stack struct {
	service, job, edge        *process.Process
	rpc, http                 string // addresses for heartbeats
	serving, archives, edging string // admin addresses
}

func (e *Engines) start(ctx context.Context, d Door, name string) (s *stack, err error) {
	s = &stack{}
	for _, addr := range []*string{&s.rpc, &s.http, &s.serving, &s.archives, &s.edging} {
		if *addr, err = process.FreeAddr(ctx); err != nil {
			return s, err
		}
	}
	p := process.Product{Bin: e.Bin, Name: name, Redis: e.Addr[0], Kafka: e.Addr[1], HBase: e.Addr[2]}
	if s.service, err = begin(ctx, s.serving, p.Command("history-service", s.serving, "--listen", s.rpc)); err != nil {
		return s, err
	}
	if s.job, err = begin(ctx, s.archives, p.Command("history-job", s.archives)); err != nil || d == GRPC {
		return s, err
	}
	secret, err := writeSecret(e.Dir)
	if err != nil {
		return s, err
	}
	s.edge, err = begin(ctx, s.edging, p.Edge(s.http, s.edging, secret, []string{s.rpc}))
	return s, err
}

func writeSecret(dir string) (path string, err error) {
	path = filepath.Join(dir, "secret")
	return path, os.WriteFile(path, []byte(Secret), 0o600)
}

// processes returns the running processes by name.
func (s *stack) processes() map[string]*process.Process {
	all := map[string]*process.Process{"service": s.service, "job": s.job, "edge": s.edge}
	maps.DeleteFunc(all, func(_ string, p *process.Process) bool { return p == nil })
	return all
}

func (s *stack) end() {
	for _, p := range s.processes() {
		p.Kill()
	}
}

func (s *stack) log() (all string) {
	for _, p := range s.processes() {
		all += p.Log()
	}
	return all
}

func begin(ctx context.Context, admin string, argv []string) (*process.Process, error) {
	p, err := process.Start(argv[0], argv[1:]...)
	if err != nil {
		return nil, err
	}
	return p, ready(ctx, p, admin)
}

// ready waits until a process is ready, at most a minute, or has ended.
func ready(ctx context.Context, p *process.Process, admin string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(errors.New("it has ended"))
		case <-ctx.Done():
		}
	}()
	err := process.Await(ctx, time.Minute, p.Path, func(ctx context.Context) error { return p.Ready(ctx, admin) })
	if err != nil {
		return fmt.Errorf("%w\n%s", because(ctx, err), p.Log())
	}
	return nil
}

// Measure sends a load of users unknown to an empty Redis, until everything is archived.
func (e *Engines) Measure(ctx context.Context, l *Load, d Door, shape Shape) (Figures, error) {
	return e.turn(ctx, d, newName(), func(s *stack) (Figures, error) { return s.measure(ctx, e, l, d, shape) })
}

// MeasureWarm is Measure for returning users, whom Redis knows completely.
func (e *Engines) MeasureWarm(ctx context.Context, before, l *Load, shape Shape) (Figures, error) {
	return e.turn(ctx, GRPC, newName(), func(s *stack) (Figures, error) {
		if _, err := s.measure(ctx, e, before, GRPC, shape); err != nil {
			return nil, err
		}
		return s.measure(ctx, e, l, GRPC, shape)
	})
}

// newName returns an unused name for a table and topics.
func newName() string { return "bench_" + strings.ToLower(rand.Text()[:10]) }

// turn runs do with its own processes and an empty Redis.
func (e *Engines) turn(ctx context.Context, d Door, name string, do func(*stack) (Figures, error)) (Figures, error) {
	if err := process.Flush(ctx, e.Addr[0]); err != nil {
		return nil, err
	}
	s, err := e.start(ctx, d, name)
	defer s.end()
	if err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	f, err := do(s)
	if err != nil {
		return nil, fmt.Errorf("engines: %w\n%s", err, s.log())
	}
	return f, nil
}

func (s *stack) measure(ctx context.Context, e *Engines, l *Load, d Door, shape Shape) (Figures, error) { //nolint:revive // what a turn needs
	before, err := s.counted(ctx)
	if err != nil {
		return nil, err
	}
	l.EndAt(time.Now().UnixMilli())
	w, err := open(ctx, doors{rpc: s.rpc, http: s.http}, l, d, shape)
	if err != nil {
		return nil, err
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(e.PIDs)}
	for name, p := range s.processes() {
		t.meter.PIDs[name] = p.PID()
	}
	f, err := t.acked(ctx)
	if err == nil {
		err = t.archived(ctx, f, s.since(before))
	}
	if err != nil {
		return nil, err
	}
	after, err := s.counted(ctx)
	for _, figure := range []string{"kafka messages", "kafka bytes"} {
		f[figure] = (after[figure] - before[figure]) / float64(l.Viewings())
	}
	return f, err
}

// counted reads the stack's counters.
func (s *stack) counted(ctx context.Context) (Figures, error) {
	f := make(Figures)
	var errs []error
	for figure, at := range map[string]struct{ admin, metric string }{
		"puts":           {s.archives, "playhead_job_puts_total"},
		"kafka messages": {s.serving, "playhead_kafka_published_messages_total"},
		"kafka bytes":    {s.serving, "playhead_kafka_published_bytes_total"},
		"held":           {s.serving, "playhead_aggregate_held_keys"},
	} {
		n, err := process.Metric(ctx, at.admin, at.metric)
		f[figure], errs = n, append(errs, err)
	}
	return f, errors.Join(errs...)
}

// since returns a function that reports the archive's progress since some counts.
func (s *stack) since(before Figures) func(context.Context) (backlog, error) {
	return func(ctx context.Context) (backlog, error) {
		now, err := s.counted(ctx)
		return backlog{held: now["held"], puts: now["puts"] - before["puts"]}, err
	}
}

func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Cell is the content of an HBase put.
type Cell struct {
	Row, Column string
	At          uint64
	Value       []byte
}

// CellOf encodes a record in the archive's format.
func CellOf(k history.Key, r *history.Record) Cell {
	return Cell{
		Row: history.RowKey(k.UID), Column: k.Object.String(),
		At: uint64(r.Version.Time()), Value: wire.AppendRecord(nil, r), //nolint:gosec // a time is positive
	}
}

// Put sends a batch with the HBase client alone. Its deadline is 10 s.
func Put(ctx context.Context, c gohbase.Client, table string, cells []Cell) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	calls := make([]hrpc.Call, len(cells))
	for i, cell := range cells {
		var err error
		calls[i], err = hrpc.NewPutStr(ctx, table, cell.Row, map[string]map[string][]byte{"info": {cell.Column: cell.Value}}, hrpc.TimestampUint64(cell.At))
		if err != nil {
			return err
		}
	}
	results, _ := c.SendBatch(ctx, calls)
	for _, r := range results {
		if r.Error != nil {
			return fmt.Errorf("put: %w", r.Error)
		}
	}
	return nil
}

// lastOf selects the last heartbeat of each key of a batch.
type lastOf struct {
	load  *Load
	cells []Cell // reused
	seen  map[history.Key]struct{}
}

func newLastOf(l *Load) lastOf { return lastOf{load: l, seen: make(map[history.Key]struct{})} }

// events yields the last event of each key, without metadata.
func (l *lastOf) events(beats []int32) iter.Seq[history.Event] {
	return func(yield func(history.Event) bool) {
		clear(l.seen)
		for _, b := range slices.Backward(beats) {
			e := l.load.plan.Event(int(b))
			if _, ok := l.seen[e.Key]; ok {
				continue
			}
			l.seen[e.Key] = struct{}{}
			if !yield(e) {
				return
			}
		}
	}
}

func (l *lastOf) of(beats []int32) []Cell {
	l.cells = l.cells[:0]
	for e := range l.events(beats) {
		e.Meta = l.load.metadata[e.Key.Object].record
		l.cells = append(l.cells, CellOf(e.Key, e.Record()))
	}
	return l.cells
}

// hbaseSession writes the last heartbeat of each key of a batch through to HBase.
type hbaseSession struct {
	client gohbase.Client
	table  string
	last   lastOf
}

func (s *hbaseSession) Send(ctx context.Context, beats []int32) error {
	return Put(ctx, s.client, s.table, s.last.of(beats))
}

func (s *hbaseSession) Close() error {
	s.client.Close()
	return nil
}

func (e *Engines) newTable(ctx context.Context) (name string, err error) {
	name = newName()
	a, err := hbase.Open(ctx, hbase.Config{ZooKeeper: e.Addr[2], Table: name}) // creates it
	if err != nil {
		return "", err
	}
	return name, a.Close()
}

// writeThrough returns a client of a new table for each worker.
func (e *Engines) writeThrough(ctx context.Context, l *Load, s Shape) (*work, error) {
	table, err := e.newTable(ctx)
	if err != nil {
		return nil, err
	}
	return prepare(s, l.Share(s.Workers), func([]int32) (Session, error) {
		return &hbaseSession{gohbase.NewClient(e.Addr[2]), table, newLastOf(l)}, nil
	})
}

// kafkaSession publishes every heartbeat as a message, and waits until all replicas have it.
type kafkaSession struct {
	writer *kafka.Writer
	load   *Load
	batch  []kafka.Message
}

func (s *kafkaSession) Send(ctx context.Context, beats []int32) error {
	s.batch = s.batch[:0]
	for _, b := range beats {
		e := s.load.Event(int(b))
		s.batch = append(s.batch, kafka.Message{Key: []byte(e.Key.UID), Value: wire.AppendRecord([]byte(e.Key.Object.String()), e.Record())})
	}
	return s.writer.WriteMessages(ctx, s.batch...)
}

func (s *kafkaSession) Close() error { return s.writer.Close() }

// publish returns a writer to a new topic for each worker.
func (e *Engines) publish(ctx context.Context, l *Load, s Shape) (*work, error) {
	topic := newName()
	c := &kafka.Client{Addr: kafka.TCP(e.Addr[1])}
	made, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: process.Partitions, ReplicationFactor: 1},
	}})
	if err == nil {
		err = made.Errors[topic]
	}
	if err != nil {
		return nil, fmt.Errorf("create topic: %w", err)
	}
	return prepare(s, l.Share(s.Workers), func([]int32) (Session, error) {
		return &kafkaSession{writer: &kafka.Writer{
			Addr: kafka.TCP(e.Addr[1]), Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
			BatchSize: s.Batch, BatchTimeout: time.Millisecond,
		}, load: l}, nil
	})
}

// MeasureOther sends a load to an alternative: HBase, written through, or Kafka, with a message per heartbeat. It
// does not measure readers of the topic.
func (e *Engines) MeasureOther(ctx context.Context, l *Load, v Variant) (f Figures, err error) {
	l.EndAt(time.Now().UnixMilli())
	to, server := e.writeThrough, "hbase"
	if v.Side == OnKafka {
		to, server = e.publish, "kafka"
	}
	w, err := to(ctx, l, v.Shape)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.Side, err)
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(map[string]int{server: e.PIDs[server]})}
	if f, err = t.acked(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", v.Side, err)
	}
	return f, nil
}

// MeasureNaive sends a load to the design that most teams build first. Each heartbeat is an HTTP request, an RPC
// and a write into Redis. It compares and archives nothing.
func (e *Engines) MeasureNaive(ctx context.Context, l *Load, s Shape) (f Figures, err error) {
	if err := process.Flush(ctx, e.Addr[0]); err != nil {
		return nil, err
	}
	front, errFront := process.FreeAddr(ctx)
	back, errBack := process.FreeAddr(ctx)
	if err := errors.Join(errFront, errBack); err != nil {
		return nil, err
	}
	program := filepath.Join(e.Bin, "naive")
	service, err := process.Start(program, "--listen", back, "--redis", e.Addr[0])
	if err != nil {
		return nil, err
	}
	defer service.Kill()
	edge, err := process.Start("env", "PLAYHEAD_TOKEN_SECRET="+Secret, program, "--listen", front, "--service", back)
	if err != nil {
		return nil, err
	}
	defer edge.Kill()
	if err := process.Await(ctx, 10*time.Second, "naive", func(ctx context.Context) error { return listening(ctx, front, back) }); err != nil {
		return nil, err
	}
	l.EndAt(time.Now().UnixMilli())
	w, err := open(ctx, doors{http: front}, l, HTTP, s)
	if err != nil {
		return nil, fmt.Errorf("naive: %w", err)
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(map[string]int{"edge": edge.PID(), "service": service.PID(), "redis": e.PIDs["redis"]})}
	if f, err = t.acked(ctx); err != nil {
		return nil, fmt.Errorf("naive: %w", err)
	}
	return f, nil
}

func listening(ctx context.Context, addrs ...string) error {
	for _, addr := range addrs {
		c, err := Dial(ctx, addr)
		if err != nil {
			return err
		}
		_ = c.Close()
	}
	return nil
}
