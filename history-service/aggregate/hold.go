package aggregate

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
)

// Held is the last written state of a key.
type Held struct {
	Record *history.Record
	// Pause and Cleared are the user's state at the write. A change of either changes the record's revision.
	Pause   history.Pause
	Cleared map[uint32]int64
	// Cold means that the user's clear marks had not yet been read from the archive.
	Cold bool
	// From is the record that this one was made from and contains. Only [Aggregator.Put] reads it.
	From *history.Record
	// Concurrent merges the records that other requests wrote between From and Record; usually nil. Record contains
	// them, unless the cache lost them in between.
	Concurrent *history.Record

	entry *entry // entry that this value was read from
}

// shards is the number of shards, enough to keep lock contention low.
const shards = 64

// shard is a subset of the keys, by user.
type shard struct {
	mu      sync.Mutex
	entries map[history.Key]*entry
	users   map[history.Key]struct{} // due keys of users' own states
	traces  map[history.Key]string   // traceparents of keys with a sampled report
	// Each entry is in one list, in order of arrival.
	running   list // running viewings, by start of the hold
	ended     list // due: ended, expired or refused
	announced list // taken by the queue; can restore lost writes
}

// entry is one key.
type entry struct {
	key    history.Key
	held   Held
	opened time.Time // start of the hold
	early  bool      // due before the end of its hold, for want of room
	// at is the value of Aggregator.confirmed at the announcement. That clock pauses while the cache is
	// unconfirmed.
	at time.Duration

	in         *list
	prev, next *entry // in list in
}

func (a *Aggregator) of(k history.Key) *shard { return &a.shard[history.BucketOf(k.UID)%shards] }

// Get returns the held state of a key. open is false if the hold has expired; the next write then starts a new one.
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

// Next returns the held state after a write of r, made from h's record.
func (h Held) Next(r *history.Record, u *history.User, cold bool) Held {
	return Held{Record: r, Pause: u.Pause, Cleared: u.Cleared, Cold: cold, From: h.Record, entry: h.entry}
}

// Put holds a written record. With ended, the key is due at the next tick. If two writes are put out of order, the
// one with the later cell time is held and the other is merged into Concurrent. A value from [Held.Next] needs no
// lookup.
func (a *Aggregator) Put(k history.Key, held Held, ended bool) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := held.entry, time.Now()
	if e == nil || e.in == nil { // dropped meanwhile
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
	// A heartbeat may come after the hold has expired and before the next tick; the key is due all the same. With a
	// new hold here, a viewing with such heartbeats would never be announced.
	over := e.in != &s.announced && now.Sub(e.opened) >= a.cfg.Hold
	switch {
	case e.in == &s.ended:
	case ended || over:
		e.move(&s.ended)
		a.count()
	case e.in != &s.running:
		e.opened = now
		e.move(&s.running)
		if first := s.running.first; s.running.n > a.cfg.Max/shards/2 {
			first.early = true
			first.move(&s.ended)
			a.count()
		}
	}
	a.trim(s)
}

// after returns h as the successor of was.
func (h Held) after(was Held) Held {
	h.Concurrent = was.Concurrent
	if was.Record != h.From && was.Record != h.Record {
		h.Concurrent = history.Merge(was.Concurrent, was.Record)
	}
	h.From, h.entry = nil, nil // no longer needed; lets them be collected
	return h
}

// move appends an entry to a list. The caller holds the shard's mutex.
func (e *entry) move(to *list) {
	if e.in != nil {
		e.in.remove(e)
	}
	to.push(e)
}

// trim drops keys above the shard's share of Max: announced keys first, then the oldest due or running one. Dropped
// keys keep their dirty marks.
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

// drop removes an entry. The caller holds the shard's mutex.
func (s *shard) drop(e *entry) {
	e.in.remove(e)
	delete(s.entries, e.key)
	delete(s.traces, e.key)
}

// Trace links the next announcement of a key to a sampled report, before the report's Put.
func (a *Aggregator) Trace(k history.Key, parent string) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traces[k] = parent
}

// count counts a due key and wakes the flusher at Size.
func (a *Aggregator) count() {
	if a.due.Add(1) != int64(a.cfg.Size) {
		return
	}
	run.Wake(a.full)
}

// Run announces due keys at every tick, or earlier if Size keys are due, until ctx is done. Callers of Put must
// stop first. It then announces all held keys within Drain. Keys that it cannot announce keep their dirty marks.
func (a *Aggregator) Run(ctx context.Context) error {
	t := time.NewTicker(a.cfg.Tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-a.full:
		case <-ctx.Done():
			a.flush(context.WithoutCancel(ctx), a.cfg.Drain, 0) // unannounced keys are dirty, so the sweep archives them
			return nil
		}
		if !a.failing || a.probe(ctx) {
			a.flush(ctx, a.cfg.Deadline, a.cfg.Hold)
		}
	}
}

