package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// DeadLetters keeps what could not be archived in a topic of its own, one message
// each. It implements [history.DeadLetters].
type DeadLetters struct{ q *Queue }

// errLetter makes every message of the topic arrive as it is.
var errLetter = errors.New("a dead letter is no batch of keys")

// OpenDead is [NewDead] and [DeadLetters.Prepare].
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

// NewDead is [New] for dead letters: the topic is history.dead and the group, of
// processes that drive letters again, history-redrive, unless the configuration has
// others. A topic that must be created gets one partition.
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

// keptPayload is how much is kept of a message with which a letter is too large for its topic: nobody can decode the
// message, and the queue would stand still before it.
const keptPayload = 512 << 10

// Add implements [history.DeadLetters].
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
	return d.q.produce(ctx, d.q.broker(0), wire.Message{Payload: wire.AppendDead(nil, l), Keys: []history.Announcement{{Key: l.Key}}})
}

// Redrive hands over all letters that are there and were not handed over before, in
// order, and returns how many. One whose handling fails stays, with those after it.
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

// extent is where the letters of a partition begin and end. Retention may have taken some before the first.
type extent struct{ first, end int64 }

// extents returns those of all partitions.
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

// Close gives the connections back.
func (d *DeadLetters) Close() error { return d.q.Close() }

// unread returns how many letters the group has not seen.
func unread(c history.Assignment, extents map[int]extent) (n int64) {
	mine, _ := c.(*assignment) // what Consume hands to its function
	for p, from := range mine.committed {
		n += extents[p].end - max(from, extents[p].first, 0)
	}
	return n
}
