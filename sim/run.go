package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
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

// rest lets everything finish without faults, and judges.
func (w *World) rest() {
	if w.failure != "" {
		return
	}
	w.tracef("rest    nothing goes wrong any more")
	w.calm, w.calmed = true, time.Now()
	for s := range w.away {
		w.away[s].Store(0)
		w.parts[s] = awayPart{}
	}
	w.cacheClock.goOn()
	defer func() { w.calm = false }()
	if w.comeToRest(); w.failure == "" {
		w.judge()
	}
}

// comeToRest runs until nothing is in flight.
func (w *World) comeToRest() {
	for n := 0; w.failure == "" && !w.quiet(); n++ {
		if w.calmStep(); n > 20_000 {
			w.fail("it does not come to rest: %s", w.unrest())
		}
	}
}

// calmStep does everything that is possible, and lets time pass if nothing is.
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

// noticed is the longest time until every service and job has asked for the cache's epoch again.
func (w *World) noticed() time.Duration { return w.traits.watch + time.Second }

// quiet reports whether nothing is in flight and nothing left to do.
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
	case w.lived.After(w.judged) && now.Sub(w.calmed) < w.noticed(): // an earlier poll may have failed
		return "not everybody has noticed that the cache is another one"
	case now.Sub(w.calmed) < longestPause:
		return "somebody may be about to try again"
	case len(w.cache.marks) > 0:
		return fmt.Sprintf("%d keys are marked", len(w.cache.marks))
	case !w.queue.drained():
		return "the queue is not read"
	case w.counting != nil && w.counting.committed < len(w.counting.topic):
		return "the topic of counts is not read"
	}
	for _, s := range w.services {
		if s.dead.Load() {
			return s.name + " is dead"
		}
	}
	return ""
}

// judge compares both stores with the acknowledgements, and has every user read.
func (w *World) judge() {
	w.tracef("judge")
	w.oracle.rest()
	w.snapshot, w.judged = nil, time.Now()
	begun := w.oracle.now()
	for _, u := range w.oracle.users {
		u.pause.forgotten = false
	}
	if clear(w.cold); w.compacting != nil {
		w.compacting.look()
	}
	if w.embedded != nil {
		w.embedded.judge()
	}
	if w.counting != nil {
		w.counting.judge()
	}
	if w.traits.plays {
		w.judgePlays()
	}
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
		w.sync(c)
	}
	w.answerReads()
	for _, uid := range w.uids {
		w.followed(uid, begun)
	}
	w.removeRestored()
	if w.failure != "" {
		return
	}
	d := &dice{w.src.draw(streamOther)}
	if d.one(w.traits.anew) {
		w.beginAnew(d)
	}
	if dead := func(j *jobProcess) bool { return j.dead.Load() }; w.failure == "" && w.traits.older && d.one(3) && !slices.ContainsFunc(w.jobs, dead) {
		// The job's archived records stay.
		j := w.jobs[d.n(len(w.jobs))]
		w.kill(j.process, "is stopped until the cache comes back older")
		j.absent = true
		w.gather()
	}
	if w.failure == "" && d.one(4) {
		w.empty()
	}
}

// beginAnew clears each user's history, or a type of it, and makes the cache forget the user. A user with little
// history stays complete in the cache until the next trim.
func (w *World) beginAnew(d *dice) {
	for _, c := range w.clients[:len(w.uids)] {
		w.clear(c, &historyv1.ClearRequest{Uid: c.uid, Type: [...]uint32{0, 0, 1, 2}[d.n(4)]})
	}
	if w.comeToRest(); w.failure == "" {
		w.empty()
	}
}

// answerReads runs until the judge's reads are answered. A service with a stopped store may refuse some for a
// while.
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

func (w *World) empty() {
	w.tracef("cache   is lost with all it has")
	w.cache = w.newCache()
	w.begin()
	w.allCold()
	for _, u := range w.oracle.users {
		u.pause.cold = true
	}
}

// judgeUser compares both stores' clear marks and pause of a user.
func (w *World) judgeUser(uid string) {
	for _, namespace := range w.namespacesOf(uid) {
		k := history.UserKey(namespace)
		if c, a := w.cache.load(k).User, w.archivedAt(k).User; c.Warm && (c.Pause != a.Pause || !maps.Equal(c.Cleared, a.Cleared)) {
			w.fail("at rest, cache and archive differ of what was decided by %s:\n  cache:   %s\n  archive: %s", namespace, userText(&c), userText(&a))
		}
		if w.compacting != nil {
			w.compacting.judge(namespace)
		}
	}
}

