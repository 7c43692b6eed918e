// Package notify tells the devices of a user what another one has changed.
//
// A change goes this way: [Notifier.Changed] notes its name; 200 ms later it is announced on
// the feed, together with all others of the same node of the cache; each service that has a
// stream watching the user hears the name, reads the record once, and sends it down the
// stream. Names carry nothing, so that a late, repeated or reordered one does no harm; where
// one may have been missed, the device is told to read again (resync).
package notify

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Notifier announces the changes that its service makes, and serves the streams that watch
// users. Its methods may be called from many goroutines.
type Notifier struct {
	cfg      Config
	announce *announcer
	watchers *watchers // nil without a feed
}

// New returns a notifier that does nothing in the background until Run.
func New(cfg Config) *Notifier {
	if cfg.NodeOf == nil {
		cfg.NodeOf = func(string) string { return "" }
	}
	cfg.Deadline = run.Default(cfg.Deadline, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n := &Notifier{cfg: cfg}
	if cfg.Feed != nil {
		n.announce, n.watchers = newAnnouncer(cfg), newWatchers(cfg.Feed, cfg.Registry)
	}
	return n
}

// Run announces changes and serves the feed until ctx is done. It ends after the requests
// do, so that the last change is announced too.
func (n *Notifier) Run(ctx context.Context) error {
	if n.watchers == nil {
		return nil
	}
	var g errgroup.Group
	g.Go(func() error { return n.announce.run(ctx) })
	g.Go(func() error { return n.watchers.run(ctx) })
	return g.Wait()
}

// Changed has records announced soon. The cost of each is that of an entry in a map.
func (n *Notifier) Changed(changes iter.Seq[history.Change]) {
	if n.announce != nil {
		n.announce.add(changes)
	}
}

// UserChanged notes that anything of a user's history may have changed.
func (n *Notifier) UserChanged(uid string) {
	n.Changed(slices.Values([]history.Change{{Key: history.UserKey(uid)}}))
}

// Leave sends the streams elsewhere. It may be called more than once.
func (n *Notifier) Leave() {
	if n.watchers != nil {
		n.watchers.leave()
	}
}

// Config configures a [Notifier]. Zero values take the defaults; Cache has none.
type Config struct {
	// Feed carries the names of changes between services. Without one nobody can watch.
	Feed  history.Feed
	Cache history.Loader
	// NodeOf names the node of the cache that has a user (default: there is one).
	NodeOf func(uid string) string
	// Rules say what counts as what, by type of object (default the standard ones).
	Rules *history.Rulebook
	// Deadline bounds the read of what has changed (default 5 s).
	Deadline time.Duration
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

const (
	// announceEvery is how long a change waits for others of the same node.
	announceEvery = 200 * time.Millisecond
	// maxUnannounced bounds the changes that wait. Beyond it a user's are announced as one,
	// and beyond twice as much all users of the bucket are told to read again.
	maxUnannounced = 1 << 16
	announceWithin = 2 * time.Second
)

// announcer puts changes on the feed. Each node of the cache has an outbox of its own: a
// silent node holds up the news of its own users only.
type announcer struct {
	feed                       history.Feed
	followed                   func(history.Bucket) bool // whether anybody may be told of its users
	nodeOf                     func(uid string) string
	log                        *slog.Logger
	announced, failed, dropped prometheus.Counter
	wake                       chan struct{} // of capacity 1: something waits

	mu       sync.Mutex
	outboxes map[string]*outbox // by node
}

// outbox is what waits for one node. The announcer's mutex guards it.
type outbox struct {
	waiting map[history.Key]uint64      // origins by key
	missed  map[history.Bucket]struct{} // whose changes found the outbox full
	spare   map[history.Key]uint64      // empty, for what comes while the other one is announced
	busy    bool                        // announcing, or pausing before the next try
	backoff run.Backoff                 // before the next try
}

func newAnnouncer(cfg Config) *announcer {
	auto := promauto.With(cfg.Registry)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_notify_" + name + "_total", Help: help})
	}
	a := &announcer{
		feed: cfg.Feed, nodeOf: cfg.NodeOf, log: cfg.Logger, wake: make(chan struct{}, 1), outboxes: make(map[string]*outbox),
		announced: counter("announced_changes", "Changes announced to the services, several of one record in 200 ms as one."),
		failed:    counter("failed_announcements", "Announcements of changes that the feed did not take, and that were made again."),
		dropped:   counter("dropped_changes", "Changes that found too many others waiting, so that all users of their bucket read again."),
	}
	a.followed = func(history.Bucket) bool { return true }
	if f, knows := cfg.Feed.(interface{ Followed(history.Bucket) bool }); knows {
		a.followed = f.Followed
	}
	return a
}

// add is called after the write. So who begins to follow a bucket later reads what is left out here.
func (a *announcer) add(changes iter.Seq[history.Change]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range changes {
		if !a.followed(history.BucketOf(c.Key.UID)) {
			continue
		}
		a.outbox(a.nodeOf(c.Key.UID)).add(c, a.dropped)
	}
	a.signal()
}

// outbox returns that of a node. The caller holds a.mu.
func (a *announcer) outbox(node string) *outbox {
	o := a.outboxes[node]
	if o == nil {
		o = &outbox{waiting: make(map[history.Key]uint64), spare: make(map[history.Key]uint64), missed: make(map[history.Bucket]struct{}), backoff: run.Backoff{First: 2 * announceEvery, Longest: announceWithin}}
		a.outboxes[node] = o
	}
	return o
}

// ready reports whether something waits and nobody announces it. The caller holds a.mu.
func (o *outbox) ready() bool { return !o.busy && len(o.waiting)+len(o.missed) > 0 }

// signal wakes run if there is something for it. The caller holds a.mu.
func (a *announcer) signal() {
	for _, o := range a.outboxes {
		if o.ready() {
			run.Wake(a.wake)
			return
		}
	}
}

func (o *outbox) add(c history.Change, dropped prometheus.Counter) {
	if len(o.waiting) >= maxUnannounced {
		c = history.Change{Key: history.UserKey(c.Key.UID)}
	}
	origin, known := o.waiting[c.Key]
	switch {
	case known && origin != c.Origin: // no single connection knows all of it
		c.Origin = 0
	case !known && len(o.waiting) >= 2*maxUnannounced:
		dropped.Inc()
		o.missed[history.BucketOf(c.Key.UID)] = struct{}{}
		return
	}
	o.waiting[c.Key] = c.Origin
}

// run announces until ctx is done, and then once more.
func (a *announcer) run(ctx context.Context) error {
	var sending sync.WaitGroup
	for a.wait(ctx) {
		a.flush(ctx, &sending)
	}
	sending.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceWithin/4)
	defer cancel()
	a.flush(last, &sending)
	sending.Wait()
	return nil
}

