package aggregate

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Held is what the service last wrote of a key.
type Held struct {
	Record *history.Record
	// Pause and Cleared are those of the user when the record was written. A change of either gives
	// the record another revision.
	Pause   history.Pause
	Cleared map[uint32]int64
	// Cold means that the archive had not been asked for the user's clear marks by then.
	Cold bool
	// Moved means that the archive may have more of the record, from before its type was moved between classes.
	Moved bool
	// From is the record that was held when this one was made, which contains it. Only
	// [Aggregator.Put] reads it.
	From *history.Record
	// Concurrent is the fold of records of the key that other requests wrote while Record was being made
	// from From, nil nearly always. Record was written to the cache over them, and contains them,
	// unless the cache had lost them in between.
	Concurrent *history.Record

	entry *entry // that it was read from
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
	opened time.Time // when the hold began
	// at is how long Aggregator.confirmed was when the key was announced. That is a clock which
	// stands still while it is not known whether the cache still has what was written.
	at time.Duration

	in         *list
	prev, next *entry // there
}

func (a *Aggregator) of(k history.Key) *shard { return &a.shard[history.BucketOf(k.UID)%shards] }

// Get returns what is held of a key. Open means that its hold goes on: otherwise the
// next write begins a new one.
func (a *Aggregator) Get(k history.Key) (held Held, open, ok bool) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil {
		return Held{}, false, false
	}
	held = e.held
	held.entry = e
	return held, e.in != &s.announced && time.Since(e.opened) < a.cfg.Hold, true
}

// Next returns what is held after h, once a record that was made from it is written.
func (h Held) Next(r *history.Record, u *history.User, cold bool) Held {
	return Held{Record: r, Pause: u.Pause, Cleared: u.Cleared, Cold: cold, From: h.Record, entry: h.entry}
}

// Put holds what was written of a key. Ended makes the key due at the next tick. Two writes may be put
// in the wrong order: then the one with the later cell time is held, and the other one beside it. A
// value of [Held.Next] has its entry, so that the key is not looked up.
func (a *Aggregator) Put(k history.Key, held Held, ended bool) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := held.entry, time.Now()
	if e == nil || e.in == nil { // it was dropped meanwhile
		e = s.entries[k]
	}
	switch {
	case e == nil:
		held.From, held.entry = nil, nil
		e = &entry{key: k, held: held, opened: now}
		s.entries[k] = e
	case e.held.Record.CellTime <= held.Record.CellTime:
		e.held = held.after(e.held)
	case e.held.Record != held.Record:
		e.held.Concurrent = history.Merge(e.held.Concurrent, held.Record)
	}
	// A heartbeat may come after the end of the hold and before the next tick. The key is due all the
	// same. If a new hold began here, a viewing whose heartbeats always come then would never be announced.
	over := e.in != &s.announced && now.Sub(e.opened) >= a.cfg.Hold
	switch {
	case e.in == &s.ended:
	case ended || over:
		e.move(&s.ended)
		a.count()
	case e.in != &s.running:
		e.opened = now
		e.move(&s.running)
	}
	a.trim(s)
}

// after returns h as it takes the place of what was held.
func (h Held) after(was Held) Held {
	h.Concurrent = was.Concurrent
	if was.Record != h.From && was.Record != h.Record {
		h.Concurrent = history.Merge(was.Concurrent, was.Record)
	}
	h.From, h.entry = nil, nil // they have served their purpose: let them be collected
	return h
}

// move puts an entry at the end of a list. The caller holds the shard's mutex.
func (e *entry) move(to *list) {
	if e.in != nil {
		e.in.remove(e)
	}
	to.push(e)
}

// trim drops the oldest keys beyond the shard's part of Max: first those that the queue
// has, then those that are due, then those that are held. Their marks remain.
func (a *Aggregator) trim(s *shard) {
	for len(s.entries)+len(s.users) > a.cfg.Max/shards {
		if e := s.announced.first; e != nil {
			s.drop(e)
			continue
		}
		e := s.ended.first
		if r := s.running.first; e == nil || r != nil && r.opened.Before(e.opened) {
			e = r
		}
		if e == nil {
			return
		}
		s.drop(e)
		a.metrics.dropped.Inc()
	}
}

// drop forgets an entry. The caller holds the shard's mutex.
func (s *shard) drop(e *entry) {
	e.in.remove(e)
	delete(s.entries, e.key)
}

// count notes a key that is due, and wakes the flusher when there are enough.
func (a *Aggregator) count() {
	if a.due.Add(1) != int64(a.cfg.Size) {
		return
	}
	run.Wake(a.full)
}

