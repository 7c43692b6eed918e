// Package faults breaks the product under load and counts the cost. It starts real engines and the real commands,
// kills, suspends and disconnects them, and compares the stores with the acknowledgements.
//
// One oracle judges every case. A client notes each event before sending it, and each acknowledgement. At rest
// there is no dirty mark and no message in the queue. Then the cache and the archive must have, for every key, a
// merge of all acknowledged events and any of the others. They must have nothing at or before a delete. This
// covers the latest event, the furthest position, plays, watched time, metadata and the resume point. Pages must
// show all of it without a gap or a repeat. The oracle computes this without the product's merge.
//
// Readers also read during the faults. A read must show everything acknowledged before it began, unless the item
// is incomplete or the case loses the cache itself.
package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/playhead/playhead/history"
)

type scenario struct {
	name, load, fault string
	engines           bool          // needs the engines
	asked             bool          // runs only by name: it takes minutes
	more              time.Duration // time beyond the limit
	run               func(context.Context, *trial) error
}

// Names returns the cases in the order they run.
func Names() []string {
	var names []string
	for _, s := range scenarios(Options{}) {
		names = append(names, s.name)
	}
	return names
}

// Run runs cases one after the other and reports each result to tell. It fails if a name is unknown or the
// engines do not start; findings are in the results. After ctx is done it ends its processes and returns.
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
		if i < 0 && len(family) > 0 { // slow stands for all of slow-...
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
		err = es.start(ctx) // has its own limits
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
	o.Log.Info("case done", "case", s.name, "lost", t.res.Lost, "resurrected", t.res.Resurrected, "error", t.res.Error, "took", time.Since(began).Round(100*time.Millisecond))
	return *t.res
}

