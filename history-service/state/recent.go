package state

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
)

// Comparisons detects a comparison with the cache that missed something. The cache may store a batch and lose
// its epoch before the batch is remembered. A comparison started in between misses the batch, so another must
// follow.
type Comparisons struct {
	begun  atomic.Uint64 // number started
	missed atomic.Bool   // another must follow
}

// Begun returns the number of comparisons started.
func (c *Comparisons) Begun() uint64 { return c.begun.Load() }

// Begin starts a comparison.
func (c *Comparisons) Begin() { c.begun.Add(1) }

// Miss demands another comparison.
func (c *Comparisons) Miss() { c.missed.Store(true) }

// Missed reports whether a comparison missed something since the last call.
func (c *Comparisons) Missed() bool { return c.missed.Swap(false) }

// Remembered is called after something is remembered. since is the number of comparisons started before its
// write to the cache.
func (c *Comparisons) Remembered(since uint64) {
	if c.begun.Load() != since {
		c.missed.Store(true)
	}
}

// Remembers reports whether there is anything to restore.
func (s *Store) Remembers() bool { return len(s.recent.list()) > 0 }

// Restore applies recent changes to a cache that lost them; within limits each call.
func (s *Store) Restore(ctx context.Context, within time.Duration) error {
	for part := range slices.Chunk(s.recent.list(), report.MaxBatch/2) {
		if err := s.restore(ctx, part, within); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) restore(ctx context.Context, part []change, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	keys := make([]history.Key, len(part))
	for i, d := range part {
		keys[i] = history.UserKey(d.uid)
	}
	for i, e := range s.Cache.Load(ctx, keys) {
		if err := s.bringBack(ctx, part[i], e); err != nil {
			return err
		}
	}
	return nil
}

// bringBack restores a change and retries after a concurrent change of the user.
func (s *Store) bringBack(ctx context.Context, d change, e history.Entry) error {
	for range read.MaxTries {
		if e.Err != nil || !d.missing(&e.User) {
			return e.Err
		}
		if err := d.apply(ctx, s.Cache, &e.User); !errors.Is(err, history.ErrConflict) {
			return err
		}
		e = s.Cache.Load(ctx, []history.Key{history.UserKey(d.uid)})[0]
	}
	return ErrConcurrent
}

// change is a clear of a namespace, or else a pause.
type change struct {
	uid   string
	clear history.Clear
	pause history.Pause
	at    time.Time
}

// missing reports whether a namespace's state lacks the change.
func (c change) missing(u *history.User) bool {
	if c.clear.Until > 0 {
		return c.clear.Until > u.ClearedAt(c.clear.Type)
	}
	return u.Pause.Newer(c.pause) != u.Pause
}

// apply applies a missing change. It fails with [history.ErrConflict] if the pause is no longer the one in u.
func (c change) apply(ctx context.Context, cache history.Cache, u *history.User) (err error) {
	if c.clear.Until > 0 {
		_, err = cache.Clear(ctx, c.uid, c.clear)
		return err
	}
	return cache.Pause(ctx, c.uid, u.Pause, c.pause)
}

// remember adds a change acknowledged by the cache; begun is as in [Comparisons.Remembered].
func (s *Store) remember(c change, begun uint64) {
	s.recent.note(c)
	s.Compare.Remembered(begun)
}

// Recent clears and pauses are remembered until the archive certainly has them, since a cache restored to an
// older state may lack them.
const (
	recentFor  = 10 * time.Minute // longer than an announcement or a sweep takes
	recentMost = 65536
)

// recent is the list of recent clears and pauses, oldest first. Its methods are safe for concurrent use.
type recent struct {
	mu  sync.Mutex
	all []change
}

// note adds an acknowledged change and drops old ones.
func (d *recent) note(one change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.at = time.Now()
	old := max(0, len(d.all)+1-recentMost)
	for old < len(d.all) && one.at.Sub(d.all[old].at) > recentFor {
		old++
	}
	d.all = append(d.all[old:], one)
}

// list returns per user the last pause and, for each type, the clear with the latest time, which need not be
// the last one.
func (d *recent) list() (all []change) {
	type subject struct {
		uid   string
		typ   uint32
		clear bool
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := make(map[subject]int, len(d.all))
	for _, one := range d.all {
		of := subject{one.uid, one.clear.Type, one.clear.Until > 0}
		i, known := at[of]
		switch {
		case !known:
			at[of] = len(all)
			all = append(all, one)
		case one.clear.Until > all[i].clear.Until || one.pause.Changed() > all[i].pause.Changed():
			all[i] = one
		}
	}
	return all
}
