package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// FirstOfDay tells on a topic of its own who was seen for the first time on a day, one
// message for each, with the user as its key. It implements [history.Announcer].
type FirstOfDay struct{ q *Queue }

// NewFirstOfDay is [New] for first sightings: the topic is history.first-of-day unless
// the configuration has another.
func NewFirstOfDay(cfg Config) (*FirstOfDay, error) {
	cfg.Topic = cmp.Or(cfg.Topic, "history.first-of-day")
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &FirstOfDay{q: q}, nil
}

// Prepare is [Queue.Prepare].
func (f *FirstOfDay) Prepare(ctx context.Context) error { return f.q.Prepare(ctx) }

// firstsPerRequest keeps a request far below what brokers take.
const firstsPerRequest = 1000

// Announce implements [history.Announcer]. A user's messages are in one partition. A call
// lasts ten seconds at most; nothing is queued here.
func (f *FirstOfDay) Announce(ctx context.Context, firsts []history.First) error {
	if len(firsts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	leaders, err := f.q.layout(ctx)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return fmt.Errorf("announce: %w: %w", history.ErrUnavailable, err)
	}
	byPartition := map[int][]history.First{}
	for _, one := range firsts {
		p := int(history.BucketOf(one.UID)) % len(leaders)
		byPartition[p] = append(byPartition[p], one)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxInFlight)
	for p, some := range byPartition {
		for part := range slices.Chunk(some, firstsPerRequest) {
			g.Go(func() error { return f.q.persist(ctx, func() error { return f.send(ctx, p, part) }) })
		}
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("announce: %w: %w", history.ErrUnavailable, err)
	}
	return nil
}

func (f *FirstOfDay) send(ctx context.Context, partition int, firsts []history.First) error {
	records := make([]kafka.Record, len(firsts))
	for i, one := range firsts {
		records[i] = kafka.Record{Key: kafka.NewBytes([]byte(one.UID)), Value: kafka.NewBytes(wire.AppendFirst(nil, one))}
	}
	res, err := f.q.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: f.q.cfg.Topic, Partition: partition, RequiredAcks: kafka.RequireAll, Compression: kafka.Zstd,
		Records: kafka.NewRecordReader(records...),
	})
	if err != nil {
		return err
	}
	return res.Error
}

// Close gives the connections back. No other method may be running or called.
func (f *FirstOfDay) Close() error { return f.q.Close() }
