package bench

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// turn is one load on its way into one store.
type turn struct {
	load  *Load
	work  *work
	meter *Meter
}

// acked sends the load and measures until everything is acknowledged.
func (t *turn) acked(ctx context.Context) (Figures, error) {
	if err := t.meter.Start(); err != nil {
		return nil, err
	}
	took, latencies, err := t.work.run(ctx)
	if err != nil {
		return nil, err
	}
	f := Figures{"rate": float64(t.load.Len()) / took.Seconds()}
	if len(latencies) > 0 {
		f.latencies(latencies)
	}
	t.meter.memory(f)
	return f, t.meter.per(f, "acked", t.load.Len())
}

// backlog is how far a product is with the archive.
type backlog struct {
	held float64 // keys that wait in memory
	puts float64 // records that were put
}

const poll = 200 * time.Millisecond

// archived waits until so many records are in the archive and nothing happens any more,
// and measures until then.
func (t *turn) archived(ctx context.Context, f Figures, look func(context.Context) (backlog, error)) error {
	records, _ := t.load.Records()
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not everything was archived within 5 minutes"))
	defer cancel()
	for last := (backlog{}); ; {
		now, err := look(ctx)
		if err != nil {
			return err
		}
		if now.held == 0 && now == last && now.puts >= float64(records) {
			f["puts"] = now.puts / float64(t.load.Viewings())
			return t.meter.per(f, "archived", t.load.Len())
		}
		last = now
		if !run.Sleep(ctx, poll) {
			return context.Cause(ctx)
		}
	}
}
