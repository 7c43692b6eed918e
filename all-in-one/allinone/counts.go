package allinone

import (
	"context"
	"errors"

	"github.com/playhead/playhead/history-job/counts"
)

// recount compares the totals of objects, or of all, with the archive while the process runs. Without verify it counts
// what they lack.
func (p *Process) recount(ctx context.Context, dir string, objects []string, verify bool) (counts.Found, error) {
	r := counts.Recount{
		Archive: p.db.Archive(), Counters: p.db.Counters(), Types: p.cfg.Counted, Rules: p.cfg.Rules, Now: p.clock.Now, Verify: verify,
	}
	if err := p.has(dir); err != nil {
		return counts.Found{}, err
	}
	if !r.Types.Any() {
		return counts.Found{}, errors.New("the process counts nothing: start it with --counted-types")
	}
	if err := r.Only(objects); err != nil {
		return counts.Found{}, err
	}
	return r.Run(ctx)
}
