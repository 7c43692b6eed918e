package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const outageFor = 20 * time.Second

// outage stops HBase under load. Acknowledgements must go on, memory must stay bounded, and the backlog must be
// archived afterwards.
func outage(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	hbase := t.es["hbase"]
	var acked int
	var resident int64
	err := t.underLoad(wait(2*time.Second), kill(hbase), func(ctx context.Context) error {
		before := t.book.count()
		for range int(outageFor.Seconds()) {
			if err := inTurn(ctx, wait(time.Second), t.anew); err != nil {
				return err
			}
			m, err := t.memory()
			if err != nil {
				return err
			}
			resident = max(resident, m)
		}
		acked = t.book.count() - before
		return nil
	})(ctx)
	if err != nil {
		return err
	}
	dirty, err := t.stack.overdue(ctx)
	if err != nil {
		return err
	}
	noticed, took, err := t.catchUp(ctx, hbase)
	if err != nil {
		return err
	}
	t.res.note("%v without HBase: %d acknowledged, largest process %d MiB; noticed %v after its return, then %d keys archived in %v, %.1f times as fast as they came",
		outageFor, acked, resident>>20, noticed.Round(100*time.Millisecond), len(dirty), took.Round(100*time.Millisecond), outageFor.Seconds()/took.Seconds())
	if err := t.markClean(ctx); err != nil {
		return err
	}
	if acked == 0 || resident > 512<<20 {
		return fmt.Errorf("%d acknowledged, %d MiB, want some and at most 512 MiB", acked, resident>>20)
	}
	return nil
}

// catchUp restarts HBase. It returns the time until a job archived something, and from then until the backlog was
// gone.
func (t *trial) catchUp(ctx context.Context, hbase *engine.Engine) (noticed, took time.Duration, err error) {
	const puts = "playhead_job_puts_total"
	before, err := total(ctx, t.stack.jobs, puts)
	if err := errors.Join(err, hbase.Start(ctx)); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := process.Await(ctx, t.Limit, "something to be archived", atLeast(before+1, t.stack.jobs, puts)); err != nil {
		return 0, 0, err
	}
	noticed = time.Since(began)
	err = t.quiet(ctx)
	return noticed, time.Since(began) - noticed, err
}

// memory returns the memory of the product's largest process, in bytes.
func (t *trial) memory() (most int64, err error) {
	for _, u := range t.stack.units() {
		m, err := u.resident()
		if err != nil {
			return 0, err
		}
		most = max(most, m)
	}
	return most, nil
}

// refusals disables the table under load, which makes HBase fail every put, and enables it again. Every call to
// an opening region fails too.
func refusals(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	admin := gohbase.NewAdminClient(t.es["hbase"].Addr()) // its Close panics
	table := []byte(t.stack.name)
	disable := func(ctx context.Context) error { return admin.DisableTable(hrpc.NewDisableTable(ctx, table)) }
	enable := func(ctx context.Context) error { return admin.EnableTable(hrpc.NewEnableTable(ctx, table)) }
	if err := inTurn(ctx, t.underLoad( // less and more than the deadline of a put
		wait(2*time.Second), disable, wait(2*time.Second), enable, t.anew,
		wait(2*time.Second), disable, wait(12*time.Second), enable, t.anew,
	), t.markClean); err != nil {
		return err
	}
	refused, err := total(ctx, t.stack.jobs, "playhead_job_refused_records_total")
	retries, err2 := total(ctx, t.stack.jobs, "playhead_job_retries_total")
	t.res.note("%.0f exchanges tried again, %.0f records refused for good", retries, refused)
	return errors.Join(err, err2)
}

// The heartbeats of an hour at 2,000 per second: 7,280,000 of 520,000 viewings. The case sends them in parts, as
// fast as the product accepts them.
const (
	hourRate     = 2000
	hourParts    = 4
	hourViewers  = 10_000 // per part
	hourViewings = 13     // per viewer
	hourBeats    = 14     // per viewing
	hourMemory   = 1 << 30
)

