package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/compaction"
	"github.com/playhead/playhead/history-job/recovery"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/internal/run"
)

func (w *World) event(d *dice) {
	kind := d.n(17)
	if w.shaky && d.one(3) {
		kind = 12 + d.n(2)
	}
	switch kind {
	case 12:
		if w.snapshot == nil || d.one(3) {
			w.snapshot = w.cache.Clone()
		}
	case 13:
		if w.traits.loses {
			w.resetCache(d)
		}
	case 14:
		if store := d.n(stores); store == archiveStore && w.traits.older && d.one(4) { // longer than two sweep ages
			w.leaveFor(store, 2*sweepAge+time.Duration(d.n(20))*time.Second)
		} else {
			w.leave(store, d)
		}
	case 15:
		w.damage(d)
	case 16:
		store, uid := d.n(queueStore), w.uids[d.n(len(w.uids))] // possibly longer than jobs retry
		w.leavePart(store, uid, [...]time.Duration{5 * time.Second, time.Minute, 5 * time.Minute}[d.n(3)])
	case 0, 1:
		w.kill(w.services[d.n(len(w.services))].process, "is killed")
	case 2:
		if !w.traits.older {
			w.kill(w.jobs[d.n(len(w.jobs))].process, "is killed")
		}
	case 3:
		w.tracef("queue   a new generation")
		w.queue.rebalance(d)
	case 4:
		w.tracef("queue   reads again what was committed")
		w.queue.rewind(d)
		w.queue.rebalance(d)
	case 5:
		w.tracef("queue   loses what nobody has read")
		w.queue.lose()
	case 6, 7:
		w.forget(w.uids[d.n(len(w.uids))])
	case 8:
		w.cacheClock.disturb(d, 10*time.Minute)
		w.tracef("cache   its clock shows %s", moment(w.cacheClock.nowMS()))
	case 9, 10:
		s := w.services[d.n(len(w.services))]
		s.clock.disturb(d, 2*time.Minute)
		w.disturbed()
		w.tracef("%-7s its clock shows %s", s.name, moment(s.clock.nowMS()))
	default:
		c := w.clients[d.n(len(w.clients))]
		c.offset = time.Duration(d.n(20_000)-10_000) * time.Millisecond
		if d.one(2) {
			c.offset = 0
		}
	}
}

// forget lets the cache forget a user whose keys expire. Pending warm-ups and writes of that user never land:
// they would be months old.
func (w *World) forget(uid string) {
	for _, namespace := range w.namespacesOf(uid) {
		if !w.cache.Expire(namespace) {
			continue
		}
		others := func(k history.Key) bool { return k.UID != namespace }
		w.ghosts = slices.DeleteFunc(w.ghosts, func(g *ghost) bool {
			return (g.x.what == "warm" || g.x.what == "apply") && !slices.ContainsFunc(g.x.keys, others)
		})
		w.isCold(uid)
		w.tracef("cache   forgets %s", namespace)
	}
}

func (w *World) damage(d *dice) {
	objects := w.objects()
	k := history.Key{UID: w.uids[d.n(len(w.uids))], Object: objects[d.n(len(objects))]}
	for _, namespace := range w.namespacesOf(k.UID) {
		if k.UID = namespace; w.cache.Damage(k) {
			w.tracef("cache   nobody can read what it has of %s", k)
			return
		}
	}
}

// leave makes a store unavailable for a while.
func (w *World) leave(store int, d *dice) {
	w.leaveFor(store, time.Duration(d.n(8000))*time.Millisecond)
}

func (w *World) leaveFor(store int, d time.Duration) {
	until := time.Now().Add(d)
	w.away[store].Store(until.UnixNano())
	w.tracef("%-7s answers nobody until %s", storeNames[store], moment(until.UnixMilli()))
}

// leavePart makes a store unavailable for one user for a while.
func (w *World) leavePart(store int, uid string, d time.Duration) {
	until := time.Now().Add(d)
	w.parts[store] = awayPart{uid, until}
	w.tracef("%-7s does not answer for %s until %s", storeNames[store], uid, moment(until.UnixMilli()))
}

// resetCache empties the cache or brings it back older. An abandoned write then never lands, because Playhead
// promises nothing about writes from an earlier epoch. A write whose caller still waits may land.
func (w *World) resetCache(d *dice) {
	if w.traits.older && w.snapshot != nil && !d.one(4) {
		w.tracef("cache   comes back older")
		w.cache = w.snapshot.Clone()
		w.cache.Rules = w.rules
		for _, j := range w.jobs { // the next epoch starts in the middle of it
			j.absent = false
		}
	} else {
		w.tracef("cache   is lost with all it has")
		w.cache = w.newCache()
	}
	w.begin()
	w.allCold()
	writes := func(x *exchange) bool {
		return slices.Contains([]string{"apply", "clear", "pause", "warm", "mark_clean", "trim"}, x.what)
	}
	w.ghosts = slices.DeleteFunc(w.ghosts, func(g *ghost) bool { return writes(g.x) })
	for _, x := range w.pending { // lands while its caller waits
		if writes(x) {
			x.late = nil
		}
	}
	w.oracle.lose(w.inArchive, w.remembers)
	for _, c := range w.clients { // may contain unacknowledged records
		c.backup = nil
	}
	if d.one(2) { // a slow start
		w.leave(cacheStore, d)
	}
	if d.one(4) { // the archive failed too
		w.leave(archiveStore, d)
	}
	if d.one(2) { // with every service that could restore anything
		for _, s := range w.services {
			w.kill(s.process, "is killed")
		}
	}
}

