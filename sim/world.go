// Package sim runs the real service, aggregator and job against stores in memory, under
// virtual time and one seed, with faults at every exchange, and judges what clients were
// told and shown. See DESIGN.md beside it.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Config says what a world is like. Zero values take the defaults.
type Config struct {
	Seed  uint64
	Steps int // how many to make at most (default 10,000)
	// How many of each there are (defaults 2, 2, 2, 6, 6).
	Services, Jobs, Edges, Clients, Objects int
	// Users is how many there are, and Keep how many records of one the cache keeps (both are drawn by default).
	Users, Keep int
	// Trace is told what happens, in words; nil for nobody.
	Trace io.Writer
	// Only are the decisions that may be taken; nil for all.
	Only map[decision]bool
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v   *int
		def int
	}{{&c.Steps, 10_000}, {&c.Services, 2}, {&c.Jobs, 2}, {&c.Edges, 2}, {&c.Clients, 6}, {&c.Objects, 6}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return c
}

// traits are what a seed decides for all of its run. Things that have to come together to be
// noticed have seeds of their own, where they are not rare.
type traits struct {
	users, keep int
	// hold is how long services hold a key, retain how long they remember what they announced,
	// watch how often jobs ask for the cache's life, and down how long a process is away that died.
	hold, retain, watch, down time.Duration
	queued                    int     // one message in so many is to be acknowledged as queued
	session                   int     // one report in so many begins a session: where each one does, each counts
	knowing                   int     // one report in so many names the record that its device knows
	grain                     int64   // milliseconds by which the clocks of devices go on
	astray                    int     // how often, of ten thousand, a call goes to any service, and not to its user's
	loses                     bool    // the cache loses something at times: of what is lost nobody is sure
	shaky                     bool    // there are storms in which it does again and again
	older                     bool    // it comes back older: then no job dies, since nobody else knows what that one archived
	anew, nights              int     // one rest in so many has all users begin anew, one storm in so many a night
	long                      int     // tenths of the usual length that its storms have
	weak                      string  // what is weak in most storms, empty for anything
	fault                     fault   // what goes wrong with half of that, 0 for anything
	moods                     [2]mood // what clients do again and again in most storms, the same twice for anything
	narrow                    int     // how many objects they have in most storms, 0 for any number
	sequences                 bool    // it has sequences in the place of storms
	between                   int     // and so many of them between two rests
}

