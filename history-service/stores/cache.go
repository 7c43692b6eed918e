// Package stores wraps the cache and the archive with circuit breakers. A silent, slow or damaged part affects only
// its own users.
package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

const (
	// silence is how long a node may leave all calls unanswered while another node answers. After it the node
	// counts as silent, and its calls fail at once.
	silence = 300 * time.Millisecond
	// mostSilence is the longest patience with a slow node. A node that answers the first probe is slow, not
	// silent, and its patience doubles. After slowFor without a slow answer, patience returns to silence.
	mostSilence, slowFor = 4 * silence, 10 * time.Second
	// probeEvery is the interval of probes to a silent node, probeWithin the limit of each.
	probeEvery, probeWithin = 250 * time.Millisecond, mostSilence + silence
	// probeIdle is how long probes continue without calls to the node.
	probeIdle = 10 * time.Second
	// maxCalls limits the concurrent calls per node. Further calls fail at once.
	maxCalls = 256
)

// Cache is the part of [history.Cache] that the service uses.
type Cache interface {
	history.Loader
	history.Applier
	history.Lister
	history.ChangeLog
}

// Sharded is a cache with buckets on several nodes.
type Sharded interface {
	// Node returns the node of a bucket, empty if there is only one. It does no I/O.
	Node(b history.Bucket) string
}

// Nodes isolates failures of a sharded cache: one silent node affects only its own users. Each node has a circuit
// breaker and a limit of concurrent calls.
//
// A node is silent only if others answer; if all are slow, waiting is better. A canceled call may still take
// effect, like any unanswered call.
type Nodes struct {
	Cache

	sharded Sharded
	log     *slog.Logger
	refused prometheus.Counter

	mu  sync.Mutex // guards all and the nodes
	all map[string]*node
}

// node is one node's circuit breaker.
type node struct {
	name     string
	uid      string // for probes
	calls    int
	began    time.Time     // when calls became 1
	answered time.Time     // last answer
	took     time.Duration // its latency
	patience time.Duration // limit without an answer
	slow     time.Time     // last slow answer
	asked    bool          // being probed
	watch    *time.Timer   // runs check
	watched  bool
	gone     chan struct{} // closed while silent
	silent   bool
	wanted   time.Time // last refused call
}

// nodeError is a temporary failure of a node.
type nodeError struct {
	node, reason string
}

func (e *nodeError) Error() string {
	return fmt.Sprintf("node %s of the cache %s", e.node, e.reason)
}

func (*nodeError) Unwrap() error { return history.ErrUnavailable }

// NewNodes returns a cache with a circuit breaker per node of on.
func NewNodes(cache Cache, on Sharded, log *slog.Logger, reg prometheus.Registerer) *Nodes {
	auto := promauto.With(reg)
	n := &Nodes{
		Cache: cache, sharded: on, log: log, all: make(map[string]*node),
		refused: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_stores_refused_cache_calls_total", Help: "Calls to nodes of the cache that were refused because the node was silent or had too many.",
		}),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_stores_silent_cache_nodes", Help: "Nodes of the cache that do not answer while others do.",
	}, n.silentNodes)
	return n
}

func (n *Nodes) silentNodes() (count float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, nd := range n.all {
		if nd.silent {
			count++
		}
	}
	return count
}

// Of returns the node of a user, empty for a single-node or nil cache.
func (n *Nodes) Of(uid string) string {
	if n == nil {
		return ""
	}
	return n.sharded.Node(history.BucketOf(uid))
}

// on calls a user's node and cancels the wait when the node turns silent.
func on[T any](n *Nodes, uid string, call func() (T, error)) (T, error) {
	name := n.Of(uid)
	if name == "" {
		return call()
	}
	type result struct {
		value    T
		err      error
		panicked *run.PanicError
	}
	var none T
	began := time.Now()
	nd, gone, err := n.enter(name, uid, began)
	if err != nil {
		return none, err
	}
	done := make(chan result, 1)
	go func() { // ends with the call
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.panicked = &run.PanicError{Value: v, Stack: debug.Stack()}
			}
			n.leave(nd, began, r.err)
			done <- r
		}()
		r.value, r.err = call()
	}()
	select {
	case r := <-done:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.value, r.err
	case <-gone:
		return none, &nodeError{name, "does not answer"}
	}
}

