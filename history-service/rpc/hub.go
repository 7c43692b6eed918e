package rpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
)

// hub knows which streams watch which users, and follows their buckets in the feed.
type hub struct {
	feed    history.Subscription
	leaving chan struct{} // closed when streams are to go elsewhere
	leave   func()        // closes it, once

	mu    sync.Mutex // guards everything below, wards, posts and what is due on streams
	wards map[history.Bucket]*ward
	late  []history.Bucket // that were interrupted
	wake  chan struct{}    // of capacity 1: there are some
}

// ward is a bucket with somebody in it who is watched.
type ward struct {
	sure  bool // nothing is missed
	users map[string][]*post
}

// post is what one stream watches of one user, and has to be told.
type post struct {
	stream *watch
	uid    string
	ids    []uint64 // connections
	due    *due     // nil when there is nothing
}

// spread is over how long those are told to read again who may have missed something, if
// all may have.
const spread = 2 * time.Second

func newHub(cfg Config) *hub {
	h := &hub{leaving: make(chan struct{}), wards: make(map[history.Bucket]*ward), wake: make(chan struct{}, 1)}
	h.leave = sync.OnceFunc(func() { close(h.leaving) })
	h.feed = cfg.Feed.Subscribe(h.hear)
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "playhead_rpc_watched_users", Help: "Users who are watched, each once for every stream that does.",
		}, h.size))
	}
	return h
}

func (h *hub) size() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, w := range h.wards {
		for _, posts := range w.users {
			n += len(posts)
		}
	}
	return float64(n)
}

// run tells those who were interrupted, bucket by bucket, until ctx is done.
func (h *hub) run(ctx context.Context) error {
	pace := time.NewTicker(spread / history.Buckets)
	defer pace.Stop()
	for h.next(ctx, pace.C) {
		h.mu.Lock()
		if len(h.late) > 0 {
			h.resync(h.wards[h.late[0]])
			h.late = h.late[1:]
		}
		h.mu.Unlock()
	}
	return h.feed.Close()
}

func (h *hub) next(ctx context.Context, pace <-chan time.Time) bool {
	h.mu.Lock()
	idle := len(h.late) == 0
	h.mu.Unlock()
	if idle {
		select {
		case <-h.wake:
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
func (h *hub) hear(n history.News) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range n.Changes {
		if w := h.wards[history.BucketOf(c.Key.UID)]; w != nil {
			for _, p := range w.users[c.Key.UID] {
				p.note(c)
			}
		}
	}
	for _, b := range n.Since {
		h.since(b)
	}
}

// since has those told to read again who are in a bucket of which nothing is missed from
// now on: at once when they have waited for it, and otherwise one after the other.
func (h *hub) since(b history.Bucket) {
	w := h.wards[b]
	switch {
	case w == nil:
	case !w.sure:
		w.sure = true
		h.resync(w)
	case !slices.Contains(h.late, b):
		h.late = append(h.late, b)
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

func (h *hub) resync(w *ward) {
	if w == nil {
		return
	}
	for _, posts := range w.users {
		for _, p := range posts {
			p.owe().resync = true
		}
	}
}
