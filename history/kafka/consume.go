package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
)

const (
	// rejoin is the pause after a failure to join the group.
	rejoin = 500 * time.Millisecond
	// watchEvery is how often a member looks for partitions that were added.
	watchEvery = 5 * time.Second
)

// Consume implements [history.Consumer]. It logs and tries again for as long as no
// group can be formed. A handle whose context is done may finish and commit what it
// has: its generation lasts until it returns, unless the group has moved on.
func (q *Queue) Consume(ctx context.Context, handle func(context.Context, history.Claim) error) error {
	group, err := kafka.NewConsumerGroup(q.group())
	if err != nil {
		return fmt.Errorf("consume %s: %w", q.cfg.Topic, err)
	}
	defer group.Close()
	for failing := false; ; {
		gen, err := group.Next(ctx)
		over := true
		if err == nil {
			over, err = q.generation(ctx, gen, handle)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case !over:
			return err
		case err == nil:
			failing = false
		case !failing && !errors.Is(err, kafka.RebalanceInProgress):
			q.cfg.Logger.Warn("cannot join the group yet, will go on trying", "topic", q.cfg.Topic, "group", q.cfg.Group, "err", err)
			failing = true
		}
	}
}

func (q *Queue) group() kafka.ConsumerGroupConfig {
	return kafka.ConsumerGroupConfig{
		ID: q.cfg.Group, Brokers: q.cfg.Brokers, Topics: []string{q.cfg.Topic},
		Dialer:                 q.dialer(),
		StartOffset:            kafka.FirstOffset,
		SessionTimeout:         q.cfg.SessionTimeout,
		HeartbeatInterval:      q.cfg.SessionTimeout / 10,
		JoinGroupBackoff:       rejoin,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: watchEvery,
	}
}

// generation runs handle and reports whether the group moves on to another one, with
// the reason when it did not come to handle. Otherwise it returns what Consume is to
// return. A topic that somebody has deleted is made again: without one there is no
// generation, and nobody archives.
//
// kafka-go takes a generation for ended when any function started in it returns, and
// for left behind when all have. The one started here returns when the generation is
// taken away or cannot commit any more, and not before handle has returned.
func (q *Queue) generation(ctx context.Context, gen *kafka.Generation, handle func(context.Context, history.Claim) error) (over bool, err error) {
	hctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := q.claim(hctx, gen)
	if missing(err) {
		err = cmp.Or(q.restore(ctx), err)
	}
	if err != nil { // or the brokers that formed the group are gone again
		gen.Start(func(context.Context) {}) // ends it
		sleep(ctx, rejoin)
		return true, err
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
	over = hctx.Err() != nil || c.givenUp()
	cancel()
	c.end()
	if over {
		return true, nil
	}
	return false, err
}
