// Package memqueue is the in-process queue between service and job. It keeps a bounded number of announced keys
// in memory. Refused or lost keys stay dirty in the cache, and the sweep archives them.
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

// Config configures a queue. Zero values select the defaults.
type Config struct {
	// Partitions is the number of messages of a large flush (default 16).
	Partitions int
	// Capacity bounds the waiting keys (default 1,048,576), at about 100 bytes each plus their text.
	Capacity int
	// MaxBytes bounds a message, in bytes (default [wire.MaxMessage]).
	MaxBytes int
}

func (c Config) withDefaults() Config {
	return Config{
		Partitions: run.Default(c.Partitions, 16),
		Capacity:   run.Default(c.Capacity, 1<<20),
		MaxBytes:   run.Default(c.MaxBytes, wire.MaxMessage),
	}
}

// Queue implements [history.Publisher] and [history.Consumer]. It needs no closing.
type Queue struct {
	cfg   Config
	owner chan struct{} // has a token while a Consume owns the queue
	ready chan struct{} // has a token while messages may be waiting

	mu       sync.Mutex
	messages []message // uncommitted, oldest first
	fetched  int       // messages seen by the current generation
	keys     int       // in all messages
	next     []int64   // next offset, by partition
	sent     int64     // messages ever accepted
	bytes    int64     // of all accepted messages
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

// Publish implements [history.Publisher]. Keys beyond the capacity are unsent, with [history.ErrUnavailable].
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

// add appends a message if there is room. It drops the payload, which this process never decodes.
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

// drop removes committed messages, those below the offsets, from the front. The caller holds the lock.
func (q *Queue) drop(offsets map[int]int64) {
	n := 0
	for n < q.fetched && q.messages[n].offset < offsets[q.messages[n].partition] {
		q.keys -= len(q.messages[n].keys)
		n++
	}
	clear(q.messages[:n]) // the backing array still refers to them
	q.messages = q.messages[n:]
	q.fetched -= n
}

// Stats returns the number of accepted messages and their bytes, as a broker would receive them before compression.
func (q *Queue) Stats() (messages, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sent, q.bytes
}

// Waiting returns the number of uncommitted keys.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keys
}

// maxFetch is the approximate number of keys in a delivery.
const maxFetch = 32_768

var errOver = errors.New("generation is over")

// Consume implements [history.Consumer]. One call at a time owns the whole queue, in a generation that ends
// when handle returns. Other calls wait for that.
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
	over    chan struct{} // closed at the end of the generation, under q.mu
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

// err returns an error once the generation is over.
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

// take returns the waiting messages, possibly none.
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
	d.Traces, d.Offsets = history.Traces(d.Keys), maps.Clone(c.offsets)
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