// remembers reports whether a live service restores a key: it holds the key, or acknowledged it within the
// retention. For the user's own state the retention is nine minutes.
func (w *World) remembers(number int, k history.Key, at time.Time) bool {
	s := w.living(number)
	switch {
	case s == nil:
		return false
	case k.IsUser():
		return time.Since(at) < 9*time.Minute
	}
	_, _, held := s.held.Get(w.rules.Home(k))
	return held || time.Since(at) < w.traits.retain-requestLimit
}

func (w *World) living(number int) *service {
	for _, s := range w.services {
		if s.number == number && !s.dead.Load() {
			return s
		}
	}
	return nil
}

func (w *World) allCold() {
	for _, uid := range w.uids {
		w.isCold(uid)
	}
}

// isCold notes that the cache knows nothing of a user until the next request.
func (w *World) isCold(uid string) {
	w.cold[uid], w.oracle.users[uid].pause.forgotten = true, true
}

// disturbed makes switches in flight uncertain.
func (w *World) disturbed() {
	for _, u := range w.oracle.users {
		if u.pause.open > 0 {
			u.pause.unknown++
		}
	}
}

// ownSource is a process's random numbers. Concurrent callers get numbers independent of their order, by the
// functions on their stacks.
type ownSource struct {
	seed  uint64
	mu    sync.Mutex
	drawn map[uint64]uint64 // numbers drawn, by calling functions
}

