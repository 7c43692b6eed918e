// Package bench measures the product. [Run] sends the same heartbeats to it and to PostgreSQL, in turns. The
// package's benchmarks measure its components between real engines. They measure the cost of heartbeats, the
// savings of the archive, and the cost of durability. Each figure is compared with another of the same run,
// because absolute figures vary with the machine.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/history-job/replay"
)

// quick is the time limit of a quick run's last turn. The others are the times that earlier rounds leave for
// later ones.
const (
	quick       = 230 * time.Second
	forEngines  = 55 * time.Second
	forDiskAlso = 110 * time.Second
)

type bench struct {
	Options

	result   Result
	loads    map[string]*Load
	embedded *Embedded
	postgres *Postgres
	engines  *Engines
	viewings []replay.Viewing
	missing  map[Side]error // reasons

	namespace time.Time // start of the current rounds
}

// Run measures everything. The result names unavailable servers as missing. Run fails only if it is canceled or
// the trace is unreadable.
func Run(ctx context.Context, o Options) (Result, error) {
	b := &bench{
		Options: o, embedded: &Embedded{Bin: o.Bin, Dir: o.Dir}, loads: make(map[string]*Load), missing: make(map[Side]error),
		result: Result{Turns: make(Turns), Failed: make(map[string]string)},
	}
	var err error
	if b.viewings, err = replay.ReadFile(b.Trace); err != nil {
		return b.result, err
	}
	alone, together, disk := b.chosen(b.alone()), b.chosen(b.together()), b.chosen([]Variant{onDisk, onFill})
	if len(alone)+len(together)+len(disk) == 0 {
		return b.result, fmt.Errorf("no variant has %q in its name", b.Only)
	}
	stop, err := b.startPostgres(ctx)
	b.missing[OnPostgres] = err
	defer stop()
	b.rounds(ctx, forDiskAlso, alone)
	for _, v := range disk {
		b.turn(ctx, 0, v)
	}
	if len(together) > 0 {
		stop, err := b.startEngines(ctx)
		b.missing[OnEngines] = err
		defer stop()
		b.warmUp(ctx)
		b.rounds(ctx, 0, together)
	}
	return b.result, context.Cause(ctx)
}

// warmUp gives the engines an uncounted turn, in which their virtual machines compile. A failure recurs in a
// counted turn.
func (b *bench) warmUp(ctx context.Context) {
	ctx, cancel := b.installing(ctx, quick-forEngines/2)
	defer cancel()
	began := time.Now()
	if _, err := b.measure(ctx, Variant{OnEngines, cold, GRPC, small}); err == nil {
		b.Log.Info("engines warmed up", "took", time.Since(began).Round(time.Millisecond))
	}
}

func (o Options) chosen(all []Variant) []Variant {
	return slices.DeleteFunc(all, func(v Variant) bool { return !strings.Contains(v.String(), o.Only) })
}

func (b *bench) startPostgres(ctx context.Context) (stop func(), err error) {
	ctx, cancel := b.installing(ctx, quick/2)
	defer cancel()
	e, err := engine.Open(engine.Postgres, b.engine())
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		return func() {}, because(ctx, err)
	}
	b.postgres = &Postgres{Addr: e.Addr(), PID: e.Nodes[0].PID}
	return func() { b.end(e) }, nil
}

// installing bounds the time that a quick run waits for servers, including their installation.
func (b *bench) installing(ctx context.Context, until time.Duration) (context.Context, context.CancelFunc) {
	if !b.Quick {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, b.Began.Add(until), errors.New("no time for that in a quick run; one that is not quick, or make engines, installs it"))
}

func (b *bench) engine() engine.Config {
	return engine.Config{Dir: b.Dir, Lib: b.Lib, PortBase: b.PortBase, Log: b.Log}
}

func (b *bench) startEngines(ctx context.Context) (stop func(), err error) {
	ctx, cancel := b.installing(ctx, quick-forEngines/2)
	defer cancel()
	if ctx.Err() != nil {
		return func() {}, context.Cause(ctx)
	}
	all, err := startEngines(ctx, b.engine())
	stop = func() { b.end(all...) }
	if err != nil {
		return stop, because(ctx, err)
	}
	b.engines = &Engines{Bin: b.Bin, Dir: b.Dir, PIDs: make(map[string]int), Config: b.engine()}
	for i, e := range all {
		b.engines.Addr[i], b.engines.PIDs[e.Name()] = e.Addr(), e.Nodes[0].PID
	}
	return stop, nil
}

