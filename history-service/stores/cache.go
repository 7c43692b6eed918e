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
	"github.com/playhead/playhead/internal/breaker"
	"github.com/playhead/playhead/internal/run"
)

const (
	// silence is how long a node may leave all calls unanswered while another node answers, and mostSilence that of a
	// node that has proved slow.
	silence, mostSilence = 300 * time.Millisecond, 1200 * time.Millisecond
	// quickly is the longest answer that proves a node well, and its greatest age.
	quickly = silence / 2
	// lookEvery is the interval of looking for another node's answer.
	lookEvery = silence / 10
	// probeWithin is the limit of a probe: a slow node, as patience allows, answers within it.
	probeWithin = mostSilence + silence
	// maxCalls limits the concurrent calls per node. Further calls fail at once.
	maxCalls = 256
)

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
	history.Cache

	sharded Sharded
	log     *slog.Logger
	judge   func(node string, err error) // told of refused calls
	refused prometheus.Counter

	mu  sync.Mutex // guards all and the nodes
	all map[string]*node
}

// node is one node of the cache. Its fields are guarded by the mutex of Nodes.
type node struct {
	breaker  *breaker.Breaker
	uid      string // for probes
	calls    int
	answered time.Time     // last answer
	took     time.Duration // its latency
	asked    bool          // being probed by another node's breaker
}

// nodeError is a temporary failure of a node.
type nodeError struct {
	node, reason string
}

func (e *nodeError) Error() string {
	return fmt.Sprintf("node %s of the cache %s", e.node, e.reason)
}

func (*nodeError) Unwrap() error { return history.ErrUnavailable }

// NewNodes returns a cache with a circuit breaker per node of on. A method Refused of on gets the refused calls, since
// the state of a node is what its users get.
func NewNodes(cache history.Cache, on Sharded, log *slog.Logger, reg prometheus.Registerer) *Nodes {
	auto := promauto.With(reg)
	judge := func(string, error) {}
	if judged, ok := on.(interface{ Refused(node string, err error) }); ok { // it logs changes of a node's health
		judge, log = judged.Refused, slog.New(slog.DiscardHandler)
	}
	n := &Nodes{
		Cache: cache, sharded: on, log: log, judge: judge, all: make(map[string]*node),
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
		if nd.breaker.Open() {
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
	nd, silent, err := n.enter(name, uid)
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
	case <-silent.Done():
		return none, &nodeError{name, "does not answer"}
	}
}

// enter begins a call, or fails if the node is silent or full. The context is done when the node turns silent.
func (n *Nodes) enter(name, uid string) (*node, context.Context, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	nd := n.all[name]
	if nd == nil {
		nd = n.open(name)
		n.all[name] = nd
	}
	if nd.calls >= maxCalls {
		n.refused.Inc()
		return nil, nil, &nodeError{name, "has too many calls under way"}
	}
	silent, err := nd.breaker.Enter()
	if err != nil {
		n.refused.Inc()
		refused := &nodeError{name, "does not answer"}
		n.judge(name, refused)
		return nil, nil, refused
	}
	nd.uid = uid
	nd.calls++
	return nd, silent, nil
}

// open returns a node with a breaker. A node is silent only if another one answers.
func (n *Nodes) open(name string) *node {
	nd := &node{}
	nd.breaker = breaker.New(breaker.Config{
		Name: "cache node " + name, Log: n.log, Patience: silence, MaxPatience: mostSilence,
		Confirm: func() bool { return n.othersAnswer(nd) },
		Probe:   func() bool { return n.answers(nd) },
	})
	return nd
}

// leave ends a call.
func (n *Nodes) leave(nd *node, began time.Time, err error) {
	answered := !errors.Is(err, history.ErrUnavailable)
	n.mu.Lock()
	defer n.mu.Unlock()
	nd.calls--
	if nd.breaker.Leave(began, answered); answered {
		now := time.Now()
		nd.answered, nd.took = now, now.Sub(began)
	}
}

// othersAnswer waits for another node's quick answer to a call that began during the silence. Earlier answers do not
// exclude a failure of all nodes. It sends one probe to each other node, since they may be idle.
func (n *Nodes) othersAnswer(nd *node) bool {
	since := time.Now().Add(quickly - nd.breaker.Quiet())
	for range silence / lookEvery {
		if n.look(nd, since) {
			return true
		}
		time.Sleep(lookEvery)
	}
	return false
}

func (n *Nodes) look(nd *node, since time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.all {
		switch {
		case other == nd || other.breaker.Open():
		case other.took < quickly && time.Since(other.answered) < quickly && !other.answered.Add(-other.took).Before(since):
			return true
		case !other.asked:
			other.asked = true
			go n.ask(other) // ends within probeWithin
		}
	}
	return false
}

// ask makes a probe of another node count like any call.
func (n *Nodes) ask(nd *node) {
	n.mu.Lock()
	uid := nd.uid
	n.mu.Unlock()
	_, _ = on(n, uid, func() (struct{}, error) { return struct{}{}, n.probe(uid) })
	n.mu.Lock()
	defer n.mu.Unlock()
	nd.asked = false
}

// answers reports whether a silent node is back.
func (n *Nodes) answers(nd *node) bool {
	n.mu.Lock()
	uid := nd.uid
	n.mu.Unlock()
	return !errors.Is(n.probe(uid), history.ErrUnavailable)
}

func (n *Nodes) probe(uid string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeWithin)
	defer cancel()
	return n.Cache.Load(ctx, []history.Key{history.UserKey(uid)})[0].Err
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

// Load implements [history.Cache].
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

// Write implements [history.Cache].
func (n *Nodes) Write(ctx context.Context, writes []history.Write) []history.Outcome {
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
		got := n.Cache.Write(ctx, writes)
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

// Clear implements [history.Cache].
func (n *Nodes) Clear(ctx context.Context, uid string, c history.Clear) (int64, error) {
	return on(n, uid, func() (int64, error) { return n.Cache.Clear(ctx, uid, c) })
}

// Pause implements [history.Cache].
func (n *Nodes) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	_, err := on(n, uid, func() (struct{}, error) { return struct{}{}, n.Cache.Pause(ctx, uid, from, to) })
	return err
}

// Warm implements [history.Cache].
func (n *Nodes) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	_, err := on(n, uid, func() (struct{}, error) { return struct{}{}, n.Cache.Warm(ctx, uid, w) })
	return err
}

// WarmAll warms several users of one node.
func (n *Nodes) WarmAll(ctx context.Context, uids []string, sets []history.WarmSet) []error {
	errs, err := on(n, uids[0], func() ([]error, error) {
		errs := history.WarmAll(ctx, n.Cache, uids, sets)
		return errs, all(errs, func(err error) error { return err })
	})
	if errs == nil {
		errs = slices.Repeat([]error{err}, len(uids))
	}
	return errs
}

// List implements [history.Cache].
func (n *Nodes) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	return on(n, uid, func() (history.Page, error) { return n.Cache.List(ctx, uid, q) })
}

// Changes implements [history.Cache].
func (n *Nodes) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	return on(n, uid, func() (history.Changes, error) { return n.Cache.Changes(ctx, uid, after, limit) })
}
