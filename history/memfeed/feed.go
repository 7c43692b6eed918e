// Package memfeed is an in-process feed of changes.
package memfeed

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/playhead/playhead/history"
)

// Feed implements [history.Feed]. The zero value is ready and needs no closing.
type Feed struct {
	mu   sync.Mutex
	subs map[*subscription]struct{}

	follow [history.Buckets]atomic.Int32 // subscriptions per bucket
}

// Followed reports whether a bucket has followers. Later followers get a notice when they join.
func (f *Feed) Followed(b history.Bucket) bool { return f.follow[b].Load() > 0 }

// Announce implements [history.Feed]. It never fails.
func (f *Feed) Announce(_ context.Context, changes []history.Change) error {
	for _, s := range f.followers() {
		if matched := s.matching(changes); len(matched) > 0 {
			s.notify(history.Notice{Changes: matched})
		}
	}
	return nil
}

// Interrupt implements [history.Feed]. It never fails.
func (f *Feed) Interrupt(_ context.Context, buckets []history.Bucket) error {
	for _, s := range f.followers() {
		if followed := s.followed(buckets); len(followed) > 0 {
			s.notify(history.Notice{Joined: followed})
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
func (f *Feed) Subscribe(handle func(history.Notice)) history.Subscription {
	s := &subscription{feed: f, handle: handle, buckets: make(map[history.Bucket]bool)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = make(map[*subscription]struct{})
	}
	f.subs[s] = struct{}{}
	return s
}

type subscription struct {
	feed   *Feed
	handle func(history.Notice)

	mu       sync.Mutex
	buckets  map[history.Bucket]bool
	closed   bool
	handling sync.WaitGroup
}

// Follow implements [history.Subscription]: it takes effect before it returns. Its notice comes from another
// goroutine, as from a networked feed.
func (s *subscription) Follow(b history.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buckets[b] && !s.closed {
		s.buckets[b] = true
		s.feed.follow[b].Add(1)
	}
	go s.notify(history.Notice{Joined: []history.Bucket{b}})
}

// Unfollow implements [history.Subscription].
func (s *subscription) Unfollow(b history.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(b)
}

// drop stops following a bucket. The caller holds s.mu.
func (s *subscription) drop(b history.Bucket) {
	if s.buckets[b] {
		delete(s.buckets, b)
		s.feed.follow[b].Add(-1)
	}
}

// Close implements [history.Subscription]. It never fails.
func (s *subscription) Close() error {
	s.feed.mu.Lock()
	delete(s.feed.subs, s)
	s.feed.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	for b := range s.buckets {
		s.drop(b)
	}
	s.mu.Unlock()
	s.handling.Wait()
	return nil
}

func (s *subscription) matching(changes []history.Change) (matched []history.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if s.buckets[history.BucketOf(c.Key.UID)] {
			matched = append(matched, c)
		}
	}
	return matched
}

func (s *subscription) followed(buckets []history.Bucket) (own []history.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range buckets {
		if s.buckets[b] {
			own = append(own, b)
		}
	}
	return own
}

// notify calls handle without the lock, which lets handle follow other buckets. Close waits for it.
func (s *subscription) notify(n history.Notice) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.handling.Add(1)
	s.mu.Unlock()
	defer s.handling.Done()
	s.handle(n)
}
