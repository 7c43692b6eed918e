package rpc

import (
	"context"
	"iter"
	"log/slog"
	"maps"
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
	// and beyond twice as much all users of the bucket are told to read again.
	maxUnannounced = 1 << 16
	announceWithin = 2 * time.Second
)

// announcer tells the services which records this one has changed. Each node of the cache is
// told apart: a silent one holds up the news of its own users only.
type announcer struct {
	feed          history.Feed // nil where nobody is told
	nodeOf        func(uid string) string
	log           *slog.Logger
	announced     prometheus.Counter
	failed, unfit prometheus.Counter
	wake          chan struct{} // of capacity 1: something waits

	mu      sync.Mutex
	outlets map[string]*outlet // by node
}

// outlet is what one node has to be told. The announcer's mutex guards it.
type outlet struct {
	waiting map[history.Key]uint64      // by key, its origin
	missed  map[history.Bucket]struct{} // with changes that too many others waited before
	spare   map[history.Key]uint64      // empty, for what comes while the other one is announced
	telling bool                        // or waiting to tell again
	pause   time.Duration               // before that
}

func newAnnouncer(cfg Config, nodeOf func(uid string) string) *announcer {
	a := &announcer{
		feed: cfg.Feed, nodeOf: nodeOf, log: cfg.Logger, wake: make(chan struct{}, 1), outlets: make(map[string]*outlet),
		announced: counter("playhead_rpc_announced_changes_total", "Changes told to the services, several of one record in 200 ms as one."),
		failed:    counter("playhead_rpc_failed_announcements_total", "Announcements of changes that the feed did not take, and that were made again."),
		unfit:     counter("playhead_rpc_unannounced_changes_total", "Changes that too many others waited before, so that all users of their bucket read again."),
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
		a.outlet(a.nodeOf(c.Key.UID)).add(c, a.unfit)
	}
	a.signal()
}

// all notes that anything of a user's history may have changed.
func (a *announcer) all(uid string) {
	a.note(slices.Values([]history.Change{{Key: history.UserKey(uid)}}))
}

// outlet returns that of a node. The caller holds a.mu.
func (a *announcer) outlet(node string) *outlet {
	o := a.outlets[node]
	if o == nil {
		o = &outlet{waiting: make(map[history.Key]uint64), spare: make(map[history.Key]uint64), missed: make(map[history.Bucket]struct{}), pause: announceEvery}
		a.outlets[node] = o
	}
	return o
}

// due reports whether there is something to tell, and nobody at it. The caller holds a.mu.
func (o *outlet) due() bool { return !o.telling && len(o.waiting)+len(o.missed) > 0 }

// signal wakes run if there is something for it. The caller holds a.mu.
func (a *announcer) signal() {
	for _, o := range a.outlets {
		if o.due() {
			select {
			case a.wake <- struct{}{}:
			default:
			}
			return
		}
	}
}

func (o *outlet) add(c history.Change, unfit prometheus.Counter) {
	if len(o.waiting) >= maxUnannounced {
		c = history.Change{Key: history.UserKey(c.Key.UID)}
	}
	origin, known := o.waiting[c.Key]
	switch {
	case known && origin != c.Origin: // nobody knows all of it
		c.Origin = 0
	case !known && len(o.waiting) >= 2*maxUnannounced:
		unfit.Inc()
		o.missed[history.BucketOf(c.Key.UID)] = struct{}{}
		return
	}
	o.waiting[c.Key] = c.Origin
}

// run announces until ctx is done, and then once more.
func (a *announcer) run(ctx context.Context) error {
	var telling sync.WaitGroup
	for a.wait(ctx) {
		a.flush(ctx, &telling)
	}
	telling.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceWithin/4)
	defer cancel()
	a.flush(last, &telling)
	telling.Wait()
	return nil
}

// wait waits for a change, and for those that follow it.
func (a *announcer) wait(ctx context.Context) bool {
	select {
	case <-a.wake:
	case <-ctx.Done():
		return false
	}
	sleep(ctx, announceEvery)
	return ctx.Err() == nil
}

// flush tells the nodes what waits for them, side by side.
func (a *announcer) flush(ctx context.Context, telling *sync.WaitGroup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.outlets {
		if o.due() {
			o.telling = true
			telling.Go(func() { a.serve(ctx, o) })
		}
	}
}

// serve tells one node. What the feed does not take is announced again, later and later.
func (a *announcer) serve(ctx context.Context, o *outlet) {
	changes, missed := a.take(o)
	within, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	if err := a.tell(within, changes, missed); err != nil {
		a.failed.Inc()
		a.log.Debug("changes were not announced", "changes", len(changes), "buckets", len(missed), "err", err)
		a.again(o, changes, missed)
		sleep(ctx, o.pause)
	} else {
		a.announced.Add(float64(len(changes)))
		o.pause = announceEvery
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o.telling = false
	a.signal()
}

func (a *announcer) tell(ctx context.Context, changes []history.Change, missed []history.Bucket) error {
	if len(missed) > 0 {
		if err := a.feed.Interrupt(ctx, missed); err != nil {
			return err
		}
	}
	return a.feed.Announce(ctx, changes)
}

// again has what was not told wait, for longer than before.
func (a *announcer) again(o *outlet, changes []history.Change, missed []history.Bucket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o.pause = min(2*o.pause, announceWithin) + rand.N(announceEvery)
	for _, b := range missed {
		o.missed[b] = struct{}{}
	}
	for _, c := range changes {
		o.add(c, a.unfit)
	}
}

// take returns what waits, and forgets it. Who notes something waits for no more than
// the exchange of the maps.
func (a *announcer) take(o *outlet) ([]history.Change, []history.Bucket) {
	a.mu.Lock()
	taken := o.waiting
	o.waiting, o.spare = o.spare, nil
	missed := slices.Collect(maps.Keys(o.missed))
	clear(o.missed)
	a.mu.Unlock()
	changes := make([]history.Change, 0, len(taken))
	for k, origin := range taken {
		changes = append(changes, history.Change{Key: k, Origin: origin})
	}
	clear(taken)
	o.spare = taken
	return changes, missed
}
