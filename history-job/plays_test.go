package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/all-in-one/playstest"
	"github.com/playhead/playhead/history"
)

// stream is the stream of plays. It may fail after some of the messages.
type stream struct {
	w    *world
	part func(n int) int

	mu       sync.Mutex
	messages []history.PlayMessage
}

func (s *stream) Send(ctx context.Context, messages []history.PlayMessage) error {
	err := s.w.step(ctx, "plays", nil)
	n := len(messages)
	if err != nil {
		n = s.part(n + 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, messages[:n]...)
	return err
}

// said returns the messages so far as text.
func (s *stream) said() (texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		texts = append(texts, fmt.Sprintf("%s %s %d", m.Kind, m.Key.Object.ID, m.At-start))
	}
	return texts
}

// telling configures a job with a stream of plays.
func (w *world) telling() (config, *stream) {
	cfg := w.config()
	s := &stream{w: w, part: func(int) int { return 0 }}
	cfg.archive.Plays = s
	return cfg, s
}

// TestPlays: the stream has each play once, after its put and before its record is clean, and what becomes of it.
func TestPlays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg, s := w.telling()
		w.runs(cfg)
		both := []history.Key{w.write(completed(1, 5000, "a")), w.write(completed(2, 1000, "a"))}
		w.announce(both...)
		synctest.Wait()
		w.clean(both...)
		steps := w.did("apply", "put", "plays", "mark_clean")
		want := []string{"apply 1 2", "put 1 2", "mark_clean", "plays", "apply 1 2", "put 1 2", "mark_clean 1 2"}
		if !slices.Equal(steps, want) {
			t.Errorf("steps %q, want %q", steps, want)
		}
		w.announce(w.write(progress(1, 9000)))
		longer := progress(2, 9000)
		longer.Session, longer.Duration = "a", 900_000
		w.announce(w.write(longer))
		synctest.Wait()
		gone := history.Event{Key: object(1), Kind: history.KindDelete, At: start + 20_000}
		w.announce(w.write(gone))
		synctest.Wait()
		w.announce(w.clear(uid, 1, 30_000))
		synctest.Wait()
		want = []string{"completed 2 1000", "completed 1 5000", "retracted 2 1000", "deleted 1 20000", "cleared  30000"}
		if got := s.said(); !slices.Equal(got, want) {
			t.Errorf("the stream has %q, want %q", got, want)
		}
		w.counted("play_messages_total", 5)
	})
}

// TestPlaysUnsent: without the stream records are archived and stay dirty. A sweep tells them.
func TestPlaysUnsent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg, s := w.telling()
		cfg.archive.SweepEvery, cfg.archive.SweepAge = time.Minute, time.Minute
		w.fails("plays", 3)
		w.runs(cfg)
		k, other := w.write(completed(1, 1000, "a")), w.write(progress(2, 1000))
		w.announce(k, other)
		w.wait(30 * time.Second)
		if left := w.marks(); !slices.Equal(left, []history.Key{k}) {
			t.Errorf("marks %v, want %s", left, k)
		}
		if got := w.archived(k); got.Plays() != 1 || len(s.said()) > 0 {
			t.Errorf("the archive has %+v, the stream %q", got, s.said())
		}
		w.wait(3 * time.Minute)
		w.clean(k)
		if got, want := s.said(), []string{"completed 1 1000"}; !slices.Equal(got, want) {
			t.Errorf("the stream has %q, want %q", got, want)
		}
	})
}

// TestPlaysOfALostCache loses the cache between the put and the message. The next job finds the play in the archive.
func TestPlaysOfALostCache(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg, s := w.telling()
		k := w.write(completed(1, 1000, "a"))
		noted := w.load(k).BeforeTelling(new(history.User))
		w.put(k, noted)
		w.cache = w.emptyCache()
		cfg.archive.Cache = spyCache{w.cache, w}
		w.runs(cfg)
		w.announce(k)
		synctest.Wait()
		if got, want := s.said(), []string{"completed 1 1000"}; !slices.Equal(got, want) {
			t.Errorf("the stream has %q, want %q", got, want)
		}
	})
}

// TestPlaysChaos is TestChaos with a stream of plays that sends a part and fails. Jobs die between any two steps. In
// the end the reader of the stream has the plays of the records.
func TestPlaysChaos(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				s := newService(w, seed)
				log := &stream{w: w, part: s.number}
				s.change, s.event = func(cfg *config) { cfg.archive.Plays = log }, s.play
				s.disturb()
				s.last()
				s.settle()
				s.told(log.messages)
			})
		})
	}
}

// play returns a report that completes a play, takes one back, or removes some.
func (s *service) play() history.Event {
	e := progress(s.rand.IntN(3), int64(s.rand.IntN(3000)))
	e.Key.UID, e.Session = strconv.Itoa(s.rand.IntN(2)), strconv.Itoa(s.rand.IntN(4))
	e.Kind = []history.Kind{history.KindStart, history.KindProgress, history.KindStop, history.KindFinish, history.KindFinish, history.KindFinish, history.KindWatched, history.KindUnwatched, history.KindDelete}[s.rand.IntN(9)]
	e.Duration = 60_000 * int64(1+s.rand.IntN(3))
	if e.Position = int64(s.rand.IntN(4)) * 60_000; e.Kind == history.KindFinish {
		e.Position = e.Duration
	}
	e.Clamp()
	if e.Kind.Marks() || e.Kind == history.KindDelete {
		e = history.Event{Key: e.Key, Kind: e.Kind, At: e.At}
	}
	return e
}

// last reports each object once more: a play that goes on across a clear comes again with the next report.
func (s *service) last() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.want {
		e := progress(0, 4000)
		e.Key, e.Session, e.Duration = k, "last", 0
		s.want[k] = history.Merge(r, e.Record())
		s.apply(e)
	}
}

// told compares the stream with the records of all acknowledged reports.
func (s *service) told(messages []history.PlayMessage) {
	s.Helper()
	got, want := playstest.Read(messages), make(map[string]history.PlayMessage)
	for k, r := range s.want {
		if r = r.After(s.clear[k.UID]); r != nil {
			for _, m := range r.Untold(k, new(history.User)) {
				if m.Kind == history.PlayCompleted {
					want[m.ID()] = m
				}
			}
		}
	}
	if !maps.Equal(got, want) {
		s.Errorf("the stream has %v\nwant %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// TestPlaysOfAClass: the stream names the user, not the namespace of a class.
func TestPlaysOfAClass(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg, s := w.telling()
		w.runs(cfg)
		e := completed(1, 1000, "a")
		e.Key.UID = history.NamespaceUID(uid, "previews")
		w.announce(w.write(e))
		w.announce(w.clear(e.Key.UID, 1, 2000))
		synctest.Wait()
		if len(s.messages) == 0 || slices.ContainsFunc(s.messages, func(m history.PlayMessage) bool { return m.Key.UID != uid }) {
			t.Errorf("the stream has %+v, want messages of %s", s.messages, uid)
		}
	})
}
