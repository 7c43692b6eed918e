package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
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
	Log      *slog.Logger
}

// sizes are how many heartbeats a turn has.
type sizes struct{ long, trace int }

func (o Options) sizes() sizes {
	if o.Quick {
		return sizes{long: 150_000, trace: 150_000}
	}
	return sizes{long: 1_000_000}
}

// variant is one side of a comparison.
type variant struct {
	name string
	turn func(context.Context) (Figures, error)
}

// Result is what a run has measured.
type Result struct {
	Turns Turns
	// RecordBytes are those of an encoded record, on average, by load.
	RecordBytes map[string]float64
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
}

// Run measures everything. What cannot be had is missed in the result and said there; only
// a canceled run, or one that finds no trace, is an error.
func Run(ctx context.Context, o Options) (Result, error) {
	b := &bench{
		Options: o, embedded: &Embedded{Bin: o.Bin, Dir: o.Dir}, loads: make(map[string]*Load),
		result: Result{Turns: make(Turns), RecordBytes: make(map[string]float64), Failed: make(map[string]string)},
	}
	if err := b.load(); err != nil {
		return b.result, err
	}
	stop, err := b.startPostgres(ctx)
	if err != nil {
		b.result.Failed["postgres"] = err.Error()
	}
	defer stop()
	b.rounds(ctx, b.alone())
	return b.result, context.Cause(ctx)
}

// The loads, by name.
const (
	long    = "long"
	long0   = "long, no metadata"
	trace   = "trace"
	trace0  = "trace, no metadata"
	payload = 110 // bytes of metadata of a heartbeat
)

func (b *bench) load() error {
	viewings, err := replay.ReadFile(b.Trace)
	if err != nil {
		return err
	}
	n := b.sizes()
	viewings = first(viewings, n.trace)
	for _, l := range []*Load{
		NewLoad(long, LongViewings(n.long), payload), NewLoad(long0, LongViewings(n.long), 0),
		NewLoad(trace, viewings, payload), NewLoad(trace0, viewings, 0),
	} {
		b.loads[l.Name] = l
		_, b.result.RecordBytes[l.Name] = l.Records()
	}
	return nil
}

// first returns the first viewings, of about so many heartbeats; 0 is all.
func first(vs []replay.Viewing, heartbeats int) []replay.Viewing {
	n := 0
	for i, v := range vs {
		if v.Played > 0 {
			n += 2 + int(v.Played/replay.Period)
		}
		if heartbeats > 0 && n > heartbeats {
			return vs[:i]
		}
	}
	return vs
}

// startPostgres returns what ends it.
func (b *bench) startPostgres(ctx context.Context) (stop func(), err error) {
	e, err := engine.Open(engine.Postgres, engine.Config{Dir: b.Dir, Lib: b.Lib, PortBase: b.PortBase, Log: b.Log})
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		return func() {}, err
	}
	b.postgres = &Postgres{Addr: e.Addr(), PID: e.Nodes[0].PID}
	return func() { b.end(e) }, nil
}

func (b *bench) end(e *engine.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		b.Log.Error("stop engine", "engine", e.Name(), "error", err)
	}
}

var small = Shape{Workers: 4, Batch: 100}

// alone are the comparisons of one process with PostgreSQL.
func (b *bench) alone() []variant {
	return []variant{
		b.onPostgres(long, small), b.inOne(long, small),
		b.onPostgres(trace, small), b.inOne(trace, small), b.inOne(trace0, small),
	}
}

// name of a variant.
func name(side, load string, s Shape) string {
	if s.Rate > 0 {
		return fmt.Sprintf("%s, %s, %s at %d/s", side, load, s, s.Rate)
	}
	return fmt.Sprintf("%s, %s, %s", side, load, s)
}

// The sides.
const (
	postgres = "PostgreSQL"
	embedded = "all-in-one"
)

var errNoPostgres = errors.New("there is no PostgreSQL")

func (b *bench) onPostgres(load string, s Shape) variant {
	return variant{name(postgres, load, s), func(ctx context.Context) (Figures, error) {
		if b.postgres == nil {
			return nil, errNoPostgres
		}
		return b.postgres.Measure(ctx, b.loads[load], s)
	}}
}

func (b *bench) inOne(load string, s Shape) variant {
	return variant{name(embedded, load, s), func(ctx context.Context) (Figures, error) {
		return b.embedded.Measure(ctx, b.loads[load], s)
	}}
}

// rounds gives each variant its turn, round by round, every second round in reverse: what
// slows the machine down for a while strikes all of them. A variant that has failed is left
// out from then on.
func (b *bench) rounds(ctx context.Context, variants []variant) {
	for round := range b.Rounds {
		for _, v := range variants {
			if ctx.Err() == nil && b.result.Failed[v.name] == "" {
				b.turn(ctx, round, v)
			}
		}
		slices.Reverse(variants)
	}
}

func (b *bench) turn(ctx context.Context, round int, v variant) {
	began := time.Now()
	f, err := v.turn(ctx)
	if err != nil {
		b.result.Failed[v.name] = err.Error()
		b.Log.Error("turn", "variant", v.name, "error", err)
		return
	}
	b.result.Turns[v.name] = append(b.result.Turns[v.name], f)
	b.Log.Info("turn", "round", round+1, "variant", v.name, "rate", int(f["rate"]), "acked_us", f["acked"],
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
