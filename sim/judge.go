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
