package kafka

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

var errOver = errors.New("generation is over")

// claim is one generation of this member. Offsets are committed through the
// generation alone, which the broker refuses once it is over: a group Reader would
// commit for partitions that another job owns by then.
type claim struct {
	gen     *kafka.Generation
	topic   string
	buckets []history.Bucket

	arrived chan message   // from the readers of the partitions
	readers sync.WaitGroup // which stop with the context of handle
	failing atomic.Int32   // how many of them get no answer
	over    chan struct{}  // closed once handle has returned
	broken  chan struct{}  // closed when this member gives the generation up
	failed  sync.Once

	mu        sync.Mutex    // held during a commit, so that offsets only go up
	committed map[int]int64 // by owned partition; below zero when there is none

	fetching sync.Mutex
	next     map[int]int64 // by fetched partition
}

// claim starts reading the partitions of a generation, until ctx is done.
func (q *Queue) claim(ctx context.Context, gen *kafka.Generation) (*claim, error) {
	n, err := q.countPartitions(ctx)
	if err != nil {
		return nil, err
	}
	c := &claim{
		gen: gen, topic: q.cfg.Topic,
		arrived: make(chan message, 16), over: make(chan struct{}), broken: make(chan struct{}),
		committed: map[int]int64{}, next: map[int]int64{},
	}
	assigned := gen.Assignments[q.cfg.Topic]
	c.own(assigned, n)
	for _, p := range assigned {
		r := reader{q: q, claim: c, partition: p.ID, offset: p.Offset}
		c.readers.Go(func() { r.run(ctx) })
	}
	c.readers.Go(func() { q.cover(ctx, c) })
	q.cfg.Logger.Info("joined the group", "topic", c.topic, "group", gen.GroupID, "generation", gen.ID, "partitions", len(assigned))
	return c, nil
}

// own notes the assigned ones of n partitions, and their buckets.
func (c *claim) own(assigned []kafka.PartitionAssignment, n int) {
	for _, p := range assigned {
		c.committed[p.ID] = p.Offset
	}
	for b := range history.Bucket(history.Buckets) {
		if _, owned := c.committed[wire.PartitionOf(b, n)]; owned {
			c.buckets = append(c.buckets, b)
		}
	}
}

// fail ends the generation: what was not committed comes again in the next one.
func (c *claim) fail() { c.failed.Do(func() { close(c.broken) }) }

// givenUp reports whether this member has given the generation up.
func (c *claim) givenUp() bool {
	select {
	case <-c.broken:
		return true
	default:
		return false
	}
}

// cover ends the generation when the group has divided fewer partitions than there are.
// That happens when the topic was made, or grew, between the moment in which they were
// divided and the first look of the watch for changes.
func (q *Queue) cover(ctx context.Context, c *claim) {
	for sleep(ctx, watchEvery) {
		n, err := q.countPartitions(ctx)
		divided, derr := q.divided(ctx)
		if err != nil || derr != nil {
			continue
		}
		if divided < n {
			q.cfg.Logger.Warn("the group has divided fewer partitions than there are, will join again", "topic", c.topic, "divided", divided, "partitions", n)
			c.fail()
		}
		return
	}
}

var errMoving = errors.New("group is being divided")

// divided returns how many partitions the members of the group own.
func (q *Queue) divided(ctx context.Context) (n int, err error) {
	res, err := q.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{q.cfg.Group}})
	if err != nil {
		return 0, err
	}
	for _, g := range res.Groups {
		if g.Error != nil || g.GroupState != "Stable" {
			return 0, cmp.Or(g.Error, errMoving)
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

// end waits for the readers, whose context is done, and lets nothing more be done
// under the claim.
func (c *claim) end() {
	c.readers.Wait()
	close(c.over)
}

// Buckets implements [history.Claim].
func (c *claim) Buckets() []history.Bucket { return c.buckets }
