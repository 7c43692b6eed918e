package uplink

import (
	"slices"
	"time"
)

// late reports whether the instance takes too long to be sent what another one has not answered.
func (l *link) late(now time.Time) bool {
	limit := l.cfg.Patience / 2
	if time.Duration(l.took.Load()) > limit {
		return true
	}
	for _, batcher := range l.batchers {
		if batcher.stream.age(now) > limit {
			return true
		}
	}
	return false
}

// checkLate warns the callers of batches that are on their way for long while the instance
// answers nothing at all: another instance may be quicker. Where the link to the instance has ended, it
// gives these batches up.
func (s *stream) checkLate() {
	now := time.Now()
	s.lost(now)
	if s.stuck(now) && s.link.peer.client.othersWell(s.link.peer, now) {
		s.link.stuck.Store(true)
		s.link.leave()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, patience := s.link.peer, s.link.cfg.Patience
	if len(s.flying) == 0 {
		if !s.ended.IsZero() {
			s.cancel()
		}
		return
	}
	quiet := s.link.quiet(now)
	if quiet >= patience {
		s.link.suspect(patience)
	}
	if !s.ended.IsZero() {
		quiet = min(quiet, now.Sub(s.ended))
	}
	switch {
	case quiet < patience:
		s.lateTimer.Reset(patience - quiet)
	case p.ctx.Err() == nil && p.client.alone(p):
		s.lateTimer.Reset(patience)
	case !s.ended.IsZero():
		s.cancel()
	default:
		s.lateTimer.Reset(s.warn(now))
	}
}

// warn tells the callers of all batches that are late, and returns when the next one will
// be. The caller holds s.mu.
func (s *stream) warn(now time.Time) (next time.Duration) {
	next = s.link.cfg.Patience
	for _, b := range s.flying {
		if left := s.link.cfg.Patience - now.Sub(b.sent); left > 0 {
			next = min(next, left)
		} else {
			b.warn()
		}
	}
	return next
}

// warn tells the callers that the instance answers nothing.
func (b *batch) warn() {
	if b.warned || b.heard {
		return
	}
	b.warned = true
	for _, p := range b.calls {
		p.done <- answer{err: errLate}
	}
}

// lost gives up batches that are on their way for too long. It also frees the place of a batch all of whose
// callers have left, if other batches were answered meanwhile.
func (s *stream) lost(now time.Time) {
	var lost []uint64
	s.mu.Lock()
	quiet := s.link.quiet(now)
	for sequence, b := range s.flying {
		age := now.Sub(b.sent)
		switch {
		case age >= lostAfter*s.link.cfg.Patience:
			lost = append(lost, sequence)
		case !b.heard && quiet < age && b.deserted():
			s.freePlace(b)
		}
	}
	s.mu.Unlock()
	for _, sequence := range lost {
		s.giveUp(sequence, errLost)
	}
}

// deserted reports whether nobody waits for an answer any more.
func (b *batch) deserted() bool {
	return !slices.ContainsFunc(b.calls, func(p *pending) bool { return p != nil && p.ctx.Err() == nil })
}

// giveUp answers the calls of a batch that are not answered with an error.
func (s *stream) giveUp(sequence uint64, err error) {
	now := time.Now()
	s.mu.Lock()
	b := s.flying[sequence]
	if b == nil {
		s.mu.Unlock()
		return
	}
	delete(s.flying, sequence)
	s.freePlace(b)
	s.mu.Unlock()
	calls := b.rest()
	s.batcher.arrived(calls, now)
	fail(calls, err)
}

// stuck reports whether the stream has answered nothing for longer than the service may take, whatever else the
// instance answers.
func (s *stream) stuck(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Duration
	for _, b := range s.flying {
		oldest = max(oldest, now.Sub(b.sent))
	}
	return min(oldest, now.Sub(s.answered)) >= hangUpAfter*s.link.cfg.Patience
}

// takes estimates how long so many heartbeats take to leave: those that are on their way now take as long
// as the last answers did.
func (s *stream) takes(heartbeats int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.took * time.Duration(heartbeats) / time.Duration(max(s.pace.flying, 1))
}

// stalled reports whether nothing was answered for longer than a limit, although a batch is on its
// way, and the next probe is not due yet.
func (s *stream) stalled(now time.Time, limit time.Duration) bool {
	if s.link.quiet(now) <= limit || s.age(now) <= limit {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.probe())
}

// age is how long the oldest batch without any answer is on its way.
func (s *stream) age(now time.Time) (oldest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.flying {
		if !b.heard {
			oldest = max(oldest, now.Sub(b.sent))
		}
	}
	return oldest
}

// overloaded reports whether lately answers were late while heartbeats waited for them. One late
// answer alone says nothing of how many the instance takes.
func (s *stream) overloaded(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.pace.cut
	if s.pace.pressed.Before(since) {
		since = s.pace.pressed
	}
	return now.Sub(since) < 5*s.pace.patience
}
