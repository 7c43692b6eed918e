package sim

import (
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

// event is something that happens to a process, a store or a clock.
func (w *World) event(d *dice) {
	if w.traits.moves && d.one(20) {
		w.moveTypes(d)
		return
	}
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
		if store := d.n(stores); store == archiveStore && w.traits.older && d.one(4) { // for longer than two sweep ages
			w.leaveFor(store, 2*sweepAge+time.Duration(d.n(20))*time.Second)
		} else {
			w.leave(store, d)
		}
	case 15:
		w.damage(d)
	case 16:
		store, uid := d.n(queueStore), w.uids[d.n(len(w.uids))] // also for longer than jobs try again
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

// forget has the cache forget a user whose time is up, if it may. A warm-up or a write that has not landed by then
// never does: it would be months old.
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

// damage makes a record of the cache unreadable.
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

// leave has a store answer nobody for a while.
func (w *World) leave(store int, d *dice) {
	w.leaveFor(store, time.Duration(d.n(8000))*time.Millisecond)
}

func (w *World) leaveFor(store int, d time.Duration) {
	until := time.Now().Add(d)
	w.away[store].Store(until.UnixNano())
	w.tracef("%-7s answers nobody until %s", storeNames[store], moment(until.UnixMilli()))
}

// leavePart has a store not answer for one user for a while.
func (w *World) leavePart(store int, uid string, d time.Duration) {
	until := time.Now().Add(d)
	w.parts[store] = awayPart{uid, until}
	w.tracef("%-7s does not answer for %s until %s", storeNames[store], uid, moment(until.UnixMilli()))
}

// moveTypes has types be in other classes from now on. All services start anew with that.
func (w *World) moveTypes(d *dice) {
	w.classes, w.moved = d.n(len(classSets)), true
	w.rules = w.rulebook()
	w.cache.Rules = w.rules
	w.tracef("classes are %q", classSets[w.classes])
	for _, s := range w.services {
		w.kill(s.process, "is stopped, to start with other classes")
	}
	w.gather()
}

// resetCache has the cache come back older, or empty. A write that a process has given up, or gives
// up from now on, does not land any more: one from before that lands in a cache that began anew is
// outside of what is promised, unless its caller still waits for it.
func (w *World) resetCache(d *dice) {
	if w.traits.older && w.snapshot != nil && !d.one(4) {
		w.tracef("cache   comes back older")
		w.cache = w.snapshot.Clone()
		w.cache.Rules = w.rules
		for _, j := range w.jobs { // it starts in the midst of it
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
	for _, x := range w.pending { // it lands as long as its caller waits for it
		if writes(x) {
			x.late = nil
		}
	}
	w.oracle.lose(w.inArchive, w.remembers, w.remembersDelete)
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
	s := w.living(number)
	switch {
	case s == nil:
		return false
	case k.IsUser():
		return time.Since(at) < 9*time.Minute
	}
	return time.Since(at) < w.traits.retain-requestLimit || slices.ContainsFunc(w.namespacesOf(k.UID), s.holds(k.Object))
}

// remembersDelete reports whether a service does so of a delete: it remembers the tombstones in other
// namespaces longer than the one of the object's own namespace, which is written first.
func (w *World) remembersDelete(number int, k history.Key, at time.Time) bool {
	s := w.living(number)
	lacks := func(namespace string) bool { return !s.holds(k.Object)(namespace) }
	return s != nil && (time.Since(at) < w.traits.retain-requestLimit || !slices.ContainsFunc(w.namespacesOf(k.UID), lacks))
}

// living returns the service of a number, nil where it is dead.
func (w *World) living(number int) *service {
	for _, s := range w.services {
		if s.number == number && !s.dead.Load() {
			return s
		}
	}
	return nil
}

// holds returns a function that reports whether a service has an object of a namespace in memory.
func (s *service) holds(o history.Object) func(namespace string) bool {
	return func(namespace string) bool {
		_, _, held := s.held.Get(history.Key{UID: namespace, Object: o})
		return held
	}
}

func (w *World) allCold() {
	for _, uid := range w.uids {
		w.isCold(uid)
	}
}

// isCold notes that the cache knows nothing of a user, until somebody asks.
func (w *World) isCold(uid string) {
	w.cold[uid], w.oracle.users[uid].pause.forgotten = true, true
}

// disturbed says that what is known of switches on their way is not certain any more.
func (w *World) disturbed() {
	for _, u := range w.oracle.users {
		if u.pause.open > 0 {
			u.pause.unknown++
		}
	}
}
