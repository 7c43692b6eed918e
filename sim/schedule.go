package sim

import (
	"cmp"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing/synctest"
	"time"
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
