package aggregate

import (
	"iter"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// Held is what the service last wrote of a key.
type Held struct {
	Record *history.Record
	// Pause and Cleared are those of the user when the record was written. A change of either gives
	// the record another revision.
	Pause   history.Pause
	Cleared map[uint32]int64
	// Cold means that nobody had asked the archive for its clear marks by then.
	Cold bool
	// Moved means that the archive may have more of the record, from before its type was moved between classes.
	Moved bool
	// From is the record that was held when this one was made, which contains it. Only
	// [Aggregator.Put] reads it.
	From *history.Record
	// Beside is a record that another request had put before this one was, nil nearly always.
	// This one contains it too, unless the cache lost it in between.
	Beside *history.Record

	entry *entry // that it was read from
}

// Next returns what is held after h, once a record that was made from it is written.
func (h Held) Next(r *history.Record, u *history.User, cold bool) Held {
	return Held{Record: r, Pause: u.Pause, Cleared: u.Cleared, Cold: cold, From: h.Record, entry: h.entry}
}

// after returns h as it takes the place of what was held.
func (h Held) after(was Held) Held {
	h.Beside = was.Beside
	if was.Record != h.From && was.Record != h.Record {
		h.Beside = history.Merge(was.Beside, was.Record)
	}
	h.From, h.entry = nil, nil // they have served their purpose: let them be collected
	return h
}

// shards divide the keys so that batches seldom wait for each other.
const shards = 64

// shard is a part of the keys.
type shard struct {
	mu      sync.Mutex
	entries map[history.Key]*entry
	users   map[history.Key]struct{} // keys of users' own states that are due
	// Each entry stands in one of three lists, in the order in which it came there.
	running   list // its viewing goes on; in the order in which the holds were opened
	ended     list // due: the viewing ended, or its hold is over, or the queue did not take it
	announced list // the queue has it; kept in case the cache loses its last writes
}

// entry is one key.
type entry struct {
	key    history.Key
	held   Held
	opened time.Time     // when the hold began
	at     time.Duration // when it was announced, in confirmed time

	in         *list
	prev, next *entry // there
}

// move puts an entry at the end of a list. The caller holds the shard's mutex, as it does
// for all that follow.
func (e *entry) move(to *list) {
	if e.in != nil {
		e.in.remove(e)
	}
	to.push(e)
}

// list is entries, first to last. The entries have the links, so that to move
// one costs nothing.
type list struct {
	first, last *entry
	n           int
}

func (l *list) push(e *entry) {
	e.in, e.prev, e.next = l, l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last, l.n = e, l.n+1
}

func (l *list) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.in, e.prev, e.next, l.n = nil, nil, nil, l.n-1
}

// all yields the entries of a list, first to last. The one at hand may be moved.
func (l *list) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := l.first; e != nil; {
			next := e.next
			if !yield(e) {
				return
			}
			e = next
		}
	}
}

func (s *shard) drop(e *entry) {
	e.in.remove(e)
	delete(s.entries, e.key)
}

// take returns the keys that are due: users' states, viewings that ended, and those
// whose hold was opened at or before the given time. They count as announced from now on.
func (s *shard) take(opened time.Time, now time.Duration) (due []history.Announcement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.users {
		due = append(due, history.Announcement{Key: k})
	}
	clear(s.users)
	announce := func(e *entry) {
		e.at = now
		e.move(&s.announced)
		due = append(due, history.Announcement{Key: e.key})
	}
	for e := range s.ended.all() {
		announce(e)
	}
	for e := range s.running.all() {
		if e.opened.After(opened) {
			break
		}
		announce(e)
	}
	return due
}

// forget drops the keys that were announced at or before a confirmed time.
func (s *shard) forget(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.announced.all() {
		if e.at > at {
			return
		}
		s.drop(e)
	}
}