func (s *source) traits() traits {
	d := &dice{s.draw(streamSeed)}
	t := traits{
		users: [...]int{3, 3, 2, 1}[d.n(4)], keep: [...]int{1, 3, 100, 100}[d.n(4)],
		hold:    [...]time.Duration{600 * time.Millisecond, 3 * time.Second, 20 * time.Second}[d.n(3)],
		retain:  [...]time.Duration{5 * time.Second, 2 * time.Second}[d.n(2)],
		watch:   [...]time.Duration{time.Second, 10 * time.Second}[d.n(2)],
		down:    [...]time.Duration{300 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[d.n(3)],
		queued:  [...]int{6, 6, 2}[d.n(3)],
		session: [...]int{8, 1}[d.n(2)], knowing: [...]int{6, 2}[d.n(2)], grain: [...]int64{40, 40, 1000}[d.n(3)],
		astray: [...]int{2500, 2500, 9000}[d.n(3)],
		loses:  !d.one(3), shaky: d.one(2), older: d.one(2),
		fault: [...]fault{0, 0, landsLater, landsTwice, slow}[d.n(5)],
		anew:  [...]int{4, 1}[d.n(2)], nights: [...]int{4, 1}[d.n(2)], long: [...]int{10, 10, 50}[d.n(3)],
	}
	switch d.n(8) {
	case 0: // what is archived at once is lost with a cache that comes back older
		t.loses, t.shaky, t.older, t.long = true, true, true, 50
		t.hold, t.retain, t.watch, t.down = 600*time.Millisecond, 2*time.Second, 10*time.Second, 300*time.Millisecond
	case 1: // services remember what the cache has forgotten
		t.hold, t.retain, t.keep, t.nights, t.anew, t.astray, t.weak, t.loses = 20*time.Second, 2*time.Second, 100, 1, 4, 9000, "warm", false
	case 2: // births of users with hardly any history come late
		t.hold, t.keep, t.anew, t.weak, t.narrow, t.loses = 600*time.Millisecond, 1, 1, "apply", 2, false
	case 3: // many devices of one user play one object
		t.users, t.narrow, t.loses, t.shaky = 1, 1, true, true
	case 4: // cell times run ahead of the times of reports
		t.moods, t.grain, t.narrow, t.loses, t.long = [2]mood{beginning, uploading}, 1000, 2, false, 1
	case 5: // births come late, and recording is switched off
		t.moods, t.weak, t.fault, t.session, t.astray, t.narrow, t.loses = [2]mood{deciding, reading}, "apply", landsLater, 1, 9000, 2, false
	}
	if t.sequences, t.between = d.one(2), 1+d.n(4); t.sequences {
		t.watch, t.loses = time.Second, !d.one(4)
		t.grain = [...]int64{1, 1, 40, 1000}[d.n(4)]
		t.users, t.keep = 1, [...]int{1, 1, 2, 100}[d.n(4)]
		t.hold = [...]time.Duration{600 * time.Millisecond, 20 * time.Second}[d.n(2)]
	}
	return t
}

// World is one run.
type World struct {
	cfg     Config
	traits  traits
	src     source
	began   time.Time
	cache   *Cache
	archive *Archive
	queue   *queue
	oracle  *oracle

	services []*service
	jobs     []*jobProcess
	edges    []*edge
	clients  []*client
	uids     []string
	born     int

	cacheClock clock
	lives      atomic.Int64 // of the cache
	lived      time.Time    // when the last one began

	mu        sync.Mutex // guards what goroutines tell
	arrived   []*exchange
	abandoned []*exchange
	left      []*member
	completed []*call
	wake      chan struct{} // of capacity 1: somebody was abandoned while time passes

	archived map[history.Key]bool // keys of which something is archived that was stored in this life of the cache
	cold     map[string]bool      // users of whom the cache may not know everything, as far as anybody can tell
	floored  map[string]int64     // users, and when somebody last read that they have a floor
	snapshot *Cache               // what the cache may go back to
	pending  []*exchange
	ghosts   []*ghost
	calls    int
	steps    int
	turns    int                  // steps of storms, and times at which nothing could be done
	rough    int                  // how often exchanges go wrong, of ten thousand
	landing  int                  // how often one lands that was given up, of ten thousand
	calm     bool                 // nothing goes wrong any more
	calmed   time.Time            // since when
	judged   time.Time            // when the last rest ended
	moods    [2]mood              // what clients do again and again
	narrow   int                  // how many objects they have
	shaky    bool                 // the cache is lost again and again
	weak     string               // what goes wrong more often than other exchanges, empty for none
	away     [stores]atomic.Int64 // until when a store does not answer, in Unix nanoseconds
	through  int                  // the service that calls go to, or anyService
	delayed  map[string]bool      // kinds of exchanges that wait, where no client's call is made for them
	course   course               // what becomes of the write of the last call

	failure string

	revisions map[uint64]int // that a trace has shown, and their numbers
}

// anyService is where calls go that go to no certain one.
const anyService = -1

// Result is what became of a run.
type Result struct {
	Steps   int
	Failure string // empty when nothing was wrong
	turns   int
	taken   []decision
}

// Run makes a world and lives in it. It is to be called in a bubble of
// [testing/synctest].
func Run(cfg Config) Result {
	w := newWorld(cfg.withDefaults())
	for w.turns < w.cfg.Steps && w.failure == "" {
		if w.traits.sequences {
			for n, judge := 0, false; n < w.traits.between && !judge; n++ {
				judge = w.sequence()
			}
		} else {
			w.storm()
		}
		w.rest()
	}
	w.end()
	return Result{Steps: w.steps, Failure: w.failure, turns: w.turns, taken: w.src.taken}
}

func newWorld(cfg Config) *World {
	w := &World{cfg: cfg, src: source{seed: cfg.Seed, only: cfg.Only}, began: time.Now(), archived: make(map[history.Key]bool), cold: make(map[string]bool), floored: make(map[string]int64), revisions: make(map[uint64]int), delayed: make(map[string]bool), through: anyService, wake: make(chan struct{}, 1)}
	w.traits = w.src.traits()
	w.cfg.Users, w.cfg.Keep = cmp.Or(cfg.Users, w.traits.users), cmp.Or(cfg.Keep, w.traits.keep)
	w.cacheClock.origin = w.began
	w.cache = NewCache(w.cfg.Keep, w.cacheClock.now)
	w.archive = NewArchive(func() int64 { return time.Now().UnixMilli() })
	w.queue = &queue{w: w}
	for i := range w.cfg.Users {
		w.uids = append(w.uids, fmt.Sprintf("u%d", i+1))
		w.cold[w.uids[i]] = true
	}
	w.oracle = newOracle(w.uids)
	w.services, w.jobs = make([]*service, cfg.Services), make([]*jobProcess, cfg.Jobs)
	for i := range w.services {
		w.startService(i)
	}
	for i := range w.jobs {
		w.startJob(i)
	}
	for range cfg.Edges {
		w.edges = append(w.edges, &edge{})
	}
	for i := range cfg.Clients {
		w.clients = append(w.clients, &client{
			w: w, number: i, uid: w.uids[i%len(w.uids)], device: fmt.Sprintf("d%d", i+1), etags: make(map[history.Object]uint64), named: make(map[uint64]int64),
		})
	}
	w.gather()
	return w
}

// end lets every process stop.
func (w *World) end() {
	for _, s := range w.services {
		w.kill(s.process, "is stopped")
	}
	for _, j := range w.jobs {
		w.kill(j.process, "is stopped")
	}
	w.gather()
	time.Sleep(time.Minute) // timers of whatever still waits
	w.gather()
}

// begin has the cache begin another life.
func (w *World) begin() {
	w.lives.Add(1)
	clear(w.archived)
	w.lived = time.Now()
}

func (w *World) cacheLife() string { return fmt.Sprintf("life %d", w.lives.Load()) }

func (w *World) traced() bool { return w.cfg.Trace != nil }

func (w *World) tracef(format string, args ...any) {
	if w.cfg.Trace != nil {
		fmt.Fprintf(w.cfg.Trace, "%6d %9.3f  %s\n", w.steps, time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

func (w *World) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		w.tracef("FAILURE %s", w.failure)
	}
}

func (w *World) faults() int {
	if w.calm {
		return 0
	}
	return w.rough
}

// faultsOf are of one kind of exchange.
func (w *World) faultsOf(what string) int {
	if !w.calm && what == w.weak {
		return max(w.rough, 6000)
	}
	return w.faults()
}

func (w *World) objects() []history.Object {
	objects := make([]history.Object, w.cfg.Objects)
	for n := range objects {
		objects[n] = history.Object{ID: string(rune('a' + n)), Type: uint32(1 + n%2)} //nolint:gosec // small
	}
	return objects
}

// gather waits until nobody can go on, and takes in what was told meanwhile. Whoever runs
// at the same time as somebody else has nothing to do with him until both wait here: so what
// happens does not depend on the scheduler.
func (w *World) gather() {
	for again := true; again; {
		synctest.Wait()
		select {
		case <-w.wake: // it is looked after now
		default:
		}
		w.mu.Lock()
		arrived, abandoned, completed := w.arrived, w.abandoned, w.completed
		joining, left := w.queue.joining, w.left
		w.arrived, w.abandoned, w.completed, w.queue.joining, w.left = nil, nil, nil, nil, nil
		w.mu.Unlock()
		slices.SortStableFunc(arrived, compareExchanges)
		for _, x := range arrived {
			if x.proc.dead.Load() {
				x.end()
				continue
			}
			w.pending = append(w.pending, x)
		}
		slices.SortStableFunc(abandoned, compareExchanges)
		for _, x := range abandoned {
			w.giveUp(x)
			synctest.Wait()
		}
		slices.SortFunc(completed, func(a, b *call) int { return a.number - b.number })
		for _, c := range completed {
			c.done(c.answer, c.err)
		}
		again = w.regroup(joining, left) || len(completed)+len(abandoned) > 0
	}
}

// giveUp has a caller whose time is up go on without an answer. Its exchange lands
// later, or never.
func (w *World) giveUp(x *exchange) {
	if x.over {
		return
	}
	w.trace(x, "is given up")
	if _, lands := w.src.chance(streamFate, 5000); lands {
		w.haunt(x, x.left)
	}
	x.failAll(errTimeout)
	w.finish(x)
}

// regroup lets jobs join and leave.
func (w *World) regroup(joining, left []*member) bool {
	if len(joining)+len(left) == 0 {
		return false
	}
	q := w.queue
	q.members = slices.DeleteFunc(q.members, func(m *member) bool { return slices.Contains(left, m) })
	for _, m := range joining {
		if !slices.Contains(left, m) && !m.proc.dead.Load() {
			q.members = append(q.members, m)
		}
	}
	slices.SortFunc(q.members, func(a, b *member) int { return a.proc.number - b.proc.number })
	q.rebalance(&dice{w.src.draw(streamOther)})
	return true
}

// pass lets time go by.
func (w *World) pass(d time.Duration) {
	t := time.NewTimer(d + time.Duration(w.src.below(streamNanos, 100_000)))
	for {
		select {
		case <-t.C:
			w.gather()
			return
		case <-w.wake:
			w.gather()
		}
	}
}

// storm is a time in which everything happens.
func (w *World) storm() {
	d := &dice{w.src.draw(streamOther)}
	w.rough = [...]int{0, 200, 800, 2500}[d.n(4)]
	events := [...]int{0, 20, 100}[d.n(3)]
	acts := [...]int{300, 1000, 2500, 5000}[d.n(4)]
	w.landing = [...]int{300, 300, 30, 10}[d.n(4)]
	w.weak = [...]string{"apply", "warm", "warm", "row", "get", "put", "put user", "settle", "trim", "publish", "fetch", "", "", "", "", ""}[d.n(16)]
	for i := range w.moods {
		w.moods[i] = mood(d.n(2 * int(moods)))
	}
	w.narrow, w.shaky = [...]int{w.cfg.Objects, w.cfg.Objects, 2, 1}[d.n(4)], !d.one(3) && w.traits.shaky
	if w.traits.narrow > 0 && !d.one(4) {
		w.narrow = w.traits.narrow
	}
	if w.traits.moods[0] != w.traits.moods[1] && !d.one(4) {
		w.moods = w.traits.moods
	}
	if w.traits.weak != "" && !d.one(4) {
		w.weak = w.traits.weak
	}
	if w.shaky {
		events = 100
	}
	if w.traits.older && d.one(2) {
		w.snapshot = w.cache.Clone()
	}
	if d.one(w.traits.nights) {
		w.night(d)
	}
	if d.one(2) {
		w.morning(d)
	}
	w.tracef("storm   exchanges go wrong %d, events come %d, clients act %d times in 10,000; weak is %q", w.rough, events, acts, w.weak)
	for end := w.turns + 50 + d.n([...]int{200, 500, 1700}[d.n(3)]*w.traits.long/10); w.turns < end && w.turns < w.cfg.Steps && w.failure == ""; w.turns++ {
		w.step(acts, events)
	}
}

// night is a while in which nobody asks for anything, and the cache forgets some users. It is
// shorter than services remember what they wrote.
func (w *World) night(d *dice) {
	w.pass(3*requestLimit + 100*time.Millisecond)
	for _, uid := range w.uids {
		if d.one(2) {
			w.forget(uid)
		}
	}
	if d.one(3) {
		w.kill(w.services[d.n(len(w.services))].process, "is killed at night")
	}
}

// forget has the cache forget a user whose time is up, if it may. A warm-up that somebody has given
// up does not land after that: it would be months old.
func (w *World) forget(uid string) {
	if !w.cache.Expire(uid) {
		return
	}
	w.ghosts = slices.DeleteFunc(w.ghosts, func(g *ghost) bool { return g.x.what == "warm" && g.x.keys[0].UID == uid })
	w.cold[uid] = true
	w.tracef("cache   forgets %s", uid)
}

// morning is when devices come back: whoever was forgotten stays cold for a while, perhaps.
func (w *World) morning(d *dice) {
	if d.one(3) {
		w.leave(archiveStore, d)
	}
	if d.one(2) {
		w.weak = [...]string{"warm", "apply"}[d.n(2)]
	}
	if d.one(2) {
		w.moods = [...]mood{uploading, reading}
	}
	for _, c := range w.clients {
		c.wake(d)
	}
}

// step makes one thing happen.
func (w *World) step(acts, events int) {
	w.steps++
	if d, ok := w.src.chance(streamEvent, events); ok {
		w.event(d)
		w.gather()
	}
	if d, ok := w.src.chance(streamGhost, w.landing); ok && len(w.ghosts) > 0 {
		w.landOne(d.n(len(w.ghosts)))
	}
	w.revive()
	if d, ok := w.src.chance(streamAct, acts); ok {
		if c := w.clients[d.n(len(w.clients))]; c.busy == 0 {
			c.act(d)
		}
	} else if e := w.edges[w.src.below(streamEdge, len(w.edges))]; len(e.waiting) > 0 {
		e.flush(w)
	} else if x := w.pick(); x != nil {
		w.proceed(x)
	} else {
		w.steps--
		w.pass(10 * time.Millisecond)
	}
	if d, ok := w.src.chance(streamTime, 100); ok {
		w.pass(time.Duration(d.n(900)) * time.Millisecond)
	} else {
		w.pass(time.Millisecond / 2)
	}
}

func (w *World) landOne(n int) {
	g := w.ghosts[n]
	w.ghosts = slices.Delete(w.ghosts, n, n+1)
	w.land(g)
}

// pick returns the exchange that goes on next, nil when none can.
func (w *World) pick() *exchange {
	now := time.Now()
	n := 0
	for _, x := range w.pending {
		if w.goes(x, now) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	at := 0
	if d, ok := w.src.chance(streamPick, 6000); ok {
		at = d.n(n)
	}
	for _, x := range w.pending {
		if w.goes(x, now) {
			if at == 0 {
				return x
			}
			at--
		}
	}
	return nil
}

func (w *World) goes(x *exchange, now time.Time) bool {
	return (w.calm || x.call > 0 || !w.delayed[x.what]) && !x.idle.After(now) && (x.ready == nil || x.ready())
}

// event is something that happens to a process, a store or a clock.
func (w *World) event(d *dice) {
	kind := d.n(15)
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
			w.loseCache(d)
		}
	case 14:
		w.leave(d.n(stores), d)
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

// leave has a store answer nobody for a while.
func (w *World) leave(store int, d *dice) {
	until := time.Now().Add(time.Duration(d.n(8000)) * time.Millisecond)
	w.away[store].Store(until.UnixNano())
	w.tracef("%-7s answers nobody until %s", [...]string{"cache", "archive", "queue"}[store], moment(until.UnixMilli()))
}

// loseCache has the cache come back older, or empty. A write that a process has given up, or gives
// up from now on, does not land any more: one from before that lands in a cache that began anew is
// outside of what is promised, unless its caller still waits for it.
func (w *World) loseCache(d *dice) {
	if w.traits.older && w.snapshot != nil && !d.one(4) {
		w.tracef("cache   comes back older")
		w.cache = w.snapshot.Clone()
	} else {
		w.tracef("cache   is lost with all it has")
		w.cache = NewCache(w.cfg.Keep, w.cacheClock.now)
	}
	w.begin()
	w.allCold()
	writes := func(x *exchange) bool {
		return slices.Contains([]string{"apply", "clear", "pause", "warm", "settle", "trim"}, x.what)
	}
	w.ghosts = slices.DeleteFunc(w.ghosts, func(g *ghost) bool { return writes(g.x) })
	for _, x := range w.pending { // it lands as long as its caller waits for it
		if writes(x) {
			x.late = nil
		}
	}
	w.oracle.lose(w.archive.get, w.remembers)
	for _, c := range w.clients { // they may have what nobody was told of for certain
		c.backup = nil
	}
	if d.one(2) { // it takes a while to start
		w.leave(cacheStore, d)
	}
	if d.one(4) { // whatever it was, the archive felt it too
		w.leave(archiveStore, d)
	}
	if d.one(2) { // with all who could bring anything back
		for _, s := range w.services {
			w.kill(s.process, "is killed")
		}
	}
}

// remembers reports whether a service lives that has a key in memory, or has told a client of
// it so lately that it must have, or, of a user's own state, what was decided not too long
// ago: it brings that back.
func (w *World) remembers(number int, k history.Key, at time.Time) bool {
	for _, s := range w.services {
		if s.number != number || s.dead.Load() {
			continue
		}
		if k.IsUser() {
			return time.Since(at) < 9*time.Minute
		}
		_, _, held := s.held.Get(k)
		return held || time.Since(at) < w.traits.retain-requestLimit
	}
	return false
}

func (w *World) allCold() {
	for _, uid := range w.uids {
		w.cold[uid] = true
	}
}

// disturbed says that what is known of switches on their way is not certain any more.
func (w *World) disturbed() {
	for _, u := range w.oracle.users {
		if u.pause.open > 0 {
			u.pause.unknown++
		}
	}
}

// revive starts what has been dead for a while.
func (w *World) revive() {
	for i, s := range w.services {
		if s.dead.Load() && time.Since(s.down) > w.traits.down {
			w.startService(i)
			w.tracef("%-7s starts", w.services[i].name)
		}
	}
	for i, j := range w.jobs {
		if j.dead.Load() && time.Since(j.down) > w.traits.down {
			w.startJob(i)
			w.tracef("%-7s starts", w.jobs[i].name)
		}
	}
}

// rest has nothing go wrong until everything is done, and judges.
func (w *World) rest() {
	if w.failure != "" {
		return
	}
	w.tracef("rest    nothing goes wrong any more")
	w.calm, w.calmed = true, time.Now()
	for s := range w.away {
		w.away[s].Store(0)
	}
	w.cacheClock.goOn()
	defer func() { w.calm = false }()
	if w.comeToRest(); w.failure == "" {
		w.judge()
	}
}

// comeToRest goes on until nothing is under way.
func (w *World) comeToRest() {
	for n := 0; w.failure == "" && !w.quiet(); n++ {
		if w.calmStep(); n > 20_000 {
			w.fail("it does not come to rest: %s", w.unrest())
		}
	}
}

// calmStep makes everything happen that can, and lets time pass where nothing can.
func (w *World) calmStep() {
	w.revive()
	for len(w.ghosts) > 0 {
		w.landOne(0)
	}
	for _, c := range w.clients {
		c.offline = false
		c.send(&dice{w.src.draw(streamOther)})
	}
	for _, e := range w.edges {
		for len(e.waiting) > 0 {
			e.flush(w)
		}
	}
	w.gather()
	if x := w.pick(); x != nil {
		w.steps++
		w.proceed(x)
		w.gather()
	} else {
		w.pass(250 * time.Millisecond)
	}
}

// noticed is how long it takes at most until services and jobs have asked for the cache's
// life once more.
func (w *World) noticed() time.Duration { return w.traits.watch + time.Second }

// quiet reports whether nothing is under way and nothing left to be done.
func (w *World) quiet() bool { return w.unrest() == "" }

func (w *World) unrest() string {
	for _, c := range w.clients {
		if c.busy > 0 || len(c.outbox) > 0 {
			return fmt.Sprintf("%s has %d reports without an answer", c.device, len(c.outbox))
		}
	}
	now := time.Now()
	for _, x := range w.pending {
		if x.ready == nil || w.goes(x, now) {
			return x.String()
		}
	}
	switch {
	case len(w.ghosts) > 0:
		return "something lands late"
	case w.lived.After(w.judged) && now.Sub(w.calmed) < w.noticed(): // who looked before may have found a store away
		return "not everybody has noticed that the cache is another one"
	case now.Sub(w.calmed) < longestPause:
		return "somebody may be about to try again"
	case len(w.cache.marks) > 0:
		return fmt.Sprintf("%d keys are marked", len(w.cache.marks))
	case !w.queue.drained():
		return "the queue is not read"
	}
	for _, s := range w.services {
		if s.dead.Load() {
			return s.name + " is dead"
		}
	}
	return ""
}

// judge compares both stores with what clients were told, and has every user read.
func (w *World) judge() {
	w.tracef("judge")
	w.oracle.rest()
	w.snapshot, w.judged = nil, time.Now()
	begun := w.oracle.now()
	clear(w.cold)
	for _, uid := range w.uids {
		w.judgeUser(uid)
		for _, obj := range w.objects() {
			w.judgeKey(history.Key{UID: uid, Object: obj}, begun)
		}
	}
	if w.failure != "" {
		return
	}
	for _, c := range w.clients[:len(w.uids)] {
		w.settings(c)
		w.points(c, w.objects())
		w.list(c, &historyv1.ListRequest{Uid: c.uid, Limit: 2})
	}
	w.answerReads()
	if w.failure != "" {
		return
	}
	d := &dice{w.src.draw(streamOther)}
	if d.one(w.traits.anew) {
		w.beginAnew(d)
	}
	if w.failure == "" && d.one(4) {
		w.empty()
	}
}

// beginAnew has users clear all they have, or all of a type, and the cache forget them: whoever
// has little history is complete in the cache until more is trimmed.
func (w *World) beginAnew(d *dice) {
	for _, c := range w.clients[:len(w.uids)] {
		w.clear(c, &historyv1.ClearRequest{Uid: c.uid, Type: [...]uint32{0, 0, 1, 2}[d.n(4)]})
	}
	if w.comeToRest(); w.failure == "" {
		w.empty()
	}
}

// answerReads goes on until the reads of the judge are answered. A service that has found a
// store standing still may refuse some for a while.
func (w *World) answerReads() {
	for n := 0; w.failure == ""; n++ {
		busy := false
		for _, c := range w.clients {
			again := c.refused
			if c.refused = nil; len(again) > 0 {
				w.pass(50 * time.Millisecond)
			}
			for _, read := range again {
				read()
			}
			busy = busy || c.busy > 0
		}
		if !busy {
			return
		}
		if n > 5000 {
			w.fail("reads are not answered although nothing goes wrong")
		}
		w.calmStep()
	}
}

// unread notes that a read was not answered. The judge's are to be, at last.
func (w *World) unread(c *client, calm bool, again func()) {
	if calm && w.calm {
		c.refused = append(c.refused, again)
	}
}

// empty loses the whole cache at a time when everything is archived.
func (w *World) empty() {
	w.tracef("cache   is lost with all it has")
	w.cache = NewCache(w.cfg.Keep, w.cacheClock.now)
	w.begin()
	w.allCold()
	for _, u := range w.oracle.users {
		u.pause.cold = true
	}
}

// judgeUser compares what both stores have of what a user has decided.
func (w *World) judgeUser(uid string) {
	k := history.UserKey(uid)
	if c, a := w.cache.load(k).User, w.archive.get(k).User; c.Warm && (c.Pause != a.Pause || !maps.Equal(c.Cleared, a.Cleared)) {
		w.fail("at rest, cache and archive differ of what was decided by %s:\n  cache:   %s\n  archive: %s", uid, user(&c), user(&a))
	}
}

// judgeKey compares both stores of a key.
func (w *World) judgeKey(k history.Key, begun int64) {
	inCache, inArchive := w.cache.load(k), w.archive.get(k)
	kept := inArchive.Record.Visible(k.Object, &inArchive.User)
	seen := recordView(kept)
	if wrong := cmp.Or(w.oracle.check(k, seen, begun), w.oracle.checkDismissed(k, seen, begun)); wrong != "" {
		w.fail("at rest, the archive: %s", wrong)
		return
	}
	w.oracle.resolve(k, seen)
	w.oracle.settle(k, seen)
	w.oracle.settleDismissals(k, seen)
	if !inCache.User.Warm || inCache.Record == nil && !inCache.User.Complete() {
		return
	}
	shown := recordView(inCache.Record.Visible(k.Object, &inCache.User))
	if wrong := w.oracle.check(k, shown, begun); wrong != "" {
		w.fail("at rest, the cache: %s", wrong)
	} else if shown != seen {
		w.fail("at rest, cache and archive differ of %s:\n  cache:   %s\n  archive: %s", k, shown, seen)
	}
}

// call is a request to a service on its way.
type call struct {
	number int
	answer any
	err    error
	done   func(any, error)
}

// ask has a service answer a request. done is called once, with an error when nobody
// knows what became of it. It returns false when the request never arrives.
func (w *World) ask(s *service, what string, request func(context.Context) (any, error), done func(any, error)) {
	w.calls++
	c := &call{number: w.calls, err: errNoAnswer, done: done}
	if w.traced() {
		w.tracef("%-7s <- %d %s", s.name, c.number, what)
	}
	if d, wrong := w.src.chance(streamWire, w.faults()/2); wrong && d.one(2) {
		c.done = func(any, error) {
			w.tracef("%-7s -> %d the answer is lost", s.name, c.number)
			done(nil, errNoAnswer)
		}
	}
	go func() {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.completed = append(w.completed, c)
		}()
		ctx, cancel := context.WithTimeout(context.WithValue(s.ctx, callKey{}, c.number), 3*requestLimit)
		defer cancel()
		if answer, err := request(ctx); !s.dead.Load() {
			c.answer, c.err = answer, err
		}
	}()
}

// serving returns the service that a client's call goes to, nil when there is none.
func (w *World) serving(uid string) *service {
	if w.through != anyService && !w.services[w.through].dead.Load() {
		return w.services[w.through]
	}
	n := int(history.BucketOf(uid)) % len(w.services)
	if d, ok := w.src.chance(streamEdge, w.traits.astray); ok {
		n = d.n(len(w.services))
	}
	for i := range w.services {
		if s := w.services[(n+i)%len(w.services)]; !s.dead.Load() {
			return s
		}
	}
	return nil
}

// submit sends a batch of messages to a service, and to another one when that does not
// answer.
func (w *World) submit(batch []*submission, tries int) {
	s := w.serving(batch[0].client.uid)
	if s == nil || tries == 0 {
		for _, b := range batch {
			b.client.answered(b, nil, nil)
		}
		return
	}
	req := &historyv1.ApplyRequest{Ack: batch[0].ack, ReturnRecords: true}
	var attempts []*attempt
	now := s.clock.nowMS()
	for _, b := range batch {
		for _, hb := range b.heartbeats {
			hb = b.stamped(hb)
			req.Heartbeats = append(req.Heartbeats, hb)
			a := w.oracle.report(history.Key{UID: hb.Uid, Object: history.Object{ID: hb.ObjectId, Type: hb.ObjectType}}, factOf(hb, now), b.ack)
			if a.knows = b.client.named[hb.IfMatch]; w.cold[hb.Uid] { // nobody knows yet what the archive hides
				a.knows = 0
			}
			attempts = append(attempts, a)
		}
	}
	w.ask(s, heartbeats(w, attempts, req), func(ctx context.Context) (any, error) { return s.rpc.Apply(ctx, req) }, func(answer any, err error) {
		resp, _ := answer.(*historyv1.ApplyResponse)
		if err != nil {
			for _, a := range attempts {
				w.oracle.answer(a, 0, s.number)
			}
			w.tracef("%-7s -> apply %v", s.name, err)
			w.submit(batch, tries-1)
			return
		}
		w.applied(s, batch, attempts, resp)
	})
}

func (w *World) applied(s *service, batch []*submission, attempts []*attempt, resp *historyv1.ApplyResponse) {
	for i, a := range attempts {
		if w.traced() {
			w.tracef("%-7s -> %s/%s %s", s.name, a.uid, a.object, strings.ToLower(strings.TrimPrefix(resp.Statuses[i].String(), "STATUS_")))
		}
		if wrong := w.oracle.answer(a, resp.Statuses[i], s.number); wrong != "" {
			w.fail("%s/%s: %s: %s", a.uid, a.object, wrong, &a.k.fact)
		}
	}
	for i, it := range resp.Records[:min(len(attempts), len(resp.Records))] {
		w.told(attempts[i], resp.Statuses[i], it)
	}
	for _, b := range batch {
		n := len(b.heartbeats)
		b.client.answered(b, resp.Statuses[:n], resp.Records[:min(n, len(resp.Records))])
		resp.Statuses, resp.Records = resp.Statuses[n:], resp.Records[min(n, len(resp.Records)):]
	}
}

// told judges the record in an answer: it shows no more and no less than a read, and what it answers.
func (w *World) told(a *attempt, status historyv1.Status, it *historyv1.Item) {
	stored := status == historyv1.Status_STATUS_STORED
	if it.GetObject() == nil && !stored || incomplete(it) || a.sent < w.oracle.lost {
		return
	}
	if was := a.k.acked; stored && was > a.sent {
		a.k.acked = a.sent - 1
		defer func() { a.k.acked = was }()
	}
	if wrong := w.oracle.check(history.Key{UID: a.uid, Object: a.object}, viewOf(it), a.sent); wrong != "" {
		w.fail("the record in an answer: %s", wrong)
	}
}

func heartbeats(w *World, attempts []*attempt, req *historyv1.ApplyRequest) string {
	if !w.traced() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apply %s", strings.ToLower(strings.TrimPrefix(req.Ack.String(), "ACK_")))
	for i, a := range attempts {
		fmt.Fprintf(&b, "\n                    %s/%s %s", a.uid, a.object, &a.k.fact)
		if tag := req.Heartbeats[i].IfMatch; tag != 0 {
			fmt.Fprintf(&b, " if %x", tag)
		}
	}
	return b.String()
}

func (w *World) remove(c *client, obj history.Object, req *historyv1.DeleteRequest) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	sure := w.cfg.Keep >= w.cfg.Objects && !w.cold[c.uid]
	cut := w.oracle.remove(history.Key{UID: c.uid, Object: obj}, req.AtMs, s.clock.nowMS(), sure)
	c.busy++
	w.ask(s, fmt.Sprintf("delete %s/%s at %d if %x", c.uid, obj, req.AtMs, req.IfMatch), func(ctx context.Context) (any, error) { return s.rpc.Delete(ctx, req) }, func(_ any, err error) {
		c.busy--
		w.tracef("%-7s -> delete %s/%s %v", s.name, c.uid, obj, err)
		if err == nil {
			cut.close(w.oracle.users[c.uid].book(obj))
		}
		if err == nil && req.IfMatch == 0 { // a delete of what is deleted already changes nothing
			w.oracle.done(cut, s.number)
		}
	})
}

func (w *World) clear(c *client, req *historyv1.ClearRequest) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	sure := w.cfg.Keep >= w.cfg.Objects && !w.cold[c.uid]
	cut := w.oracle.clear(req, s.clock.nowMS())
	c.busy++
	w.ask(s, fmt.Sprintf("clear %s type %d until %d", c.uid, req.Type, req.UntilMs), func(ctx context.Context) (any, error) { return s.rpc.Clear(ctx, req) }, func(answer any, err error) {
		c.busy--
		w.tracef("%-7s -> clear %s %v", s.name, c.uid, err)
		if err == nil && w.oracle.done(cut, s.number) {
			cut.at, cut.raised = answer.(*historyv1.ClearResponse).ClearedMs, false
			if left := w.oracle.leaves(c.uid, cut); left != nil && req.UntilMs == 0 && sure && !w.cold[c.uid] {
				w.fail("clear of %s: it is up to %s, and leaves what was acknowledged before: %s", c.uid, moment(cut.at), &left.fact)
			}
		}
	})
}

