package aggregate

import (
	"container/list"
	"time"

	"github.com/playhead/playhead/history"
)

// entry is one held key.
type entry struct {
	key history.Key
	// record is what the cache holds as far as this service wrote or read it in an
	// unbroken chain of compare-and-sets; nil when the chain broke.
	record *history.Record
	pause  history.Pause // of the user; a change of it breaks the chain
	mark   history.Mark  // 0 until the first write
	opened time.Time     // when mark was set
	place  *list.Element // in a line of the shard; nil before the first write or end
	pins   int           // writes on their way
	ended  bool          // due, whatever its age
	lost   bool          // a write's answer never came
}

// Pin is a key while a write of it is on its way. Its hold cannot be announced
// before [Aggregator.Release], because the job might then read the record before
// the write and settle the mark that was to cover it.
type Pin struct {
	// Record is what the cache holds, nil when that must be loaded.
	Record *history.Record
	// Pause is that of the user, where there is a record.
	Pause history.Pause
	// Mark says that the next write must set a new dirty mark.
	Mark bool

	entry *entry
}

// Result is what became of a pinned key.
type Result struct {
	// Written is the record that the cache now holds, nil when nothing was written.
	Written *history.Record
	// Pause is that of the user when it was written.
	Pause history.Pause
	// Mark is the mark that the write set, 0 when the hold's own covers it.
	Mark history.Mark
	// Ended makes the key due at the next tick.
	Ended bool
	// Lost says that the answer to a write never came. The key is forgotten, not
	// announced: a write that lands after the job has read must find its mark, and
	// only the sweep waits long enough.
	Lost bool
}

// Pin takes hold of a key for a write.
func (a *Aggregator) Pin(k history.Key) Pin {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.held[k]
	if e == nil {
		e = &entry{key: k}
		s.held[k] = e
	}
	e.pins++
	a.trim(s)
	return Pin{Record: e.record, Pause: e.pause, Mark: e.record == nil || time.Since(e.opened) >= a.cfg.Hold, entry: e}
}

// Release gives a pinned key back with what became of it.
func (a *Aggregator) Release(p Pin, r Result) {
	e := p.entry
	s := a.of(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.pins--
	e.lost = e.lost || r.Lost
	over := e.mark != 0 && time.Since(e.opened) >= a.cfg.Hold
	if r.Written != nil {
		e.written(p, r)
	}
	if e.pins == 0 && (e.lost || e.mark == 0) { // lost, or never written
		s.drop(e)
		return
	}
	if !e.ended && e.mark != 0 && r.Mark == e.mark {
		s.line(&s.running, e)
	}
	// A heartbeat that comes between the end of the hold and the tick renews the mark.
	// The key is due all the same: it would be with every hold, and never announced.
	if (r.Ended || over) && !e.ended {
		e.ended = true
		s.line(&s.ended, e)
		a.count()
	}
	a.trim(s)
}

// written notes a write. When another one was noted since the key was pinned, the
// order of the two in the cache is unknown, and the record with it.
func (e *entry) written(p Pin, r Result) {
	if e.record == p.Record {
		e.record, e.pause = r.Written, r.Pause
	} else {
		e.record = nil
	}
	if r.Mark > e.mark {
		e.mark, e.opened = r.Mark, time.Now()
	}
}

// count notes a key that is due, and wakes the flusher when there are enough.
func (a *Aggregator) count() {
	if a.due.Add(1) != int64(a.cfg.Size) {
		return
	}
	select {
	case a.full <- struct{}{}:
	default:
	}
}