// hour stops HBase for an hour's worth of heartbeats. No process may exceed a gibibyte, and the backlog must be
// archived at three times the rate of its arrival.
func hour(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 10 * time.Second, sweep: 30 * time.Second}); err != nil {
		return err
	}
	plans := hourPlans()
	hbase := t.es["hbase"]
	if err := errors.Join(t.introduce(ctx, plans), hbase.Kill()); err != nil {
		return err
	}
	resident, err := t.sent(ctx, plans)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(hbase.Start(ctx), t.stack.quiet(ctx, 5*time.Minute)); err != nil {
		return err
	}
	took := time.Since(began)
	t.res.QuietMS = took.Milliseconds()
	rate := float64(t.book.count()) / took.Seconds()
	t.res.note("without HBase the largest process has %d MiB; then %d heartbeats of %d viewings are archived in %v, the start of HBase included: %.0f/s, %.0f times the rate at which they came",
		resident>>20, t.book.count(), hourParts*hourViewers*hourViewings, took.Round(100*time.Millisecond), rate, rate/hourRate)
	if resident > hourMemory || rate < 3*hourRate {
		return errors.New("too much memory, or too slow")
	}
	return t.compare(ctx, plans)
}

func hourPlans() (plans []*replay.Plan) {
	for i := range hourParts {
		vs := replay.Synthetic(hourViewers, hourViewings, hourBeats)
		for n := range vs {
			vs[n].UID = fmt.Sprintf("h%d-%s", i, vs[n].UID)
		}
		plans = append(plans, replay.Expand(vs, 0))
	}
	return plans
}

// introduce warms the viewers in the cache, as most are at the start of such an hour. Without the archive a new
// user would stay cold.
func (t *trial) introduce(ctx context.Context, plans []*replay.Plan) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, p := range plans {
		for _, v := range p.Viewings[:hourViewers] {
			g.Go(func() error { return t.stack.cache.Warm(ctx, v.UID, history.WarmSet{}) })
		}
	}
	return g.Wait()
}

// sent sends all plans, to the services in turn. It returns the peak memory of the largest process, in bytes.
func (t *trial) sent(ctx context.Context, plans []*replay.Plan) (most int64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		for i, p := range plans {
			p.EndAt(time.Now().UnixMilli())
			d := &replay.Driver{Conn: t.stack.conns[i%len(t.stack.conns)]}
			if err := d.Run(ctx, p); err != nil {
				return err
			}
			t.book.add(int(d.Acked()))
		}
		return nil
	})
	g.Go(func() error {
		for {
			m, err := t.memory()
			if most = max(most, m); err != nil {
				return err
			}
			select {
			case <-done:
				return nil
			case <-time.After(time.Second):
			}
		}
	})
	return most, g.Wait()
}

func (t *trial) compare(ctx context.Context, plans []*replay.Plan) error {
	stores := map[string]replay.Reader{"redis": replay.FromCache(t.stack.cache), "hbase": replay.FromArchive(t.stack.archive)}
	for _, p := range plans {
		rep, err := replay.Check(ctx, replay.Model(p), stores)
		if err != nil {
			return err
		}
		t.res.Keys += rep.Records
		t.res.Lost += rep.Missing + rep.Wrong
		t.res.Examples = append(t.res.Examples, rep.Examples...)
	}
	return nil
}

// away stops HBase and then Kafka, and kills every service and job meanwhile. They must restart and acknowledge
// heartbeats; reads that need the archive must fail with unavailable.
func away(ctx context.Context, t *trial) error {
	return t.run(ctx, spec{}, wait(time.Second), t.without("hbase"), t.anew, wait(time.Second), t.without("kafka"), t.anew)
}

func (t *trial) without(name string) step {
	return func(ctx context.Context) error {
		e := t.es[name]
		began := time.Now()
		if err := e.Kill(); err != nil {
			return err
		}
		for _, u := range t.stack.backends() {
			u.kill()
		}
		for _, u := range t.stack.services {
			if err := u.awaitReady(ctx, 20*time.Second); err != nil {
				return fmt.Errorf("without %s: %w", name, err)
			}
		}
		took, before := time.Since(began), t.book.count()
		if err := pause(ctx, 3*time.Second); err != nil {
			return err
		}
		acked := t.book.count() - before
		t.res.note("without %s the killed services are back after %v and acknowledge %d in 3 s", name, took.Round(100*time.Millisecond), acked)
		if acked == 0 {
			return fmt.Errorf("without %s nothing is acknowledged", name)
		}
		if name == "hbase" {
			_, err := t.stack.rpcs[0].List(ctx, &historyv1.ListRequest{Uid: "stranger"})
			if status.Code(err) != codes.Unavailable {
				return fmt.Errorf("a page of the archive is answered with %v, want it unavailable", status.Code(err))
			}
		}
		return e.Start(ctx)
	}
}

