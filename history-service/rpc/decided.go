package rpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// What users decide about their histories is remembered for a while, as records are held:
// until the archive has it for certain, a cache that comes back older may lack it.
const (
	decidedFor  = 10 * time.Minute // longer than an announcement or a sweep takes
	decidedMost = 65536
)

// decided are the clears and pauses of late, oldest first. Its methods may be called from
// many goroutines.
type decided struct {
	mu  sync.Mutex
	all []decision
}

// decision is what a user has decided: a clear with its time, or else a pause.
type decision struct {
	uid   string
	clear history.Clear
	pause history.Pause
	at    time.Time
}

// note remembers a decision that the cache has acknowledged, and forgets old ones.
func (d *decided) note(one decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.at = time.Now()
	old := max(0, len(d.all)+1-decidedMost)
	for old < len(d.all) && one.at.Sub(d.all[old].at) > decidedFor {
		old++
	}
	d.all = append(d.all[old:], one)
}

// list returns those that are remembered.
func (d *decided) list() []decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// decideAgain brings back what the cache has lost of them. It comes before the records: one
// that is held, and was cleared since, must not be written again.
func (s *Server) decideAgain(ctx context.Context) error {
	for part := range slices.Chunk(s.decided.list(), MaxBatch/2) {
		if err := s.decidePart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) decidePart(ctx context.Context, part []decision) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	keys := make([]history.Key, len(part))
	for i, d := range part {
		keys[i] = history.UserKey(d.uid)
	}
	for i, e := range s.cfg.Cache.Load(ctx, keys) {
		if e.Err != nil {
			return e.Err
		}
		if err := part[i].again(ctx, s.cfg.Cache, &e.User); err != nil {
			return err
		}
	}
	return nil
}

// again does what the cache lacks.
func (d decision) again(ctx context.Context, c Cache, u *history.User) (err error) {
	switch {
	case d.clear.Until > u.ClearedAt(d.clear.Type):
		_, err = c.Clear(ctx, d.uid, d.clear)
	case d.pause.Changed() > u.Pause.Changed():
		err = c.Pause(ctx, d.uid, u.Pause, d.pause)
	}
	return err
}
