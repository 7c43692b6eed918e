package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
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
		JoinGroupBackoff:       rejoinPause,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: watchEvery,
	}
}

// generation runs handle and reports whether the group moves on to another one, with
// the reason when it did not come to handle. Otherwise it returns what Consume is to
// return. A topic that was deleted is made again: without one there is no
// generation, and nothing is archived.
//
// kafka-go takes a generation for ended when any function started in it returns, and
// for left behind when all have. The one started here returns when the generation is
// taken away or cannot commit any more, and not before handle has returned.
func (q *Queue) generation(ctx context.Context, gen *kafka.Generation, handle func(context.Context, history.Claim) error) (over bool, err error) {
	hctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := q.claim(hctx, gen)
	if topicMissing(err) {
		err = cmp.Or(q.recreateTopic(ctx), err)
	}
	if err != nil { // or the brokers that formed the group are gone again
		gen.Start(func(context.Context) {}) // ends it
		run.Sleep(ctx, rejoinPause)
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

const (
	// rejoinPause is the pause after a failure to join the group.
	rejoinPause = 500 * time.Millisecond
	// watchEvery is how often a member looks for partitions that were added.
	watchEvery = 5 * time.Second
)

// checkAssignment ends the generation when the group has divided fewer partitions than there are.
// That happens when the topic was made, or grew, between the moment in which they were
// divided and the first look of the watch for changes.
func (q *Queue) checkAssignment(ctx context.Context, c *claim) {
	for run.Sleep(ctx, watchEvery) {
		n, err := q.countPartitions(ctx)
		assigned, derr := q.assignedPartitions(ctx)
		if err != nil || derr != nil {
			continue
		}
		if assigned < n {
			q.cfg.Logger.Warn("the group has divided fewer partitions than there are, will join again", "topic", c.topic, "divided", assigned, "partitions", n)
			c.fail()
		}
		return
	}
}

var errRebalancing = errors.New("group is being divided")

// assignedPartitions returns how many partitions the members of the group own.
func (q *Queue) assignedPartitions(ctx context.Context) (n int, err error) {
	res, err := q.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{q.cfg.Group}})
	if err != nil {
		return 0, err
	}
	for _, g := range res.Groups {
		if g.Error != nil || g.GroupState != "Stable" {
			return 0, cmp.Or(g.Error, errRebalancing)
		}
		for _, m := range g.Members {
			for _, t := range m.MemberAssignments.Topics {
				if t.Topic == q.cfg.Topic {
					n += len(t.Partitions)
				}
			}
		}
	}
	return n, nil
}
