package replay

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/history"
)

// Driver sends a plan through the door of history-service. Zero values take the
// defaults.
type Driver struct {
	Conn grpc.ClientConnInterface
	// Streams is how many run side by side (default 16). All heartbeats of a user
	// go through one of them, in order.
	Streams int
	// Window is how many heartbeats a batch has (default 200), Depth how many batches
	// of a stream may wait for their answer (default 4).
	Window, Depth int
	// Speed is how much faster than the trace's own time to send; 0 is as fast as
	// the service takes it.
	Speed float64
	// Patience is how long a batch may wait for its answer, and how long to go on
	// trying when none gets through (default 60 s). What was not acknowledged is
	// sent again.
	Patience time.Duration

	answers
}

// ErrRefused means that the service found a heartbeat invalid.
var ErrRefused = errors.New("refused by the service")

// Run sends the whole plan and returns when every heartbeat is acknowledged.
func (d *Driver) Run(ctx context.Context, p *Plan) error {
	d.Streams = orDefault(d.Streams, 16)
	d.Window = orDefault(d.Window, 200)
	d.Depth = orDefault(d.Depth, 4)
	d.Patience = orDefault(d.Patience, 60*time.Second)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range d.divide(p) {
		l := &lane{driver: d, plan: p, beats: part, began: began}
		g.Go(func() error { return l.run(ctx) })
	}
	return g.Wait()
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// divide gives every stream the heartbeats of its users, in order.
func (d *Driver) divide(p *Plan) [][]int32 {
	parts := make([][]int32, d.Streams)
	for i := range p.beats {
		s := int(history.BucketOf(p.Viewings[p.beats[i].viewing].UID)) % d.Streams
		parts[s] = append(parts[s], int32(i)) //nolint:gosec // a plan has fewer heartbeats
	}
	return parts
}
