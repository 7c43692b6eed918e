package rpc

import (
	"context"
	"errors"
	"slices"

	"github.com/playhead/playhead/history"
)

// Confirm asks for the name of the cache's life. When it is another than the last one,
// the cache may have come back without its last writes: Confirm then has [Server.Reclaim]
// bring them back, and fails until that is done. So it is with what was stored before the
// cache could name its life.
func (s *Server) Confirm(ctx context.Context) error {
	if s.cfg.Life == nil {
		return nil
	}
	life, err := s.cfg.Life(ctx)
	if err == nil && life != s.life && (s.life != "" || len(s.cfg.Aggregate.Keys()) > 0) {
		err = s.Reclaim(ctx)
	}
	if err == nil {
		s.life = life
	}
	return err
}

// Reclaim compares the records that the service holds with those in the cache, and
// writes again what the cache has lost of them, clears and pauses of late first. It is for a
// cache that was restarted without its last writes: most of what was acknowledged shortly before belongs to
// viewings that are still held. It fails with [history.ErrUnavailable]; then it may be
// called again.
func (s *Server) Reclaim(ctx context.Context) error {
	if err := s.decideAgain(ctx); err != nil {
		return err
	}
	keys, reclaimed := s.cfg.Aggregate.Keys(), 0
	for part := range slices.Chunk(keys, MaxBatch/2) {
		n, err := s.reclaim(ctx, part)
		if err != nil {
			return err
		}
		reclaimed += n
	}
	s.cfg.Logger.Info("cache was restarted and is compared with what is held", "compared", len(keys), "written", reclaimed)
	return nil
}

// reclaim returns how many records of the keys it wrote. It writes as heartbeats that
// lost a race do: under a new mark, folded with what the cache has.
func (s *Server) reclaim(ctx context.Context, keys []history.Key) (written int, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	b := s.heldBatch(keys)
	defer b.release(s.cfg.Aggregate)
	held := make([]history.Key, len(b.groups))
	for i, g := range b.groups {
		held[i] = g.key
	}
	for i, e := range s.cfg.Cache.Load(ctx, held) {
		if err = errors.Join(err, e.Err); e.Err == nil {
			b.groups[i].reclaim(e)
		}
	}
	// Without an answer what is held is written as it is: better seen again although it was
	// deleted, until the archive is back, than lost.
	_ = s.archived(ctx, based(b.groups))
	for range maxTries {
		writes, groups := b.writes()
		if err != nil || len(writes) == 0 {
			break
		}
		for i, out := range s.cfg.Cache.Apply(ctx, writes) {
			groups[i].outcome(writes[i], out)
			err = errors.Join(err, out.Err)
		}
	}
	s.notify.Changed(b.changes(nil))
	for range b.changes(nil) {
		written++
	}
	return written, err
}

// heldBatch returns a batch without events of those keys that are still held.
func (s *Server) heldBatch(keys []history.Key) *batch {
	b := &batch{groups: make([]*group, 0, len(keys))}
	for _, k := range keys {
		if held, _, ok := s.cfg.Aggregate.Get(k); ok {
			b.groups = append(b.groups, &group{batch: b, key: k, held: held, base: held.Record, next: held.Record, done: true})
		}
	}
	return b
}

// reclaim starts over from what the cache holds, unless that is what was written last.
func (g *group) reclaim(e history.Entry) {
	if e.Record == nil || !history.SameContent(e.Record.Revision, g.base.Revision) {
		g.conflict(e)
	}
}