// judgeKey compares both stores' record of a key.
func (w *World) judgeKey(k history.Key, begun int64) {
	inCache, inArchive := w.inCache(k), w.inArchive(k)
	kept := inArchive.Record.Visible(k.Object, &inArchive.User)
	seen := recordView(kept)
	if wrong := cmp.Or(w.oracle.check(k, seen, begun), w.oracle.checkDismissed(k, seen, begun)); wrong != "" {
		w.fail("at rest, the archive: %s", wrong)
		return
	}
	if !w.oracle.restored(k) {
		w.oracle.resolve(k, seen)
		w.oracle.fixCuts(k, seen)
		w.oracle.fixDismissals(k, seen)
	}
	if !inCache.User.Warm || inCache.Record == nil && !inCache.User.Complete() || inCache.Record != nil && inCache.Record.Version == 0 {
		return
	}
	shown := recordView(inCache.Record.Visible(k.Object, &inCache.User))
	if wrong := w.oracle.check(k, shown, begun); wrong != "" {
		w.fail("at rest, the cache: %s", wrong)
	} else if shown != seen {
		w.fail("at rest, cache and archive differ of %s:\n  cache:   %s\n  archive: %s", k, shown, seen)
	}
}

// removeRestored clears the history of users with restored records. None of it may remain.
func (w *World) removeRestored() {
	for i, uid := range w.uids {
		u := w.oracle.users[uid]
		some := func(b *book) bool { return len(b.restored) > 0 }
		if !slices.ContainsFunc(slices.Collect(u.all()), some) {
			continue
		}
		n := len(u.clears)
		for try := 0; w.failure == "" && !slices.ContainsFunc(u.clears[n:], func(c *cut) bool { return c.acked > 0 }); try++ {
			if try > 20 {
				w.fail("%s cannot clear what was brought back", uid)
			}
			w.pass(50 * time.Millisecond)
			w.clear(w.clients[i], &historyv1.ClearRequest{Uid: uid})
			w.comeToRest()
		}
		for b := range u.all() {
			b.restored = nil
		}
		for _, obj := range w.objects() {
			if w.failure == "" {
				w.judgeKey(history.Key{UID: uid, Object: obj}, w.oracle.now())
			}
		}
	}
}

// Some seeds have classes of types: see [history.Class]. To the stores a namespace is a user of its own: the
// cache may forget one and keep the other. The judge reads a user's namespaces as one history.

// classSets are the possible sets of classes.
var classSets = [...][]string{
	{"b: types=2"},
	{"b: types=1,2"},
	{"b: types=1", "c: types=2 list=1"},
}

// rulebook returns the rules of all processes.
func (w *World) rulebook() *history.Rulebook {
	if w.traits.classes == nil {
		return nil
	}
	b, err := history.ParseRules("", w.traits.classes)
	if err != nil {
		panic(err)
	}
	return b
}

func (w *World) namespacesOf(uid string) []string { return w.rules.Namespaces(uid) }

func userOf(namespace string) string {
	uid, _ := history.UserOf(namespace)
	return uid
}

// together merges a store's entries of a key: the user's own state, and what the type's namespace has.
func (w *World) together(k history.Key, load func(history.Key) history.Entry) history.Entry {
	if w.rules == nil || k.IsUser() {
		return load(k)
	}
	all, e := load(history.UserKey(k.UID)), load(w.rules.Home(k))
	if e.Record != nil && e.Record.Version == 0 { // damaged
		return e
	}
	all.Record = e.Record.After(e.User.ClearedAt(k.Object.Type)).After(all.User.ClearedAt(k.Object.Type))
	all.User.Warm = all.User.Warm && e.User.Warm && (e.Record != nil || e.User.Complete()) // the cache alone suffices
	all.Err = cmp.Or(all.Err, e.Err)
	return all
}

func (w *World) inCache(k history.Key) history.Entry { return w.together(k, w.cache.load) }

func (w *World) inArchive(k history.Key) history.Entry { return w.together(k, w.archivedAt) }

// anyNamespace draws a namespace of any user.
func (w *World) anyNamespace(d *dice) string { return w.namespaceOf(w.uids[d.n(len(w.uids))], d) }

func (w *World) namespaceOf(uid string, d *dice) string {
	if w.rules == nil {
		return uid
	}
	all := w.namespacesOf(uid)
	return all[d.n(len(all))]
}

func (w *World) newCache() *Cache {
	c := NewCache(w.cfg.Keep, w.cacheClock.now)
	c.Rules = w.rules
	return c
}

// keepsAll reports whether the cache has room for every record.
func (w *World) keepsAll() bool {
	list := func(c history.Class) bool { return c.List > 0 }
	return w.cfg.Keep >= w.cfg.Objects && !slices.ContainsFunc(w.rules.Classes(), list)
}