// flush announces the keys held for at least age. It announces nothing while the cache is unconfirmed: the job
// would archive an older record, and the held records are the only copy.
func (a *Aggregator) flush(ctx context.Context, limit, age time.Duration) {
	if !a.confirm(ctx) {
		return
	}
	a.due.Store(0) // reset first: a concurrent key may count twice, but never zero times
	opened := time.Now().Add(-age)
	var keys []history.Announcement
	for i := range a.shard {
		keys = append(keys, a.take(&a.shard[i], opened)...)
	}
	if len(keys) > 0 {
		a.publish(ctx, limit, keys)
	}
}

// take returns the due keys: users' states, ended viewings, and holds opened at or before opened. It moves their
// entries to the announced list.
func (a *Aggregator) take(s *shard, opened time.Time) (due []history.Announcement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.users {
		due = append(due, history.Announcement{Key: k})
		a.metrics.flushed[userChanged].Inc()
	}
	clear(s.users)
	now := time.Now()
	announce := func(e *entry, why reason) {
		held := now.Sub(e.opened)
		switch {
		case held >= a.cfg.Hold:
			why = holdOver
		case e.early:
			why = manyHeld
		}
		e.early = false
		a.metrics.flushed[why].Inc()
		parent := s.traces[e.key]
		delete(s.traces, e.key)
		trace.ObserveParent(parent, a.metrics.holds, held)
		e.at = a.confirmed
		e.move(&s.announced)
		due = append(due, history.Announcement{Key: e.key, Trace: parent})
	}
	for e := range s.ended.all() {
		announce(e, viewingEnded)
	}
	for e := range s.running.all() {
		if e.opened.After(opened) {
			break
		}
		announce(e, stopping)
	}
	return due
}

// confirm calls Confirm. On success, it forgets entries announced more than Retain ago.
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

// forget drops the entries announced at or before a confirmed time.
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

// publish announces keys within limit and reports whether the queue took all. Refused keys become due again.
func (a *Aggregator) publish(ctx context.Context, limit time.Duration, keys []history.Announcement) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	unsent, err := a.cfg.Publisher.Publish(ctx, keys)
	a.metrics.announced.Add(float64(len(keys) - len(unsent)))
	a.logFailure(err, len(unsent))
	for _, d := range unsent {
		a.giveBack(d)
	}
	return err == nil
}

// giveBack makes a refused key due again, unless a later write has started a new hold.
func (a *Aggregator) giveBack(d history.Announcement) {
	k := d.Key
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.entries[k]; {
	case k.IsUser():
		s.addUser(a, k)
	case e == nil: // dropped by trim meanwhile
		a.metrics.dropped.Inc()
	case e.in == &s.announced:
		e.move(&s.ended)
		if d.Trace != "" {
			s.traces[k] = d.Trace
		}
	}
	a.trim(s)
}

// logFailure logs only the start and the end of an outage.
func (a *Aggregator) logFailure(err error, unsent int) {
	if err != nil {
		a.metrics.failures.Inc()
	}
	switch failing := err != nil; {
	case failing && !a.failing:
		a.cfg.Logger.Warn("keys not published; still marked, will retry", "keys", unsent, "error", err)
	case !failing && a.failing:
		a.cfg.Logger.Info("queue recovered")
	}
	a.failing = err != nil
}

// probe offers one shard's due keys to a queue that failed last time. Offering all keys at every tick of an outage
// would be expensive, and would announce running viewings repeatedly. It reports whether the queue took the keys,
// or no key is due.
func (a *Aggregator) probe(ctx context.Context) bool {
	if !a.confirm(ctx) {
		return false
	}
	for range shards {
		a.probed = (a.probed + 1) % shards
		if keys := a.take(&a.shard[a.probed], time.Time{}); len(keys) > 0 {
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

// addUser makes a user's own state due. At most half of a shard's share may be users; others are left to the sweep.
// The caller holds the shard's mutex.
func (s *shard) addUser(a *Aggregator, k history.Key) {
	if _, known := s.users[k]; !known && len(s.users) > a.cfg.Max/shards/2 {
		a.metrics.dropped.Inc()
		return
	}
	s.users[k] = struct{}{}
}

// list is a doubly linked list of entries, so a move needs no allocation. The caller holds the shard's mutex.
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

// all yields the entries from first to last. The current entry may be moved.
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
