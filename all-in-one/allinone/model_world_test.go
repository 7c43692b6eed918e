package allinone_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

const (
	modelHold = 30 * time.Second
	modelKeep = 4 // records per user that the cache keeps, fewer than exist
)

var errModelled = errors.Join(history.ErrUnavailable, errors.New("as drawn"))

// trouble decides which calls fail, and how.
type trouble struct {
	mu    sync.Mutex
	rand  *rand.Rand
	share map[string]float64 // share of failing calls, by engine
}

func (t *trouble) strikes(engine string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rand.Float64() < t.share[engine]
}

func (t *trouble) set(engine string, share float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.share[engine] = share
}

func (t *trouble) fault(engine string) error {
	if t.strikes(engine) {
		return errModelled
	}
	return nil
}

// flakyCache fails before or after its work.
type flakyCache struct {
	*pebble.Cache
	*trouble
}

func (c flakyCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := c.Cache.Load(ctx, keys)
	for i := range entries {
		if err := c.fault("cache"); err != nil {
			entries[i] = history.Entry{Err: err}
		}
	}
	return entries
}

func (c flakyCache) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	out := make([]history.Outcome, len(writes))
	if c.strikes("cache") { // nothing arrives
		for i := range out {
			out[i].Err = errModelled
		}
		return out
	}
	out = c.Cache.Write(ctx, writes)
	for i := range out {
		if c.strikes("cache") { // the answer is lost
			out[i] = history.Outcome{Err: errModelled}
		}
	}
	return out
}

func (c flakyCache) Clear(ctx context.Context, uid string, what history.Clear) (int64, error) {
	if err := c.fault("cache"); err != nil {
		return 0, err
	}
	until, err := c.Cache.Clear(ctx, uid, what)
	return until, errors.Join(err, c.fault("cache"))
}

func (c flakyCache) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	if err := c.fault("cache"); err != nil {
		return err
	}
	return errors.Join(c.Cache.Pause(ctx, uid, from, to), c.fault("cache"))
}

func (c flakyCache) MarkClean(ctx context.Context, contents []history.Content) error {
	if err := c.fault("cache"); err != nil {
		return err
	}
	return errors.Join(c.Cache.MarkClean(ctx, contents), c.fault("cache"))
}

type flakyArchive struct {
	history.Archive
	*trouble
}

func (a flakyArchive) Put(ctx context.Context, cells []history.Cell) []error {
	errs := make([]error, len(cells))
	for i := range cells {
		if errs[i] = a.fault("archive"); errs[i] == nil {
			for _, err := range a.Archive.Put(ctx, cells[i:i+1]) {
				errs[i] = errors.Join(err, a.fault("archive"))
			}
		}
	}
	return errs
}

func (a flakyArchive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if err := a.fault("archive"); err != nil {
		return nil, err
	}
	return a.Archive.Get(ctx, keys)
}

func (a flakyArchive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if err := a.fault("archive"); err != nil {
		return history.Page{}, err
	}
	return a.Archive.Page(ctx, uid, q)
}

// modelService is a service that can die: its queue then accepts nothing.
type modelService struct {
	*rpc.Server
	*trouble
	queue *memqueue.Queue
	kill  func()

	mu   sync.Mutex
	dead bool
	past []history.Announcement // earlier announcements
}

func (s *modelService) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.strikes("queue") {
		return keys, errModelled
	}
	unsent, err := s.queue.Publish(ctx, keys)
	s.past = append(s.past, keys...)
	if s.strikes("queue") { // the answer is lost
		return keys, errModelled
	}
	return unsent, err
}

// flakyPromoter is one store for both cache and archive.
type flakyPromoter struct {
	archive.Promoter
	*trouble
}

func (c flakyPromoter) Promote(ctx context.Context, keys []history.Key) (put int, left []history.Key, err error) {
	if err := c.fault("archive"); err != nil { // nothing arrives
		return 0, keys, err
	}
	put, left, err = c.Promoter.Promote(ctx, keys)
	if c.strikes("cache") { // the answer is lost
		return 0, keys, errModelled
	}
	return put, left, err
}

// stores are shared by the processes of a model.
type stores struct {
	db    *pebble.DB
	queue *memqueue.Queue
	*trouble
}

func (w *stores) serve(t *rapid.T) *modelService {
	s := &modelService{trouble: w.trouble, queue: w.queue}
	held, err := aggregate.New(aggregate.Config{Publisher: s, Hold: modelHold})
	if err != nil {
		t.Fatal(err)
	}
	s.Server, err = rpc.New(rpc.Config{
		Cache: flakyCache{w.db.Cache(), w.trouble}, Archive: flakyArchive{w.db.Archive(), w.trouble},
		Aggregate: held, Queue: s, Keep: modelKeep,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = s.Run(ctx) })    // ends with ctx
	parts.Go(func() { _ = held.Run(ctx) }) // the same
	s.kill = sync.OnceFunc(func() {
		s.mu.Lock()
		s.dead = true
		s.mu.Unlock()
		cancel()
		parts.Wait()
	})
	return s
}

func (w *stores) archive(t *rapid.T) (kill func()) {
	cfg := archive.Config{
		Cache: flakyCache{w.db.Cache(), w.trouble}, Archive: flakyArchive{w.db.Archive(), w.trouble},
		SweepEvery: modelHold, SweepAge: 2 * modelHold, Batch: 3, TrimOneIn: 3,
	}
	if rapid.Bool().Draw(t, "carrier") {
		cfg.Promoter = flakyPromoter{w.db, w.trouble}
	}
	j, err := archive.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = j.Generations(w.queue, archive.Loops{"consume": j.Consume, "sweep": j.Sweep})(ctx)
	}() // ends with ctx
	return sync.OnceFunc(func() { cancel(); <-done })
}