// Run announces due keys every tick, or earlier when many are due, until ctx is
// done; callers of Put have stopped by then. It then announces everything that
// is held, within the drain deadline. A key that it cannot announce keeps its mark.
func (a *Aggregator) Run(ctx context.Context) error {
	t := time.NewTicker(a.cfg.Tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-a.full:
		case <-ctx.Done():
			a.flush(context.WithoutCancel(ctx), a.cfg.Drain, 0) // what is left is marked: the sweep archives it
			return nil
		}
		if !a.failing || a.probe(ctx) {
			a.flush(ctx, a.cfg.Deadline, a.cfg.Hold)
		}
	}
}

// flush announces, within the limit, the keys that were held for at least the given time. While it
// is not known whether the cache still has what was written, it announces nothing: a job would
// archive something older, and the held records are the only copy.
func (a *Aggregator) flush(ctx context.Context, limit, age time.Duration) {
	if !a.confirm(ctx) {
		return
	}
	a.due.Store(0) // first: keys that become due meanwhile may count twice, but not never
	opened := time.Now().Add(-age)
	var keys []history.Announcement
	for i := range a.shard {
		keys = append(keys, a.shard[i].take(opened, a.confirmed)...)
	}
	if len(keys) > 0 {
		a.publish(ctx, limit, keys)
	}
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

// confirm asks whether the cache is the one that was written to, and forgets what was
// announced long enough before that.
func (a *Aggregator) confirm(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	if err := a.cfg.Confirm(ctx); err != nil {
		a.metrics.unconfirmed.Inc()
		a.last = time.Time{}
		return false
	}
	now := time.Now()
	if !a.last.IsZero() {
		a.confirmed += now.Sub(a.last)
	}
	a.last = now
	for i := range a.shard {
		a.shard[i].forget(a.confirmed - a.cfg.Retain)
	}
	return true
}

// forget drops the keys that were announced at or before a time of Aggregator.confirmed.
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

// publish announces keys, within the limit, and reports whether the queue took all. A key that it does not take
// is due again at the next tick.
func (a *Aggregator) publish(ctx context.Context, limit time.Duration, keys []history.Announcement) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	unsent, err := a.cfg.Publisher.Publish(ctx, keys)
	a.metrics.announced.Add(float64(len(keys) - len(unsent)))
	a.logFailure(err, len(unsent))
	for _, d := range unsent {
		a.giveBack(d.Key)
	}
	return err == nil
}

// giveBack makes a key due again that the queue did not take, unless the key was written since: then
// it has a new hold.
func (a *Aggregator) giveBack(k history.Key) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.entries[k]; {
	case k.IsUser():
		s.addUser(a, k)
	case e == nil: // trim has dropped it meanwhile
		a.metrics.dropped.Inc()
	case e.in == &s.announced:
		e.move(&s.ended)
	}
	a.trim(s)
}

// logFailure logs when the queue goes away and when it is back, and no more than that.
func (a *Aggregator) logFailure(err error, unsent int) {
	if err != nil {
		a.metrics.failures.Inc()
	}
	switch failing := err != nil; {
	case failing && !a.failing:
		a.cfg.Logger.Warn("queue does not take keys: they stay marked and are tried again", "keys", unsent, "error", err)
	case !failing && a.failing:
		a.cfg.Logger.Info("queue takes keys again")
	}
	a.failing = err != nil
}

// probe offers a queue that failed the last time the due keys of one shard. In an outage all keys
// would be taken and given back at every tick otherwise, and each running viewing announced again
// and again. It reports whether the queue took them, or none are left.
func (a *Aggregator) probe(ctx context.Context) bool {
	if !a.confirm(ctx) {
		return false
	}
	for range shards {
		a.probed = (a.probed + 1) % shards
		if keys := a.shard[a.probed].take(time.Time{}, a.confirmed); len(keys) > 0 {
			return a.publish(ctx, a.cfg.Deadline, keys)
		}
	}
	return true
}

// MakeDue makes a user's own state due.
func (a *Aggregator) MakeDue(uid string) {
	k := history.UserKey(uid)
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUser(a, k)
	a.trim(s)
}

// addUser makes a user's own state due. A shard takes at most half as many users as keys, and leaves
// the others to the sweep. The caller holds the shard's mutex.
func (s *shard) addUser(a *Aggregator, k history.Key) {
	if _, known := s.users[k]; !known && len(s.users) > a.cfg.Max/shards/2 {
		a.metrics.dropped.Inc()
		return
	}
	s.users[k] = struct{}{}
}

// list is entries, first to last. The entries have the links, so that to move
// one costs nothing. Its callers hold the mutex of the shard.
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
