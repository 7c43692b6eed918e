package rpc

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
)

const (
	// announceEvery is how long a change waits for others of the same bucket.
	announceEvery = 200 * time.Millisecond
	// maxUnannounced bounds the changes that wait. Beyond it a user's are told as one,
	// and beyond twice as much they are lost, and counted.
	maxUnannounced = 1 << 16
	announceWithin = 2 * time.Second
)

// announcer tells the services which records this one has changed.
type announcer struct {
	feed          history.Feed // nil where nobody is told
	log           *slog.Logger
	announced     prometheus.Counter
	failed, unfit prometheus.Counter
	wake          chan struct{}          // of capacity 1: something waits
	taken         map[history.Key]uint64 // empty, or what is being announced

	mu      sync.Mutex
	waiting map[history.Key]uint64 // by key, its origin
}

func newAnnouncer(cfg Config) *announcer {
	a := &announcer{
		feed: cfg.Feed, log: cfg.Logger, wake: make(chan struct{}, 1), waiting: make(map[history.Key]uint64), taken: make(map[history.Key]uint64),
		announced: counter("playhead_rpc_announced_changes_total", "Changes told to the services, several of one record in 200 ms as one."),
		failed:    counter("playhead_rpc_failed_announcements_total", "Announcements of changes that the feed did not take, and that were made again."),
		unfit:     counter("playhead_rpc_unannounced_changes_total", "Changes that too many others waited before, and that nobody is told."),
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(a.announced, a.failed, a.unfit)
	}
	return a
}

// note has changes told soon. The cost of each is that of an entry in a map.
func (a *announcer) note(changes iter.Seq[history.Change]) {
	if a.feed == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range changes {
		a.add(c)
	}
	if len(a.waiting) > 0 {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// all notes that anything of a user's history may have changed.
func (a *announcer) all(uid string) {
	a.note(slices.Values([]history.Change{{Key: history.UserKey(uid)}}))
}

func (a *announcer) add(c history.Change) {
	if len(a.waiting) >= maxUnannounced {
		c = history.Change{Key: history.UserKey(c.Key.UID)}
	}
	origin, known := a.waiting[c.Key]
	switch {
	case known && origin != c.Origin: // nobody knows all of it
		c.Origin = 0
	case !known && len(a.waiting) >= 2*maxUnannounced:
		a.unfit.Inc()
		return
	}
	a.waiting[c.Key] = c.Origin
}

// run announces until ctx is done, and then once more. What the feed does not take is
// announced again, later and later.
func (a *announcer) run(ctx context.Context) error {
	for pause := announceEvery; a.due(ctx, pause); {
		if a.flush(ctx) {
			pause = announceEvery
			continue
		}
		pause = min(2*pause, announceWithin) + rand.N(announceEvery)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceWithin/4)
	defer cancel()
	a.flush(last)
	return nil
}

// due waits for a change, and for those that follow it.
func (a *announcer) due(ctx context.Context, pause time.Duration) bool {
	select {
	case <-a.wake:
	case <-ctx.Done():
		return false
	}
	sleep(ctx, pause)
	return ctx.Err() == nil
}

func (a *announcer) flush(ctx context.Context) (ok bool) {
	changes := a.take()
	if len(changes) == 0 {
		return true
	}
	within, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	if err := a.feed.Announce(within, changes); err != nil {
		a.failed.Inc()
		a.log.Debug("changes were not announced", "changes", len(changes), "err", err)
		a.note(slices.Values(changes))
		return false
	}
	a.announced.Add(float64(len(changes)))
	return true
}

// take returns what waits, and forgets it. Who notes something waits for no more than
// the exchange of the maps.
func (a *announcer) take() []history.Change {
	a.mu.Lock()
	a.waiting, a.taken = a.taken, a.waiting
	a.mu.Unlock()
	changes := make([]history.Change, 0, len(a.taken))
	for k, origin := range a.taken {
		changes = append(changes, history.Change{Key: k, Origin: origin})
	}
	clear(a.taken)
	return changes
}
