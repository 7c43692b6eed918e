package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/gate"
)

// publishTimeout bounds a call whose context is more patient.
const publishTimeout = 10 * time.Second

// Publish implements [history.Publisher]. A message counts as sent once all replicas
// in sync hold it. After a timeout nobody knows: its keys are unsent. A call lasts
// ten seconds at most; nothing is queued here.
func (q *Queue) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	leaders, err := q.layout(ctx)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return keys, fmt.Errorf("publish %d keys: %w: %w", len(keys), history.ErrUnavailable, err)
	}
	messages := wire.Messages(keys, len(leaders), q.cfg.MaxBytes)
	return unsent(messages, q.send(ctx, messages, leaders))
}

// lane is the way to one broker: one that does not answer takes no turns from messages
// for others, and soon fails at once.
type lane struct {
	slots chan struct{} // holds a token per produce request in flight
	gate  *gate.Gate
}

// lane returns the lane of a broker.
func (q *Queue) lane(broker int) *lane {
	q.laning.Lock()
	defer q.laning.Unlock()
	if q.lanes[broker] == nil {
		name := fmt.Sprintf("kafka broker %d", broker)
		q.lanes[broker] = &lane{make(chan struct{}, maxInFlight), gate.New(name, q.cfg.Logger, impatience)}
	}
	return q.lanes[broker]
}

// impatience is how long a request must have waited before it counts against the broker.
const impatience = time.Second

// send returns one error per message. It sends partitions side by side and the
// messages of a partition in order.
func (q *Queue) send(ctx context.Context, messages []wire.Message, leaders []int) []error {
	errs := make([]error, len(messages))
	var wg sync.WaitGroup
	for begin, end := 0, 0; begin < len(messages); begin = end {
		for end = begin; end < len(messages) && messages[end].Partition == messages[begin].Partition; {
			end++
		}
		wg.Go(func() {
			for i := begin; i < end; i++ {
				errs[i] = q.produce(ctx, q.lane(leaders[messages[i].Partition]), messages[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// produce sends one message, again and again while its partition moves between
// brokers and ctx lasts.
func (q *Queue) produce(ctx context.Context, lane *lane, m wire.Message) error {
	if err := lane.gate.Enter(); err != nil {
		return err
	}
	select {
	case lane.slots <- struct{}{}:
		defer func() { <-lane.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	start := time.Now()
	err := q.persist(ctx, func() error { return q.request(ctx, m) })
	lane.gate.Leave(start, err == nil || errors.As(err, new(kafka.Error)))
	if err != nil {
		return err
	}
	q.messages.Add(1)
	q.bytes.Add(int64(len(m.Payload)))
	return nil
}

func (q *Queue) request(ctx context.Context, m wire.Message) error {
	res, err := q.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: q.cfg.Topic, Partition: m.Partition, RequiredAcks: kafka.RequireAll, Compression: kafka.Zstd,
		Records: kafka.NewRecordReader(kafka.Record{Key: kafka.NewBytes(key(m)), Value: kafka.NewBytes(m.Payload)}),
	})
	if err != nil {
		return err
	}
	return res.Error
}

// key is the first bucket of a message. It tells a reader of the log whereabouts he
// is; the partition was chosen without it.
func key(m wire.Message) []byte {
	return strconv.AppendUint(nil, uint64(history.BucketOf(m.Keys[0].Key.UID)), 10)
}

// unsent returns the keys of the messages that failed, with the first reason: one
// sentence, however many there are.
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
