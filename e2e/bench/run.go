package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/history-job/replay"
)

// Options say what to measure. Bin, Lib, Dir and Trace are required.
type Options struct {
	Bin      string // folder of the built commands
	Lib      string // folder of the engines' jars, filled when it lacks them
	Dir      string // folder for data: on the disk that is measured
	Trace    string // file of viewings
	PortBase int
	Quick    bool
	Rounds   int
	Began    time.Time // from which a quick run counts its time
	Log      *slog.Logger
}

// quick is when the last turn of a quick run is to end, and what the rounds before leave for
// those that follow.
const (
	quick       = 170 * time.Second
	forEngines  = 35 * time.Second
	forDiskAlso = 55 * time.Second
)

// Result is what a run has measured.
type Result struct {
	Turns Turns
	// Failed says why a variant has no figures, or fewer.
	Failed map[string]string
}

// bench is one run.
type bench struct {
	Options

	result   Result
	loads    map[string]*Load
	embedded *Embedded
	postgres *Postgres
	engines  *Engines
	viewings []replay.Viewing
	missing  map[Side]error // why there is none

	section time.Time // began when the rounds that are under way did
}

// Run measures everything. What cannot be had is missed in the result and said there; only
// a canceled run, or one that finds no trace, is an error.
func Run(ctx context.Context, o Options) (Result, error) {
	b := &bench{
		Options: o, embedded: &Embedded{Bin: o.Bin, Dir: o.Dir}, loads: make(map[string]*Load), missing: make(map[Side]error),
		result: Result{Turns: make(Turns), Failed: make(map[string]string)},
	}
	var err error
	if b.viewings, err = replay.ReadFile(b.Trace); err != nil {
		return b.result, err
	}
	stop, err := b.startPostgres(ctx)
	b.missing[OnPostgres] = err
	defer stop()
	b.rounds(ctx, forDiskAlso, b.alone())
	b.turn(ctx, 0, onDisk)
	stop, err = b.startEngines(ctx)
	b.missing[OnEngines] = err
	defer stop()
	b.rounds(ctx, 0, b.together())
	return b.result, context.Cause(ctx)
}

// startPostgres returns what ends it.
func (b *bench) startPostgres(ctx context.Context) (stop func(), err error) {
	e, err := engine.Open(engine.Postgres, b.engine())
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		return func() {}, err
	}
	b.postgres = &Postgres{Addr: e.Addr(), PID: e.Nodes[0].PID}
	return func() { b.end(e) }, nil
}

func (b *bench) engine() engine.Config {
	return engine.Config{Dir: b.Dir, Lib: b.Lib, PortBase: b.PortBase, Log: b.Log}
}

// startEngines returns what ends them.
func (b *bench) startEngines(ctx context.Context) (stop func(), err error) {
	if b.Quick { // an installation may take minutes
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, b.Began.Add(quick-forEngines/3), errors.New("no time to start the engines in a quick run; make engines installs them"))
		defer cancel()
	}
	all, err := StartEngines(ctx, b.engine())
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	stop = func() { b.end(all...) }
	if err != nil {
		return stop, err
	}
	b.engines = &Engines{Bin: b.Bin, PIDs: make(map[string]int)}
	for i, e := range all {
		b.engines.Addr[i], b.engines.PIDs[e.Name()] = e.Addr(), e.Nodes[0].PID
	}
	return stop, nil
}

// end ends engines side by side.
func (b *bench) end(all ...*engine.Engine) {
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Go(func() {
			if err := e.Kill(); err != nil { // their data is thrown away
				b.Log.Error("end engine", "engine", e.Name(), "error", err)
			}
		})
	}
	wg.Wait()
}

// measure gives a variant its turn.
func (b *bench) measure(ctx context.Context, v Variant) (Figures, error) {
	l := b.load(v.Load)
	switch {
	case b.missing[v.Side] != nil:
		return nil, b.missing[v.Side]
	case v.Side == OnPostgres:
		return b.postgres.Measure(ctx, l, v.Shape, v.Door == Indexed)
	case v.Side == OnEngines:
		return b.engines.Measure(ctx, l, v.Shape)
	case v == onDisk:
		return b.embedded.MeasureDisk(ctx, l, v.Shape)
	}
	return b.embedded.Measure(ctx, l, v.Door, v.Shape)
}

// rounds gives each variant its turn, round by round, every second round in reverse: what
// slows the machine down for a while strikes all of them. A variant that has failed is left
// out from then on, and a quick run that is late has fewer rounds.
func (b *bench) rounds(ctx context.Context, reserve time.Duration, variants []Variant) {
	b.section = time.Now()
	for round := range b.Rounds {
		if round > 0 && b.late(round, reserve) {
			return
		}
		for _, v := range variants {
			if ctx.Err() == nil && b.result.Failed[v.String()] == "" {
				b.turn(ctx, round, v)
			}
		}
		slices.Reverse(variants)
	}
}

func (b *bench) turn(ctx context.Context, round int, v Variant) {
	began, limit := time.Now(), 10*time.Minute
	if b.Quick {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	f, err := b.measure(ctx, v)
	if err != nil {
		b.result.Failed[v.String()] = err.Error()
		b.Log.Error("turn", "variant", v.String(), "error", err)
		return
	}
	b.result.Turns[v.String()] = append(b.result.Turns[v.String()], f)
	b.Log.Info("turn", "round", round+1, "variant", v.String(), "rate", int(f["rate"]), "acked_us", f["acked"],
		"archived_us", f["archived"], "took", time.Since(began).Round(time.Millisecond))
}

// MakeDir makes a folder for data that other users' servers can reach, and returns what
// removes it.
func MakeDir(parent string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp(parent, "playhead-bench-"); err != nil {
		return "", nil, fmt.Errorf("folder for data: %w", err)
	}
	if err = os.Chmod(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL has a user of its own
		return "", nil, fmt.Errorf("folder for data: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// late tells whether a quick run has no time for another round like those before.
func (b *bench) late(rounds int, reserve time.Duration) bool {
	took := time.Since(b.section) / time.Duration(rounds)
	return b.Quick && time.Since(b.Began)+took+reserve > quick
}
