package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
)

// Counts is the topic of what archived records say, in messages for one partition each. An object's statements share a
// partition.
type Counts struct {
	q       *Queue
	began   time.Time
	through atomic.Int64 // Unix milliseconds
}

// errStatements is the decode error of every message, so messages arrive undecoded.
var errStatements = errors.New("statements are no batch of keys")

// NewCounts is [New] for statements. Defaults: topic history.counts, group history-counts.
func NewCounts(cfg Config) (*Counts, error) {
	cfg.Topic = cmp.Or(cfg.Topic, "history.counts")
	cfg.Group = cmp.Or(cfg.Group, "history-counts")
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	q.decode = func([]byte) ([]history.Announcement, error) { return nil, errStatements }
	return &Counts{q: q, began: time.Now()}, nil
}

// Prepare is [Queue.Prepare].
func (c *Counts) Prepare(ctx context.Context) error { return c.q.Prepare(ctx) }

// Fit is [Queue.Fit].
func (c *Counts) Fit(ctx context.Context) error { return c.q.Fit(ctx) }

// Progress is [Queue.Progress].
func (c *Counts) Progress() Progress { return c.q.Progress() }

// Close closes idle connections. No other method may be running or called.
func (c *Counts) Close() error { return c.q.Close() }

// statementsPerMessage keeps messages far below the bound.
const statementsPerMessage = 1000

// Publish sends statements. A message counts as sent once all in-sync replicas have it.
func (c *Counts) Publish(ctx context.Context, statements []count.Statement) (unsent []count.Statement, err error) {
	if len(statements) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	leaders, err := c.q.ensuredLeaders(ctx)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return statements, fmt.Errorf("publish %d statements: %w: %w", len(statements), history.ErrUnavailable, err)
	}
	byPartition := make([][]count.Statement, len(leaders))
	for _, s := range statements {
		p := int(history.BucketOf(s.Object.String())) % len(leaders)
		byPartition[p] = append(byPartition[p], s)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for p, some := range byPartition {
		if len(some) == 0 {
			continue
		}
		wg.Go(func() {
			if left, sendErr := c.send(ctx, p, leaders[p], some); sendErr != nil {
				mu.Lock()
				defer mu.Unlock()
				unsent, err = append(unsent, left...), fmt.Errorf("publish statements: %w: %w", history.ErrUnavailable, sendErr)
			}
		})
	}
	wg.Wait()
	return unsent, err
}

// send sends the statements of a partition in order, and returns those from the first failure on.
func (c *Counts) send(ctx context.Context, partition int, leader kafka.Broker, statements []count.Statement) ([]count.Statement, error) {
	for len(statements) > 0 {
		n := min(len(statements), statementsPerMessage)
		m := wire.Message{Partition: partition, Payload: count.AppendMessage(nil, statements[:n]), Keys: []history.Announcement{{Key: statements[0].Key()}}}
		if err := c.q.produce(ctx, c.q.broker(leader), m); err != nil {
			return statements, err
		}
		statements = statements[n:]
	}
	return nil, nil
}

// Consume calls handle with each delivery of the group's partitions of this process, and commits it if handle returns
// nil.
func (c *Counts) Consume(ctx context.Context, handle func(context.Context, count.Delivery) error) error {
	return c.q.Consume(ctx, func(ctx context.Context, a history.Assignment) error {
		for {
			d, err := a.Fetch(ctx)
			if err != nil {
				return err
			}
			if err := handle(ctx, statementsOf(d)); err != nil {
				return err
			}
			if err := a.Commit(ctx, d); err != nil {
				return err
			}
		}
	})
}

func statementsOf(d history.Delivery) count.Delivery {
	all := count.Delivery{Messages: d.Messages}
	for _, m := range d.Poison {
		some, err := count.Message(m.Payload)
		if err != nil {
			m.Err = err
			all.Poison = append(all.Poison, m)
		}
		all.Statements = append(all.Statements, some...)
	}
	return all
}

// Through is the time up to which everything archived is counted, in Unix milliseconds, 0 if unknown. It needs
// [Counts.Follow].
func (c *Counts) Through() int64 { return c.through.Load() }

// Behind is the time since [Counts.Through], or since New while it is unknown.
func (c *Counts) Behind() time.Duration {
	if at := c.Through(); at > 0 {
		return time.Since(time.UnixMilli(at))
	}
	return time.Since(c.began)
}

const (
	followEvery = time.Second
	// maxEnds bounds the remembered ends, which the counters have not reached.
	maxEnds = 600
)

// ends are the ends of the partitions at a time.
type ends struct {
	at  time.Time
	all map[int]int64
}

// Follow keeps [Counts.Through] up to date until ctx is done. While Kafka does not answer it stays.
func (c *Counts) Follow(ctx context.Context) error {
	var past []ends
	for {
		past = c.follow(ctx, past)
		if !run.Sleep(ctx, followEvery) {
			return nil
		}
	}
}

// follow notes the present ends behind the past ones, and removes those that are counted.
func (c *Counts) follow(ctx context.Context, past []ends) []ends {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	now := ends{at: time.Now(), all: make(map[int]int64)}
	n, err := c.q.partitions(ctx)
	if err != nil {
		return past
	}
	last := make([]kafka.OffsetRequest, n)
	for p := range last {
		last[p] = kafka.LastOffsetOf(p)
	}
	res, err := c.q.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{c.q.cfg.Topic: last}})
	if err != nil {
		return past
	}
	for _, p := range res.Topics[c.q.cfg.Topic] {
		if err = errors.Join(err, p.Error); p.LastOffset > 0 {
			now.all[p.Partition] = p.LastOffset
		}
	}
	done, fetchErr := c.q.committed(ctx, n)
	if err != nil || fetchErr != nil {
		return past
	}
	if len(past) < maxEnds {
		past = append(past, now)
	}
	for len(past) > 0 && past[0].reached(done, now) {
		c.through.Store(past[0].at.UnixMilli())
		past = past[1:]
	}
	return past
}

// reached reports whether the group has committed everything before the ends. Ends beyond the present ones are of a
// deleted topic, in which nothing is left.
func (e *ends) reached(done []kafka.OffsetFetchPartition, now ends) bool {
	left := maps.Clone(e.all)
	maps.DeleteFunc(left, func(partition int, end int64) bool { return end > now.all[partition] })
	for _, p := range done {
		if p.CommittedOffset >= left[p.Partition] {
			delete(left, p.Partition)
		}
	}
	return len(left) == 0
}
