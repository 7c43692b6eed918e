// Package memqueue is the queue between service and job when both live in one
// process. It keeps announced keys in memory, up to a bound: what it refuses or
// loses with the process is still marked dirty in the cache, and the sweep
// archives it.
package memqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
)

// Config bounds a queue. Its zero values work.
type Config struct {
	// Partitions is how many messages a large flush becomes; default 16.
	Partitions int
	// Capacity is how many keys wait at most, about 100 bytes each beside their text; default 1,048,576.
	Capacity int
	// MaxBytes bounds one message; default [wire.MaxMessage].
	MaxBytes int
}

func (c Config) withDefaults() Config {
	return Config{
		Partitions: run.Default(c.Partitions, 16),
		Capacity:   run.Default(c.Capacity, 1<<20),
		MaxBytes:   run.Default(c.MaxBytes, wire.MaxMessage),
	}
}

// Queue is a [history.Publisher] and a [history.Consumer] in one. It needs no
// closing.
type Queue struct {
	cfg   Config
	owner chan struct{} // holds a token while a Consume owns the queue
	ready chan struct{} // holds a token while messages may be waiting

	mu       sync.Mutex
	messages []message // not committed, oldest first
	fetched  int       // how many of them the present generation has seen
	keys     int       // in all messages
	next     []int64   // offset of the next message, by partition
	sent     int64     // messages ever accepted
	bytes    int64     // of those
}

type message struct {
	partition int
	offset    int64
	bytes     int
	keys      []history.Announcement
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	cfg = cfg.withDefaults()
	return &Queue{
		cfg:   cfg,
		owner: make(chan struct{}, 1), ready: make(chan struct{}, 1),
		next: make([]int64, cfg.Partitions),
	}
}

// Publish implements [history.Publisher]. Keys for which there is no room are
// unsent, with [history.ErrUnavailable].
func (q *Queue) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	if err := ctx.Err(); err != nil {
		return keys, fmt.Errorf("publish %d keys: %w", len(keys), err)
	}
	var unsent []history.Announcement
	for _, m := range wire.Messages(keys, q.cfg.Partitions, q.cfg.MaxBytes) {
		if !q.add(m) {
			unsent = append(unsent, m.Keys...)
		}
	}
	if len(unsent) > 0 {
		return unsent, fmt.Errorf("publish %d keys: queue of %d keys is full: %w", len(unsent), q.cfg.Capacity, history.ErrUnavailable)
	}
	return nil, nil
}

// add appends a message if there is room. It does not keep the payload, which is
// never decoded in this process.
func (q *Queue) add(m wire.Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys+len(m.Keys) > q.cfg.Capacity {
		return false
	}
	q.messages = append(q.messages, message{m.Partition, q.next[m.Partition], len(m.Payload), m.Keys})
	q.next[m.Partition]++
	q.keys += len(m.Keys)
	q.sent++
	q.bytes += int64(len(m.Payload))
	q.wake()
	return true
}

func (q *Queue) wake() {
	run.Wake(q.ready)
}

// drop removes committed messages from the front: all that lie before the offsets.
// The caller holds the lock.
func (q *Queue) drop(offsets map[int]int64) {
	n := 0
	for n < q.fetched && q.messages[n].offset < offsets[q.messages[n].partition] {
		q.keys -= len(q.messages[n].keys)
		n++
	}
	clear(q.messages[:n]) // the slice still holds them
	q.messages = q.messages[n:]
	q.fetched -= n
}

// Stats returns how many messages the queue has accepted, and their bytes: what a
// broker would have been sent, before compression.
func (q *Queue) Stats() (messages, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sent, q.bytes
}

// Waiting returns how many keys are in messages that no job has committed.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keys
}

// maxFetch is at how many keys a delivery ends, give or take a message.
const maxFetch = 32_768

var errOver = errors.New("generation is over")

// Consume implements [history.Consumer]. One call at a time owns the whole queue,
// in a generation that lasts until its handle returns; another call waits for that.
func (q *Queue) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	select {
	case q.owner <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-q.owner }()
	c := q.assignment()
	defer c.end()
	if err := handle(ctx, c); ctx.Err() == nil {
		return err
	}
	return nil
}

type assignment struct {
	q       *Queue
	over    chan struct{} // closed when the generation is over, under q.mu
	offsets map[int]int64 // next to fetch, by partition; guarded by q.mu
}

func (q *Queue) assignment() *assignment {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fetched = 0
	q.wake()
	return &assignment{q: q, over: make(chan struct{}), offsets: map[int]int64{}}
}

func (c *assignment) end() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	close(c.over)
}

// err returns why nothing more can be done under the assignment, if so.
func (c *assignment) err() error {
	select {
	case <-c.over:
		return errOver
	default:
		return nil
	}
}

// Buckets returns all buckets.
func (c *assignment) Buckets() []history.Bucket { return history.AllBuckets() }

// Fetch implements [history.Assignment].
func (c *assignment) Fetch(ctx context.Context) (history.Delivery, error) {
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
func (c *assignment) take() (history.Delivery, error) {
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

// Commit implements [history.Assignment].
func (c *assignment) Commit(_ context.Context, d history.Delivery) error {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if err := c.err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	c.q.drop(d.Offsets)
	return nil
}
