package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// DeadLetters stores failed records and messages in a topic of its own, one message each. It implements
// archive.DeadLetters of the job.
type DeadLetters struct{ q *Queue }

// errLetter is the decode error of every letter, so letters arrive undecoded.
var errLetter = errors.New("a dead letter is no batch of keys")

// OpenDead is [NewDead] followed by [DeadLetters.Prepare].
func OpenDead(ctx context.Context, cfg Config) (*DeadLetters, error) {
	d, err := NewDead(cfg)
	if err != nil {
		return nil, err
	}
	if err := d.Prepare(ctx); err != nil {
		d.q.transport.CloseIdleConnections()
		return nil, err
	}
	return d, nil
}

// NewDead is [New] for dead letters. Defaults: topic history.dead; group history-redrive, for processes that
// redrive letters. A created topic has one partition.
func NewDead(cfg Config) (*DeadLetters, error) {
	cfg.Topic = cmp.Or(cfg.Topic, "history.dead")
	cfg.Group = cmp.Or(cfg.Group, "history-redrive")
	cfg.Partitions = 1
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	q.decode = func([]byte) ([]history.Announcement, error) { return nil, errLetter }
	return &DeadLetters{q: q}, nil
}

// Prepare is [Queue.Prepare].
func (d *DeadLetters) Prepare(ctx context.Context) error { return d.q.Prepare(ctx) }

// Fit is [Queue.Fit].
func (d *DeadLetters) Fit(ctx context.Context) error { return d.q.Fit(ctx) }

// keptPayload is the number of payload bytes to keep of a letter that is too large for the topic. The payload is
// undecodable anyway, and a refused letter would block the queue.
const keptPayload = 512 << 10

// Add implements archive.DeadLetters of the job.
func (d *DeadLetters) Add(ctx context.Context, letters []history.Dead) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	for _, l := range letters {
		err := d.add(ctx, l)
		if n := len(l.Payload); errors.Is(err, kafka.MessageSizeTooLarge) && n > keptPayload {
			l.Payload, l.Reason = l.Payload[:keptPayload], fmt.Sprintf("%s; of %d bytes the first %d", l.Reason, n, keptPayload)
			err = d.add(ctx, l)
		}
		if err != nil {
			return fmt.Errorf("add dead letters: %w: %w", history.ErrUnavailable, err)
		}
	}
	return nil
}

func (d *DeadLetters) add(ctx context.Context, l history.Dead) error {
	return d.q.produce(ctx, d.q.broker(kafka.Broker{}), wire.Message{Payload: wire.AppendDead(nil, l), Keys: []history.Announcement{{Key: l.Key}}})
}

// Redrive passes all existing, not yet redriven letters to use, in order, and returns their number. A letter that
// fails stays, with those after it.
func (d *DeadLetters) Redrive(ctx context.Context, use func(context.Context, history.Dead) error) (n int, err error) {
	extents, err := d.extents(ctx)
	if err != nil {
		return 0, fmt.Errorf("redrive: %w", err)
	}
	err = d.q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
		for left := unread(assignment, extents); left > 0; {
			some, err := d.redriveDelivery(ctx, assignment, use)
			n += some
			left -= int64(some)
			if err != nil {
				return fmt.Errorf("redrive: %w", err)
			}
		}
		return nil
	})
	return n, err
}

// redriveDelivery hands over one delivery and commits it.
func (d *DeadLetters) redriveDelivery(ctx context.Context, assignment history.Assignment, use func(context.Context, history.Dead) error) (int, error) {
	delivery, err := assignment.Fetch(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range delivery.Poison {
		letter, err := wire.Dead(p.Payload)
		if err == nil {
			err = use(ctx, letter)
		}
		if err != nil {
			return 0, fmt.Errorf("letter %d of partition %d: %w", p.Offset, p.Partition, err)
		}
	}
	return len(delivery.Poison), assignment.Commit(ctx, delivery)
}

// All passes all letters to use, redriven ones too, and consumes none.
func (d *DeadLetters) All(ctx context.Context, use func(history.Dead) error) error {
	r := rereading{q: d.q, since: time.UnixMilli(0), use: func(_ context.Context, payloads [][]byte) error {
		for _, payload := range payloads {
			letter, err := wire.Dead(payload)
			if err != nil {
				letter = history.Dead{Payload: payload, Reason: err.Error()}
			}
			if err := use(letter); err != nil {
				return err
			}
		}
		return nil
	}}
	return r.run(ctx, history.AllBuckets())
}

// extent is a range of a partition's offsets. Retention may have removed some after first.
type extent struct{ first, end int64 }

// extents returns the extents of all partitions.
func (d *DeadLetters) extents(ctx context.Context) (map[int]extent, error) {
	leaders, err := d.q.ensuredLeaders(ctx)
	if err != nil {
		return nil, err
	}
	var requests []kafka.OffsetRequest
	for p := range leaders {
		requests = append(requests, kafka.LastOffsetOf(p), kafka.FirstOffsetOf(p))
	}
	res, err := d.q.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{d.q.cfg.Topic: requests}})
	if err != nil {
		return nil, err
	}
	extents := make(map[int]extent, len(leaders))
	for _, p := range res.Topics[d.q.cfg.Topic] {
		if p.Error != nil {
			return nil, p.Error
		}
		extents[p.Partition] = extent{p.FirstOffset, p.LastOffset}
	}
	return extents, nil
}

// Close closes idle connections.
func (d *DeadLetters) Close() error { return d.q.Close() }

// unread returns how many letters the group has not consumed.
func unread(c history.Assignment, extents map[int]extent) (n int64) {
	mine, _ := c.(*assignment) // Consume passes this type
	for p, from := range mine.committed {
		n += extents[p].end - max(from, extents[p].first, 0)
	}
	return n
}