// end ends engines concurrently. It kills most of them, because their data is discarded. PostgreSQL stops
// cleanly: its children would outlive it for a moment.
func (b *bench) end(all ...*engine.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Go(func() {
			end := func() error { return e.Kill() }
			if e.Name() == engine.Postgres {
				end = func() error { return e.Stop(ctx) }
			}
			if err := end(); err != nil {
				b.Log.Error("end engine", "engine", e.Name(), "error", err)
			}
		})
	}
	wg.Wait()
}

func (b *bench) measure(ctx context.Context, v Variant) (Figures, error) {
	if err := b.missing[v.needs()]; err != nil {
		return nil, err
	}
	l := b.load(v.Load)
	switch {
	case v.Load == histories:
		return b.reads(ctx, l, v)
	case v.Side == OnPostgres:
		return b.postgres.Measure(ctx, l, v.Door, v.Shape)
	case v == onWarm:
		return b.engines.MeasureWarm(ctx, b.load(cold), l, v.Shape)
	case v.Side == OnEngines:
		return b.engines.Measure(ctx, l, v.Door, v.Shape)
	case v.Side == OnHBase || v.Side == OnKafka:
		return b.engines.MeasureOther(ctx, l, v)
	case v.Side == OnHazelcast:
		return b.engines.MeasureHazelcast(ctx, l, v.Shape)
	case v.Side == Naive:
		return b.engines.MeasureNaive(ctx, l, v.Shape)
	case v == onFill:
		return b.embedded.MeasureFill(ctx, l, b.Quick)
	case v == onDisk:
		return b.embedded.MeasureDisk(ctx, l, v.Shape)
	}
	return b.embedded.Measure(ctx, l, v.Door, v.Shape)
}

// reads gives a variant with reads its turn.
func (b *bench) reads(ctx context.Context, l *Load, v Variant) (Figures, error) {
	switch v.Side {
	case OnPostgres:
		return b.postgres.MeasureReads(ctx, l, b.load(paced), v)
	case OnEngines:
		return b.engines.MeasureCold(ctx, l, [2]*Load{b.load(newcomers), b.load(more)})
	}
	return b.embedded.MeasureReads(ctx, l, b.load(paced), v.Shape)
}

// rounds gives each variant a turn per round, every second round in reverse: a temporary slowdown affects all. A
// late quick run has fewer rounds.
func (b *bench) rounds(ctx context.Context, reserve time.Duration, variants []Variant) {
	b.namespace = time.Now()
	for round := range b.Rounds {
		if round > 0 && b.late(round, reserve) {
			return
		}
		for _, v := range variants {
			b.turn(ctx, round, v)
		}
		slices.Reverse(variants)
	}
}

