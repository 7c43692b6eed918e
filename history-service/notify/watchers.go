package notify

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// watchers maps users to the streams that watch them, and follows their buckets on the feed.
type watchers struct {
	feed    history.Subscription
	leaving chan struct{} // closed by leave
	leave   func()

	mu          sync.Mutex // guards the fields below, and the streams' subscriptions
	buckets     map[history.Bucket]*bucketWatchers
	interrupted []history.Bucket // buckets waiting for a resync
	wake        chan struct{}    // capacity 1: interrupted has entries
}

// bucketWatchers are the subscriptions to the users of one bucket.
type bucketWatchers struct {
	live  bool // the feed delivers all changes of the bucket
	users map[string][]*subscription
}

// subscription is one stream's watch on one user.
type subscription struct {
	stream  *stream
	uid     string
	ids     []uint64 // the user's connections behind the stream
	pending *pending // nil if nothing is pending
}

// pending is the unsent update of a user.
type pending struct {
	changes []history.Change // at most one per object
	added   []uint64         // new connections
	resync  bool             // the client must read everything again
}

// stream is one call of Watch, guarded by watchers.mu. Cache nodes are served concurrently, so a slow node delays
// only its own users. Each node's messages are sent one at a time, to keep their order.
type stream struct {
	subs  map[string]*subscription // by user
	queue []*subscription          // have pending updates, unless dropped since
	busy  map[string]struct{}      // nodes with a message in progress
	wake  chan struct{}            // capacity 1: queue has entries

	sending sync.Mutex
	failed  chan failure // capacity 1: the first failure ends the stream
}

// failure is an error or a panic value.
type failure struct {
	err      error
	panicked any
}

const (
	// resyncWithin spreads the resync of all buckets after an interruption of the feed.
	resyncWithin = 2 * time.Second
	// maxPending limits the pending objects of a user. Above it, the user gets a resync.
	maxPending = 32
	// maxWatched limits the users per stream.
	maxWatched = 200_000
)

func newWatchers(feed history.Feed, reg prometheus.Registerer) *watchers {
	w := &watchers{leaving: make(chan struct{}), buckets: make(map[history.Bucket]*bucketWatchers), wake: make(chan struct{}, 1)}
	w.leave = sync.OnceFunc(func() { close(w.leaving) })
	w.feed = feed.Subscribe(w.hear)
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_notify_watched_users", Help: "Users who are watched, each once for every stream that does.",
	}, w.size)
	return w
}

func (w *watchers) size() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, b := range w.buckets {
		for _, subs := range b.users {
			n += len(subs)
		}
	}
	return float64(n)
}

// run resyncs interrupted buckets, one per tick, until ctx is done.
func (w *watchers) run(ctx context.Context) error {
	pace := time.NewTicker(resyncWithin / history.Buckets)
	defer pace.Stop()
	for w.next(ctx, pace.C) {
		w.mu.Lock()
		if len(w.interrupted) > 0 {
			w.resync(w.buckets[w.interrupted[0]])
			w.interrupted = w.interrupted[1:]
		}
		w.mu.Unlock()
	}
	return w.feed.Close()
}

func (w *watchers) next(ctx context.Context, pace <-chan time.Time) bool {
	w.mu.Lock()
	idle := len(w.interrupted) == 0
	w.mu.Unlock()
	if idle {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case <-pace:
		return true
	case <-ctx.Done():
		return false
	}
}

// hear handles a notice of the feed. It blocks only on the mutex.
func (w *watchers) hear(n history.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range n.Changes {
		if b := w.buckets[history.BucketOf(c.Key.UID)]; b != nil {
			for _, s := range b.users[c.Key.UID] {
				s.note(c)
			}
		}
	}
	for _, b := range n.Joined {
		w.goLive(b)
	}
}

// goLive marks a bucket as live. Earlier changes may be lost, so its watchers get a resync: at once on the first
// join, otherwise paced by run.
func (w *watchers) goLive(b history.Bucket) {
	of := w.buckets[b]
	switch {
	case of == nil:
	case !of.live:
		of.live = true
		w.resync(of)
	case !slices.Contains(w.interrupted, b):
		w.interrupted = append(w.interrupted, b)
		run.Wake(w.wake)
	}
}

func (w *watchers) resync(b *bucketWatchers) {
	if b == nil {
		return
	}
	for _, subs := range b.users {
		for _, s := range subs {
			s.queue().resync = true
		}
	}
}

// queue returns the user's pending update and schedules it. The caller holds watchers.mu.
func (s *subscription) queue() *pending {
	if s.pending == nil {
		s.pending = &pending{}
		s.stream.queue = append(s.stream.queue, s)
		run.Wake(s.stream.wake)
	}
	return s.pending
}

// note queues a change, unless the stream's only connection of the user made it.
func (s *subscription) note(c history.Change) {
	if len(s.ids) == 1 && s.ids[0] == c.Origin {
		return
	}
	p := s.queue()
	i := slices.IndexFunc(p.changes, func(o history.Change) bool { return o.Key.Object == c.Key.Object })
	switch {
	case p.resync:
	case c.Key.IsUser(), i < 0 && len(p.changes) == maxPending:
		p.resync, p.changes = true, nil
	case i < 0:
		p.changes = append(p.changes, c)
	case p.changes[i].Origin != c.Origin:
		p.changes[i].Origin = 0
	}
}

// add adds a connection that watches a user.
func (w *watchers) add(to *stream, uid string, id uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := to.subs[uid]
	if s == nil && len(to.subs) == maxWatched {
		return history.Invalid("added", "too many users on one stream")
	}
	bucket := history.BucketOf(uid)
	b := w.buckets[bucket]
	if b == nil {
		b = &bucketWatchers{users: make(map[string][]*subscription)}
		w.buckets[bucket] = b
		w.feed.Follow(bucket)
	}
	if s == nil {
		s = &subscription{stream: to, uid: uid}
		to.subs[uid] = s
		b.users[uid] = append(b.users[uid], s)
	}
	if !slices.Contains(s.ids, id) {
		s.ids = append(s.ids, id)
	}
	if b.live { // otherwise goLive resyncs the bucket
		p := s.queue()
		p.added = append(p.added, id)
	}
	return nil
}

// remove removes a connection that watches a user.
func (w *watchers) remove(from *stream, uid string, id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := from.subs[uid]
	if s == nil {
		return
	}
	if i := slices.Index(s.ids, id); i >= 0 {
		s.ids = slices.Delete(s.ids, i, i+1)
	}
	if len(s.ids) == 0 {
		w.drop(s)
	}
}

// end removes all subscriptions of a stream.
func (w *watchers) end(of *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range of.subs {
		w.drop(s)
	}
}

// drop removes a subscription. The caller holds w.mu.
func (w *watchers) drop(s *subscription) {
	delete(s.stream.subs, s.uid)
	bucket := history.BucketOf(s.uid)
	b := w.buckets[bucket]
	rest := slices.DeleteFunc(b.users[s.uid], func(o *subscription) bool { return o == s })
	if b.users[s.uid] = rest; len(rest) > 0 {
		return
	}
	if delete(b.users, s.uid); len(b.users) == 0 {
		delete(w.buckets, bucket)
		w.feed.Unfollow(bucket)
	}
}
