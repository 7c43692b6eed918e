// Package faults breaks things under load and counts what that cost: it starts real
// engines and the real commands, kills, stops and cuts them off, and compares what
// the stores hold afterwards with what was acknowledged.
//
// One oracle judges every case. A client notes each event before it is sent and each
// acknowledgement when it comes. Once things are quiet (no dirty mark, no message
// left in the queue) the cache and the archive must hold, for every key, a fold of
// all acknowledged events and of any of the others, and nothing at or before a
// delete: the latest event, the furthest position, plays, watched time, metadata and the
// resume point. Pages must show all of it, without a gap or a repeat. The oracle computes
// that without the product's merge.
//
// Readers read while things break, too. Everything acknowledged before a read began must be
// in it, unless it is marked as incomplete, or the case takes away the cache itself.
package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Options say where and how to run. Bin, Lib and Dir are required.
type Options struct {
	Bin      string // folder of the built commands
	Lib      string // folder of the engines' jars, installed when missing
	Dir      string // folder for data, emptied by its owner
	PortBase int    // first port of the engines
	Seed     uint64
	Rounds   int           // of the case "kill"
	Players  int           // of the case "slow-waiting", each with a connection
	Limit    time.Duration // of one case; "kill" has more for its rounds
	Log      *slog.Logger
}

// scenario is one case.
type scenario struct {
	name, load, fault string
	engines           bool          // needs them
	asked             bool          // runs only when it is named, because it takes minutes
	more              time.Duration // that it may take
	run               func(context.Context, *trial) error
}

// trial is one run of a case.
type trial struct {
	Options

	es    engines
	rand  *rand.Rand
	book  *book
	res   *Result
	stack *stack
	load  *load
	after func() error // once the processes have ended; may be nil
}

// Names lists the cases in the order they run.
func Names() []string {
	var names []string
	for _, s := range scenarios(Options{}) {
		names = append(names, s.name)
	}
	return names
}

// Run runs cases one after the other and tells of each when it is over. It fails
// when a name is unknown or the engines do not start; what a case finds is in its
// result. When ctx is done it ends what it started and returns.
func Run(ctx context.Context, o Options, names []string, tell func(Result)) error {
	chosen, err := choose(scenarios(o), names)
	if err != nil {
		return err
	}
	es := engines{}
	if slices.ContainsFunc(chosen, func(s scenario) bool { return s.engines }) {
		if es, err = openEngines(o); err != nil {
			return err
		}
	}
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		tell(s.try(ctx, o, es))
	}
	return errors.Join(ctx.Err(), es.kill())
}

