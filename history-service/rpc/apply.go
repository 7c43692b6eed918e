package rpc

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxBatch is how many heartbeats one request may carry.
const MaxBatch = 1000

// Apply stores a batch of heartbeats. See the protocol for what it answers.
func (s *Server) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	resp, err := s.apply(ctx, req)
	if err != nil {
		return nil, status(err)
	}
	if n := len(resp.Statuses); n > 0 && count(resp.Statuses, historyv1.Status_STATUS_UNAVAILABLE) == n {
		return nil, status(fmt.Errorf("apply: cache: %w", history.ErrUnavailable))
	}
	return resp, nil
}

func (s *Server) apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	if n := len(req.GetHeartbeats()); n > MaxBatch {
		return nil, history.Invalid("heartbeats", fmt.Sprintf("%d in one batch; want at most %d", n, MaxBatch))
	}
	if err := s.cfg.Timeless(); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp := &historyv1.ApplyResponse{}
	events, statuses := s.decode(req.GetHeartbeats(), resp)
	b := &batch{events: events, statuses: statuses, matches: matches(req.GetHeartbeats())}
	s.prepare(b)
	s.load(ctx, b)
	days := s.days.Begin(ctx, req.GetHeartbeats(), b.statuses)
	s.store(ctx, b)
	s.notify.Changed(b.changes(req.GetHeartbeats()))
	if req.GetAck() == historyv1.Ack_ACK_QUEUED {
		s.enqueue(ctx, b)
	}
	resp.Statuses, resp.Days = b.statuses, days.Answers()
	s.metrics.heartbeats(b.statuses)
	if all := req.GetReturnRecords(); all || count(b.statuses, historyv1.Status_STATUS_CONFLICT) > 0 {
		resp.Records = b.items(all)
	}
	return resp, nil
}

// store writes what is loaded, and again as often as other writers of the same keys make
// it necessary.
func (s *Server) store(ctx context.Context, b *batch) {
	for try := range maxTries {
		writes, groups := b.writes()
		if len(writes) == 0 {
			break
		}
		var late []*group
		for i, out := range s.cfg.Cache.Apply(ctx, writes) {
			if groups[i].outcome(writes[i], out); out.Status == history.Conflict {
				late = append(late, groups[i])
			}
		}
		s.base(ctx, late)
		if try > 0 {
			s.metrics.conflicts.Add(float64(len(writes)))
		}
	}
	s.confirm(ctx, b)
	b.release(s.cfg.Aggregate)
}

// confirm asks the cache about the keys whose answers rely on nothing but a conflict: what
// that told may not be on disk yet.
func (s *Server) confirm(ctx context.Context, b *batch) {
	var keys []history.Key
	var groups []*group
	for _, g := range b.groups {
		if g.lost && g.done && !g.failed && g.written == nil {
			keys, groups = append(keys, g.key), append(groups, g)
		}
	}
	if len(keys) == 0 {
		return
	}
	for i, e := range s.cfg.Cache.Load(ctx, keys) {
		if e.Err != nil {
			groups[i].fail()
		}
	}
}

// maxTries bounds how often one key is tried against other writers. Each failed
// try is another writer's success; so many in a row mean that something is wrong.
const maxTries = 32

// load fills in what the aggregator does not hold.
func (s *Server) load(ctx context.Context, b *batch) {
	keys, groups := b.missing()
	if len(keys) == 0 {
		return
	}
	for i, e := range s.cfg.Cache.Load(ctx, keys) {
		if e.Err != nil {
			groups[i].fail()
			continue
		}
		groups[i].loaded(e)
		if !e.User.Warm {
			s.warm.want(keys[i].UID)
		}
	}
	s.base(ctx, groups)
}

func count(statuses []historyv1.Status, s historyv1.Status) (n int) {
	for _, got := range statuses {
		if got == s {
			n++
		}
	}
	return n
}
