package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/e2e/process"
)

// Embedded is the all-in-one: a process with an empty data directory for each turn.
type Embedded struct {
	Bin string // folder of the built commands
	Dir string // folder for data
}

// allInOne is one that runs.
type allInOne struct {
	*process.Process
	dir              string
	rpc, http, admin string
}

func (e *Embedded) start(ctx context.Context) (_ *allInOne, err error) {
	a := &allInOne{}
	for _, addr := range []*string{&a.rpc, &a.http, &a.admin} {
		if *addr, err = process.FreeAddr(ctx); err != nil {
			return nil, err
		}
	}
	if a.dir, err = os.MkdirTemp(e.Dir, "embedded-"); err != nil {
		return nil, err
	}
	a.Process, err = process.Start(filepath.Join(e.Bin, "all-in-one"), "--data", filepath.Join(a.dir, "data"),
		"--rpc", a.rpc, "--listen", a.http, "--admin", a.admin, "--user-rate", "1e6", "--user-burst", "1e6", "--log-level", "warn")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(a.dir))
	}
	return a, process.Await(ctx, 10*time.Second, "the all-in-one", func(ctx context.Context) error { return a.Ready(ctx, a.admin) })
}

func (a *allInOne) end() error {
	a.Kill()
	return os.RemoveAll(a.dir)
}

// Measure sends a load over gRPC until everything is archived.
func (e *Embedded) Measure(ctx context.Context, l *Load, s Shape) (f Figures, err error) {
	a, err := e.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("all-in-one: %w", err)
	}
	defer func() { err = errors.Join(err, a.end()) }()
	conn, err := dial(a.rpc)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if f, err = e.measure(ctx, a, conn, l, s); err != nil { //nolint:revive // what a turn needs
		return nil, fmt.Errorf("all-in-one: %w", err)
	}
	return f, nil
}

func (e *Embedded) measure(ctx context.Context, a *allInOne, conn *grpc.ClientConn, l *Load, s Shape) (Figures, error) { //nolint:revive // what a turn needs
	l.EndAt(time.Now().UnixMilli())
	w, err := prepare(l, s, func(int) (Session, error) { return openStream(ctx, conn, l, s.Batch) })
	if err != nil {
		return nil, err
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(map[string]int{"all-in-one": a.PID()})}
	f, err := t.acked(ctx)
	if err != nil || s.Rate > 0 {
		return f, err
	}
	return f, t.archived(ctx, f, a.backlog)
}

func (a *allInOne) backlog(ctx context.Context) (b backlog, err error) {
	if b.held, err = Metric(ctx, a.admin, "playhead_aggregate_held_keys"); err != nil {
		return b, err
	}
	b.puts, err = Metric(ctx, a.admin, "playhead_job_puts_total")
	return b, err
}