func choose(all []scenario, names []string) ([]scenario, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(s scenario) bool { return s.asked }), nil
	}
	var chosen []scenario
	for _, n := range names {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == n })
		family := slices.DeleteFunc(slices.Clone(all), func(s scenario) bool { return !strings.HasPrefix(s.name, n+"-") })
		if i < 0 && len(family) > 0 { // as slow is all of slow-...
			chosen = append(chosen, family...)
			continue
		}
		if i < 0 {
			return nil, fmt.Errorf("no case %q, want some of %s", n, strings.Join(Names(), ","))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func (s scenario) try(ctx context.Context, o Options, es engines) Result {
	t := &trial{Options: o, es: es, rand: rand.New(rand.NewPCG(o.Seed, 0)), book: newBook()} //nolint:gosec // repeatable
	t.res = &Result{Case: s.name, Load: s.load, Fault: s.fault, Seed: o.Seed}
	var err error
	if s.engines {
		err = es.start(ctx) // has limits of its own
	}
	limit, began := o.Limit+s.more, time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	if err == nil {
		err = s.run(ctx, t)
	}
	if t.stack != nil {
		for _, end := range t.stack.surprises() {
			err = errors.Join(err, errors.New(end))
		}
		err = errors.Join(err, t.stack.close())
	}
	if t.after != nil {
		err = errors.Join(err, t.after())
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		t.res.Error = err.Error()
	}
	t.res.Acknowledged = t.book.count()
	o.Log.Info("case done", "case", s.name, "lost", t.res.Lost, "resurrected", t.res.Resurrected, "err", t.res.Error, "took", time.Since(began).Round(100*time.Millisecond))
	return *t.res
}

// start starts the processes of a case and makes its load, which does not run yet.
func (t *trial) start(ctx context.Context, sp spec) error {
	s := &stack{spec: sp, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
	t.stack = s // closed with the trial
	if err := s.open(ctx); err != nil {
		return err
	}
	t.load = &load{book: t.book, rpcs: t.stack.rpcs, edge: t.stack.edge, name: "c" + t.res.Case, seed: t.Seed, res: t.res}
	return nil
}

// settle waits until things are quiet and compares.
func (t *trial) settle(ctx context.Context) error {
	if err := t.stack.awaitReady(ctx); err != nil {
		return err
	}
	if err := t.stack.quiet(ctx, t.Limit); err != nil {
		return err
	}
	t.res.QuietMS = time.Since(t.book.last).Milliseconds()
	c := &checker{book: t.book, cache: t.stack.cache, archive: t.stack.archive, rpcs: t.stack.rpcs, res: t.res, pagesOnly: t.load != nil && t.load.pages}
	return c.check(ctx)
}

// underLoad runs f while the load does.
func (t *trial) underLoad(ctx context.Context, f func(context.Context) error) error {
	t.load.begin(ctx)
	err := f(ctx)
	return errors.Join(err, t.load.end())
}

// pause lets the load go on for a while: time is the fault here, not a condition.
func pause(ctx context.Context, d time.Duration) error {
	if !run.Sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// scenarios lists all cases; the numbers are those under which the cases are known.
func scenarios(o Options) []scenario {
	const mixed, gentle = "heartbeats, deletes, clears", "heartbeats of running viewings"
	killed := fmt.Sprintf("kill -9 of a random process or engine, %d times", o.Rounds)
	patience := time.Duration(o.Rounds) * 6 * time.Second
	all := []scenario{
		{name: "kill", load: mixed, fault: killed + "; Redis is a cluster, its slots move", more: patience, run: kill(o.Rounds, true)},
		{name: "kill-one", load: mixed, fault: killed + "; Redis is one server", more: patience, run: kill(o.Rounds, false)},
		{name: "1", load: gentle, fault: "kill -9 of all services, their users never come back", run: forgetful},
		{name: "2", load: mixed, fault: "SIGTERM, and twice, while Kafka hangs", run: terminated},
		{name: "3", load: "put, delete, put in one millisecond", fault: "every order, two services", run: oneMoment},
		{name: "4", load: mixed, fault: "puts land after deletes, after a compaction, by a second delivery", run: latePuts},
		{name: "5", load: "clear, then a week of old reports", fault: "late upload", run: latePhone},
		{name: "6", load: "100 objects in one batch", fault: "puts and deletes mixed", run: hundred},
		{name: "7", load: mixed, fault: "jobs killed, stopped and frozen", run: rebalance},
		{name: "8", load: mixed, fault: "undecodable messages, and records that HBase refuses for good; then driven again", run: poison},
		{name: "9", load: mixed, fault: "Redis refuses writes, forgets scripts; a job's workers panic", run: storm},
		{name: "10", load: mixed, fault: fmt.Sprintf("HBase down for %v", outageFor), more: outageFor, run: outage},
		{name: "11", load: mixed, fault: "HBase refuses puts while regions close and open", run: refusals},
		{name: "12", load: gentle, fault: "Redis evicts records before the job reads them", run: eviction},
		{name: "13", load: mixed, fault: "Redis comes back with older content", run: rollback},
		{name: "13-held", load: gentle, fault: "the same, while services hold what is lost", run: rollbackHeld},
		{name: "14", load: "two devices, rewinds, wrong clocks", fault: "none", run: devices},
		{name: "15", load: mixed, fault: "Redis emptied, everybody reconnects", run: stampede},
		{name: "16", load: gentle, fault: "two services by turns", run: alternating},
		{name: "17", load: "viewings of 89 to 91 days ago", fault: "replay", run: oldRows},
		{name: "19", load: mixed, fault: "slots of a Redis Cluster move", run: slots},
		{name: "20", load: mixed, fault: "Redis emptied under load, its run id unchanged", run: emptied},
		{name: "21", load: mixed, fault: "failover to a replica that lags " + behind.String(), run: failover},
		{name: "21-back", load: mixed, fault: "Redis follows a replica that lags " + behind.String() + ", and is the master again", run: failback},
		{name: "21-torn", load: mixed, fault: "the append-only file is cut in mid-record", run: tornFile},
		{name: "22", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost, the jobs live", run: queuedLive},
		{name: "23", load: mixed, fault: "topic deleted, offsets moved, messages gone by retention", run: topic},
		{name: "24", load: mixed, fault: "the clock of Redis steps by " + step.String() + ", services die", run: steps},
		{name: "24-far", load: mixed, fault: "the clock of Redis is 100 days ahead for 3 s", run: farAhead},
		{name: "24-apart", load: mixed, fault: "clocks of services 300 ms and two minutes apart", run: apart},
		{name: "25", load: mixed, fault: "a cell of HBase and records of Redis that cannot be decoded", run: damage},
		{name: "26", load: mixed, fault: "Redis evicts, or writes no append-only file", run: volatile},
		{name: "30", load: mixed, fault: "the cache keeps records only for " + shortLife.String(), more: 2 * shortLife, run: expiry},
		{name: "30-keep", load: mixed, fault: "the same, and few of each user", more: 2 * shortLife, run: dropping},
		{name: "queued", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost", run: queued},
		{name: "away", load: mixed, fault: "services and jobs killed while HBase, then Kafka, is away", run: away},
		{name: "hour", load: "an hour at 2,000 heartbeats a second, as fast as they are taken", fault: "HBase down", asked: true, more: 8 * time.Minute, run: hour},
		{name: "rolling", load: gentle, fault: "every process restarted, one after the other", run: rolling},
		{name: "net", load: mixed, fault: "the line to Redis is cut, stalls, is slow one way", run: network},
	}
	all = append(all, slowCases()...)
	for i := range all {
		all[i].engines = true
	}
	return append(all,
		scenario{name: "alone", load: mixed, fault: "kill -9 of the all-in-one, 12 times", run: killAlone(false)},
		scenario{name: "18-torn", load: mixed, fault: "the same, and half a write at the end of the log", run: killAlone(true)},
		scenario{name: "18-two", load: mixed, fault: "a second process on the data directory", run: two},
		scenario{name: "18-full", load: mixed, fault: "disk full under the embedded store", run: full},
	)
}

// Result is what one case cost.
type Result struct {
	Case         string    `json:"case"`
	Load         string    `json:"load"`
	Fault        string    `json:"fault"`
	Acknowledged int       `json:"acknowledged"` // heartbeats, deletes and clears
	Keys         int       `json:"keys"`
	Lost         int       `json:"lost"`
	Resurrected  int       `json:"resurrected"`
	Reads        int       `json:"reads"`    // while things broke, of one object each
	Short        int       `json:"short"`    // of these, that showed less than was acknowledged before
	QuietMS      int64     `json:"quiet_ms"` // from the last acknowledgement until all was archived
	Seed         uint64    `json:"seed"`
	Slow         []SlowRow `json:"slow,omitempty"`
	Notes        []string  `json:"notes,omitempty"`
	Examples     []string  `json:"examples,omitempty"` // of what is wrong
	Error        string    `json:"error,omitempty"`    // why the case could not run, or what it wanted else
}

// OK reports whether nothing was lost or came back and the case has run.
func (r *Result) OK() bool { return r.Lost == 0 && r.Resurrected == 0 && r.Short == 0 && r.Error == "" }

// maxExamples bounds how many differences are told.
const maxExamples = 5

// count notes what is wrong with a key.
func (r *Result) count(k history.Key, where string, f *fault) {
	if f.resurrected {
		r.Resurrected++
	} else {
		r.Lost++
	}
	r.example(k, where, f)
}

func (r *Result) example(k history.Key, where string, f *fault) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf("%s: %s %s", where, k, f.why))
	}
}

// read notes what a reader was shown while things broke; a nil fault is none. One goroutine
// at a time may call it.
func (r *Result) read(k history.Key, where string, f *fault) {
	r.Reads++
	if f != nil {
		r.Short++
		r.example(k, where, f)
	}
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Print writes the results as a table, and below it what is to be said of each.
func Print(out io.Writer, results []Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CASE\tLOAD\tFAULT\tACKNOWLEDGED\tLOST\tRESURRECTED\tREADS\tSHORT\tQUIET AFTER")
	for _, r := range results {
		lost, risen := fmt.Sprint(r.Lost), fmt.Sprint(r.Resurrected)
		if r.Error != "" {
			lost, risen = "failed", "failed"
		}
		quiet := time.Duration(r.QuietMS) * time.Millisecond
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", r.Case, r.Load, r.Fault, r.Acknowledged, lost, risen, r.Reads, r.Short, quiet.Round(100*time.Millisecond))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		r.remarks(out)
	}
	return printSlow(out, results)
}

func (r *Result) remarks(out io.Writer) {
	for _, n := range r.Notes {
		fmt.Fprintf(out, "%s: %s\n", r.Case, n)
	}
	for _, e := range r.Examples {
		fmt.Fprintf(out, "%s: WRONG: %s\n", r.Case, e)
	}
	if r.Error != "" {
		fmt.Fprintf(out, "%s: FAILED: %s\n", r.Case, strings.ReplaceAll(r.Error, "\n", "\n    "))
	}
}

// PrintJSON writes one JSON object per result, one line each.
func PrintJSON(out io.Writer, results []Result) error {
	enc := json.NewEncoder(out)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
