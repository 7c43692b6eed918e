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

// sizes are how many heartbeats a turn has.
type sizes struct{ long, trace, paced, players, disk, engines int }

func (o Options) sizes() sizes {
	if o.Quick {
		return sizes{long: 300_000, trace: 300_000, paced: 80_000, players: 30_000, disk: 1_000_000, engines: 100_000}
	}
	return sizes{long: 1_000_000, paced: 300_000, players: 60_000, disk: 1_000_000, engines: 300_000}
}

// quick is when the last turn of a quick run is to end, and what the rounds before leave for
// those that follow.
const (
	quick       = 170 * time.Second
	forEngines  = 35 * time.Second
	forDiskAlso = 55 * time.Second
)

// variant is one side of a comparison.
type variant struct {
	name string
	turn func(context.Context) (Figures, error)
}

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
	failed   error // why there is no PostgreSQL

	section time.Time // began when the rounds that are under way did
}

// Run measures everything. What cannot be had is missed in the result and said there; only
// a canceled run, or one that finds no trace, is an error.
func Run(ctx context.Context, o Options) (Result, error) {
	b := &bench{
		Options: o, embedded: &Embedded{Bin: o.Bin, Dir: o.Dir}, loads: make(map[string]*Load),
		result: Result{Turns: make(Turns), Failed: make(map[string]string)},
	}
	if err := b.load(); err != nil {
		return b.result, err
	}
	stop, err := b.startPostgres(ctx)
	if err != nil {
		b.Log.Error("there is no PostgreSQL", "error", err)
		b.failed = err
	}
	defer stop()
	b.rounds(ctx, forDiskAlso, b.alone())
	for _, v := range b.disk() {
		b.turn(ctx, 0, v)
	}
	stop, err = b.startEngines(ctx)
	if err != nil {
		b.Log.Error("there are no engines", "error", err)
	}
	defer stop()
	b.rounds(ctx, 0, b.together(err))
	return b.result, context.Cause(ctx)
}

// The loads, by name.
const (
	long    = "long"
	trace   = "trace"
	trace0  = "trace, no metadata"
	paced   = "paced"
	players = "players"
	lasting = "lasting"
	cold    = "cold"
)

const payload = 110 // bytes of metadata of a heartbeat

func (b *bench) load() error {
	viewings, err := replay.ReadFile(b.Trace)
	if err != nil {
		return err
	}
	n := b.sizes()
	viewings = first(viewings, n.trace)
	for _, l := range []*Load{
		NewLoad(long, LongViewings(n.long), payload), NewLoad(trace, viewings, payload), NewLoad(trace0, viewings, 0),
		NewLoad(paced, LongViewings(n.paced), payload), NewLoad(players, LongViewings(n.players), payload),
		NewLoad(lasting, LongViewings(n.disk), payload), NewLoad(cold, LongViewings(n.engines), payload),
	} {
		b.loads[l.Name] = l
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

// The shapes: batches of four workers, a batch that comes at a rate, and a player each.
var (
	small  = Shape{Workers: 4, Batch: 100}
	steady = Shape{Workers: 4, Batch: 100, Rate: 20_000}
	lone   = Shape{Batch: 1}
)

// alone are the comparisons of one process with PostgreSQL.
func (b *bench) alone() []variant {
	return []variant{
		b.onPostgres(long, small), b.inOne(long, GRPC, small),
		b.onPostgres(trace, small), b.inOne(trace, GRPC, small), b.inOne(trace0, GRPC, small),
		b.onPostgres(paced, steady), b.inOne(paced, GRPC, steady),
		b.inOne(players, WebSocket, lone),
	}
}

// disk is what is left on the disk when nothing is written any more.
func (b *bench) disk() []variant {
	return []variant{{name(embedded, lasting, GRPC, small), func(ctx context.Context) (Figures, error) {
		return b.embedded.MeasureDisk(ctx, b.loads[lasting], small)
	}}}
}

// together are the comparisons of the product on real engines with PostgreSQL.
func (b *bench) together(missing error) []variant {
	return []variant{
		b.onPostgres(cold, small),
		{name(engines, cold, GRPC, small), func(ctx context.Context) (Figures, error) {
			if missing != nil {
				return nil, missing
			}
			return b.engines.Measure(ctx, b.loads[cold], small)
		}},
	}
}

// name of a variant.
func name(side, load string, d Door, s Shape) string { //nolint:revive // what it is made of
	return fmt.Sprintf("%s, %s, %s %s", side, load, d, s)
}

// The sides.
const (
	postgres = "PostgreSQL"
	embedded = "all-in-one"
	engines  = "engines"
)

func (b *bench) onPostgres(load string, s Shape) variant {
	return variant{name(postgres, load, SQL, s), func(ctx context.Context) (Figures, error) {
		if b.failed != nil {
			return nil, b.failed
		}
		return b.postgres.Measure(ctx, b.loads[load], s)
	}}
}

func (b *bench) inOne(load string, d Door, s Shape) variant {
	return variant{name(embedded, load, d, s), func(ctx context.Context) (Figures, error) {
		return b.embedded.Measure(ctx, b.loads[load], d, s)
	}}
}

// rounds gives each variant its turn, round by round, every second round in reverse: what
// slows the machine down for a while strikes all of them. A variant that has failed is left
// out from then on, and a quick run that is late has fewer rounds.
func (b *bench) rounds(ctx context.Context, reserve time.Duration, variants []variant) {
	b.section = time.Now()
	for round := range b.Rounds {
		if round > 0 && b.late(round, reserve) {
			return
		}
		for _, v := range variants {
			if ctx.Err() == nil && b.result.Failed[v.name] == "" {
				b.turn(ctx, round, v)
			}
		}
		slices.Reverse(variants)
	}
}

func (b *bench) turn(ctx context.Context, round int, v variant) {
	began, limit := time.Now(), 10*time.Minute
	if b.Quick {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
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

// late tells whether a quick run has no time for another round like those before.
func (b *bench) late(rounds int, reserve time.Duration) bool {
	took := time.Since(b.section) / time.Duration(rounds)
	return b.Quick && time.Since(b.Began)+took+reserve > quick
}
