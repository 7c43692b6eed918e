package memqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
)

// maxFetch is at how many keys a delivery ends, give or take a message.
const maxFetch = 32_768

var errOver = errors.New("generation is over")

// Consume implements [history.Consumer]. One call at a time owns the whole queue,
// in a generation that lasts until its handle returns; another call waits for that.
func (q *Queue) Consume(ctx context.Context, handle func(context.Context, history.Claim) error) error {
	select {
	case q.owner <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-q.owner }()
	c := q.claim()
	defer c.end()
	if err := handle(ctx, c); ctx.Err() == nil {
		return err
	}
	return nil
}

type claim struct {
	q       *Queue
	over    chan struct{} // closed when the generation is over, under q.mu
	offsets map[int]int64 // next to fetch, by partition; guarded by q.mu
}

func (q *Queue) claim() *claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fetched = 0
	q.wake()
	return &claim{q: q, over: make(chan struct{}), offsets: map[int]int64{}}
}

func (c *claim) end() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	close(c.over)
}

// err returns why nothing more can be done under the claim, if so.
func (c *claim) err() error {
	select {
	case <-c.over:
		return errOver
	default:
		return nil
	}
}

// Buckets returns all buckets.
func (c *claim) Buckets() []history.Bucket {
	buckets := make([]history.Bucket, history.Buckets)
	for i := range buckets {
		buckets[i] = history.Bucket(i)
	}
	return buckets
}

// Fetch implements [history.Claim].
func (c *claim) Fetch(ctx context.Context) (history.Delivery, error) {
	for {
		select {
		case <-c.q.ready:
		case <-c.over:
		case <-ctx.Done():
			return history.Delivery{}, fmt.Errorf("fetch: %w", ctx.Err())
		}
		if d, err := c.take(); err != nil || d.Messages > 0 {
			return d, err
		}
	}
}

// take returns what is at hand, which may be nothing.
func (c *claim) take() (history.Delivery, error) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	var d history.Delivery
	if err := c.err(); err != nil {
		c.q.wake() // the token may belong to the next generation
		return d, fmt.Errorf("fetch: %w", err)
	}
	for _, m := range c.q.messages[c.q.fetched:] {
		d.Keys = append(d.Keys, m.keys...)
		d.Messages++
		d.Bytes += m.bytes
		c.offsets[m.partition] = m.offset + 1
		if len(d.Keys) >= maxFetch {
			break
		}
	}
	c.q.fetched += d.Messages
	if c.q.fetched < len(c.q.messages) {
		c.q.wake()
	}
	d.Offsets = maps.Clone(c.offsets)
	return d, nil
}

// Commit implements [history.Claim].
func (c *claim) Commit(_ context.Context, d history.Delivery) error {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if err := c.err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	c.q.drop(d.Offsets)
	return nil
}
