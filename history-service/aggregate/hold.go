package aggregate

import (
	"context"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

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

// Put holds what was written of a key. Ended makes the key due at the next tick. Of two
// writes that are put in the wrong order the later one is held, and the other one beside it: their
// cell times say so. A value of [Held.Next] is put without looking the key up.
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
		e.held.Beside = history.Merge(e.held.Beside, held.Record)
	}
	// A heartbeat that comes between the end of the hold and the tick begins a new hold.
	// The key is due all the same: it would be with every hold, and never announced.
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

// giveBack makes a key due again that the queue did not take. One that was written
// since has a hold of its own.
func (a *Aggregator) giveBack(k history.Key) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.entries[k]; {
	case k.IsUser():
		s.addUser(a, k)
	case e == nil: // it had to make room meanwhile
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

// Announce makes a user's own state due.
func (a *Aggregator) Announce(uid string) {
	k := history.UserKey(uid)
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUser(a, k)
	a.trim(s)
}

// addUser makes a user's own state due, of half as many users as a shard may hold keys.
// The others are left to the sweep.
func (s *shard) addUser(a *Aggregator, k history.Key) {
	if _, known := s.users[k]; !known && len(s.users) > a.cfg.Max/shards/2 {
		a.metrics.dropped.Inc()
		return
	}
	s.users[k] = struct{}{}
}

// Left returns for how long a key is held at most, 0 once it is due, and whether it is held
// at all. A key that was announced is not.
func (a *Aggregator) Left(k history.Key) (left time.Duration, held bool) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.entries[k]; {
	case e == nil || e.in == &s.announced:
		return 0, false
	case e.in == &s.ended:
		return 0, true
	default:
		return a.left(e), true
	}
}

func (a *Aggregator) left(e *entry) time.Duration {
	return max(0, a.cfg.Hold-time.Since(e.opened))
}

// Holds is what is held at a moment, for the page /flow.
type Holds struct {
	// Running are keys whose viewings go on, Due those that the queue is to take.
	Running, Due int
	// Left is how long the oldest hold of each shard goes on at most, shortest first: all
	// holds as long as there are few, and a sample of them otherwise.
	Left []time.Duration
}

// Holds counts what is held. Its cost does not depend on how much that is.
func (a *Aggregator) Holds() (h Holds) {
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		h.Running += s.running.n
		h.Due += s.ended.n + len(s.users)
		if e := s.running.first; e != nil {
			h.Left = append(h.Left, a.left(e))
		}
		s.mu.Unlock()
	}
	slices.Sort(h.Left)
	return h
}

// Keys returns the keys of which a record is known, those that were announced lately
// included, in no order. It copies them: an aggregator that holds a million takes about a
// hundred megabytes for it.
func (a *Aggregator) Keys() (keys []history.Key) {
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		for k := range s.entries {
			keys = append(keys, k)
		}
		s.mu.Unlock()
	}
	return keys
}
