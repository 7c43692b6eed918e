package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// subscription follows channels over one connection to each server. The client's own way
// to subscribe again after a loss is of no use: it does so for all channels at once, which
// a cluster refuses, and tells nobody that something may have been missed.
type subscription struct {
	cache *Cache
	hear  func(history.Notice)
	wake  chan struct{} // of capacity 1: something is due
	ctx   context.Context
	stop  context.CancelFunc
	parts sync.WaitGroup

	mu      sync.Mutex
	started bool
	want    map[history.Bucket]bool
	due     map[history.Bucket]struct{} // buckets that are to be looked after
	seats   map[history.Bucket]*seat
	lines   map[string]*line // by the server's address
	moved   bool             // a bucket, to a server that is still to be found out
}

// seat is a channel on a line, until the server says that it is none any more.
type seat struct {
	line  *line
	state state
}

type state uint8

const (
	joining state = iota
	in
	leaving
)

// Follow implements [history.Subscription].
func (s *subscription) Follow(b history.Bucket) { s.turn(b, true) }

// Unfollow implements [history.Subscription].
func (s *subscription) Unfollow(b history.Bucket) { s.turn(b, false) }

func (s *subscription) turn(b history.Bucket, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.want[b] = on
	s.look(b)
	if !s.started {
		s.started = true
		s.parts.Go(s.run)
	}
}

// look has a bucket looked after soon. The caller holds s.mu.
func (s *subscription) look(b history.Bucket) {
	s.due[b] = struct{}{}
	set(s.wake)
}

func set(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close implements [history.Subscription]. It never fails.
func (s *subscription) Close() error {
	s.mu.Lock()
	s.stop()
	for _, l := range s.lines {
		l.hangUp()
	}
	s.mu.Unlock()
	s.parts.Wait()
	return nil
}

// Pauses after something has failed.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// run looks after what is due until the subscription is closed. While servers fail it
// does so ever more rarely.
func (s *subscription) run() {
	for pause := firstPause; ; {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		due, moved := s.takeDue()
		if !moved && s.lookAfter(due) {
			pause = firstPause
			continue
		}
		s.cache.forget(s.ctx)
		s.sleep(pause/2 + rand.N(pause/2))
		pause = min(2*pause, longestPause)
	}
}

func (s *subscription) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// takeDue returns what is to be looked after, unless a bucket has moved: then all of it
// is due again.
func (s *subscription) takeDue() (due map[history.Bucket]struct{}, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved {
		s.moved = false
		set(s.wake)
		return nil, true
	}
	due = s.due
	s.due = make(map[history.Bucket]struct{})
	return due, false
}

// lookAfter makes each bucket what is wanted of it, and reports false when a server did
// not let it. Those of it are due again.
func (s *subscription) lookAfter(due map[history.Bucket]struct{}) (ok bool) {
	ok = true
	var since []history.Bucket
	down := make(map[string]error)
	for b := range due {
		sure, err := s.attend(b, down)
		if sure {
			since = append(since, b)
		}
		if err != nil {
			ok = false
			s.mu.Lock()
			s.look(b)
			s.mu.Unlock()
		}
	}
	if len(since) > 0 {
		s.hear(history.Notice{Joined: since})
	}
	return ok
}

// attend brings one bucket a step further, unless its server has failed just now. It
// reports whether the bucket was followed all the time and is wanted again, so that no
// server will say from when on it is.
func (s *subscription) attend(b history.Bucket, down map[string]error) (sure bool, err error) {
	s.mu.Lock()
	at, want := s.seats[b], s.want[b]
	inside := at != nil && at.state == in
	if inside && !want {
		at.state = leaving
	}
	if !want {
		delete(s.want, b)
	}
	s.mu.Unlock()
	switch {
	case at == nil && want:
		return false, s.join(b, down)
	case inside && !want:
		return false, s.part(b, at.line)
	}
	return inside, nil // any other seat changes when the server answers
}