// turn measures a variant once, unless the run is over or the variant has failed twice. A failed turn counts as
// nil figures, which keeps the rounds aligned.
func (b *bench) turn(ctx context.Context, round int, v Variant) {
	name := v.String()
	if ctx.Err() != nil || b.result.Turns.failures(name) > 1 {
		return
	}
	began, limit := time.Now(), 10*time.Minute
	if b.Quick {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	f, err := b.measure(ctx, v)
	if err != nil {
		b.result.Failed[name], f = err.Error(), nil
		b.Log.Error("turn", "variant", name, "error", err)
	}
	b.result.Turns[name] = append(b.result.Turns[name], f)
	b.Log.Info("turn", "round", round+1, "variant", name, "rate", int(f["rate"]), "acked_us", f["acked"],
		"archived_us", f["archived"], "took", time.Since(began).Round(time.Millisecond))
}

// MakeDir creates a data folder that servers of other users can reach, and returns a function that removes it.
func MakeDir(parent string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp(parent, "playhead-bench-"); err != nil {
		return "", nil, fmt.Errorf("folder for data: %w", err)
	}
	if err = os.Chmod(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL has a user of its own
		return "", nil, fmt.Errorf("folder for data: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// late reports whether a quick run lacks the time for another round.
func (b *bench) late(rounds int, reserve time.Duration) bool {
	took := time.Since(b.namespace) / time.Duration(rounds)
	return b.Quick && time.Since(b.Began)+took+reserve > quick
}

func (b *bench) load(name string) *Load {
	if l := b.loads[name]; l != nil {
		return l
	}
	l := b.build(name)
	l.Name, b.loads[name] = name, l
	return l
}

func (b *bench) build(name string) *Load {
	switch n := b.sizes(); name {
	case trace:
		return NewLoad(first(b.viewings, n.trace), payload)
	case trace0:
		return NewLoad(first(b.viewings, n.trace), 0)
	case dense:
		return NewLoad(Dense(first(b.viewings, n.trace), 20_000), payload)
	case long0:
		return NewLoad(LongViewings(n.long), 0)
	case long900:
		return NewLoad(LongViewings(n.long), 900)
	case cold0:
		return NewLoad(LongViewings(n.engines), 0)
	case cold900:
		return NewLoad(LongViewings(n.engines), 900)
	case histories:
		return NewLoad(manyHistories(), payload)
	case filling:
		return NewLoad(newRecords(n.filling), payload)
	case newcomers:
		return NewLoad(viewingsOf(n.newcomers, 1), payload)
	case warm:
		vs := LongViewings(n.engines)
		for i := range vs {
			vs[i].Object.ID = "1" + vs[i].Object.ID
		}
		return NewLoad(vs, payload)
	case more:
		return NewLoad(named("more", viewingsOf(n.newcomers, 1)), payload)
	case late:
		return NewLoad(viewingsOf(n.players, 100), payload)
	default:
		return NewLoad(LongViewings(map[string]int{
			long: n.long, paced: n.paced, players: n.players, few: n.few, lasting: n.lasting, cold: n.engines,
		}[name]), payload)
	}
}

const pairSize = 300_000

// Pair measures two all-in-ones, of o.Bin and p.Bin, or without and with counts, in turns on one load. It prints the
// ratio of each figure, second to first: median, lowest and highest round. On a busy machine nothing else shows a
// change of some percent.
func Pair(ctx context.Context, out io.Writer, o Options, p Paired) error {
	l, err := p.load(o)
	if err != nil {
		return err
	}
	var sides [2]side
	for i, bin := range []string{o.Bin, cmp.Or(p.Bin, o.Bin)} {
		e := &Embedded{Bin: bin, Dir: o.Dir}
		if i == 1 && p.Counted != "" {
			e.Args, bin = []string{"--counted-types", p.Counted}, bin+", counted"
		}
		sides[i] = side{bin, func(ctx context.Context) (Figures, error) { return e.Measure(ctx, l, GRPC, small) }}
	}
	return inTurns(ctx, out, o, sides)
}

// side is one of two all-in-ones.
type side struct {
	name    string
	measure func(context.Context) (Figures, error)
}

// inTurns measures two sides in turns and prints the ratio of each figure, second to first.
func inTurns(ctx context.Context, out io.Writer, o Options, sides [2]side) error {
	turns := make(Turns)
	for round := range o.Rounds {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			f, err := s.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			turns[s.name] = append(turns[s.name], f)
			o.Log.Info("turn", "round", round+1, "side", s.name, "rate", int(f["rate"]), "acked_us", f["acked"], "archived_us", f["archived"])
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tA\tB\tB/A\tFROM\tTO")
	for _, name := range []string{"acked", "acked.all-in-one", "archived", "archived.all-in-one", "rate", "memory"} {
		a, _ := turns.Of(sides[0].name, name)
		b, _ := turns.Of(sides[1].name, name)
		q, _ := turns.Ratio(sides[1].name, name, sides[0].name, name)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%.2f\t%.2f\n", name, number(a.Median), number(b.Median), q.Median, q.Low, q.High)
	}
	return w.Flush()
}

// Paired is the second side of a pair, and the load.
type Paired struct {
	Bin     string // the second folder, default the first
	Counted string // types that the second side counts
	Load    string // long or trace
	Meta    int    // bytes of metadata
}

func (p Paired) load(o Options) (*Load, error) {
	switch {
	case o.Bin == p.Bin && p.Counted == "":
		return nil, fmt.Errorf("pair: %s twice", p.Bin)
	case p.Load == long:
		return NewLoad(LongViewings(pairSize), p.Meta), nil
	case p.Load != trace:
		return nil, fmt.Errorf("pair: load %q; want %s or %s", p.Load, long, trace)
	}
	viewings, err := replay.ReadFile(o.Trace)
	if err != nil {
		return nil, err
	}
	return NewLoad(first(viewings, pairSize), p.Meta), nil
}
