// Package memfeed is the feed of changes where all who follow it live in one process.
package memfeed

import (
	"context"
	"sync"

	"github.com/playhead/playhead/history"
)

// Feed is a [history.Feed]. Its zero value is ready, and needs no closing.
type Feed struct {
	mu   sync.Mutex
	subs map[*subscription]struct{}
}

// Announce implements [history.Feed]. It never fails.
func (f *Feed) Announce(_ context.Context, changes []history.Change) error {
	for _, s := range f.followers() {
		if heard := s.wants(changes); len(heard) > 0 {
			s.tell(history.Notice{Changes: heard})
		}
	}
	return nil
}

// Interrupt implements [history.Feed]. It never fails.
func (f *Feed) Interrupt(_ context.Context, buckets []history.Bucket) error {
	for _, s := range f.followers() {
		if since := s.follows(buckets); len(since) > 0 {
			s.tell(history.Notice{Joined: since})
		}
	}
	return nil
}

func (f *Feed) followers() []*subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*subscription, 0, len(f.subs))
	for s := range f.subs {
		all = append(all, s)
	}
	return all
}

// Subscribe implements [history.Feed].
func (f *Feed) Subscribe(hear func(history.Notice)) history.Subscription {
	s := &subscription{feed: f, hear: hear, buckets: make(map[history.Bucket]bool)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = make(map[*subscription]struct{})
	}
	f.subs[s] = struct{}{}
	return s
}

type subscription struct {
	feed *Feed
	hear func(history.Notice)

	mu      sync.Mutex
	buckets map[history.Bucket]bool
	closed  bool
	telling sync.WaitGroup
}

// Follow implements [history.Subscription]: it is in force when it returns, and that is
// told from another goroutine, as of a feed that has a way to go.
func (s *subscription) Follow(b history.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[b] = true
	go s.tell(history.Notice{Joined: []history.Bucket{b}})
}

// Unfollow implements [history.Subscription].
func (s *subscription) Unfollow(b history.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buckets, b)
}

// Close implements [history.Subscription]. It never fails.
func (s *subscription) Close() error {
	s.feed.mu.Lock()
	delete(s.feed.subs, s)
	s.feed.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.telling.Wait()
	return nil
}

func (s *subscription) wants(changes []history.Change) (heard []history.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if s.buckets[history.BucketOf(c.Key.UID)] {
			heard = append(heard, c)
		}
	}
	return heard
}

func (s *subscription) follows(buckets []history.Bucket) (own []history.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range buckets {
		if s.buckets[b] {
			own = append(own, b)
		}
	}
	return own
}

// tell lets hear follow other buckets meanwhile, and nobody close the subscription.
func (s *subscription) tell(n history.Notice) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.telling.Add(1)
	s.mu.Unlock()
	defer s.telling.Done()
	s.hear(n)
}