func (w *World) pause(c *client, req *historyv1.PutSettingsRequest) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	u, now := w.oracle.users[c.uid], s.clock.nowMS()
	u.switching(now)
	p := &u.pause
	c.busy++
	w.ask(s, fmt.Sprintf("recording of %s %t", c.uid, req.Recording), func(ctx context.Context) (any, error) { return s.rpc.PutSettings(ctx, req) }, func(answer any, err error) {
		c.busy--
		resp, _ := answer.(*historyv1.PutSettingsResponse)
		w.tracef("%-7s -> recording of %s: %v %v", s.name, c.uid, resp.GetSettings(), err)
		if err != nil {
			p.answered(nil, s.number, max(now, s.clock.nowMS()))
			return
		}
		p.answered(resp.Settings, s.number, max(now, s.clock.nowMS()))
	})
}

func (w *World) settings(c *client) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	p := &w.oracle.users[c.uid].pause
	then, calm := p.state(), w.calm
	c.busy++
	w.ask(s, "settings of "+c.uid, func(ctx context.Context) (any, error) {
		return s.rpc.GetSettings(ctx, &historyv1.GetSettingsRequest{Uid: c.uid})
	}, func(answer any, err error) {
		c.busy--
		if err != nil {
			w.unread(c, calm, func() { w.settings(c) })
			return
		}
		got := answer.(*historyv1.GetSettingsResponse).Settings
		if then.sure && p.sure && then.changes == p.changes && (got.Recording == p.isOff || p.isOff && got.PausedMs != p.since) {
			w.fail("settings of %s: recording is shown as %v, and was switched off %t at %d", c.uid, got, p.isOff, p.since)
		}
		if calm {
			p.read(got)
		}
	})
}

