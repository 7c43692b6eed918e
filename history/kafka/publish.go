package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Publish implements [history.Publisher]. A message counts as sent once all in-sync replicas have it. After a
// timeout its keys count as unsent. A call takes at most ten seconds; nothing is buffered.
func (q *Queue) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	leaders, err := q.ensuredLeaders(ctx)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return keys, fmt.Errorf("publish %d keys: %w: %w", len(keys), history.ErrUnavailable, err)
	}
	messages := wire.Messages(keys, len(leaders), q.cfg.MaxBytes)
	return unsent(messages, q.send(ctx, messages, leaders))
}

// send returns one error per message. Partitions run concurrently, the messages of a partition in order.
func (q *Queue) send(ctx context.Context, messages []wire.Message, leaders []kafka.Broker) []error {
	errs := make([]error, len(messages))
	var wg sync.WaitGroup
	for begin, end := 0, 0; begin < len(messages); begin = end {
		for end = begin; end < len(messages) && messages[end].Partition == messages[begin].Partition; {
			end++
		}
		wg.Go(func() {
			for i := begin; i < end; i++ {
				errs[i] = q.produce(ctx, q.broker(leaders[messages[i].Partition]), messages[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// produce sends one message, with retries while its partition moves between brokers.
func (q *Queue) produce(ctx context.Context, broker *broker, m wire.Message) (err error) {
	ctx, span := q.cfg.Tracer.Publish(ctx, len(m.Keys), history.Traces(m.Keys))
	defer func() { span.End(err) }()
	if _, err := broker.breaker.Enter(); err != nil {
		return err
	}
	select {
	case broker.slots <- struct{}{}:
		defer func() { <-broker.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	start := time.Now()
	err = q.retryWithTopic(ctx, func() error {
		return q.request(ctx, m.Partition, kafka.Record{Key: kafka.NewBytes(key(m)), Value: kafka.NewBytes(m.Payload), Headers: headers(ctx)})
	})
	broker.breaker.Leave(start, err == nil || errors.As(err, new(kafka.Error)))
	if err != nil {
		return err
	}
	q.messages.Add(1)
	q.bytes.Add(int64(len(m.Payload)))
	return nil
}

// headers returns the headers of a message: the traceparent of its span, if it is traced.
func headers(ctx context.Context) []kafka.Header {
	if parent := trace.Parent(ctx); parent != "" {
		return []kafka.Header{{Key: trace.Header, Value: []byte(parent)}}
	}
	return nil
}

func (q *Queue) request(ctx context.Context, partition int, records ...kafka.Record) error {
	res, err := q.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: q.cfg.Topic, Partition: partition, RequiredAcks: kafka.RequireAll, Compression: kafka.Zstd,
		Records: kafka.NewRecordReader(records...),
	})
	if err != nil {
		return err
	}
	return res.Error
}

// key returns the first bucket of a message, for people who read the log. It does not affect the partition.
func key(m wire.Message) []byte {
	return strconv.AppendUint(nil, uint64(history.BucketOf(m.Keys[0].Key.UID)), 10)
}

// unsent returns the keys of failed messages and one error with the first reason.
func unsent(messages []wire.Message, errs []error) ([]history.Announcement, error) {
	var keys []history.Announcement
	var first error
	total := 0
	for i, m := range messages {
		total += len(m.Keys)
		if errs[i] == nil {
			continue
		}
		keys = append(keys, m.Keys...)
		if first == nil {
			first = errs[i]
		}
	}
	if first == nil {
		return nil, nil
	}
	return keys, fmt.Errorf("publish: %d of %d keys unsent: %w: %w", len(keys), total, history.ErrUnavailable, first)
}

// FirstOfDay publishes users' first sightings of a day to a topic of its own, one message each, keyed by user.
type FirstOfDay struct{ q *Queue }

// NewFirstOfDay is [New] for first sightings; default topic history.first-of-day.
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

// Fit is [Queue.Fit].
func (f *FirstOfDay) Fit(ctx context.Context) error { return f.q.Fit(ctx) }

// Announce publishes first sightings. A user's messages share a partition. A call takes at most ten seconds;
// nothing is buffered.
func (f *FirstOfDay) Announce(ctx context.Context, firsts []history.First) error {
	records := make([]keyed, len(firsts))
	for i, one := range firsts {
		records[i] = keyed{one.UID, wire.AppendFirst(nil, one)}
	}
	if err := f.q.produceKeyed(ctx, records); err != nil {
		return fmt.Errorf("announce: %w: %w", history.ErrUnavailable, err)
	}
	return nil
}

// keyed is a message of a user.
type keyed struct {
	uid   string
	value []byte
}

// keyedPerRequest keeps requests far below brokers' limits.
const keyedPerRequest = 1000

// produceKeyed sends messages, each under its user. Those of a user share a partition and keep their order.
func (q *Queue) produceKeyed(ctx context.Context, messages []keyed) error {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	leaders, err := q.ensuredLeaders(ctx)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return err
	}
	byPartition := map[int][]keyed{}
	for _, m := range messages {
		p := int(history.BucketOf(m.uid)) % len(leaders)
		byPartition[p] = append(byPartition[p], m)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxInFlight)
	for p, some := range byPartition {
		g.Go(func() error {
			for part := range slices.Chunk(some, keyedPerRequest) {
				if err := q.retryWithTopic(ctx, func() error { return q.requestKeyed(ctx, p, part) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (q *Queue) requestKeyed(ctx context.Context, partition int, messages []keyed) error {
	records := make([]kafka.Record, len(messages)) // read by the request
	for i, m := range messages {
		records[i] = kafka.Record{Key: kafka.NewBytes([]byte(m.uid)), Value: kafka.NewBytes(m.value)}
	}
	return q.request(ctx, partition, records...)
}

// Close closes idle connections. No other method may be running or called.
func (f *FirstOfDay) Close() error { return f.q.Close() }

// Plays is the stream of plays in a topic of its own: a message of JSON each, keyed by user.
type Plays struct{ q *Queue }

// NewPlays is [New] for plays; default topic history.plays.
func NewPlays(cfg Config) (*Plays, error) {
	cfg.Topic = cmp.Or(cfg.Topic, "history.plays")
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Plays{q: q}, nil
}

// Prepare is [Queue.Prepare].
func (p *Plays) Prepare(ctx context.Context) error { return p.q.Prepare(ctx) }

// Fit is [Queue.Fit].
func (p *Plays) Fit(ctx context.Context) error { return p.q.Fit(ctx) }

// Send publishes messages. Those of a user share a partition, in order. A call takes at most ten seconds; nothing is
// buffered.
func (p *Plays) Send(ctx context.Context, messages []history.PlayMessage) error {
	records := make([]keyed, len(messages))
	for i, m := range messages {
		records[i] = keyed{m.Key.UID, wire.AppendPlay(nil, m)}
	}
	if err := p.q.produceKeyed(ctx, records); err != nil {
		return fmt.Errorf("send plays: %w: %w", history.ErrUnavailable, err)
	}
	return nil
}

// Close closes idle connections. No other method may be running or called.
func (p *Plays) Close() error { return p.q.Close() }