// enter registers a call, or fails if the node is silent or full. The channel is closed when the node turns silent.
func (n *Nodes) enter(name, uid string, now time.Time) (*node, <-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	nd := n.all[name]
	if nd == nil {
		nd = &node{name: name, patience: silence, gone: make(chan struct{})}
		nd.watch = time.AfterFunc(time.Hour, func() { n.check(nd) })
		nd.watch.Stop()
		n.all[name] = nd
	}
	switch {
	case nd.silent:
		nd.wanted = now
		n.refused.Inc()
		return nil, nil, &nodeError{name, "does not answer"}
	case nd.calls >= maxCalls:
		n.refused.Inc()
		return nil, nil, &nodeError{name, "has too many calls under way"}
	}
	nd.uid = uid
	if nd.calls++; nd.calls == 1 {
		nd.began = now
	}
	if !nd.watched { // the timer outlives the last call, which saves a reset per call
		nd.watched = true
		nd.watch.Reset(silence)
	}
	return nd, nd.gone, nil
}

// leave records the result of a call.
func (n *Nodes) leave(nd *node, began time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	nd.calls--
	if errors.Is(err, history.ErrUnavailable) {
		return
	}
	nd.answered, nd.took = now, now.Sub(began)
	if nd.took >= silence {
		nd.slow = now
	}
}

// check opens a node's breaker if the node is silent while another one answers quickly. It probes nodes without
// calls, one probe each, since they may be slow too.
func (n *Nodes) check(nd *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if nd.watched = nd.calls > 0 && !nd.silent; !nd.watched {
		return
	}
	heard := nd.began
	if nd.answered.After(heard) {
		heard = nd.answered
	}
	now := time.Now()
	if now.Sub(nd.slow) > slowFor {
		nd.patience = silence
	}
	if quiet := now.Sub(heard); quiet < nd.patience {
		nd.watch.Reset(nd.patience - quiet)
		return
	}
	for _, other := range n.all {
		if other == nd || other.silent {
			continue
		}
		if other.quick(heard, now) {
			n.open(nd)
			nd.watched = false
			return
		}
		if !other.asked {
			other.asked = true
			go n.ask(other) // ends within probeWithin
		}
	}
	nd.watch.Reset(silence / 10)
}

// quick reports whether the node has recently answered a call quickly. The call must have started after
// silentSince: earlier answers do not exclude a failure of all nodes.
func (nd *node) quick(silentSince, now time.Time) bool {
	return nd.took < silence/2 && now.Sub(nd.answered) < silence/2 && nd.answered.Add(-nd.took).Sub(silentSince) >= silence/2
}

func (n *Nodes) ask(nd *node) {
	n.mu.Lock()
	uid := nd.uid
	n.mu.Unlock()
	_, _ = on(n, uid, func() (struct{}, error) { return struct{}{}, n.probe(uid) })
	n.mu.Lock()
	defer n.mu.Unlock()
	nd.asked = false
}

func (n *Nodes) probe(uid string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeWithin)
	defer cancel()
	return n.Cache.Load(ctx, []history.Key{history.UserKey(uid)})[0].Err
}

// open makes calls to a node fail. The caller holds n.mu.
func (n *Nodes) open(nd *node) {
	if nd.silent {
		return
	}
	n.log.Warn("cache node unavailable", "node", nd.name)
	nd.silent, nd.wanted = true, time.Now()
	close(nd.gone)
	go n.await(nd, nd.uid) // ends with the silence
}

// await probes a silent node until it answers or has no callers.
func (n *Nodes) await(nd *node, uid string) {
	for first := true; ; first = false {
		err := n.probe(uid)
		n.mu.Lock()
		over := !errors.Is(err, history.ErrUnavailable) || time.Since(nd.wanted) > probeIdle
		if over {
			nd.call(first)
		}
		n.mu.Unlock()
		if over {
			n.log.Info("cache node recovered", "node", nd.name, "error", err)
			return
		}
		time.Sleep(probeEvery)
	}
}

// call closes a node's breaker. slow means that the node answered the first probe, so its patience doubles. The
// caller holds Nodes.mu.
func (nd *node) call(slow bool) {
	now := time.Now()
	nd.silent, nd.gone = false, make(chan struct{})
	nd.began, nd.answered = now, now // earlier calls no longer count
	if !slow {
		nd.patience = silence
		return
	}
	nd.patience, nd.slow = min(2*nd.patience, mostSilence), now
}