func (w *World) points(c *client, objects []history.Object) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	req := &historyv1.PointsRequest{Uid: c.uid}
	for _, o := range objects {
		req.Objects = append(req.Objects, &historyv1.Object{Id: o.ID, Type: o.Type})
	}
	begun, then, calm := w.oracle.now(), w.oracle.users[c.uid].pause.state(), w.calm
	c.busy++
	w.ask(s, fmt.Sprintf("points of %s %v", c.uid, objects), func(ctx context.Context) (any, error) { return s.rpc.Points(ctx, req) }, func(answer any, err error) {
		c.busy--
		if err != nil {
			w.tracef("%-7s -> points of %s: %v", s.name, c.uid, err)
			w.unread(c, calm, func() { w.points(c, objects) })
			return
		}
		for i, it := range answer.(*historyv1.PointsResponse).Items {
			k := history.Key{UID: c.uid, Object: objects[i]}
			if it.GetObject() != nil || w.floored[c.uid] < begun { // what is below the floor is in lists alone
				if w.shown(c, k, it, begun); !incomplete(it) {
					w.oracle.paused(k, viewOf(it), then)
				}
			}
		}
	})
}

// shown judges an item that a client was shown.
func (w *World) shown(c *client, k history.Key, it *historyv1.Item, begun int64) {
	v := viewOf(it)
	if w.traced() {
		w.tracef("%-7s is shown %s: %s", c.device, k, v)
	}
	if v.found {
		c.etags[k.Object] = it.Etag
	}
	if incomplete(it) { // it says of itself that it lacks what the archive has, deletes too
		return
	}
	if v.found {
		c.named[it.Etag] = v.at
	}
	if wrong := cmp.Or(w.oracle.check(k, v, begun), w.oracle.checkDismissed(k, v, begun)); wrong != "" {
		w.fail("shown to %s: %s", c.device, wrong)
	}
}

