package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
)

// Sizes of the load. It stays small: what breaks is looked for, not the limit.
const (
	workers    = 4
	batchSize  = 25
	users      = 20     // of a worker
	perUser    = 6      // objects
	length     = 600000 // of an object, milliseconds
	sessions   = 5
	loadPeriod = 25 * time.Millisecond // between two batches of a worker
	// lag is how long ago the newest event is, in milliseconds. What is later than a
	// service's clock, which follows the cache's, would get another time.
	lag = 800
)

// load is viewers who watch, rewind, stop, delete and clear, until it is stopped.
type load struct {
	book  *book
	doors []rpcDoor // taken in turns: no user sticks to one
	edge  door      // nil for none; otherwise one worker's way, or everyone's
	name  string
	seed  uint64
	// epoch is part of the uids: with a new one the users of the last are never
	// heard of again, and their last events are the ones that matter.
	epoch atomic.Int64
	// gentle leaves deletes, clears and ends of viewings out.
	gentle bool
	// everyone comes through the edge.
	everyone bool
	// buckets are those that all users are of, nil for any.
	buckets []history.Bucket
	// readers read meanwhile, and count what they are shown less of than was acknowledged.
	// Where the cache itself is lost, they must wait until the end.
	blind bool
	pages bool // are all that is read
	res   *Result

	stopped chan struct{}
	wg      sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// begin starts the workers.
func (l *load) begin(ctx context.Context) {
	l.stopped = make(chan struct{})
	for i := range workers {
		w := &worker{load: l, id: i, uids: make(map[string]string), rand: rand.New(rand.NewPCG(l.seed, uint64(i)))} //nolint:gosec // repeatable
		if i == 0 || l.everyone {
			w.edge = l.edge
		}
		l.wg.Go(func() { l.fail(w.run(ctx)) })
	}
	for i := range readers {
		r := rand.New(rand.NewPCG(l.seed, uint64(workers+i))) //nolint:gosec // repeatable
		if !l.blind {
			l.wg.Go(func() { l.read(ctx, r) })
		}
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
}

// end stops the load and waits for what is on its way.
func (l *load) end() error {
	close(l.stopped)
	l.wg.Wait()
	return l.err
}

// worker is one client. Its users are its own.
type worker struct {
	load  *load
	uids  map[string]string
	id    int
	rand  *rand.Rand
	edge  door // nil for the services' own doors
	turn  int
	again []*event // not acknowledged, to be sent once more
}

// run ends with an error only when the product refused something.
func (w *worker) run(ctx context.Context) error {
	t := time.NewTicker(loadPeriod)
	defer t.Stop()
	for {
		if err := w.step(ctx); errors.Is(err, errRefused) {
			return err
		}
		select {
		case <-t.C:
		case <-w.load.stopped:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *worker) step(ctx context.Context) error {
	w.turn++
	switch n := w.rand.IntN(200); {
	case n == 0 && !w.load.gentle:
		return w.load.book.clear(ctx, w.service(), w.uid(), uint32(w.rand.IntN(4)), w.past(10)) //nolint:gosec // small
	case n < 12 && !w.load.gentle:
		return w.load.book.remove(ctx, w.service(), []history.Key{w.key(w.uid())}, w.past(20))
	}
	return w.heartbeats(ctx)
}

// heartbeats sends a batch, with most of what was not acknowledged before: some
// clients never come back.
func (w *worker) heartbeats(ctx context.Context) (err error) {
	batch := w.again
	if w.rand.IntN(5) == 0 {
		batch = nil
	}
	uid := w.uid()
	if len(batch) > 0 {
		uid = batch[0].Key.UID
	}
	for len(batch) < batchSize {
		batch = append(batch, w.load.book.next(w.rand, w.key(uid), w.past(10), w.load.gentle))
		if w.edge == nil { // a request of the edge has one user
			uid = w.uid()
		}
	}
	w.again, err = w.load.book.send(ctx, w.door(), batch)
	return err
}

func (w *worker) door() door {
	if w.edge != nil {
		return w.edge
	}
	return w.service()
}

func (w *worker) service() rpcDoor { return w.load.doors[w.turn%len(w.load.doors)] }

func (w *worker) uid() string {
	name := fmt.Sprintf("%s-%d-%d-%d", w.load.name, w.load.epoch.Load(), w.id, w.rand.IntN(users))
	if len(w.load.buckets) == 0 {
		return name
	}
	if w.uids[name] == "" {
		w.uids[name] = inBuckets(name, w.load.buckets)
	}
	return w.uids[name]
}

// inBuckets appends to a name what puts the user into one of the buckets.
func inBuckets(name string, buckets []history.Bucket) string {
	for n := 0; ; n++ {
		if uid := fmt.Sprintf("%s.%d", name, n); slices.Contains(buckets, history.BucketOf(uid)) {
			return uid
		}
	}
}

func (w *worker) key(uid string) history.Key {
	return history.Key{UID: uid, Object: objectOf(w.rand.IntN(perUser))}
}

// past is just now, and once in so many times up to five seconds ago.
func (w *worker) past(oneIn int) int64 {
	now := time.Now().UnixMilli() - lag
	if w.rand.IntN(oneIn) == 0 {
		return now - w.rand.Int64N(5000)
	}
	return now
}

// next makes up and notes what a viewer reports next.
func (b *book) next(r *rand.Rand, k history.Key, at int64, gentle bool) *event {
	b.mu.Lock()
	s := b.story(k)
	s.position += r.Int64N(60_000)
	if s.position > length || r.IntN(40) == 0 {
		s.position, s.session = r.Int64N(10_000), (s.session+1)%sessions
		s.started = []int64{0, at, at - 60_000}[r.IntN(3)]
	}
	e := history.Event{
		Key: k, Kind: history.KindProgress, At: at, Position: s.position, Duration: length,
		Session: fmt.Sprintf("s%d", s.session), Device: "tv",
	}
	if played := at - s.started; s.started > 0 && played > 0 {
		e.StartedAt, e.Watched = s.started, r.Int64N(played)
	}
	if r.IntN(8) == 0 {
		e.Meta = map[string]string{"title": fmt.Sprintf("t%d", r.IntN(1000))}
	}
	b.mu.Unlock()
	if kinds := []history.Kind{history.KindStop, history.KindPause, history.KindSeek, history.KindFinish}; !gentle && r.IntN(10) == 0 {
		e.Kind = kinds[r.IntN(len(kinds))]
	}
	return b.note(e)
}
