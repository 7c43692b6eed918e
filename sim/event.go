package sim

import (
	"slices"
	"time"

	"github.com/playhead/playhead/history"
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