// scenarios returns all cases, with their established numbers.
func scenarios(o Options) []scenario {
	const mixed, gentle = "heartbeats, deletes, clears", "heartbeats of running viewings"
	killed := fmt.Sprintf("kill -9 of a random process or engine, %d times", o.Rounds)
	patience := time.Duration(o.Rounds) * 6 * time.Second
	all := []scenario{
		{name: "kill", load: mixed, fault: killed + "; Redis is a cluster, its slots move", more: patience, run: randomKills(o.Rounds, true)},
		{name: "kill-one", load: mixed, fault: killed + "; Redis is one server", more: patience, run: randomKills(o.Rounds, false)},
		{name: "kill-parts", load: mixed, fault: killed + ", while what is old is moved into segments; then the jobs alone", asked: true, more: patience + 5*time.Minute, run: killedCompactions(o.Rounds)},
		{name: "counts", load: "completions, some repeated, taken back or deleted; counted and sent as plays", fault: fmt.Sprintf("a random process or engine killed or suspended, %d times", o.Rounds), asked: true, more: 2*patience + 2*time.Minute, run: countedKills(o.Rounds)},
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
		{name: "21", load: mixed, fault: "failover to a replica that lags " + replicaLag.String(), run: failover},
		{name: "21-back", load: mixed, fault: "Redis follows a replica that lags " + replicaLag.String() + ", and is the master again", run: failback},
		{name: "21-torn", load: mixed, fault: "the append-only file is cut in mid-record", run: tornFile},
		{name: "22", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost, the jobs live", run: queuedLive},
		{name: "23", load: mixed, fault: "topic deleted, offsets moved, messages gone by retention", run: topic},
		{name: "24", load: mixed, fault: "the clock of Redis steps by " + clockStep.String() + ", services die", run: clockSteps},
		{name: "24-far", load: mixed, fault: "the clock of Redis is 100 days ahead for 3 s", run: farAhead},
		{name: "24-apart", load: mixed, fault: "clocks of services 300 ms and two minutes apart", run: apart},
		{name: "25", load: mixed, fault: "a cell of HBase and records of Redis that cannot be decoded", run: damage},
		{name: "26", load: mixed, fault: "Redis evicts, or writes no append-only file", run: volatile},
		{name: "30", load: mixed, fault: "the cache keeps records only for " + shortTTL.String(), more: 2 * shortTTL, run: expiry},
		{name: "30-keep", load: mixed, fault: "the same, and few of each user", more: 2 * shortTTL, run: dropping},
		{name: "queued", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost", run: queued},
		{name: "away", load: mixed, fault: "services and jobs killed while HBase, then Kafka, is away", run: away},
		{name: "hour", load: "an hour at 2,000 heartbeats a second, as fast as they are taken", fault: "HBase down", asked: true, more: 8 * time.Minute, run: hour},
		{name: "compacting", load: gentle, fault: "every process restarted, one after the other", run: compacting},
		{name: "upgrade", load: mixed, fault: "every process replaced by one of another version, one after the other, and back", asked: true, more: 2 * time.Minute, run: upgraded},
		{name: "edges", load: mixed, fault: "edges behind a balancer stopped with SIGTERM, in turn", asked: true, more: 2 * time.Minute, run: stoppedEdges},
		{name: "edges-hasty", load: mixed, fault: "the same without a lame duck: connections are refused, and the case notices", asked: true, more: 2 * time.Minute, run: hastyEdges},
		{name: "drill-redis", load: mixed, fault: "the machine of Redis is lost: restored on a copy of its files, then empty", asked: true, more: time.Minute, run: drillRedis},
		{name: "drill-kafka", load: mixed, fault: "all data of Kafka is lost", asked: true, more: time.Minute, run: drillKafka},
		{name: "drill-hbase", load: mixed, fault: "HBase goes back to a snapshot", asked: true, more: 2 * time.Minute, run: drillHBase},
		{name: "drill-rights", load: mixed, fault: "HBase asks for rights, and has too few", asked: true, more: 3 * time.Minute, run: drillRights},
		{name: "net", load: mixed, fault: "the line to Redis is cut, stalls, is slow one way", run: network},
	}
	all = append(all, slowCases()...)
	for i := range all {
		all[i].engines = true
	}
	return append(all,
		scenario{name: "alone", load: mixed, fault: "kill -9 of the all-in-one, 12 times", run: killedAlone(false)},
		scenario{name: "18-torn", load: mixed, fault: "the same, and half a write at the end of the log", run: killedAlone(true)},
		scenario{name: "18-two", load: mixed, fault: "a second process on the data directory", run: twoProcesses},
		scenario{name: "18-full", load: mixed, fault: "disk full under the embedded store", run: diskFull},
	)
}

// slowCases take, without the start of the engines, about half a minute (silent, hbase) or a minute (kafka,
// service, edge, waiting). Others take two minutes (master-1, master-2, behind) or three (overload).
func slowCases() []scenario {
	const load = "players on WebSockets, watching"
	return []scenario{
		{name: "silent", load: load, fault: "one of four Redis masters silent for 6 s", run: silentMaster(1, 1, 6*time.Second)},
		{name: "slow-master-1", load: load, fault: "one of four Redis masters silent for 12 s, 5 times", asked: true, more: 2 * time.Minute, run: silentMaster(1, 5, 12*time.Second)},
		{name: "slow-master-2", load: load, fault: "the same with two services", asked: true, more: 2 * time.Minute, run: silentMaster(2, 5, 12*time.Second)},
		{name: "slow-behind", load: load, fault: "Redis takes 1.2 s, with one, two and three services", asked: true, more: 2 * time.Minute, run: behindAll},
		{name: "slow-overload", load: load, fault: "three times as much as Redis takes, with one, two and six services", asked: true, more: 3 * time.Minute, run: overload},
		{name: "slow-kafka", load: load, fault: "the broker stands still for 20 s", asked: true, more: time.Minute, run: stalledBroker},
		{name: "slow-hbase", load: load, fault: "the region server stands still for 10 s", asked: true, more: time.Minute, run: stalledRegions},
		{name: "slow-service", load: load, fault: "one of two services stands still for 60 s", asked: true, more: time.Minute, run: standstill},
		{name: "slow-edge", load: load, fault: "the edge stands still for 10 s, 3 times", asked: true, more: time.Minute, run: stoppedEdge},
		{name: "slow-waiting", load: "many players with a message each", fault: "the only service stands still for 5 s", asked: true, more: 2 * time.Minute, run: waiting},
	}
}

type trial struct {
	Options

	es    engines
	rand  *rand.Rand
	book  *book
	res   *Result
	stack *stack
	load  *load
	after func() error // after the processes have ended; may be nil
}

type step = func(context.Context) error

func inTurn(ctx context.Context, steps ...step) error {
	for _, s := range steps {
		if err := s(ctx); err != nil {
			return err
		}
	}
	return nil
}

func wait(d time.Duration) step { return func(ctx context.Context) error { return pause(ctx, d) } }

// run starts the processes, takes steps under load, and compares, as most cases do.
func (t *trial) run(ctx context.Context, sp spec, steps ...step) error {
	if err := t.start(ctx, sp); err != nil {
		return err
	}
	return inTurn(ctx, t.underLoad(steps...), t.markClean)
}

// start starts the processes of a case and prepares its load.
func (t *trial) start(ctx context.Context, sp spec) error {
	t.newStack(sp)
	if err := t.stack.open(ctx); err != nil {
		return err
	}
	t.load = &load{
		book: t.book, rpcs: t.stack.rpcs, name: "c" + t.res.Case, seed: t.Seed, res: t.res,
		gentle: sp.gentle, blind: sp.blind, pages: sp.pages,
	}
	if !sp.direct {
		t.load.edge = t.stack.edge
	}
	return nil
}

// newStack makes the processes of a case; the trial closes them.
func (t *trial) newStack(sp spec) {
	t.stack = &stack{spec: sp, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
}

// markClean waits until the product is at rest and compares.
func (t *trial) markClean(ctx context.Context) error {
	if err := inTurn(ctx, t.stack.awaitReady, t.quiet); err != nil {
		return err
	}
	t.res.QuietMS = time.Since(t.book.last).Milliseconds()
	c := &checker{book: t.book, cache: t.stack.cache, archive: t.stack.archive, rpcs: t.stack.rpcs, res: t.res, pagesOnly: t.load != nil && t.load.pages}
	return c.check(ctx)
}

func (t *trial) quiet(ctx context.Context) error { return t.stack.quiet(ctx, t.Limit) }

func (t *trial) underLoad(steps ...step) step {
	return func(ctx context.Context) error {
		t.load.begin(ctx)
		err := inTurn(ctx, steps...)
		return errors.Join(err, t.load.end())
	}
}

func (t *trial) anew(context.Context) error {
	t.load.epoch.Add(1) // new users; the earlier ones never report again
	return nil
}

// gather starts services, a job, an edge and players. Deadlines are the product's defaults, because the cases
// measure waits. The flags give the address of Redis.
func (t *trial) gather(ctx context.Context, services, players int, flags ...string) (*audience, error) {
	t.newStack(spec{drain: 8 * time.Second})
	s := t.stack
	var watch context.Context
	watch, s.end = context.WithCancel(ctx)
	for i := range services {
		if err := s.startService(ctx, watch, i, flags); err != nil {
			return nil, err
		}
	}
	if err := s.startJob(ctx, watch, 0, flags); err != nil {
		return nil, err
	}
	if err := errors.Join(s.addEdge(ctx, watch), s.awaitReady(ctx)); err != nil {
		return nil, err
	}
	return newAudience(ctx, t, players)
}

// endSlow ends the processes of gather, for a case that starts more than once.
func (t *trial) endSlow() (err error) {
	for _, end := range t.stack.surprises() {
		err = errors.Join(err, errors.New(end))
	}
	err = errors.Join(err, t.stack.close())
	t.stack = nil
	return err
}

// Result is the outcome of one case.
type Result struct {
	Case         string    `json:"case"`
	Load         string    `json:"load"`
	Fault        string    `json:"fault"`
	Acknowledged int       `json:"acknowledged"` // heartbeats, deletes and clears
	Keys         int       `json:"keys"`
	Lost         int       `json:"lost"`
	Resurrected  int       `json:"resurrected"`
	Reads        int       `json:"reads"`    // during the faults, of one object each
	Short        int       `json:"short"`    // reads that showed less than was acknowledged before
	QuietMS      int64     `json:"quiet_ms"` // from the last acknowledgement until everything was archived
	Seed         uint64    `json:"seed"`
	Slow         []SlowRow `json:"slow,omitempty"`
	Notes        []string  `json:"notes,omitempty"`
	Examples     []string  `json:"examples,omitempty"` // differences
	Error        string    `json:"error,omitempty"`    // why the case could not run, or a missed expectation
}

// OK reports whether the case has run without a loss or a resurrection.
func (r *Result) OK() bool { return r.Lost == 0 && r.Resurrected == 0 && r.Short == 0 && r.Error == "" }

const maxExamples = 5

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

// read counts a read during the faults; a nil fault is none. It is not safe for concurrent use.
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

// Print writes the results as a table, and the notes of each below.
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

// PrintJSON writes one JSON object per result and line.
func PrintJSON(out io.Writer, results []Result) error {
	enc := json.NewEncoder(out)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// SlowRow is the effect of something slow on the affected players, and on the others.
type SlowRow struct {
	What      string   `json:"what"`
	Services  int      `json:"services"`
	Players   int      `json:"players"`
	Touched   Share    `json:"touched"`
	Others    Share    `json:"others"`
	RefusedMS int64    `json:"refused_ms"` // Latest failed answer to an affected player.
	LastedMS  int64    `json:"lasted_ms"`  // From the beginning until the last such answer.
	BackMS    int64    `json:"back_ms"`    // From the end until the last failed report was sent; 0 if before.
	Resyncs   int      `json:"resyncs"`    // Maximum per watcher.
	Edge      Weight   `json:"edge"`
	Missed    []string `json:"missed,omitempty"` // missed targets

	began, ended time.Time
}

// Share is the answers to some players' reports while something was slow; the worst of several times.
type Share struct {
	Players  int   `json:"players"`
	Sent     int   `json:"sent"`
	InTime   int   `json:"in_time"` // stored within the edge's deadline
	LatestMS int64 `json:"latest_ms"`
}

// Weight is the resident memory of the edge, MiB.
type Weight struct {
	Before int64 `json:"before_mib"`
	Most   int64 `json:"most_mib"`
}

func (s Share) share() float64 {
	if s.Sent == 0 {
		return 1
	}
	return float64(s.InTime) / float64(s.Sent)
}

func (s *Share) worst(other Share) {
	latest, players := max(s.LatestMS, other.LatestMS), max(s.Players, other.Players)
	if s.Sent == 0 || other.share() < s.share() {
		*s = other
	}
	s.LatestMS, s.Players = latest, players
}

// worst merges another row, keeping the worse of each figure.
func (r *SlowRow) worst(other SlowRow) {
	r.Players = other.Players
	r.Touched.worst(other.Touched)
	r.Others.worst(other.Others)
	r.RefusedMS, r.LastedMS = max(r.RefusedMS, other.RefusedMS), max(r.LastedMS, other.LastedMS)
	r.BackMS, r.Resyncs = max(r.BackMS, other.BackMS), max(r.Resyncs, other.Resyncs)
	r.Edge.Before, r.Edge.Most = cmp.Or(r.Edge.Before, other.Edge.Before), max(r.Edge.Most, other.Edge.Most)
}

func (r *SlowRow) want(held bool, format string, args ...any) {
	if !held {
		r.Missed = append(r.Missed, fmt.Sprintf(format, args...))
	}
}

// wantOthers notes a miss if unaffected players wait too.
func (r *SlowRow) wantOthers() {
	r.want(r.Others.share() >= mostInTime, "of the others' reports %.1f %% are answered in time", 100*r.Others.share())
}

// wantBack notes a miss if the effect outlasts the fault.
func (r *SlowRow) wantBack() {
	r.want(r.BackMS <= backWithin.Milliseconds(), "the last failure is %d ms after the return", r.BackMS)
}

func printSlow(out io.Writer, results []Result) error {
	var rows []SlowRow
	for _, r := range results {
		rows = append(rows, r.Slow...)
	}
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	heads := []string{"slow", "services", "players touched", "of their reports in time", "refused within", "for", "well after", "others' reports in time", "their latest", "resyncs", "edge, MiB"}
	fmt.Fprintln(w, "| "+strings.Join(heads, "\t| ")+"\t|")
	fmt.Fprintln(w, strings.Repeat("|---\t", len(heads))+"|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s\t| %d\t| %s\t|\n", r.What, r.Services, strings.Join(r.cells(), "\t| "))
	}
	return w.Flush()
}

func (r SlowRow) cells() []string {
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	of := func(s Share) string {
		if s.Players == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*s.share())
	}
	return []string{
		fmt.Sprintf("%d of %d", r.Touched.Players, r.Players), of(r.Touched), ms(r.RefusedMS), ms(r.LastedMS), ms(r.BackMS),
		of(r.Others), ms(r.Others.LatestMS), fmt.Sprint(r.Resyncs), fmt.Sprintf("%d to %d", r.Edge.Before, r.Edge.Most),
	}
}
