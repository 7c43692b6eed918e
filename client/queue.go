package client

import (
	"sync"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// A message has at most maxBatch heartbeats, and about maxBytes: half of what the edge
// takes.
const (
	maxBatch = 100
	maxBytes = 64 << 10
)

type item struct {
	*historyv1.Heartbeat
	bytes int
}

// queue holds what is not answered, oldest first. The head may be on its way.
type queue struct {
	limit int
	wake  chan struct{} // capacity 1

	mu      sync.Mutex
	items   []item
	sent    int // of them, on their way
	dropped int
	empty   chan struct{} // closed while it is
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit, wake: make(chan struct{}, 1), empty: make(chan struct{})}
	close(q.empty)
	return q
}

func (q *queue) push(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch len(q.items) {
	case q.limit:
		q.shed()
	case 0:
		q.empty = make(chan struct{})
	}
	q.items = append(q.items, it)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

type viewing struct {
	id      string
	typ     uint32
	session string
}

// shed makes room for one. A progress tells nothing beside a later report of the same
// viewing that is not behind it.
func (q *queue) shed() {
	victim, superfluous := q.sent, false
	later := make(map[viewing]int64) // the furthest position
	for i := len(q.items) - 1; i >= q.sent; i-- {
		h := q.items[i]
		v := viewing{h.ObjectId, h.ObjectType, h.Session}
		furthest, known := later[v]
		if known && h.Kind == historyv1.Kind_KIND_PROGRESS && h.PositionMs <= furthest {
			victim, superfluous = i, true
		}
		later[v] = max(furthest, h.PositionMs)
	}
	q.items = append(q.items[:victim], q.items[victim+1:]...)
	if !superfluous {
		q.dropped++
	}
}

// head returns the heartbeats of the next message, at most so many; until they are
// answered they stay.
func (q *queue) head(most int) (beats []*historyv1.Heartbeat) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes := 0
	for _, it := range q.items {
		if bytes += it.bytes; len(beats) == most || bytes > maxBytes {
			break
		}
		beats = append(beats, it.Heartbeat)
	}
	q.sent = len(beats)
	return beats
}

// answer takes those of the head away that are done.
func (q *queue) answer(done func(i int) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var left []item
	for i, it := range q.items {
		if i >= q.sent || !done(i) {
			left = append(left, it)
		}
	}
	q.items, q.sent = left, 0
	if len(left) == 0 {
		close(q.empty)
	}
}

func (q *queue) emptied() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.empty
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

func (q *queue) lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