func incomplete(it any) bool {
	i, ok := it.(interface{ GetIncomplete() bool })
	return ok && i.GetIncomplete()
}

// listing is a client on its way through pages.
type listing struct {
	client *client
	req    *historyv1.ListRequest
	begun  int64
	seen   map[history.Object]bool
	last   *historyv1.Item
	// incomplete are objects that were shown so: their places are those of what was shown.
	incomplete map[history.Object]bool
}

func (w *World) list(c *client, req *historyv1.ListRequest) {
	l := &listing{client: c, req: req, begun: w.oracle.now(), seen: make(map[history.Object]bool), incomplete: make(map[history.Object]bool)}
	c.busy++
	w.page(l)
}

func (w *World) page(l *listing) {
	s := w.serving(l.client.uid)
	if s == nil {
		l.client.busy--
		return
	}
	begun, calm := w.oracle.now(), w.calm
	what := ""
	if w.traced() {
		what = fmt.Sprintf("list %v", l.req)
	}
	req := &historyv1.ListRequest{Uid: l.req.Uid, Limit: l.req.Limit, Cursor: l.req.Cursor, Type: l.req.Type, SinceMs: l.req.SinceMs, UntilMs: l.req.UntilMs}
	w.ask(s, what, func(ctx context.Context) (any, error) { return s.rpc.List(ctx, req) }, func(answer any, err error) {
		if err != nil {
			l.client.busy--
			w.tracef("%-7s -> list of %s: %v", s.name, l.client.uid, err)
			w.unread(l.client, calm, func() {
				l.client.busy++
				w.page(l)
			})
			return
		}
		resp := answer.(*historyv1.ListResponse)
		w.turn(l, resp, begun)
		if l.req.Cursor = resp.Cursor; resp.HasMore && w.failure == "" {
			w.page(l)
			return
		}
		l.client.busy--
		w.listed(l)
	})
}

