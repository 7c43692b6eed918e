package historytest

import (
	"context"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
)

// QueueGroup is what a group does that may have several members. It is for adapters
// that pass [Queue] and divide the buckets between processes.
func QueueGroup(t *testing.T, open OpenQueue) {
	tests := map[string]func(*queueGroup){
		"members divide the buckets":                (*queueGroup).divide,
		"a member takes over from one that left":    (*queueGroup).takeOver,
		"what a member held comes again elsewhere":  (*queueGroup).redeliver,
		"nothing is lost while members come and go": (*queueGroup).rebalance,
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			p, member := open(t)
			run(&queueGroup{T: t, publisher: p, open: member, owned: map[int][]history.Bucket{}, got: map[history.Announcement]bool{}, changed: make(chan struct{})})
		})
	}
}

func (g *queueGroup) divide() {
	for range 2 {
		g.join()
	}
	g.until("two members own all buckets", func() bool { return g.members() == 2 && g.whole() })
	keys := everyBucket(1)
	g.publish(keys)
	g.until("all keys came to the owners of their buckets", func() bool { return g.has(keys) })
}

func (g *queueGroup) takeOver() {
	leave := g.join()
	g.join()
	g.until("two members own all buckets", func() bool { return g.members() == 2 && g.whole() })
	leave()
	g.until("one member owns all buckets", func() bool { return g.members() == 1 && g.whole() })
	keys := everyBucket(1)
	g.publish(keys)
	g.until("all keys came to it", func() bool { return g.has(keys) })
}

// redeliver has one member fetch everything and hold it until the group is divided
// anew: then its context is done, and everything comes again. Its claim is void.
func (g *queueGroup) redeliver() {
	keys := everyBucket(1)
	g.publish(keys)
	var old history.Claim
	var held []history.Delivery
	holding := make(chan struct{})
	g.run(func(ctx context.Context, claim history.Claim) (err error) {
		if old != nil {
			return g.receive(ctx, claim)
		}
		if held, err = fetchKeys(ctx, claim, len(keys)); err != nil {
			return err
		}
		old = claim
		close(holding)
		<-ctx.Done()
		return ctx.Err()
	})
	<-holding
	g.join()
	g.until("all keys came again", func() bool { return g.has(keys) })
	if err := old.Commit(g.Context(), held[len(held)-1]); err == nil {
		g.Error("a commit succeeded in a generation that is over")
	}
}

// rebalance publishes while the group is divided anew three times.
func (g *queueGroup) rebalance() {
	var keys []history.Announcement
	round := func() {
		more := everyBucket(len(keys) + 1)
		keys = append(keys, more...)
		for part := range slices.Chunk(more, 256) {
			g.publish(part)
		}
	}
	g.join()
	round()
	leave := g.join()
	round()
	g.until("the second member works", func() bool { return g.members() == 2 && g.has(keys) })
	g.join()
	round()
	leave()
	round()
	g.until("all keys came", func() bool { return g.has(keys) })
}
