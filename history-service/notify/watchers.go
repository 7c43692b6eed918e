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

// watchers knows which streams watch which users, and follows their buckets in the feed.
type watchers struct {
	feed    history.Subscription
	leaving chan struct{} // closed when streams are to go elsewhere
	leave   func()        // closes it, once

	mu          sync.Mutex // guards all below, and the streams' subscriptions
	buckets     map[history.Bucket]*bucketWatchers
	interrupted []history.Bucket // whose watchers are still to be told to read again
	wake        chan struct{}    // of capacity 1: there are some
}

// bucketWatchers are the subscriptions to users of one bucket.
type bucketWatchers struct {
	live  bool // nothing is missed any more
	users map[string][]*subscription
}

// subscription is what one stream watches of one user, and what it has not been told yet.
type subscription struct {
	stream  *stream
	uid     string
	ids     []uint64 // connections of the user behind the stream
	pending *pending // nil when there is nothing
}

// pending is what a stream has not been told of a user yet.
type pending struct {
	changes []history.Change // of different objects
	added   []uint64         // connections that are watched from now on
	resync  bool             // the user is to read again
}

// stream is one call of Watch. Users of different nodes of the cache are told side by side, so
// that a slow node delays its own users only; those of one node one message after the other, so
// that nothing old is told after something new. The mutex of the watchers guards it.
type stream struct {
	subs  map[string]*subscription // by user
	queue []*subscription          // with something pending, perhaps dropped since
	busy  map[string]struct{}      // nodes whose users are being told
	wake  chan struct{}            // of capacity 1: there are some

	sending sync.Mutex
	failed  chan failure // of capacity 1: why nothing can be sent any more
}

// failure is an error, or what somebody panicked with.
type failure struct {
	err      error
	panicked any
}

const (
	// resyncWithin is over how long all watchers are told to read again, if all may have
	// missed something.
	resyncWithin = 2 * time.Second
	// maxPending is how many objects of one user wait to be sent. With more the user is
	// told to read again.
	maxPending = 32
	// maxWatched bounds the users whom one stream watches.
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

// run tells the watchers of interrupted buckets to read again, one bucket after the other,
// until ctx is done.
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

// hear takes news of the feed. It waits for nothing but the mutex.
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

// goLive takes note that nothing of a bucket is missed from now on. A change from before may
// be: its watchers are told to read again, at once when they have waited for this, and
// otherwise bucket by bucket.
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

// queue returns what the stream is to be told of the user, and has it sent soon. The caller
// holds the mutex of the watchers.
func (s *subscription) queue() *pending {
	if s.pending == nil {
		s.pending = &pending{}
		s.stream.queue = append(s.stream.queue, s)
		run.Wake(s.stream.wake)
	}
	return s.pending
}

// note has the stream told of a change, unless its only connection made it.
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

// add has a stream watch a user for a connection.
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
	if b.live { // or else all in the bucket are told when it is
		p := s.queue()
		p.added = append(p.added, id)
	}
	return nil
}

// remove ends that for one connection.
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

// end ends all subscriptions of a stream.
func (w *watchers) end(of *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range of.subs {
		w.drop(s)
	}
}

// drop forgets a subscription. The caller holds w.mu.
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
