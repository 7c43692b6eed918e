package sim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// gather waits until every goroutine is blocked, and collects their messages. Concurrent goroutines are
// independent until both wait here: the run does not depend on the scheduler.
func (w *World) gather() {
	for again := true; again; {
		synctest.Wait()
		select {
		case <-w.wake: // handled now
		default:
		}
		w.mu.Lock()
		if turns := w.atTurns; len(turns) > 0 {
			w.atTurns = nil
			w.mu.Unlock()
			w.takeTurns(turns)
			continue
		}
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

// callers is a stack, which identifies a goroutine of a process.
type callers [16]uintptr

// calledBy returns the stack of the caller's caller.
func calledBy() (c callers) {
	runtime.Callers(3, c[:])
	return c
}

func (c callers) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		n := slices.Index(c[:], 0)
		if n < 0 {
			n = len(c)
		}
		for frames, more := runtime.CallersFrames(c[:n]), n > 0; more; {
			var f runtime.Frame
			if f, more = frames.Next(); !yield(f.Function) {
				return
			}
		}
	}
}

func (c callers) compare(d callers) int {
	if c == d {
		return 0
	}
	return cmp.Or(strings.Compare(strings.Join(slices.Collect(c.names()), " "), strings.Join(slices.Collect(d.names()), " ")), slices.Compare(c[:], d[:]))
}

// turn is a goroutine that waits to go on, among others at the same moment.
type turn struct {
	proc *process
	name string
	by   callers
	goes chan struct{}
}

// await waits for the caller's turn. It does not return in a dead process.
func (p *process) await(name string) {
	t := &turn{proc: p, name: name, by: calledBy(), goes: make(chan struct{})}
	p.w.mu.Lock()
	p.w.atTurns = append(p.w.atTurns, t)
	p.w.mu.Unlock()
	p.w.nudge()
	<-t.goes
	if p.dead.Load() {
		runtime.Goexit()
	}
}

// takeTurns resumes one after the other, each until every goroutine is blocked.
func (w *World) takeTurns(turns []*turn) {
	slices.SortStableFunc(turns, func(a, b *turn) int {
		return cmp.Or(cmp.Compare(a.proc.number, b.proc.number), strings.Compare(a.name, b.name), a.by.compare(b.by))
	})
	for _, t := range turns {
		close(t.goes)
		synctest.Wait()
	}
}

// nudge wakes the simulator while time passes.
func (w *World) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// giveUp resumes a caller at its deadline, without an answer. Its exchange lands later, or never.
func (w *World) giveUp(x *exchange) {
	if x.over {
		return
	}
	w.trace(x, "is given up")
	if _, lands := w.src.chance(streamFate, 5000); lands {
		w.haunt(x, x.left)
	}
	if len(x.left) == 0 { // done, but its answer is late
		for i := range x.keys {
			x.fail(i, errTimeout)
		}
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

// pick returns the exchange that goes on next, or nil.
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

func (w *World) landOne(n int) {
	g := w.ghosts[n]
	w.ghosts = slices.Delete(w.ghosts, n, n+1)
	w.land(g)
}

// Every exchange of a process with a store or the queue waits here until the simulator resumes it. The simulator
// decides how: whole or in part, now or later, with or without a fault. It makes the effect itself, one at a
// time, whatever the goroutines.

var (
	errNoAnswer = fmt.Errorf("simulated: %w", history.ErrUnavailable)
	errTimeout  = fmt.Errorf("simulated: %w: %w", history.ErrUnavailable, context.DeadlineExceeded)
)

// callKey is the context key of the client's call number.
type callKey struct{}

// do waits until an exchange is over. It does not return in a dead process, and skips an exchange whose deadline
// has passed.
func (w *World) do(ctx context.Context, x *exchange) {
	if x.proc.dead.Load() {
		runtime.Goexit()
	}
	x.left, x.done = make([]int, len(x.keys)), make(chan struct{})
	for i := range x.left {
		x.left[i] = i
	}
	if len(x.left) > 1 { // callers that range over a map have random order
		slices.SortStableFunc(x.left, func(i, j int) int { return compareKeys(x.keys[i], x.keys[j]) })
	}
	if ctx.Err() != nil {
		x.failAll(errTimeout)
		return
	}
	if x.call, _ = ctx.Value(callKey{}).(int); x.call == 0 {
		x.by = calledBy()
	}
	w.mu.Lock()
	w.arrived = append(w.arrived, x)
	w.mu.Unlock()
	select {
	case <-x.done:
	case <-ctx.Done():
		w.abandon(x)
	}
	if x.proc.dead.Load() {
		runtime.Goexit()
	}
}

// abandon gives up an exchange at its deadline, and waits for the simulator to resume the caller. The simulator
// resumes several callers one after the other, in an order independent of the scheduler.
func (w *World) abandon(x *exchange) {
	if x.proc.dead.Load() {
		return
	}
	w.mu.Lock()
	w.abandoned = append(w.abandoned, x)
	w.mu.Unlock()
	w.nudge()
	<-x.done
}

func compareKeys(a, b history.Key) int {
	return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Object.ID, b.Object.ID), cmp.Compare(a.Object.Type, b.Object.Type))
}

