package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// holdTime is how long the services of TestChaos hold a key. The job sweeps at twice that age; correctness
// depends on neither.
const holdTime = 2 * time.Minute

// service writes as a history service does, and loses its held keys in a crash.
type service struct {
	*world
	mu    sync.Mutex
	rand  *rand.Rand
	holds map[history.Key]*history.Record // last written content
	past  []history.Key                   // earlier announcements
	want  map[history.Key]*history.Record // fold of the acknowledged events
	clear map[string]int64                // by user, Unix ms
	spy   *spyCounts                      // nil counts nothing

	change func(*config)        // of the jobs, nil for none
	event  func() history.Event // the next report, nil for those of TestChaos
}

func newService(w *world, seed uint64) *service {
	return &service{
		world: w, rand: rand.New(rand.NewPCG(seed, 0)), holds: make(map[history.Key]*history.Record),
		want: make(map[history.Key]*history.Record), clear: make(map[string]int64),
	}
}

// TestChaos fails and panics stores and queue at random, redelivers keys, crashes services and jobs, and
// writes at every step of the job. Once all is quiet, cache and archive must equal the fold of the
// acknowledged events, without any dirty mark.
func TestChaos(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				newService(w, seed).chaos()
			})
		})
	}
}

// chaos runs jobs among random failures, and then without.
func (s *service) chaos() {
	s.disturb()
	s.quiet()
}

func (s *service) disturb() {
	for _, step := range []string{"fetch", "load", "get", "apply", "clear", "put", "count", "plays", "mark_clean", "commit", "overdue", "trim"} {
		s.on(step, func(context.Context) error { return s.trouble(0.2) })
	}
	s.cell = func(history.Cell) error { return s.trouble(0.3) }
	for range 4 {
		stop := s.runs()
		for range 25 {
			s.act()
			s.wait(time.Duration(s.number(20)) * time.Second)
		}
		if err := stop(); err != nil {
			s.Errorf("run: %v", err)
		}
	}
}

func (s *service) runs() (stop func() error) {
	cfg := s.config()
	cfg.archive.SweepEvery, cfg.archive.SweepAge, cfg.archive.Batch, cfg.archive.TrimOneIn = 10*time.Second, 2*holdTime, 2, 4
	if s.spy != nil {
		cfg.archive.Counts, cfg.archive.Counted = s.spy, s.spy.types
	}
	if s.change != nil {
		s.change(&cfg)
	}
	j, err := newJob(cfg)
	if err != nil {
		s.Fatal(err)
	}
	return s.running(run.Restarting(slog.New(slog.DiscardHandler), "job", func() {}, j.run))
}

// number draws a number below n.
func (s *service) number(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

// trouble sometimes fails, and writes in the middle of the job's steps.
func (s *service) trouble(share float64) error {
	if s.number(10) == 0 {
		s.report()
	}
	switch n := s.number(1000); {
	case n == 0:
		panic("nil map")
	case float64(n) < 1000*share:
		return errDown
	}
	return nil
}

// act takes one random action.
func (s *service) act() {
	switch s.number(12) {
	case 0:
		s.crash()
	case 1:
		s.clearUser()
	case 2, 3, 4:
		s.flush()
	case 5:
		s.again()
	default:
		s.report()
	}
}

// report writes one event, possibly late, for one of a few objects.
func (s *service) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.event
	if next == nil {
		next = s.anything
	}
	e := next()
	if e.At > s.clear[e.Key.UID] {
		s.want[e.Key] = history.Merge(s.want[e.Key], e.Record())
		s.apply(e)
	}
}

// anything is any report of a few objects.
func (s *service) anything() history.Event {
	e := progress(s.rand.IntN(6), int64(s.rand.IntN(1000)))
	e.Key.UID = strconv.Itoa(s.rand.IntN(2))
	e.Kind = history.Kind(1 + s.rand.IntN(int(history.KindDelete)))
	e.Position, e.Session = int64(s.rand.IntN(history.MaxPeaks+1))*10_000, strconv.Itoa(s.rand.IntN(4))
	return e
}

// apply is the service's compare-and-set. It never requests a mark: the cache sets one where needed.
func (s *service) apply(e history.Event) {
	for held := s.holds[e.Key]; ; held = nil {
		old := history.Entry{Record: held}
		if held == nil {
			old = s.entry(e.Key)
		}
		said := e.Record()
		said.Partial = !old.User.Complete()
		write := history.WriteOn(old.Record, e.Key, history.Merge(old.Record, said).Successor(&old.User), &old.User)
		if out := s.cache.Write(s.Context(), []history.Write{write})[0]; out.Status == history.Applied {
			s.holds[e.Key] = write.Record
			return
		}
	}
}

func (s *service) entry(k history.Key) history.Entry {
	e := s.cache.Load(s.Context(), []history.Key{k})[0]
	if e.Err != nil {
		s.Fatalf("load %s: %v", k, e.Err)
	}
	return e
}

// flush announces some of the held keys.
func (s *service) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.holds {
		if s.rand.IntN(2) == 0 {
			delete(s.holds, k)
			s.past = append(s.past, k)
			s.announce(k)
		}
	}
}

// again repeats an earlier announcement.
func (s *service) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.past); n > 0 {
		s.announce(s.past[s.rand.IntN(n):]...)
	}
}

func (s *service) crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.holds)
}

// clearUser clears a user, and sometimes crashes before announcing it.
func (s *service) clearUser() {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, until := strconv.Itoa(s.rand.IntN(2)), int64(s.rand.IntN(1000))
	state := s.world.clear(uid, 0, until)
	s.clear[uid] = max(s.clear[uid], start+until)
	if s.rand.IntN(2) == 0 {
		s.announce(state)
	}
}

// settle ends all trouble and waits for the sweep.
func (s *service) settle() {
	s.crash()
	clear(s.before)
	s.cell = nil
	stop := s.runs()
	s.wait(4 * holdTime)
	if err := stop(); err != nil {
		s.Errorf("run: %v", err)
	}
	if left := s.marks(); len(left) > 0 {
		s.Errorf("marks %v are left", left)
	}
}

// quiet settles and compares the stores.
func (s *service) quiet() {
	s.settle()
	for k, want := range s.want {
		want = want.After(s.clear[k.UID])
		if diff := compare(s.archived(k), want); diff != "" {
			s.Errorf("%s in the archive: %s", k, diff)
		}
	}
}

// compare describes how a record differs from its expected fold.
func compare(got, want *history.Record) string {
	if got == nil || want == nil {
		if got == want {
			return ""
		}
		return fmt.Sprintf("got %+v, want %+v", got, want)
	}
	g, w := *got, *want
	g.Partial, w.Partial = false, false
	g.RemovedAt, w.RemovedAt = 0, 0 // a removal by a clear is also in the clear mark
	if history.Same(&g, &w) {
		return ""
	}
	return fmt.Sprintf("\ngot  %+v\nwant %+v", g, w)
}