// forgetful kills every service while it holds keys of users who never report again.
func forgetful(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 5 * time.Second, sweep: 12 * time.Second, gentle: true}); err != nil {
		return err
	}
	if err := t.underLoad(wait(3 * time.Second))(ctx); err != nil {
		return err
	}
	held, err := total(ctx, t.stack.services, "playhead_aggregate_held_keys")
	if err == nil && held == 0 {
		err = errors.New("no service holds a key")
	}
	if err != nil {
		return err
	}
	crash(t.stack.services)
	t.res.note("%.0f keys were held", held)
	if err := t.quiet(ctx); err != nil {
		return err
	}
	up(t.stack.services)
	return t.markClean(ctx)
}

// terminated stops services with SIGTERM under load while no broker answers. One may drain, the other receives
// the signal twice.
func terminated(ctx context.Context, t *trial) error {
	kafka := t.es["kafka"]
	return t.run(ctx, spec{}, func(ctx context.Context) error {
		if err := errors.Join(pause(ctx, time.Second), kafka.Signal(syscall.SIGSTOP), pause(ctx, time.Second)); err != nil {
			return err
		}
		one, err := measureEnd(ctx, t.stack.services[0], t.stack.drain+time.Second, syscall.SIGTERM)
		if err != nil {
			return err
		}
		two, err := measureEnd(ctx, t.stack.services[1], 3*time.Second, syscall.SIGTERM, syscall.SIGTERM)
		t.res.note("without brokers a service ends %v after SIGTERM, %v after a second one", one, two)
		return errors.Join(err, kafka.Signal(syscall.SIGCONT))
	})
}

// measureEnd sends signals, the second after the first took effect. It returns the time from the last signal to
// the end.
func measureEnd(ctx context.Context, u *unit, limit time.Duration, signals ...syscall.Signal) (time.Duration, error) {
	var p *process.Process
	for i, sig := range signals {
		if i > 0 {
			stopping := func(context.Context) error {
				if !strings.Contains(p.Log(), "component stopped") {
					return errors.New("no part has stopped")
				}
				return nil
			}
			if err := process.Await(ctx, limit, u.name+" to begin its stop", stopping); err != nil {
				return 0, err
			}
		}
		p = u.signal(sig)
	}
	began := time.Now()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.Done():
		return time.Since(began).Round(time.Millisecond), nil
	case <-late.C:
		return 0, fmt.Errorf("%s still runs %v after %v", u.name, limit, signals)
	}
}

// alternating sends each user's events to two services in turns.
func alternating(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{gentle: true, direct: true}); err != nil {
		return err
	}
	if err := inTurn(ctx, t.underLoad(wait(8*time.Second)), t.allAcked); err != nil {
		return err
	}
	conflicts, err := total(ctx, t.stack.services, "playhead_write_conflicts_total")
	if err != nil {
		return err
	}
	t.res.note("%.0f writes lost a race and were tried again", conflicts)
	return t.markClean(ctx)
}

// allAcked fails after an unacknowledged event. Without a fault all are acknowledged, which leaves the oracle a
// single outcome.
func (t *trial) allAcked(context.Context) error {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	for k, s := range t.book.stories {
		for _, e := range s.events {
			if !e.acked {
				return fmt.Errorf("%s: %s was not acknowledged", k, e)
			}
		}
	}
	return nil
}

// rebalance kills, suspends and stops jobs under load: partitions move with batches in flight. No committed
// offset may go back.
func rebalance(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{jobs: 3}); err != nil {
		return err
	}
	watching, end := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return t.watchOffsets(watching) })
	err := inTurn(ctx, t.underLoad(t.shuffleJobs), t.markClean)
	end()
	return errors.Join(err, g.Wait())
}

func (t *trial) shuffleJobs(ctx context.Context) error {
	for n := range 12 {
		u := t.stack.jobs[t.rand.IntN(len(t.stack.jobs))]
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSTOP}[n%3]
		u.signal(sig)
		if sig == syscall.SIGSTOP { // once longer than the job's session
			if err := pause(ctx, time.Duration(n/11*11)*time.Second); err != nil {
				return err
			}
			u.signal(syscall.SIGCONT)
		}
		if err := inTurn(ctx, wait(time.Duration(500+t.rand.IntN(2000))*time.Millisecond), t.anew); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) watchOffsets(ctx context.Context) error {
	highest := make(map[int]int64)
	samples := 0
	for ctx.Err() == nil {
		committed, _, err := t.stack.offsets(ctx, t.stack.name, t.stack.name)
		for p, at := range committed {
			if last, seen := highest[p]; err == nil && seen && at < last {
				return fmt.Errorf("partition %d went back from %d to %d", p, last, at)
			}
			if err == nil {
				highest[p] = at
			}
		}
		samples++
		_ = pause(ctx, 200*time.Millisecond)
	}
	t.res.note("committed offsets seen %d times, none went back", samples)
	return nil
}

