package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
)

// Result is the outcome of a run.
type Result struct {
	Steps   int
	Failure string // empty without a violation
	turns   int
	taken   []decision
}

// Run makes a world and runs it. The caller must be in a bubble of [testing/synctest].
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
	w := &World{cfg: cfg, src: source{seed: cfg.Seed, only: cfg.Only}, began: time.Now(), archived: make(map[history.Key]bool), cold: make(map[string]bool), revisions: make(map[uint64]int), delayed: make(map[string]bool), through: anyService, wake: make(chan struct{}, 1), followers: make(map[string]*follower)}
	w.traits = w.src.traits()
	if w.traits.compactions = (w.traits.compactions || cfg.Compactions) && cfg.Embed == nil; w.traits.compactions || cfg.Embed != nil {
		w.traits.anew = 3 // creates something to compact
	}
	w.cfg.Users, w.cfg.Keep = cmp.Or(cfg.Users, w.traits.users), cmp.Or(cfg.Keep, w.traits.keep)
	w.cacheClock.origin = w.began
	w.rules = w.rulebook()
	w.cache = w.newCache()
	if w.archive = NewArchive(func() int64 { return time.Now().UnixMilli() }); cfg.Embed != nil {
		w.embedded = &embedded{Embedded: cfg.Embed(), w: w}
		w.archive = w.embedded
	}
	if w.queue = (&queue{w: w}); w.traits.compactions {
		w.compacting = newCompacting(w)
	}
	for i := range w.cfg.Users {
		w.uids = append(w.uids, fmt.Sprintf("u%d", i+1))
		w.cold[w.uids[i]] = true
		w.followers[w.uids[i]] = &follower{}
	}
	w.oracle = newOracle(w.uids, w.traits.classes != nil)
	if w.traits.counts {
		w.counting = newCounting(w)
		w.counting.revive()
	}
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

func (w *World) end() {
	for _, s := range w.services {
		w.kill(s.process, "is stopped")
	}
	for _, j := range w.jobs {
		w.kill(j.process, "is stopped")
	}
	if w.counting != nil {
		for _, p := range w.counting.counters {
			w.kill(p, "is stopped")
		}
	}
	w.gather()
	time.Sleep(time.Minute) // pending timers
	w.gather()
	if w.embedded != nil {
		if err := w.embedded.Close(); err != nil {
			w.fail("the archive does not close: %v", err)
		}
	}
}

// storm is a time of many concurrent actions and faults.
func (w *World) storm() {
	d := &dice{w.src.draw(streamOther)}
	w.rough = [...]int{0, 200, 800, 2500}[d.n(4)]
	events := [...]int{0, 20, 100}[d.n(3)]
	acts := [...]int{300, 1000, 2500, 5000}[d.n(4)]
	w.landing = [...]int{300, 300, 30, 10}[d.n(4)]
	w.weak = [...]string{"apply", "warm", "warm", "page", "get", "put", "put user", "mark_clean", "trim", "publish", "fetch", "", "", "", "", ""}[d.n(16)]
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

// night is a while without requests, in which the cache forgets some users. It is shorter than the services'
// retention.
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

// morning brings the devices back. Forgotten users may stay cold for a while.
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

func (w *World) step(acts, events int) {
	w.steps++
	if d, ok := w.src.chance(streamEvent, events); ok {
		w.event(d)
		w.gather()
	}
	if d, ok := w.src.chance(streamGhost, w.landing); ok && len(w.ghosts) > 0 {
		w.landOne(d.n(len(w.ghosts)))
	}
	if w.compacting != nil {
		if d, ok := w.src.chance(streamCompact, 200); ok {
			w.compacting.event(d)
		}
	}
	if w.embedded != nil {
		if d, ok := w.src.chance(streamCompact, 600); ok {
			w.embedded.event(d)
		}
	}
	if w.counting != nil {
		if d, ok := w.src.chance(streamCompact, 200); ok {
			w.counting.event(d)
		}
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

// Shrink searches for fewer decisions that still fail, in at most runs more runs. It removes halves, quarters and
// so on, as long as any violation remains.
func Shrink(cfg Config, run func(Config) Result, runs int) (Config, Result) {
	best := run(cfg)
	cfg.Steps = best.turns + 1
	for part := (len(best.taken) + 1) / 2; part > 0 && best.Failure != "" && runs > 0; part /= 2 {
		for from := 0; from < len(best.taken) && runs > 0; runs-- {
			less := cfg
			less.Only = allBut(best.taken, from, from+part)
			r := run(less)
			if r.Failure == "" || len(r.taken) >= len(best.taken) {
				from += part
				continue
			}
			cfg, best = less, r
		}
	}
	return cfg, best
}

// allBut returns the decisions except all[from:to].
func allBut(all []decision, from, to int) map[decision]bool {
	left := make(map[decision]bool, len(all))
	for i, d := range all {
		if i < from || i >= to {
			left[d] = true
		}
	}
	return left
}

// Decisions returns the number of decisions taken.
func (r Result) Decisions() int { return len(r.taken) }
