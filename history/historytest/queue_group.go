package historytest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/playhead/playhead/history"
)

// QueueGroup tests groups with several members. It is for adapters that pass [Queue] and divide the buckets
// between processes.
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

// redeliver has one member fetch everything and keep it until a rebalance. Then its context is done, its
// assignment is void, and everything is redelivered.
func (g *queueGroup) redeliver() {
	keys := everyBucket(1)
	g.publish(keys)
	var old history.Assignment
	var held []history.Delivery
	holding := make(chan struct{})
	g.run(func(ctx context.Context, assignment history.Assignment) (err error) {
		if old != nil {
			return g.receive(ctx, assignment)
		}
		if held, err = fetchKeys(ctx, assignment, len(keys)); err != nil {
			return err
		}
		old = assignment
		close(holding)
		<-ctx.Done()
		return ctx.Err()
	})
	<-holding
	g.join()
	g.until("all keys came again", func() bool { return g.has(keys) })
	if err := old.Commit(g.Context(), held[len(held)-1]); err == nil {
		g.Error("commit succeeded in an ended generation")
	}
}

// rebalance publishes during three rebalances.
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

// queueGroup is a group under test, with its members' assignments and received keys.
type queueGroup struct {
	*testing.T
	publisher history.Publisher
	open      func(t *testing.T) history.Consumer

	mu      sync.Mutex
	joined  int
	owned   map[int][]history.Bucket // by member, during its generations
	got     map[history.Announcement]bool
	changed chan struct{} // closed and replaced at each change
}

// join adds a member that commits what it receives.
func (g *queueGroup) join() (leave func()) { return g.run(g.receive) }

// run adds a member with its own handle, until leave or the end of the test.
func (g *queueGroup) run(handle func(context.Context, history.Assignment) error) (leave func()) {
	c := g.open(g.T)
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	g.joined++
	id, done := g.joined, make(chan struct{})
	go func() {
		defer close(done)
		err := c.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
			g.note(func() { g.owned[id] = assignment.Buckets() })
			defer g.note(func() { delete(g.owned, id) })
			return handle(ctx, assignment)
		})
		if err != nil {
			g.Errorf("member %d: %v", id, err)
		}
	}()
	leave = func() {
		cancel()
		<-done
	}
	g.Cleanup(leave)
	return leave
}

// receive records and commits everything until its context is done.
func (g *queueGroup) receive(ctx context.Context, assignment history.Assignment) error {
	for {
		d, err := assignment.Fetch(ctx)
		if err != nil {
			return err
		}
		for _, k := range d.Keys {
			if b := history.BucketOf(k.Key.UID); !slices.Contains(assignment.Buckets(), b) {
				g.Errorf("key %v of bucket %d came to a member that does not own it", k.Key, b)
			}
		}
		if err := assignment.Commit(ctx, d); err != nil {
			return err
		}
		g.note(func() {
			for _, k := range d.Keys {
				g.got[k] = true
			}
		})
	}
}

func (g *queueGroup) note(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

// until waits for a condition, evaluated under the lock.
func (g *queueGroup) until(what string, condition func() bool) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		g.mu.Lock()
		ok, changed := condition(), g.changed
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	g.Fatalf("not in %v: %s", patience, what)
}

func (g *queueGroup) members() int { return len(g.owned) }

// whole reports whether every bucket has one owner.
func (g *queueGroup) whole() bool {
	var all []history.Bucket
	for _, b := range g.owned {
		all = append(all, b...)
	}
	slices.Sort(all)
	return slices.Equal(all, history.AllBuckets())
}

func (g *queueGroup) has(keys []history.Announcement) bool {
	for _, k := range keys {
		if !g.got[k] {
			return false
		}
	}
	return true
}

func (g *queueGroup) publish(keys []history.Announcement) {
	g.Helper()
	queueCase{T: g.T, Publisher: g.publisher}.publish(keys)
}
