// Package memqueue is the queue between service and job when both live in one
// process. It keeps announced keys in memory, up to a bound: what it refuses or
// loses with the process is still marked dirty in the cache, and the sweep
// archives it.
package memqueue

import (
	"context"
	"fmt"
	"sync"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
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
		Partitions: positive(c.Partitions, 16),
		Capacity:   positive(c.Capacity, 1<<20),
		MaxBytes:   positive(c.MaxBytes, wire.MaxMessage),
	}
}

func positive(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
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

// add appends a message if there is room. It does not keep the payload: nobody in
// this process needs to decode it.
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
	select {
	case q.ready <- struct{}{}:
	default:
	}
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
