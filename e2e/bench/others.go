package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/wire"
)

// Cell is what a put into HBase needs.
type Cell struct {
	Row, Column string
	At          uint64
	Value       []byte
}

// CellOf encodes a record as the archive has it.
func CellOf(k history.Key, r *history.Record) Cell {
	return Cell{
		Row: history.RowKey(k.UID), Column: k.Object.String(),
		At: uint64(r.Version.Time()), Value: wire.AppendRecord(nil, r), //nolint:gosec // a time is positive
	}
}

// Put sends a batch with the client alone. It gives up after 10 s.
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

// hbaseSession writes every heartbeat through to HBase: the last of each key of a batch.
type hbaseSession struct {
	client gohbase.Client
	table  string
	load   *Load
	cells  []Cell
	seen   map[history.Key]struct{}
}

func (s *hbaseSession) Send(ctx context.Context, beats []int32) error {
	clear(s.seen)
	s.cells = s.cells[:0]
	for _, b := range slices.Backward(beats) {
		e := s.load.Event(int(b))
		if _, ok := s.seen[e.Key]; !ok {
			s.seen[e.Key] = struct{}{}
			s.cells = append(s.cells, CellOf(e.Key, e.Record()))
		}
	}
	return Put(ctx, s.client, s.table, s.cells)
}

func (s *hbaseSession) Close() error {
	s.client.Close()
	return nil
}

// writeThrough returns a client of a new table for each worker.
func (e *Engines) writeThrough(ctx context.Context, l *Load, s Shape) (*work, error) {
	table := newName()
	a, err := hbase.Open(ctx, hbase.Config{ZooKeeper: e.Addr[2], Table: table}) // which makes it
	if err != nil {
		return nil, err
	}
	if err := a.Close(); err != nil {
		return nil, err
	}
	return prepare(s, l.Share(s.Workers), func([]int32) (Session, error) {
		return &hbaseSession{gohbase.NewClient(e.Addr[2]), table, l, nil, make(map[history.Key]struct{})}, nil
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

// MeasureOther sends a load to what stands beside the product: HBase, written through, or
// Kafka, with a message for each heartbeat. Readers of the topic are not measured.
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

// MeasureNaive sends a load to what most teams write first: an HTTP request for each
// heartbeat, an RPC for each request, and a write into Redis for each RPC. It compares and
// archives nothing, and drops the metadata.
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
