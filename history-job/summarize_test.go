package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// summarizer records the listed shares and the summarized users.
type summarizer struct {
	mu     sync.Mutex
	shares []int
	did    []string
	err    error
	panics bool
}

func (s *summarizer) Aging(_ context.Context, share int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares = append(s.shares, share)
	if s.panics {
		panic("a look at a share")
	}
	if share%128 > 0 {
		return nil, nil
	}
	return []string{fmt.Sprint("user ", share), fmt.Sprint("other ", share)}, s.err
}

func (s *summarizer) Summarize(_ context.Context, uid string, all bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did = append(s.did, fmt.Sprint(uid, " ", all))
	return s.err
}

// take returns and resets the recorded calls, sorted.
func (s *summarizer) take() (did []string, shares []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	did, shares = slices.Sorted(slices.Values(s.did)), slices.Sorted(slices.Values(s.shares))
	s.did, s.shares = nil, nil
	return did, shares
}

// set changes later answers.
func (s *summarizer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// want compares the recorded calls, except the listed shares.
func (s *summarizer) want(t *testing.T, want ...string) {
	t.Helper()
	did, _ := s.take()
	did = slices.DeleteFunc(did, func(text string) bool { return strings.ContainsRune(text[:6], ' ') })
	if !slices.Equal(did, want) {
		t.Errorf("did %q, want %q", did, want)
	}
}

// TestSummarizeOnceADay lists each share once a day, whenever the job starts, despite errors and panics.
func TestSummarizeOnceADay(t *testing.T) {
	const day = 2 * time.Hour // for this job: the stores' background loops run many times a second
	bubble(t, func(t *testing.T, w *world) {
		s := new(summarizer)
		start := func() (stop func() error) {
			cfg := w.config()
			cfg.compaction.Summarizer, cfg.compaction.Every, cfg.compaction.SummarizeEvery = s, time.Minute, day
			return w.start(cfg)
		}
		time.Sleep(day / 5)
		var did []string
		var shares []int
		for range 4 { // a job starts four times a day
			stop := start()
			w.wait(day/4 - time.Second)
			some, looked := s.take()
			did, shares = append(did, some...), append(shares, looked...)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		slices.Sort(shares)
		if all := slices.Compact(slices.Clone(shares)); len(all) != 256 || len(shares) > 256+4 {
			t.Errorf("%d shares, %d of them different", len(shares), len(all))
		}
		slices.Sort(did)
		if want := []string{"other 0 false", "other 128 false", "user 0 false", "user 128 false"}; !slices.Equal(slices.Compact(did), want) {
			t.Errorf("did %q, want %q", did, want)
		}
		for _, change := range []func(){func() { s.err = errDown }, func() { s.err, s.panics = nil, true }, func() { s.panics = false }} {
			s.set(change)
			stop := start()
			time.Sleep(day)
			if _, shares := s.take(); len(shares) < 256 {
				t.Errorf("%d shares in a day", len(shares))
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSummariesAfterRemoval summarizes users soon after a delete, a clear or a late put, and retries
// failures.
func TestSummariesAfterRemoval(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := new(summarizer)
		cfg := w.config()
		cfg.compaction.Summarizer = s
		w.runs(cfg)
		s.set(func() { s.err = errDown })
		at := func(uid string, kind history.Kind, age time.Duration) history.Key {
			e := progress(1, 0)
			e.Key.UID, e.Kind, e.At = uid, kind, start-age.Milliseconds()
			return w.write(e)
		}
		w.announce(
			at("young", history.KindStop, time.Hour), at("latecomer", history.KindStop, 85*24*time.Hour), at("deleted", history.KindDelete, time.Hour),
			w.clear("cleared", 0, 0),
		)
		want := []string{"cleared true", "deleted true", "latecomer false"}
		for _, err := range []error{nil, nil} {
			w.wait(61 * time.Second)
			s.set(func() { s.err = err })
			s.want(t, want...)
		}
		w.wait(61 * time.Second)
		s.want(t)
	})
}