// Uint64 implements [rand.Source]. The number depends on the calling functions and on the count of their earlier
// calls.
func (s *ownSource) Uint64() uint64 {
	who := uint64(0)
	for f := range calledBy().names() {
		for i := range len(f) {
			who = who*31 + uint64(f[i])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn[who]++
	return scramble(scramble(s.seed+who) + s.drawn[who])
}

var _ rand.Source = (*ownSource)(nil)

func (w *World) newProcess(name string) *process {
	w.born++
	p := &process{w: w, number: w.born, name: name}
	p.clock.origin = w.began
	ctx := run.WithSource(context.Background(), &ownSource{seed: mix(w.src.seed, streams, uint64(w.born)), drawn: make(map[uint64]uint64)})
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// epoch returns the cache's epoch. The caller first waits for its turn: goroutines of a job read what it has
// learned.
func (p *process) epoch(ctx context.Context) (string, error) {
	p.await("epoch")
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if p.w.isAway(cacheStore) {
		return "", errNoAnswer
	}
	return p.w.cacheEpoch(), nil
}

// epoch fails while epoch reads are held up: a cache server may answer for keys and not for its epoch.
func (p *jobProcess) epoch(ctx context.Context) (string, error) {
	name, err := p.process.epoch(ctx)
	if err == nil && p.w.delayed["epoch"] && !p.w.calm {
		err = errNoAnswer
	}
	return name, err
}

func (w *World) startService(i int) {
	s := &service{process: w.newProcess(fmt.Sprintf("svc%d", i+1))}
	if old := w.services[i]; old != nil {
		s.clock.offset, s.clock.origin, s.clock.drift = old.clock.offset, old.clock.origin, old.clock.drift
	}
	w.services[i] = s
	agg, err := aggregate.New(aggregate.Config{
		Publisher: publisher{s.process}, Confirm: func(ctx context.Context) error { return s.rpc.Confirm(ctx) },
		Retain: w.traits.retain, Hold: w.traits.hold, Tick: tick, Deadline: 2 * time.Second, Drain: time.Second,
	})
	if err != nil {
		panic(err)
	}
	s.held = agg
	c := rpc.Config{
		Cache: serviceDoor{cacheDoor{s.process}}, Archive: w.archiveOf(s.process), Aggregate: agg, Queue: publisher{s.process},
		Epoch: s.epoch, Deadline: requestLimit, Keep: w.cfg.Keep, Warmers: 2, Now: s.clock.now, Rules: w.rules,
	}
	if w.counting != nil {
		c.Counts, c.Counted = countsDoor{s.process}, everyType
	}
	s.rpc, err = rpc.New(c)
	if err != nil {
		panic(err)
	}
	go func() { _ = agg.Run(s.ctx) }()
	go func() { _ = s.rpc.Run(s.ctx) }()
}

func (w *World) startJob(i int) {
	p := &jobProcess{process: w.newProcess(fmt.Sprintf("job%d", i+1))}
	w.jobs[i] = p
	machine := recovery.NewMachine(recovery.MachineConfig{Epoch: p.epoch, Suspect: suspect, Deadline: 2 * time.Second})
	c := archive.Config{
		Cache: cacheDoor{p.process}, Archive: w.archiveOf(p.process), Epochs: machine,
		SweepEvery: sweepEvery, SweepAge: sweepAge, TrimOneIn: 1, Deadline: 2 * time.Second, Pause: 50 * time.Millisecond,
	}
	compactor := compaction.Config{Every: 2 * time.Second, CountOneIn: 1, Deadline: 2 * time.Second}
	if d, ok := c.Archive.(compactedDoor); ok {
		p.compactions, compactor.Compactor, compactor.Notes = d, d, d
	}
	worker, errWorker := compaction.New(compactor)
	c.Archived = worker.Archived
	if w.counting != nil {
		c.Counts, c.Counted = countsDoor{p.process}, everyType
	}
	if w.traits.plays {
		c.Plays = playsDoor{p.process}
	}
	archiver, errArchiver := archive.New(c)
	recoverer, errRecovery := recovery.New(recovery.Config{
		Machine: machine, Archiver: archiver, Consumer: consumer{p.process}, Queue: consumer{p.process}, Rules: w.rules, EpochEvery: w.traits.watch,
	})
	if err := errors.Join(errWorker, errArchiver, errRecovery); err != nil {
		panic(err)
	}
	for n, run := range []func(context.Context) error{
		archiver.Generations(recoverer, archive.Loops{
			"consume": archiver.Consume, "sweep": archiver.Sweep,
			"restore": recoverer.Restore, "compact": worker.Compact, "recall": worker.Recall,
		}),
		archiver.SweepAlone(), archiver.Measure(), recoverer.Follow(),
	} {
		go func() {
			time.Sleep(time.Duration(n) * 137 * time.Microsecond) // parts of one interval never meet: the order would be the scheduler's
			_ = run(p.ctx)
		}()
	}
}

// kill ends a process at once. Its exchanges are lost, or land later.
func (w *World) kill(p *process, why string) {
	if p.dead.Load() {
		return
	}
	w.tracef("%-7s %s", p.name, why)
	p.down = time.Now()
	w.oracle.died(p.number)
	p.dead.Store(true)
	p.cancel()
	left := w.pending[:0]
	for _, x := range w.pending {
		if x.proc != p {
			left = append(left, x)
			continue
		}
		if _, lands := w.src.chance(streamFate, 5000); lands {
			w.haunt(x, x.left)
		}
		x.end()
	}
	w.pending = left
}

// revive starts processes that have been dead for a while.
func (w *World) revive() {
	for i, s := range w.services {
		if s.dead.Load() && time.Since(s.down) > w.traits.down {
			w.startService(i)
			w.tracef("%-7s starts", w.services[i].name)
		}
	}
	if w.counting != nil {
		w.counting.revive()
	}
	for i, j := range w.jobs {
		if j.dead.Load() && time.Since(j.down) > w.traits.down && !j.absent {
			w.startJob(i)
			w.tracef("%-7s starts", w.jobs[i].name)
		}
	}
}

// Times and sizes are small: everything happens often.
const (
	tick         = 200 * time.Millisecond
	requestLimit = 1500 * time.Millisecond
	sweepEvery   = 2 * time.Second
	sweepAge     = 6 * time.Second
	longestPause = 5 * time.Second // between two retries of a job
	suspect      = time.Minute
)

// clock is the clock of one machine: it is off, drifts, and may stop.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
	drift  int64 // microseconds per second, since origin
	origin time.Time
	stood  time.Time // time it stopped; zero while it runs
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

// read returns the time shown. The caller holds c.mu.
func (c *clock) read() time.Time {
	t := time.Now()
	if !c.stood.IsZero() {
		t = c.stood
	}
	return t.Add(c.offset + time.Duration(int64(t.Sub(c.origin))*c.drift/1_000_000))
}

// rate starts the clock with a drift. The caller holds c.mu.
func (c *clock) rate(drift int64) {
	shown, t := c.read(), time.Now()
	c.offset, c.origin, c.drift, c.stood = shown.Sub(t), t, drift, time.Time{}
}

func (c *clock) nowMS() int64 { return c.now().UnixMilli() }

// disturb steps, slows, stops or starts the clock.
func (c *clock) disturb(d *dice, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch d.n(4) {
	case 0:
		c.offset = time.Duration(d.n(int(2*most))) - most
	case 1:
		c.offset += time.Duration(d.n(600))*time.Millisecond - 300*time.Millisecond
	case 2:
		if c.rate(int64(d.n(2000)) - 1000); d.one(2) {
			c.rate([...]int64{-990_000, -999_000}[d.n(2)]) // it crawls: many events have nearly one time
		}
	default:
		if c.stood.IsZero() {
			c.stood = time.Now()
		} else {
			c.stood = time.Time{}
		}
	}
}

// set starts the clock at an offset, without drift.
func (c *clock) set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset, c.origin, c.drift, c.stood = offset, time.Now(), 0, time.Time{}
}

// goOn starts the clock and stops its drift.
func (c *clock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate(0)
}