// compareExchanges is an order independent of the scheduler.
func compareExchanges(a, b *exchange) int {
	if c := cmp.Or(cmp.Compare(a.proc.number, b.proc.number), cmp.Compare(a.call, b.call), strings.Compare(a.what, b.what), strings.Compare(a.about, b.about), cmp.Compare(len(a.keys), len(b.keys))); c != 0 {
		return c
	}
	for n := range a.left {
		if n >= len(b.left) {
			break
		}
		if c := compareKeys(a.keys[a.left[n]], b.keys[b.left[n]]); c != 0 {
			return c
		}
	}
	return a.by.compare(b.by)
}

func (x *exchange) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", x.proc.name, x.what)
	for n, i := range x.left {
		if n == 4 {
			fmt.Fprintf(&b, " and %d more", len(x.left)-n)
			break
		}
		fmt.Fprintf(&b, " %s", x.keys[i])
	}
	return b.String()
}

func (x *exchange) some(d *dice) {
	n := 0
	for k, i := range x.left {
		if k == 0 || d.one(2) {
			x.run(i)
		} else {
			x.left[n] = i
			n++
		}
	}
	x.left = x.left[:n]
}

func (x *exchange) all() {
	for _, i := range x.left {
		x.run(i)
	}
	x.left = nil
}

func (x *exchange) failAll(err error) {
	for _, i := range x.left {
		x.fail(i, err)
	}
	x.left = nil
}

// land makes the effect of an abandoned exchange.
func (w *World) land(g *ghost) {
	if w.traced() {
		w.tracef("late    %s %s %v lands", g.x.proc.name, g.x.what, g.keys())
	}
	for _, i := range g.parts {
		g.x.late(i)
	}
}

func (g *ghost) keys() (keys []string) {
	for _, i := range g.parts {
		keys = append(keys, g.x.keys[i].String())
	}
	return keys
}

// haunt schedules keys of an abandoned exchange to land later.
func (w *World) haunt(x *exchange, parts []int) {
	if x.late != nil && len(parts) > 0 {
		w.ghosts = append(w.ghosts, &ghost{x: x, parts: slices.Clone(parts), since: time.Now()})
	}
}

func (x *exchange) store() int {
	switch x.what {
	case "put", "get", "page", "put user", "compact", "erase", "counters":
		return archiveStore
	case "publish", "fetch", "commit", "reread", "memos", "count", "fetch counts", "commit counts", "plays":
		return queueStore
	}
	return cacheStore
}

// proceed resumes an exchange with a drawn outcome.
func (w *World) proceed(x *exchange) {
	if len(x.left) == 0 && len(x.keys) > 0 {
		w.trace(x, "is answered")
		w.finish(x)
		return
	}
	if w.isAway(x.store()) {
		w.trace(x, "is not answered: the store is away")
		if x.what == "fetch" {
			x.idle = time.Unix(0, w.away[queueStore].Load())
			return
		}
		x.failAll(errNoAnswer)
		w.finish(x)
		return
	}
	if w.leaveOut(x); len(x.left) == 0 && len(x.keys) > 0 {
		w.finish(x)
		return
	}
	if w.follow(x) {
		return
	}
	d, wrong := w.src.chance(streamFault, w.faultsOf(x.what))
	if !wrong {
		w.trace(x, "ok")
		x.all()
		w.finish(x)
		return
	}
	w.goWrong(x, d)
}