// byNode groups indexes by their users' node, in order. It returns nil if all users are on one node.
func (n *Nodes) byNode(count int, uid func(i int) string) map[string][]int {
	if count == 0 {
		return nil
	}
	first, same := n.Of(uid(0)), 1
	for first != "" && same < count && n.Of(uid(same)) == first {
		same++
	}
	if first == "" || same == count {
		return nil
	}
	parts := make(map[string][]int, 1)
	for i := range count {
		name := n.Of(uid(i))
		parts[name] = append(parts[name], i)
	}
	return parts
}

// Load implements [history.Loader].
func (n *Nodes) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if len(keys) == 0 {
		return nil
	}
	parts := n.byNode(len(keys), func(i int) string { return keys[i].UID })
	if parts == nil {
		return n.load(ctx, keys)
	}
	entries := make([]history.Entry, len(keys))
	each(parts, func(part []int) { put(entries, part, n.load(ctx, pick(keys, part))) })
	return entries
}

// load reads keys of one node.
func (n *Nodes) load(ctx context.Context, keys []history.Key) []history.Entry {
	entries, err := on(n, keys[0].UID, func() ([]history.Entry, error) {
		got := n.Cache.Load(ctx, keys)
		return got, all(got, func(e history.Entry) error { return e.Err })
	})
	if entries == nil {
		entries = slices.Repeat([]history.Entry{{Err: err}}, len(keys))
	}
	return entries
}

// Apply implements [history.Applier].
func (n *Nodes) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	if len(writes) == 0 {
		return nil
	}
	parts := n.byNode(len(writes), func(i int) string { return writes[i].Key.UID })
	if parts == nil {
		return n.apply(ctx, writes)
	}
	out := make([]history.Outcome, len(writes))
	each(parts, func(part []int) { put(out, part, n.apply(ctx, pick(writes, part))) })
	return out
}

// apply applies writes of one node.
func (n *Nodes) apply(ctx context.Context, writes []history.Write) []history.Outcome {
	out, err := on(n, writes[0].Key.UID, func() ([]history.Outcome, error) {
		got := n.Cache.Apply(ctx, writes)
		return got, all(got, func(o history.Outcome) error { return o.Err })
	})
	if out == nil {
		out = slices.Repeat([]history.Outcome{{Err: err}}, len(writes))
	}
	return out
}

// each calls fn concurrently for all parts. It re-panics in the caller's goroutine, where the request is guarded.
func each(parts map[string][]int, fn func(part []int)) {
	var running sync.WaitGroup
	var panicked atomic.Pointer[run.PanicError]
	for _, part := range parts {
		running.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					err, ok := v.(*run.PanicError)
					if !ok {
						err = &run.PanicError{Value: v, Stack: debug.Stack()}
					}
					panicked.Store(err)
				}
			}()
			fn(part)
		})
	}
	running.Wait()
	if err := panicked.Load(); err != nil {
		panic(err)
	}
}

// pick returns the elements at the indexes of a part.
func pick[T any](from []T, part []int) []T {
	own := make([]T, len(part))
	for k, i := range part {
		own[k] = from[i]
	}
	return own
}

// put is the inverse of pick.
func put[T any](into []T, part []int, own []T) {
	for k, i := range part {
		into[i] = own[k]
	}
}

// all returns an error if every element has one.
func all[T any](list []T, errOf func(T) error) (err error) {
	for _, v := range list {
		if err = errOf(v); err == nil {
			return nil
		}
	}
	return err
}

// Clear implements [history.Applier].
func (n *Nodes) Clear(ctx context.Context, uid string, c history.Clear) (int64, error) {
	return on(n, uid, func() (int64, error) { return n.Cache.Clear(ctx, uid, c) })
}

// Pause implements [history.Applier].
func (n *Nodes) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	_, err := on(n, uid, func() (struct{}, error) { return struct{}{}, n.Cache.Pause(ctx, uid, from, to) })
	return err
}

// Warm implements [history.Applier].
func (n *Nodes) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	_, err := on(n, uid, func() (struct{}, error) { return struct{}{}, n.Cache.Warm(ctx, uid, w) })
	return err
}

// List implements [history.Lister].
func (n *Nodes) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	return on(n, uid, func() (history.Page, error) { return n.Cache.List(ctx, uid, q) })
}

// Changes implements [history.ChangeLog].
func (n *Nodes) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	return on(n, uid, func() (history.Changes, error) { return n.Cache.Changes(ctx, uid, after, limit) })
}
