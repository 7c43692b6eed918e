package aggregate

import (
	"container/list"
	"iter"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// shards divide the keys so that batches seldom wait for each other.
const shards = 64

// shard is a share of the keys.
type shard struct {
	mu      sync.Mutex
	held    map[history.Key]*entry
	waiting []history.Dirty // announced in vain, or due without having been held; oldest first
	// The held keys that were written or ended stand in one of two lines.
	ended   list.List // those whose viewing is over
	running list.List // the others, as their holds were opened
}

func (a *Aggregator) of(k history.Key) *shard {
	return &a.shard[history.BucketOf(k.UID)%shards]
}

// line puts an entry at the end of a line. The caller holds s.mu, as it does for
// all that follow.
func (s *shard) line(l *list.List, e *entry) {
	s.unline(e)
	e.place = l.PushBack(e)
}

func (s *shard) unline(e *entry) {
	if e.place != nil { // each Remove leaves alone what stands in the other line
		s.ended.Remove(e.place)
		s.running.Remove(e.place)
	}
}

// drop forgets an entry.
func (s *shard) drop(e *entry) {
	s.unline(e)
	delete(s.held, e.key)
}

func (s *shard) len() int { return len(s.held) + len(s.waiting) }

// idle returns the entries of a line that are not pinned, first to last. The one at
// hand may be dropped.
func idle(l *list.List) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for place := l.Front(); place != nil; {
			e := place.Value.(*entry)
			place = place.Next()
			if e.pins == 0 && !yield(e) {
				return
			}
		}
	}
}

// take removes and returns the keys that are due: those that wait, those whose
// viewing ended, and those whose hold was opened at or before the given time.
// Pinned keys stay.
func (s *shard) take(opened time.Time) []history.Dirty {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.waiting
	s.waiting = nil
	for e := range idle(&s.ended) {
		due = s.remove(due, e)
	}
	for e := range idle(&s.running) {
		if e.opened.After(opened) {
			break
		}
		due = s.remove(due, e)
	}
	return due
}

// takeWaiting removes and returns the keys that wait.
func (s *shard) takeWaiting() []history.Dirty {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.waiting
	s.waiting = nil
	return waiting
}

func (s *shard) remove(due []history.Dirty, e *entry) []history.Dirty {
	s.drop(e)
	return append(due, history.Dirty{Key: e.key, Mark: e.mark})
}

// trim drops the oldest keys beyond the shard's part of Max. Pinned keys stay.
func (a *Aggregator) trim(s *shard) {
	for s.len() > a.cfg.Max/shards && s.dropOldest() {
		a.metrics.dropped.Inc()
	}
}

// dropOldest reports whether there was one. Keys that wait count as older than
// those that are held.
func (s *shard) dropOldest() bool {
	if len(s.waiting) > 0 {
		s.waiting = s.waiting[1:]
		return true
	}
	oldest := first(&s.ended)
	if e := first(&s.running); oldest == nil || e != nil && e.opened.Before(oldest.opened) {
		oldest = e
	}
	if oldest != nil {
		s.drop(oldest)
	}
	return oldest != nil
}

func first(l *list.List) *entry {
	for e := range idle(l) {
		return e
	}
	return nil
}