// wait waits for a change, and for those that follow it.
func (a *announcer) wait(ctx context.Context) bool {
	select {
	case <-a.wake:
	case <-ctx.Done():
		return false
	}
	return run.Sleep(ctx, announceEvery)
}

// flush empties the outboxes, side by side.
func (a *announcer) flush(ctx context.Context, sending *sync.WaitGroup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.outboxes {
		if o.ready() {
			o.busy = true
			sending.Go(func() { a.send(ctx, o) })
		}
	}
}

// send announces what an outbox has. Changes that the feed does not take are announced again, after
// longer and longer pauses.
func (a *announcer) send(ctx context.Context, o *outbox) {
	changes, missed := a.take(o)
	within, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	if err := a.publish(within, changes, missed); err != nil {
		a.failed.Inc()
		a.log.Debug("changes were not announced", "changes", len(changes), "buckets", len(missed), "error", err)
		a.putBack(o, changes, missed)
		o.backoff.Sleep(ctx)
	} else {
		a.announced.Add(float64(len(changes)))
		o.backoff.Reset()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o.busy = false
	a.signal()
}

func (a *announcer) publish(ctx context.Context, changes []history.Change, missed []history.Bucket) error {
	if len(missed) > 0 {
		if err := a.feed.Interrupt(ctx, missed); err != nil {
			return err
		}
	}
	return a.feed.Announce(ctx, changes)
}

// putBack has what was not announced wait.
func (a *announcer) putBack(o *outbox, changes []history.Change, missed []history.Bucket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range missed {
		o.missed[b] = struct{}{}
	}
	for _, c := range changes {
		o.add(c, a.dropped)
	}
}

// take empties an outbox. A caller of add waits for no more than the exchange of the maps.
func (a *announcer) take(o *outbox) ([]history.Change, []history.Bucket) {
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