// turn judges a page.
func (w *World) turn(l *listing, resp *historyv1.ListResponse, begun int64) {
	if resp.HasMore && len(resp.Items) == 0 || len(resp.Items) > int(l.req.Limit) {
		w.fail("list of %s: a page of %d items, more %t", l.client.uid, len(resp.Items), resp.HasMore)
	}
	for _, it := range resp.Items {
		o := history.Object{ID: it.Object.Id, Type: it.Object.Type}
		w.shown(l.client, history.Key{UID: l.client.uid, Object: o}, it, begun)
		l.incomplete[o] = l.incomplete[o] || incomplete(it)
		switch {
		case l.incomplete[o], l.begun < w.oracle.lost:
		case l.seen[o]:
			w.fail("list of %s: %s is listed twice", l.client.uid, o)
		case l.last != nil && !newer(l.last, it):
			w.fail("list of %s: %s comes after what is older", l.client.uid, o)
		case !l.wants(o.Type, it.EventTimeMs):
			w.fail("list of %s: nobody asked for %s", l.client.uid, o)
		}
		if l.seen[o] = true; !l.incomplete[o] {
			l.last = it
		}
	}
}

func (l *listing) wants(typ uint32, at int64) bool {
	return (l.req.Type == 0 || l.req.Type == typ) && at >= l.req.SinceMs && (l.req.UntilMs == 0 || at <= l.req.UntilMs)
}

func newer(a, b *historyv1.Item) bool {
	version := func(it *historyv1.Item) int64 {
		if it.State == historyv1.State_STATE_STOPPED || it.State == historyv1.State_STATE_FINISHED {
			return it.EventTimeMs<<2 | 1
		}
		return it.EventTimeMs << 2
	}
	text := func(it *historyv1.Item) string { return fmt.Sprintf("%s_%d", it.Object.Id, it.Object.Type) }
	if va, vb := version(a), version(b); va != vb {
		return va > vb
	}
	return text(a) > text(b)
}

// listed judges what all pages together have left out.
func (w *World) listed(l *listing) {
	for _, o := range w.objects() {
		f := w.oracle.sure(history.Key{UID: l.client.uid, Object: o}, l.begun)
		if f != nil && l.begun > w.oracle.lost && !l.seen[o] && !l.incomplete[o] && l.wants(o.Type, f.at) {
			w.fail("list of %s: %s is left out: %s", l.client.uid, o, f)
		}
	}
}
