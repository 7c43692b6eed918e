package rpc

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Delete writes a tombstone for each object: a write like any other, that nothing
// older can undo. An object without a record gets one too, since a device may
// still upload what it saw of it. A caller that says which record it knows, and is wrong,
// fails with [history.ErrConflict].
func (s *Server) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	events, err := s.deletions(req)
	if err != nil {
		return nil, status(err)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var matches []uint64
	if tag := req.GetIfMatch(); tag != 0 {
		matches = []uint64{tag}
	}
	b := &batch{events: events, statuses: make([]historyv1.Status, len(events)), matches: matches, latest: req.GetAtMs() == 0}
	s.prepare(b)
	s.load(ctx, b)
	archived := s.inArchive(ctx, b)
	s.store(ctx, b)
	s.notify.Changed(b.changes(nil))
	resp := &historyv1.DeleteResponse{}
	for _, g := range b.groups {
		if err := g.deleted(); err != nil {
			return nil, status(fmt.Errorf("delete %s: %w", g.key.Object, err))
		}
		if (g.visible || archived[g]) && g.written != nil {
			resp.Deleted++
		}
	}
	return resp, nil
}

// inArchive returns of which keys the archive alone has a record that readers see, where it
// was not asked before. It is for the count of what was deleted: without an answer soon,
// those are not counted.
func (s *Server) inArchive(ctx context.Context, b *batch) map[*group]bool {
	var keys []history.Key
	var groups []*group
	for _, g := range b.groups {
		if g.before() == nil && !b.latest && !g.failed && !g.user.Complete() {
			keys, groups = append(keys, g.key), append(groups, g)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, archivePatience)
	defer cancel()
	entries, err := s.cfg.Archive.Get(ctx, keys)
	if err != nil {
		return nil
	}
	seen := make(map[*group]bool, len(groups))
	for i, g := range groups {
		seen[g] = entries[i].Record.Visible(g.key.Object, &g.user) != nil
	}
	return seen
}

// deleted returns why a key was not deleted.
func (g *group) deleted() error {
	switch s := g.batch.statuses[g.events[0]]; {
	case s == historyv1.Status_STATUS_UNAVAILABLE:
		return fmt.Errorf("cache: %w", history.ErrUnavailable)
	case s == historyv1.Status_STATUS_CONFLICT, s == historyv1.Status_STATUS_CLEARED && g.matched():
		return fmt.Errorf("%w: the record is another one", history.ErrConflict)
	}
	return nil
}

func (s *Server) deletions(req *historyv1.DeleteRequest) ([]history.Event, error) {
	if n := len(req.GetObjects()); n == 0 || n > MaxBatch {
		return nil, history.Invalid("objects", fmt.Sprintf("%d of them; want 1 to %d", n, MaxBatch))
	} else if req.GetIfMatch() != 0 && n > 1 {
		return nil, history.Invalid("if_match", "want it for one object")
	}
	at, err := s.past("at", req.GetAtMs())
	if err != nil {
		return nil, err
	}
	events := make([]history.Event, len(req.GetObjects()))
	for i, o := range req.GetObjects() {
		events[i] = history.Event{Key: history.Key{UID: req.GetUid(), Object: object(o)}, Kind: history.KindDelete, At: at}
		if err := events[i].Validate(); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	return events, nil
}

// past returns a given time, or now when there is none; nothing is later than now. It
// fails with [history.ErrUnavailable] while nobody knows what time it is.
func (s *Server) past(field string, ms int64) (int64, error) {
	if err := s.cfg.Timeless(); err != nil {
		return 0, err
	}
	now := s.nowMS()
	switch {
	case ms < 0:
		return 0, history.Invalid(field, "want Unix milliseconds")
	case ms == 0:
		return now, nil
	}
	return min(ms, now), nil
}

// Clear removes everything of one type, or of all, at or before a time.
func (s *Server) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, status(err)
	}
	until, err := s.past("until", req.GetUntilMs())
	if err != nil {
		return nil, status(err)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if req.GetUntilMs() == 0 { // the time is fixed here, so that a clear that lands twice removes nothing more
		newest, err := s.newest(ctx, req.GetUid(), req.GetType())
		if err != nil {
			return nil, status(fmt.Errorf("clear: %w", err))
		}
		until = max(until, newest)
	}
	until, err = s.cfg.Cache.Clear(ctx, req.GetUid(), history.Clear{Type: req.GetType(), Until: until})
	if err != nil {
		return nil, status(fmt.Errorf("clear: %w", err))
	}
	s.decided.note(decision{uid: req.GetUid(), clear: history.Clear{Type: req.GetType(), Until: until}})
	s.cfg.Aggregate.Announce(req.GetUid())
	s.notify.UserChanged(req.GetUid())
	return &historyv1.ClearResponse{ClearedMs: until}, nil
}
