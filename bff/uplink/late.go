package uplink

import (
	"slices"
	"time"
)

// checkLate handles late batches. It gives up batches that are too old, and leaves an instance with a stuck
// stream if another instance is well. If an instance has answered nothing for the patience, it warns the
// callers of late batches, which then also ask another instance. If the batcher has stopped sending by then, it
// ends the stream and fails the calls instead. Without another instance the calls keep waiting.
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

// warn warns the callers of all late batches and returns the delay until the next is late. The caller holds
// s.mu.
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

// warn warns the callers that the instance is silent.
func (b *batch) warn() {
	if b.warned || b.heard {
		return
	}
	b.warned = true
	for _, p := range b.calls {
		p.done <- answer{err: errLate}
	}
}

// lost gives up batches that are in flight for too long. It also frees the places of batches without waiting
// callers if other batches were answered meanwhile.
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

func (b *batch) deserted() bool {
	return !slices.ContainsFunc(b.calls, func(p *pending) bool { return p != nil && p.ctx.Err() == nil })
}

// stuck reports whether the stream has been silent for longer than the service's deadline, whatever else the
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