// leaveOut fails the keys of a user for whom the store is unavailable.
func (w *World) leaveOut(x *exchange) {
	p := w.parts[x.store()]
	if !time.Now().Before(p.until) {
		return
	}
	away := func(i int) bool { return userOf(x.keys[i].UID) == p.uid }
	if !slices.ContainsFunc(x.left, away) {
		return
	}
	w.trace(x, "not answered for "+p.uid)
	for _, i := range x.left {
		if away(i) {
			x.fail(i, errNoAnswer)
		}
	}
	x.left = slices.DeleteFunc(x.left, away)
}

func (w *World) goWrong(x *exchange, d *dice) {
	if x.what == "fetch" {
		x.idle = time.Now().Add(time.Duration(d.n(2000)) * time.Millisecond)
		return
	}
	kind := fault(d.n(int(faults)))
	if x.what == w.weak && w.traits.fault != 0 && d.one(2) {
		kind = w.traits.fault
	}
	switch {
	case kind < 2 && len(x.left) > 1:
		w.trace(x, "a part of it")
		x.some(d)
		if len(x.left) > 0 {
			return
		}
	case kind < 4:
		w.trace(x, "the request is lost")
		x.failAll(errNoAnswer)
	case kind < 6:
		w.trace(x, "done, the answer is lost")
		parts := slices.Clone(x.left)
		x.all()
		x.left = parts
		x.failAll(errNoAnswer)
	case kind <= landsLater:
		w.trace(x, "no answer, lands later")
		w.haunt(x, x.left)
		if d.one(3) {
			w.haunt(x, x.left)
		}
		x.failAll(errNoAnswer)
	case kind <= landsTwice:
		w.trace(x, "done, lands once more later")
		w.haunt(x, x.left)
		x.all()
	case kind < slow:
		w.trace(x, "each key by itself: done, refused, or done without an answer")
		x.mixed(d)
	default:
		w.slow(x, len(x.left) > 0 && d.one(2))
		x.idle = time.Now().Add(time.Duration(d.n(2500)) * time.Millisecond)
		return
	}
	w.finish(x)
}

func (x *exchange) mixed(d *dice) {
	for _, i := range x.left {
		switch d.n(4) {
		case 0:
			x.fail(i, errNoAnswer)
		case 1:
			x.run(i)
			x.fail(i, errNoAnswer)
		default:
			x.run(i)
		}
	}
	x.left = nil
}

func (w *World) finish(x *exchange) {
	w.pending = slices.DeleteFunc(w.pending, func(p *exchange) bool { return p == x })
	x.end()
}

// end resumes the caller of an exchange.
func (x *exchange) end() {
	if !x.over {
		x.over = true
		close(x.done)
	}
}

func (w *World) trace(x *exchange, how string) {
	if w.traced() {
		w.tracef("%-7s %s: %s", x.proc.name, strings.TrimPrefix(x.String(), x.proc.name+" "), how)
	}
}

// writes reports whether an exchange writes a client's change to the cache.
func (x *exchange) writes() bool {
	return slices.Contains([]string{"apply", "clear", "pause"}, x.what)
}

// slow delays the answer to an exchange, and the exchange itself unless done.
func (w *World) slow(x *exchange, done bool) {
	if !done {
		w.trace(x, "slow")
		return
	}
	w.trace(x, "done, the answer is slow")
	x.all()
}

// follow applies the drawn course to the write of the last call. It reports whether it did.
func (w *World) follow(x *exchange) bool {
	if w.course == goesWell || x.call != w.calls || !x.writes() {
		return false
	}
	c := w.course
	w.course = goesWell
	switch c {
	case isSlow, answersSlowly:
		w.slow(x, c == answersSlowly)
		x.idle = time.Now().Add(2 * requestLimit)
		return true
	case isLost:
		w.trace(x, "no answer, lands later")
		w.haunt(x, x.left)
		x.failAll(errNoAnswer)
	case isRepeated:
		w.trace(x, "done, lands once more later")
		w.haunt(x, x.left)
		x.all()
	default:
		w.trace(x, "done, the answer is lost")
		parts := slices.Clone(x.left)
		x.all()
		x.left = parts
		x.failAll(errNoAnswer)
	}
	w.finish(x)
	return true
}
