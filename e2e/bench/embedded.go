package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/internal/run"
)

// Embedded measures the all-in-one: each turn has a new process with an empty data directory.
type Embedded struct {
	Bin string // folder of the built commands
	Dir string // folder for data

	Args []string // further flags
}

type allInOne struct {
	*process.Process
	bin              string // folder of the built commands
	args             []string
	dir              string
	rpc, http, admin string
}

// start tries three times: another program may take a port before the process does.
func (e *Embedded) start(ctx context.Context) (a *allInOne, err error) {
	for range 3 {
		if a, err = e.startOnce(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return a, err
}

func (e *Embedded) startOnce(ctx context.Context) (_ *allInOne, err error) {
	a := &allInOne{bin: e.Bin, args: e.Args}
	if a.dir, err = os.MkdirTemp(e.Dir, "embedded-"); err != nil {
		return nil, err
	}
	if err := a.run(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(a.dir))
	}
	return a, nil
}

// run starts the process on its folder, at free addresses.
func (a *allInOne) run(ctx context.Context) (err error) {
	for _, addr := range []*string{&a.rpc, &a.http, &a.admin} {
		if *addr, err = process.FreeAddr(ctx); err != nil {
			return err
		}
	}
	secret, err := writeSecret(a.dir)
	if err != nil {
		return err
	}
	args := append([]string{
		"serve", "--data", filepath.Join(a.dir, "data"), "--rpc", a.rpc, "--listen", a.http, "--admin", a.admin,
		"--token-secret-file", secret, "--user-rate", "1e6", "--user-burst", "1e6", "--log-level", "warn",
	}, a.args...)
	a.Process, err = process.Start(filepath.Join(a.bin, "playhead"), args...)
	if err != nil {
		return err
	}
	if err = ready(ctx, a.Process, a.admin); err != nil {
		a.Kill()
	}
	return err
}

func (a *allInOne) end() error {
	a.Kill()
	return os.RemoveAll(a.dir)
}

// Measure sends a load until everything is archived. A load with a rate is measured until it is acknowledged.
func (e *Embedded) Measure(ctx context.Context, l *Load, d Door, s Shape) (Figures, error) {
	return e.turn(ctx, func(a *allInOne) (Figures, error) { return a.measure(ctx, l, d, s) })
}

// MeasureDisk is Measure with the final disk usage, once it is stable: bytes per record, and multiples of a
// record's own bytes.
func (e *Embedded) MeasureDisk(ctx context.Context, l *Load, s Shape) (Figures, error) {
	return e.turn(ctx, func(a *allInOne) (Figures, error) {
		f, err := a.measure(ctx, l, GRPC, s)
		if err != nil {
			return nil, err
		}
		n, bytes := l.Records()
		f["disk"] = float64(a.quiet(ctx)) / float64(n)
		f["disk ratio"] = f["disk"] / bytes
		return f, ctx.Err()
	})
}

// turn runs do with a process of its own.
func (e *Embedded) turn(ctx context.Context, do func(*allInOne) (Figures, error)) (f Figures, err error) {
	a, err := e.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("all-in-one: %w", err)
	}
	defer func() { err = errors.Join(err, a.end()) }()
	if f, err = do(a); err != nil {
		return nil, fmt.Errorf("all-in-one: %w\n%s", err, a.Log())
	}
	return f, nil
}

func (a *allInOne) measure(ctx context.Context, l *Load, d Door, s Shape) (Figures, error) {
	f, t, err := a.acknowledged(ctx, l, d, s)
	if err == nil && s.Rate == 0 {
		err = t.archived(ctx, f, a.backlog)
	}
	return f, err
}

// acknowledged sends a load until it is acknowledged. The turn goes on.
func (a *allInOne) acknowledged(ctx context.Context, l *Load, d Door, s Shape) (Figures, *turn, error) {
	l.EndAt(time.Now().UnixMilli())
	w, err := open(ctx, doors{rpc: a.rpc, http: a.http}, l, d, s)
	if err != nil {
		return nil, nil, err
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(map[string]int{"all-in-one": a.PID()})}
	f, err := t.acked(ctx)
	return f, t, err
}

// quiet waits until the data size has not changed for eight seconds, at most half a minute, and returns it.
func (a *allInOne) quiet(ctx context.Context) int64 {
	size, since := diskUse(a.dir), time.Now()
	for until := since.Add(30 * time.Second); time.Since(since) < 8*time.Second && time.Now().Before(until); {
		if !run.Sleep(ctx, poll) {
			break
		}
		if now := diskUse(a.dir); now != size {
			size, since = now, time.Now()
		}
	}
	return size
}

func (a *allInOne) backlog(ctx context.Context) (b backlog, err error) {
	if b.held, err = process.Metric(ctx, a.admin, "playhead_aggregate_held_keys"); err != nil {
		return b, err
	}
	b.puts, err = process.Metric(ctx, a.admin, "playhead_job_puts_total")
	return b, err
}
