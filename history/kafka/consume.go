package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
)

// rejoin is the pause after a failure to join the group.
const rejoin = 500 * time.Millisecond

// Consume implements [history.Consumer]. It logs and tries again for as long as no
// group can be formed. A handle whose context is done may finish and commit what it
// has: its generation lasts until it returns, unless the group has moved on.
func (q *Queue) Consume(ctx context.Context, handle func(context.Context, history.Claim) error) error {
	group, err := kafka.NewConsumerGroup(q.group())
	if err != nil {
		return fmt.Errorf("consume %s: %w", q.cfg.Topic, err)
	}
	defer group.Close()
	log := q.cfg.Logger.With("topic", q.cfg.Topic, "group", q.cfg.Group)
	for failing := false; ; {
		gen, err := group.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if !failing && !errors.Is(err, kafka.RebalanceInProgress) {
				log.Warn("cannot join the group yet, will go on trying", "err", err)
				failing = true
			}
			continue
		}
		failing = false
		if over, err := q.generation(ctx, gen, handle); !over {
			return err
		}
	}
}

func (q *Queue) group() kafka.ConsumerGroupConfig {
	return kafka.ConsumerGroupConfig{
		ID: q.cfg.Group, Brokers: q.cfg.Brokers, Topics: []string{q.cfg.Topic},
		Dialer:                q.dialer(),
		StartOffset:           kafka.FirstOffset,
		SessionTimeout:        q.cfg.SessionTimeout,
		HeartbeatInterval:     q.cfg.SessionTimeout / 10,
		JoinGroupBackoff:      rejoin,
		WatchPartitionChanges: true,
	}
}

// generation runs handle and reports whether the group moves on to another one.
// Otherwise it returns what Consume is to return.
//
// kafka-go takes a generation for ended when any function started in it returns, and
// for left behind when all have. The one started here returns when the generation is
// taken away or cannot commit any more, and not before handle has returned.
func (q *Queue) generation(ctx context.Context, gen *kafka.Generation, handle func(context.Context, history.Claim) error) (over bool, err error) {
	hctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := q.claim(hctx, gen)
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil { // the brokers that formed the group are gone again, or one of them is
		q.cfg.Logger.Warn("cannot begin a generation, will join again", "err", err)
		gen.Start(func(context.Context) {}) // ends it
		sleep(ctx, rejoin)
		return true, nil
	}
	finished := make(chan struct{})
	defer close(finished)
	gen.Start(func(taken context.Context) {
		select {
		case <-taken.Done():
		case <-c.broken:
		}
		cancel()
		<-finished
	})
	err = handle(hctx, c)
	over = hctx.Err() != nil
	cancel()
	c.end()
	if ctx.Err() != nil {
		return false, nil
	}
	return over, err
}
