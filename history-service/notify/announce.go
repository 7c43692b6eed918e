// Package notify sends a user's changes to the user's other devices.
//
// [Notifier.Changed] queues a changed key. Within 200 ms it is announced on the feed, together with others of the
// same cache node. Each service with a stream watching the user receives the key, reads the record and sends it to
// the stream.
//
// Announcements have keys only, so late, repeated and reordered ones are harmless. If one may be lost, the device
// gets a resync.
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

// Notifier announces its service's changes and serves the streams that watch users. It is safe for concurrent use.
type Notifier struct {
	cfg      Config
	announce *announcer
	watchers *watchers // nil without a feed
}

// New returns a notifier. [Notifier.Run] runs its background work.
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

// Run announces changes and serves the feed until ctx is done. Stop it after the requests, to announce the last
// change.
func (n *Notifier) Run(ctx context.Context) error {
	if n.watchers == nil {
		return nil
	}
	var g errgroup.Group
	g.Go(func() error { return n.announce.run(ctx) })
	g.Go(func() error { return n.watchers.run(ctx) })
	return g.Wait()
}

// Changed queues changes to be announced. Each costs one map entry.
func (n *Notifier) Changed(changes iter.Seq[history.Change]) {
	if n.announce != nil {
		n.announce.add(changes)
	}
}

// UserChanged queues a change of the user's whole history.
func (n *Notifier) UserChanged(uid string) {
	n.Changed(slices.Values([]history.Change{{Key: history.UserKey(uid)}}))
}

// Leave ends all streams, so callers switch to another service. Repeated calls have no effect.
func (n *Notifier) Leave() {
	if n.watchers != nil {
		n.watchers.leave()
	}
}

// Config configures a [Notifier]. Zero values take the defaults; Cache is required.
type Config struct {
	// Feed exchanges announcements with other services; required for Watch.
	Feed history.Feed
	// Cache reads changed records, see [history.Cache].
	Cache interface {
		Load(ctx context.Context, keys []history.Key) []history.Entry
	}
	// NodeOf returns the cache node of a user (default: a single node).
	NodeOf func(uid string) string
	// Rules are the rules per object type (default: the standard rules).
	Rules *history.Rulebook
	// Deadline limits the read of changed records (default 5 s).
	Deadline time.Duration
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

const (
	// announceEvery is how long a change waits for others of the same node.
	announceEvery = 200 * time.Millisecond
	// maxUnannounced limits the waiting changes. Above it, a user's changes are merged into one; above twice the
	// limit, all users of the bucket get a resync.
	maxUnannounced = 1 << 16
	announceWithin = 2 * time.Second
)

// announcer publishes changes on the feed. Each cache node has its own outbox, so a silent node delays only its own
// users.
type announcer struct {
	feed                       history.Feed
	followed                   func(history.Bucket) bool // whether anyone follows the bucket
	nodeOf                     func(uid string) string
	log                        *slog.Logger
	announced, failed, dropped prometheus.Counter
	wake                       chan struct{} // capacity 1: an outbox is ready

	mu       sync.Mutex
	outboxes map[string]*outbox // by node
}

// outbox is one node's waiting changes, guarded by announcer.mu.
type outbox struct {
	waiting map[history.Key]uint64      // origin by key
	missed  map[history.Bucket]struct{} // buckets with dropped changes
	spare   map[history.Key]uint64      // empty map for changes during an announcement
	busy    bool                        // announcing or in backoff
	backoff run.Backoff
}

func newAnnouncer(cfg Config) *announcer {
	auto := promauto.With(cfg.Registry)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_notify_" + name + "_total", Help: help})
	}
	a := &announcer{
		feed: cfg.Feed, nodeOf: cfg.NodeOf, log: cfg.Logger, wake: make(chan struct{}, 1), outboxes: make(map[string]*outbox),
		announced: counter("announced_changes", "Changes announced to the services, several of one record in 200 ms as one."),
		failed:    counter("failed_announcements", "Announcements of changes that the feed refused; each was retried."),
		dropped:   counter("dropped_changes", "Changes that found too many others waiting, so that all users of their bucket read again."),
	}
	a.followed = func(history.Bucket) bool { return true }
	if f, knows := cfg.Feed.(interface{ Followed(history.Bucket) bool }); knows {
		a.followed = f.Followed
	}
	return a
}

// add must be called after the write. A later follower of the bucket then reads the change itself, so unfollowed
// buckets can be skipped.
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

// outbox returns a node's outbox. The caller holds a.mu.
func (a *announcer) outbox(node string) *outbox {
	o := a.outboxes[node]
	if o == nil {
		o = &outbox{waiting: make(map[history.Key]uint64), spare: make(map[history.Key]uint64), missed: make(map[history.Bucket]struct{}), backoff: run.Backoff{First: 2 * announceEvery, Longest: announceWithin}}
		a.outboxes[node] = o
	}
	return o
}

// ready reports whether changes wait and no announcement is running. The caller holds a.mu.
func (o *outbox) ready() bool { return !o.busy && len(o.waiting)+len(o.missed) > 0 }

// signal wakes run if an outbox is ready. The caller holds a.mu.
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
	case known && origin != c.Origin: // no connection knows both changes
		c.Origin = 0
	case !known && len(o.waiting) >= 2*maxUnannounced:
		dropped.Inc()
		o.missed[history.BucketOf(c.Key.UID)] = struct{}{}
		return
	}
	o.waiting[c.Key] = c.Origin
}

// run announces until ctx is done, then flushes once more.
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

// wait waits for a change, then [announceEvery] for more.
func (a *announcer) wait(ctx context.Context) bool {
	select {
	case <-a.wake:
	case <-ctx.Done():
		return false
	}
	return run.Sleep(ctx, announceEvery)
}

// flush starts an announcement for each ready outbox.
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

// send announces an outbox's changes. If the feed fails, it puts them back and backs off.
func (a *announcer) send(ctx context.Context, o *outbox) {
	changes, missed := a.take(o)
	within, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	if err := a.publish(within, changes, missed); err != nil {
		a.failed.Inc()
		a.log.Debug("changes not announced", "changes", len(changes), "buckets", len(missed), "error", err)
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

// putBack returns unannounced changes to the outbox.
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

// take empties an outbox. It swaps the maps to hold the lock only briefly.
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
