package kafka

import (
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
	broken  chan struct{}  // closed when a commit failed

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

// end waits for the readers, whose context is done, and lets nothing more be done
// under the claim.
func (c *claim) end() {
	c.readers.Wait()
	close(c.over)
}

// Buckets implements [history.Claim].
func (c *claim) Buckets() []history.Bucket { return c.buckets }
