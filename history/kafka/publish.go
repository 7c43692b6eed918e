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
)

// publishTimeout bounds a call whose context is more patient.
const publishTimeout = 10 * time.Second

// Publish implements [history.Publisher]. A message counts as sent once all replicas
// in sync hold it. After a timeout nobody knows: its keys are unsent. A call lasts
// ten seconds at most; nothing is queued here.
func (q *Queue) Publish(ctx context.Context, keys []history.Dirty) ([]history.Dirty, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	n, err := q.partitions(ctx)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return keys, fmt.Errorf("publish %d keys: %w: %w", len(keys), history.ErrUnavailable, err)
	}
	messages := wire.Messages(keys, n, q.cfg.MaxBytes)
	return unsent(messages, q.send(ctx, messages))
}

// send returns one error per message. It sends partitions side by side and the
// messages of a partition in order.
func (q *Queue) send(ctx context.Context, messages []wire.Message) []error {
	errs := make([]error, len(messages))
	var wg sync.WaitGroup
	for begin, end := 0, 0; begin < len(messages); begin = end {
		for end = begin; end < len(messages) && messages[end].Partition == messages[begin].Partition; {
			end++
		}
		wg.Go(func() {
			for i := begin; i < end; i++ {
				errs[i] = q.produce(ctx, messages[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// produce sends one message, again and again while its partition moves between
// brokers and ctx lasts.
func (q *Queue) produce(ctx context.Context, m wire.Message) error {
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := retry(ctx, func() error { return q.request(ctx, m) }); err != nil {
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
func unsent(messages []wire.Message, errs []error) ([]history.Dirty, error) {
	var keys []history.Dirty
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