const (
	edges      = 2
	edgeStops  = 3               // of each edge
	lameDuck   = 5 * time.Second // default of --lame-duck
	edgeDrain  = 20 * time.Second
	probeEvery = time.Second // of the balancer
	probeFails = 2           // failed probes in a row that take an edge out
)

// stoppedEdges stops edges behind a balancer with SIGTERM, in turn. An edge that the balancer has not taken out must
// accept connections, and one retry must suffice for each player.
func stoppedEdges(ctx context.Context, t *trial) error {
	b, err := t.stopEdges(ctx, lameDuck, t.retried)
	if err == nil && b.refused.Load() > 0 {
		err = errors.New("an edge left before the balancer could notice")
	}
	return err
}

// hastyEdges is the control of stoppedEdges: edges without a lame duck must refuse connections.
func hastyEdges(ctx context.Context, t *trial) error {
	b, err := t.stopEdges(ctx, 0, t.reported)
	if err == nil && b.refused.Load() == 0 {
		err = errors.New("no connection was refused by edges without a lame duck: the case edges would notice nothing")
	}
	return err
}

// stopEdges stops edges with SIGTERM, in turn, while all players report through a balancer.
func (t *trial) stopEdges(ctx context.Context, lame time.Duration, while func(context.Context, target, ...step) error) (*balancer, error) {
	if err := t.start(ctx, spec{}); err != nil {
		return nil, err
	}
	watch, end := context.WithCancel(ctx)
	defer end()
	b := &balancer{fresh: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	var stops []step
	for i := range edges {
		u, c, err := t.stack.newEdge(ctx, watch, fmt.Sprintf("bff-%d", i), "--lame-duck", lame.String())
		if err == nil {
			err = u.awaitReady(ctx, 20*time.Second)
		}
		if err != nil {
			return nil, err
		}
		e := &balanced{unit: u, client: c}
		b.edges, stops = append(b.edges, e), append(stops, e.stop)
		t.stack.wg.Go(func() { e.probe(watch) })
	}
	var steps []step
	for range edgeStops {
		steps = append(steps, stops...)
	}
	err := while(ctx, b, append([]step{b.complete}, steps...)...)
	t.res.note("%d stops of an edge; %d connections were refused by an edge that was not out", len(steps), b.refused.Load())
	return b, err
}

// balancer is a target that spreads requests over its edges. Half of them use a new connection.
type balancer struct {
	edges []*balanced
	fresh *http.Client // without keep-alive

	requests, refused atomic.Int64
}

// balanced is an edge behind a balancer.
type balanced struct {
	unit   *unit
	client edgeClient
	in     atomic.Bool // gets requests
}

// probe takes the edge out after some failed probes, and in after one that succeeds.
func (e *balanced) probe(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; run.Sleep(ctx, probeEvery) {
		asking, cancel := context.WithTimeout(ctx, probeEvery)
		if failed++; e.unit.readyNow(asking) == nil {
			failed = 0
		}
		cancel()
		if failed == 0 || failed >= probeFails {
			e.in.Store(failed == 0)
		}
	}
}

// stop stops the edge, and waits until the supervisor has started it again and it gets requests.
func (e *balanced) stop(ctx context.Context) error {
	if err := e.unit.restart(ctx, lameDuck+edgeDrain); err != nil {
		return err
	}
	return e.awaitIn(ctx)
}

func (e *balanced) awaitIn(ctx context.Context) error {
	return process.Await(ctx, 20*time.Second, e.unit.name+" to get requests", func(context.Context) error {
		if !e.in.Load() {
			return errors.New("it is out")
		}
		return nil
	})
}

// complete waits until all edges get requests.
func (b *balancer) complete(ctx context.Context) error {
	for _, e := range b.edges {
		if err := e.awaitIn(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *balancer) apply(ctx context.Context, events []*event) ([]bool, error) {
	n := b.requests.Add(1)
	e, err := b.pick(int(n))
	if err != nil {
		return nil, err
	}
	c := e.client
	if n/edges%2 == 0 {
		c.client = b.fresh
	}
	acked, err := c.apply(ctx, events)
	if errors.Is(err, syscall.ECONNREFUSED) {
		b.refused.Add(1)
	}
	return acked, err
}

// pick returns the edges that are in by turns.
func (b *balancer) pick(n int) (*balanced, error) {
	for i := range b.edges {
		if e := b.edges[(n+i)%len(b.edges)]; e.in.Load() {
			return e, nil
		}
	}
	return nil, errors.New("no edge is in")
}
