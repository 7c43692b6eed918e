package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// A storm makes everything happen at once, and rarely five steps in one order. A sequence is a dozen actions of
// one user with up to three objects, one after the other, almost without random faults. Each action draws whether
// it is slow, is lost or lands late; the sequence draws which background exchanges wait.

// action is a step of a sequence.
type action int

const (
	reportNow       action = iota // A viewing begins.
	reportNext                    // A viewing begins a millisecond after the user's last report.
	reportLate                    // Up to three reports from before the last one.
	reportAgain                   // A viewing goes on.
	repeatOne                     // Resend an answered report.
	removeOne                     // Delete an object.
	removeAll                     // Delete each object.
	clearAll                      // Clear one type, or all.
	clearLast                     // Clear up to the last report.
	clearBefore                   // Clear up to shortly before it.
	switchRecording               // Off, or on.
	markOne                       // Watched or unwatched.
	dismissOne                    // Or offer it again.
	backUp                        // Or restore the earlier backup.
	readSome                      // Points, or pages.
	turnPages
	readChanges
	archiveAll // Run until nothing is dirty, if possible.
	forgetUser // The cache forgets the user.
	passTime   // Up to three seconds.
	landAll    // Resume held exchanges, and land abandoned ones.
	holdBack   // Hold up other background exchanges from now on.
	loseCache  // The cache is lost, or comes back older.
	storeAway  // A store is unavailable for a while.
	killService
	setClock // of a service, of its devices, or of both
	actions
)

var frequency = [actions]int{
	reportNow: 8, reportNext: 4, reportLate: 4, reportAgain: 3, repeatOne: 2, removeOne: 4, removeAll: 2, clearAll: 2, clearLast: 2, clearBefore: 1, switchRecording: 2, markOne: 2, dismissOne: 2, backUp: 2, readSome: 6,
	archiveAll: 8, forgetUser: 3, passTime: 3, landAll: 4, holdBack: 3, loseCache: 2, storeAway: 1, killService: 1, setClock: 2,
}

type sequence struct {
	w       *World
	clients []*client
	uid     string
	objects []history.Object
	own     []int         // Service for each client's calls.
	weights [actions]int  // Relative frequency of each action.
	focus   int           // Object of most actions; -1 for none.
	knowing int           // One report in so many names the record its device knows.
	forced  course        // Outcome of the next write; goesWell for a drawn one.
	ack     historyv1.Ack // Acknowledgement level of uploads.
}

// sequence makes some actions, and has the user read the result. It reports whether a rest must follow at once,
// because later actions could hide a violation.
func (w *World) sequence() (judge bool) {
	d := &dice{w.src.draw(streamOther)}
	w.rough, w.landing, w.weak, w.shaky = [...]int{0, 0, 0, 200}[d.n(4)], 0, "", false
	s := &sequence{w: w, focus: -1, knowing: 5, uid: w.uids[d.n(len(w.uids))], objects: w.objects()[:[...]int{1, 2, 3, 3}[d.n(4)]]}
	for _, c := range w.clients {
		if c.uid == s.uid {
			s.clients, s.own = append(s.clients, c), append(s.own, d.n(len(w.services)))
		}
	}
	some := min(len(s.clients), 2+d.n(2))
	s.clients = s.clients[len(s.clients)-some:]
	for a := range s.weights { // omit some actions, favor others
		s.weights[a] = frequency[a] * [...]int{0, 1, 1, 4}[d.n(4)]
	}
	if d.one(2) { // one service for all
		for i := range s.own {
			s.own[i] = s.own[0]
		}
	}
	if s.weights[reportNow] = max(s.weights[reportNow], frequency[reportNow]); d.one(2) {
		w.holdBack(d)
	}
	w.tracef("sequence of %s with %d objects", s.uid, len(s.objects))
	s.prepare(d)
	if w.compacting != nil && d.one(2) {
		s.compactUp(d)
		clear(w.delayed)
		w.through = anyService
		return true
	}
	switch d.n(22) {
	case 0:
		for range 4 + d.n(12) {
			s.maybe(s.draw(d))
		}
	case 1:
		s.pauseWithin(d)
	case 2:
		s.interleave(d)
	case 3:
		s.comeBack(d)
	case 4:
		s.remember(d)
	case 5:
		s.browse(d)
	case 6:
		s.outdate(d)
		judge = true
	case 7:
		s.runAhead(d)
		judge = true
	case 8:
		s.outlive(d)
		judge = true
	case 9:
		s.switchBehind(d)
	case 10:
		s.fill(d)
		judge = true
	case 11:
		s.keepUp(d)
		judge = d.one(2)
	case 12:
		s.bringBack(d)
		judge = true
	case 13:
		s.writeBeside(d)
		judge = true
	case 14:
		s.relyOn(d)
		judge = true
	case 15:
		s.leaveBehind(d)
		judge = true
	case 16:
		s.outlast(d)
		judge = true
	case 17, 18:
		s.landBehind(d)
		judge = true
	case 19:
		s.overlook(d)
		judge = true
	case 20:
		s.browseCold(d)
	default:
		s.loseMeanwhile(d)
		judge = true
	}
	s.read(d)
	clear(w.delayed)
	w.through = anyService
	return judge
}

// prepare sets the clocks, passes the last clear and switches recording on, because services would refuse most
// reports otherwise. One sequence in four skips it.
func (s *sequence) prepare(d *dice) {
	w := s.w
	if d.one(4) {
		return
	}
	for i, c := range s.clients {
		c.offset = 0
		w.services[s.own[i]].clock.set(0)
	}
	u, now := w.oracle.users[s.uid], time.Now().UnixMilli()
	later := now
	for _, c := range u.clears {
		later = max(later, c.at)
	}
	w.disturbed()
	w.pass(time.Duration(min(later-now, 10_000)+2*w.traits.grain) * time.Millisecond)
	if c := s.idle(d); c != nil && (!u.pause.sure || u.pause.isOff) {
		w.pause(c, &historyv1.PutSettingsRequest{Uid: c.uid, Recording: true})
		s.answered(c)
	}
}

// interleave holds up a client's write, or a background exchange, during other actions.
func (s *sequence) interleave(d *dice) {
	w := s.w
	s.focus = d.n(len(s.objects))
	if d.one(2) { // makes the next report the first of its object
		s.maybe(clearAll)
		w.pass(2 * time.Millisecond)
	}
	for range d.n(3) {
		s.maybe(setClock)
	}
	for range max(0, d.n(6)-2) {
		s.maybe([...]action{reportNow, reportNow, reportNext, removeOne}[d.n(4)])
	}
	if d.one(2) {
		s.maybe(archiveAll)
	}
	if d.one(2) {
		s.forced = [...]course{isSlow, isLost, isLost, isRepeated, losesAnswer}[d.n(5)]
		s.maybe([...]action{reportNow, reportNow, reportNow, reportNow, reportLate, removeOne, clearAll, switchRecording}[d.n(8)])
		if d.one(3) {
			s.maybe(switchRecording)
			s.maybe(readSome)
			s.maybe(readSome)
		}
	} else {
		w.holdBack(d)
		s.maybe([...]action{reportNow, reportNow, reportLate, reportLate, readSome}[d.n(5)])
	}
	for range 1 + d.n(4) {
		s.maybe(meanwhile[d.n(len(meanwhile))])
	}
	s.maybe(readSome)
	s.maybe(landAll)
}

// comeBack makes the cache forget a user. Old reports and reads arrive while exchanges of the warm-up are held
// up.
func (s *sequence) comeBack(d *dice) {
	clear(s.w.delayed)
	first := d.n(len(s.objects))
	for n := range s.objects { // each has a record
		s.focus = (first + n) % len(s.objects)
		s.maybe(reportNow)
	}
	covered := d.one(4) // late reports are from before a clear; the user decides about records after it
	if s.focus = -1; covered {
		s.focus = first
		s.maybe(clearLast)
		s.maybe(reportNext)
	} else if d.one(2) {
		s.maybe([...]action{removeOne, clearAll, dismissOne, dismissOne}[d.n(4)])
	}
	s.maybe(archiveAll)
	s.maybe(forgetUser)
	s.w.holdBack(d)
	if d.one(2) {
		s.w.delayed["apply"] = true
	}
	if covered {
		s.w.delayed["warm"] = true
		s.maybe(reportLate)
		s.maybe(dismissOne)
	}
	for range 1 + d.n(3) {
		s.maybe([...]action{reportLate, reportLate, reportNow, readSome, dismissOne, markOne}[d.n(6)])
	}
	s.maybe(readSome)
	s.maybe(readSome)
	s.maybe(landAll)
}

// remember has a device continue an object that others have deleted or played meanwhile through another service.
// The first service may still hold the older record.
func (s *sequence) remember(d *dice) {
	clear(s.w.delayed)
	s.knowing, s.focus = 2, d.n(len(s.objects))
	s.spread()
	for range 1 + d.n(2) {
		s.maybe(reportNow)
	}
	for range 1 + d.n(3) {
		s.maybe([...]action{removeOne, removeAll, removeAll, reportNow, reportNow, clearAll}[d.n(6)])
	}
	s.maybe(archiveAll)
	if d.one(3) {
		s.maybe(forgetUser)
		s.w.holdBack(d)
	}
	for range 1 + d.n(3) {
		s.maybe([...]action{reportNow, reportNow, reportAgain}[d.n(3)])
	}
	s.maybe(readSome)
	s.maybe(landAll)
}

// browse has a user with many objects turn pages. Some are archived and gone from the cache, the newest are
// deleted, and others arrive late with older times.
func (s *sequence) browse(d *dice) {
	clear(s.w.delayed)
	s.objects = s.w.objects()
	first, archived := d.n(len(s.objects)), 2+d.n(3)
	at := func(n int) int { return (first + n) % len(s.objects) }
	for n := range archived {
		s.focus = at(n)
		s.maybe(reportNow)
	}
	s.maybe(archiveAll)
	if d.one(3) {
		s.maybe(forgetUser)
	}
	s.w.holdBack(d)
	for n := range d.n(archived) {
		s.focus = at(archived - 1 - n)
		s.maybe(removeOne)
	}
	for n := range d.n(len(s.objects) - archived + 1) {
		s.focus = at(archived + n)
		s.maybe(reportLate)
	}
	s.maybe(turnPages)
	s.maybe(turnPages)
	s.maybe(landAll)
}

// browseCold has a user turn pages after the cache forgot them. The cache deletes the newest records of the
// archive's list. Or a clear known only to the archive hides the newest cached ones, which arrived late.
func (s *sequence) browseCold(d *dice) {
	w, objects := s.w, s.w.objects()
	first := d.n(len(objects))
	about := func(n int, a action) {
		n = (first + n) % len(objects)
		s.objects = objects[n : n+1]
		s.maybe(a)
	}
	clear(w.delayed)
	for n := range 4 {
		about(n, reportNow)
		w.pass(150 * time.Millisecond)
	}
	hidden := d.one(2)
	if hidden {
		about(3, clearLast)
	}
	s.maybe(archiveAll)
	s.maybe(forgetUser)
	w.delayed["page"], w.delayed["warm"], w.delayed["put"] = true, true, d.one(2)
	if !hidden {
		about(3, removeOne)
		about(2, removeOne)
	}
	about(5, reportLate)
	about(4, reportLate)
	s.maybe(turnPages)
	s.maybe(landAll)
}

// keepUp has an app read changes while objects are played, archived, trimmed and removed. Some change again
// before they are archived.
func (s *sequence) keepUp(d *dice) {
	clear(s.w.delayed)
	s.objects = s.w.objects()
	if s.w.traits.older {
		s.w.snapshot = s.w.cache.Clone()
	}
	s.maybe(readChanges)
	for range 3 + d.n(4) {
		for range 1 + d.n(3) {
			s.maybe([...]action{reportNow, reportNow, reportAgain, reportAgain, reportLate, removeOne}[d.n(6)])
		}
		switch d.n(4) {
		case 0:
			s.maybe(archiveAll)
		case 1:
			s.w.holdBack(d)
			s.maybe(passTime)
		}
		if d.one(12) {
			s.maybe([...]action{clearAll, switchRecording, forgetUser, loseCache}[d.n(4)])
		}
		s.maybe(readChanges)
	}
	s.maybe(landAll)
	s.maybe(readChanges)
}

// outdate brings the cache back with archived records, while the archive has later ones that no service
// remembers. The user plays on and turns pages, perhaps before any process has compared the two.
func (s *sequence) outdate(d *dice) {
	clear(s.w.delayed)
	s.focus = d.n(len(s.objects))
	if d.one(2) { // jobs lose their memory of archived records
		for _, j := range s.w.jobs {
			s.w.kill(j.process, "is killed")
		}
		s.w.gather()
		s.w.pass(s.w.traits.down)
	}
	if d.one(2) {
		s.maybe(forgetUser)
	}
	for range 1 + d.n(2) {
		s.maybe(reportNow)
	}
	s.maybe(archiveAll)
	if s.w.traits.older {
		s.w.snapshot = s.w.cache.Clone()
	}
	for range 1 + d.n(2) {
		s.maybe([...]action{reportNow, reportNow, reportAgain, reportLate, removeOne}[d.n(5)])
	}
	s.maybe(archiveAll)
	s.w.pass(s.w.traits.hold + s.w.traits.retain)
	if d.one(2) { // possibly to the other job, which does not know the archived records
		s.w.queue.rebalance(d)
	}
	switch d.n(3) {
	case 0:
		s.w.holdBack(d)
	case 1:
		s.w.delayed["get"] = true
	}
	s.maybe(loseCache)
	for range 1 + d.n(3) {
		s.maybe([...]action{reportNow, reportAgain, turnPages, passTime}[d.n(4)])
	}
	s.maybe(archiveAll)
	s.maybe(turnPages)
}

// overlook is like outdate, but jobs learn late of the cache's new epoch.
func (s *sequence) overlook(d *dice) {
	w := s.w
	clear(w.delayed)
	w.rough, s.focus = 0, d.n(len(s.objects))
	s.maybe(reportNow)
	s.maybe(archiveAll)
	before := w.cache.Clone()
	for range 1 + d.n(2) {
		s.maybe([...]action{reportNow, reportNow, reportAgain, removeOne}[d.n(4)])
	}
	s.maybe(archiveAll)
	forgotten := time.Now().Add(w.traits.hold + w.traits.retain)
	s.goOnUntil(1000, 500, func() bool { return !time.Now().Before(forgotten) })
	w.delayed["epoch"] = true
	if w.traits.older {
		w.snapshot = before
	}
	if w.traits.loses {
		w.resetCache(d)
		w.away[cacheStore].Store(0)
		w.away[archiveStore].Store(0)
		w.pass(w.traits.down)
		w.revive()
	}
	s.maybe(reportNow)
	s.goOnUntil(1000, 500, func() bool { return len(w.cache.marks) == 0 })
	s.maybe(landAll)
	s.maybe(archiveAll)
}

// runAhead uses late reports to move a record's cell time ahead of its event time. The record is archived and
// cleared: the next report must get a later cell time.
func (s *sequence) runAhead(d *dice) {
	clear(s.w.delayed)
	s.focus = d.n(len(s.objects))
	s.maybe(reportNow)
	for range 1 + d.n(3) {
		s.maybe(reportLate)
	}
	s.maybe(archiveAll)
	if !d.one(3) {
		s.maybe(forgetUser)
	}
	s.maybe([...]action{clearLast, clearLast, clearAll, removeOne}[d.n(4)])
	if d.one(2) {
		s.maybe(archiveAll)
	}
	s.maybe([...]action{reportNext, reportNext, markOne}[d.n(3)])
	s.maybe(readSome)
	s.maybe(archiveAll)
}

// outlive has a service hold a whole record that another has continued. Only the archive has the latest version:
// the other service dies, and the cache forgets the user. The record is born again without the archived version.
func (s *sequence) outlive(d *dice) {
	clear(s.w.delayed)
	s.focus = d.n(len(s.objects))
	s.spread()
	if d.one(2) { // the user has little history, so the cache is complete and the next report is whole
		for _, a := range [...]action{clearAll, archiveAll, forgetUser, readSome} {
			s.maybe(a)
		}
	}
	s.actBy(0, reportNow)
	for range 1 + d.n(3) { // a finished viewing is archived at once, while the other service still holds
		s.actBy(1, reportNow)
	}
	s.maybe(archiveAll)
	s.w.kill(s.w.services[s.own[1%len(s.own)]].process, "is killed")
	s.w.gather()
	s.maybe(forgetUser)
	s.w.revive()
	s.w.gather()
	s.w.delayed["apply"] = true
	if d.one(2) {
		s.w.delayed["get"] = true
	}
	s.actBy(1, [...]action{reportNow, reportNow, reportLate}[d.n(3)])
	s.maybe(passTime)
	s.actBy(0, [...]action{reportNow, reportAgain, reportLate}[d.n(3)])
	s.maybe(landAll)
	s.maybe(archiveAll)
}

// switchBehind sets one service's clock a second ahead and another's a second behind. Recording is switched off
// through the slow one while an object's first report is in flight through the fast one.
func (s *sequence) switchBehind(d *dice) {
	clear(s.w.delayed)
	s.focus = d.n(len(s.objects))
	s.spread()
	for i, c := range s.clients {
		c.offset = time.Duration(1-2*(i%2)) * time.Second
		s.w.services[s.own[i]].clock.set(c.offset)
	}
	s.w.disturbed()
	if d.one(2) {
		s.maybe(clearAll)
		s.w.pass(2 * time.Second)
	}
	s.forced = [...]course{isSlow, isLost}[d.n(2)]
	s.actBy(0, reportNow)
	s.actBy(1, switchRecording)
	s.actBy(1, readSome)
	s.actBy(1, readSome)
	s.maybe(landAll)
}

// pauseWithin switches recording off and on during sessions. Earlier reports are resent after each switch.
func (s *sequence) pauseWithin(d *dice) {
	clear(s.w.delayed)
	s.focus = d.n(len(s.objects))
	s.maybe(reportNow)
	for range 2 + d.n(3) {
		for _, recording := range [...]bool{false, true} {
			if c := s.idle(d); c != nil {
				s.w.pause(c, &historyv1.PutSettingsRequest{Uid: c.uid, Recording: recording})
				s.answered(c)
			}
			s.maybe(passTime)
		}
		for range 1 + d.n(4) {
			for _, c := range s.clients {
				c.watched = max(c.watched, 60_000) // all elapsed time
			}
			s.maybe([...]action{reportAgain, reportAgain, reportNow, repeatOne, repeatOne}[d.n(5)])
		}
		if d.one(4) {
			s.maybe([...]action{archiveAll, forgetUser, removeOne, clearLast}[d.n(4)])
		}
	}
}

// bringBack restores removed records from a backup while the restore is held up, or others play on.
func (s *sequence) bringBack(d *dice) {
	w := s.w
	clear(w.delayed)
	s.focus = d.n(len(s.objects))
	s.spread()
	for range 1 + d.n(3) {
		s.maybe(reportNow)
	}
	if d.one(2) {
		s.maybe(archiveAll)
	}
	c := s.idle(d)
	if c == nil {
		return
	}
	c.backup = nil
	w.takeBackup(c)
	s.answered(c)
	records := c.backup
	c.backup = nil
	for range 1 + d.n(2) {
		s.maybe([...]action{removeOne, removeAll, removeAll, clearAll, clearLast, reportNow}[d.n(6)])
	}
	for _, a := range [...]action{archiveAll, forgetUser, loseCache, passTime, holdBack} {
		if d.one(2) {
			s.maybe(a)
		}
	}
	w.revive()
	w.gather()
	for range 1 + d.n(2) {
		if c = s.idle(d); c != nil && len(records) > 0 {
			w.course = [...]course{goesWell, goesWell, isSlow, isLost, isRepeated, losesAnswer}[d.n(6)]
			w.restore(c, records)
			s.answered(c)
		}
		for range d.n(4) {
			s.maybe(meanwhile[d.n(len(meanwhile))])
		}
	}
	if d.one(2) {
		w.pass(3 * time.Second)
		s.maybe(reportNow)
	}
	s.maybe(readSome)
	s.maybe(landAll)
}

// stairs are falling positions: the first is from before a clear, the others fill a record. They only fit
// together if nothing else takes the first one's place.
var stairs = [...]int64{600_000, 541_000, 500_000, 450_000, 300_000, 200_000, 120_000, 60_000, 30_000, 1_000}

// fill removes a cleared report from a full record. In one variant only the archive has the clear when the report
// is sent. In another a write made without the clear lands after the record has returned. In the third the job
// rereads the report from the queue.
func (s *sequence) fill(d *dice) {
	w := s.w
	clear(w.delayed)
	w.rough, s.focus = 0, d.n(len(s.objects))
	s.spread()
	for i, c := range s.clients {
		c.offset = 0
		w.services[s.own[i]].clock.set(0)
	}
	w.disturbed()
	w.pass(time.Second)
	hidden := s.clients[0].nowMS() - 500
	after := func(k *known) bool { return k.may() && k.at >= hidden }
	waits := func(c *client) bool { return len(c.outbox) > 0 }
	if slices.ContainsFunc(w.oracle.users[s.uid].book(s.objects[s.focus]).facts, after) || slices.ContainsFunc(w.clients, waits) {
		return // would exceed a record's capacity
	}
	cleared := &historyv1.ClearRequest{Uid: s.uid, Type: uint32(d.n(2)) * s.objects[s.focus].Type, UntilMs: hidden} //nolint:gosec // small
	kind := d.n(3)
	late, queued := kind == 0, kind == 1
	if queued {
		s.ack = historyv1.Ack_ACK_QUEUED
		s.upload(0, hidden, d, stairs[0])
		s.ack = 0
	}
	if late {
		s.upload(0, hidden, d, stairs[:9]...)
		s.maybe(archiveAll)
		s.forced = isLost
		s.upload(1, hidden+9, d, stairs[9])
	}
	if c := s.idle(d); c != nil {
		w.clear(c, cleared)
		s.answered(c)
	}
	s.maybe(archiveAll)
	if queued {
		s.upload(0, hidden+1, d, stairs[1:]...)
		w.tracef("cache   is restarted and has lost nothing")
		w.begin()
		end := time.Now().Add(w.noticed())
		s.goOnUntil(200, 100, func() bool { return !time.Now().Before(end) })
		return
	}
	s.maybe(forgetUser)
	w.revive()
	w.gather()
	if !late {
		w.delayed["warm"] = true
		s.upload(0, hidden+1, d, stairs[1])
		s.upload(0, hidden, d, stairs[0])
		delete(w.delayed, "warm")
	}
	w.delayed["apply"] = true // of jobs
	if c := s.idle(d); c != nil {
		w.points(c, s.objects)
		s.answered(c)
	}
	if a := w.cache.users[s.uid]; late || a == nil || !a.user.Warm {
		s.maybe(landAll)
		return
	}
	s.upload(0, hidden+2, d, stairs[2:]...)
}

// upload sends reports of positions, a millisecond apart, in one message.
func (s *sequence) upload(n int, at int64, d *dice, positions ...int64) {
	c := s.clients[n%len(s.clients)]
	if c.busy > 0 {
		return
	}
	m := &submission{client: c, ack: s.ack}
	c.sessions++
	c.object = s.objects[s.focus]
	for i, p := range positions {
		c.session, c.started = fmt.Sprintf("%s-%d", c.device, c.sessions), at-20_000
		hb := c.heartbeat(d)
		hb.Kind, hb.EventTimeMs, hb.PositionMs, hb.IfMatch, hb.SentAtMs = historyv1.Kind_KIND_SEEK, at+int64(i), p, 0, 0
		c.last = hb.EventTimeMs
		m.heartbeats = append(m.heartbeats, hb)
	}
	c.outbox = append(c.outbox, m.heartbeats...)
	c.busy++
	s.w.through, s.w.course = s.own[n%len(s.own)], s.drawCourse(d)
	s.w.submit([]*submission{m}, 1)
	s.answered(c)
}

// spread assigns the devices to different services, as far as possible.
func (s *sequence) spread() {
	for i := range s.own {
		s.own[i] = i % len(s.w.services)
	}
}

func (s *sequence) actBy(n int, a action) {
	clients, own := s.clients, s.own
	n %= len(clients)
	s.clients, s.own = clients[n:n+1], own[n:n+1]
	s.maybe(a)
	s.clients, s.own = clients, own
}

// loseMeanwhile loses the cache while a client's write, or a background exchange, is held up.
func (s *sequence) loseMeanwhile(d *dice) {
	clear(s.w.delayed)
	s.focus = d.n(len(s.objects))
	for range d.n(3) {
		s.maybe([...]action{reportNow, reportNow, clearAll}[d.n(3)])
	}
	if d.one(2) {
		s.maybe(archiveAll)
	}
	if s.w.traits.older {
		s.w.snapshot = s.w.cache.Clone()
	}
	if d.one(2) {
		s.forced = [...]course{isSlow, answersSlowly, isLost, isRepeated}[d.n(4)]
		s.maybe(reportNow)
		for range d.n(3) {
			s.maybe([...]action{reportNow, reportNow, reportLate, removeOne, clearAll, switchRecording}[d.n(6)])
		}
	} else {
		s.w.delayed[[...]string{"put", "put", "apply", "mark_clean", "load", "publish"}[d.n(6)]] = true
		for range 1 + d.n(2) {
			s.maybe([...]action{reportNow, reportNow, removeOne, clearAll, switchRecording}[d.n(5)])
		}
		if d.one(4) { // the earlier of two clears comes last
			s.maybe([...]action{clearAll, clearLast}[d.n(2)])
			s.maybe(clearBefore)
		}
		s.goOnUntil(100, 60, s.waits)
	}
	s.maybe(loseCache)
	s.maybe(landAll)
}

// landBehind interrupts a put when the cache comes back older. The put lands after newer writes were merged with
// the archived record. The merged record may have the same cell time, and may be compacted before its own put.
func (s *sequence) landBehind(d *dice) {
	w := s.w
	clear(w.delayed)
	w.rough, s.objects = 0, w.objects()[:2]
	for n := range s.objects { // something to compact
		s.focus = n
		s.maybe(reportNow)
	}
	s.maybe(archiveAll)
	if w.compacting != nil && d.one(2) {
		w.pass(w.compacting.after + compactMargin + time.Second)
	}
	if w.traits.older {
		w.snapshot = w.cache.Clone()
	}
	w.delayed["put"] = true
	for range 1 + d.n(2) {
		s.maybe(reportLate)
	}
	s.goOnUntil(200, 60, s.waits)
	s.maybe(loseCache)
	for store := range w.away {
		w.away[store].Store(0)
	}
	for _, p := range w.services { // nobody holds the record
		w.kill(p.process, "is killed")
	}
	w.queue.rebalance(d)
	brokenOff := time.Now()
	w.gather()
	w.pass(w.traits.down)
	s.maybe(reportLate)
	soon := func() bool { return time.Since(brokenOff) > landsWithin-200*time.Millisecond }
	s.goOnUntil(200, 60, func() bool { return s.waits() || soon() })
	w.forgetPuts(landsWithin)
	for len(w.ghosts) > 0 {
		w.landOne(0)
	}
	if w.compacting != nil {
		s.compactSome(d, 100)
	}
	s.maybe(landAll)
	s.maybe(archiveAll)
}

// writeBeside loses the cache while two reports of one object are in flight in one service. The later report is
// written after the cache has lost the other one, which was acknowledged.
func (s *sequence) writeBeside(d *dice) {
	clear(s.w.delayed)
	s.focus = d.n(len(s.objects))
	for i := range s.own {
		s.own[i] = s.own[0]
	}
	s.maybe([...]action{reportNow, passTime, clearAll}[d.n(3)])
	if s.w.traits.older {
		s.w.snapshot = s.w.cache.Clone()
	}
	switch d.n(3) {
	case 0:
		s.repeatBeside()
	case 1:
		s.answerBeside(d)
	default:
		s.forced = [...]course{isSlow, answersSlowly}[d.n(2)]
		s.maybe(reportNow)
		s.maybe([...]action{reportLate, reportLate, reportNow}[d.n(3)])
		s.maybe(loseCache)
		s.maybe(landAll)
	}
}

// answerBeside loses the cache between a write and its answer. The service may compare its memory with the cache
// before the answer arrives.
func (s *sequence) answerBeside(d *dice) {
	if !s.w.traits.loses {
		return
	}
	s.forced = answersSlowly
	s.maybe([...]action{reportNow, reportNow, removeOne, clearAll, switchRecording}[d.n(5)])
	s.w.resetCache(d)
	s.w.gather()
	end := time.Now().Add(requestLimit - time.Duration(200+d.n(800))*time.Millisecond)
	s.goOnUntil(100, 100, func() bool { return !time.Now().Before(end) })
	s.maybe(landAll)
}

// repeatBeside loses the cache. Before the service notices, a device resends an older report.
func (s *sequence) repeatBeside() {
	s.actBy(0, reportNow)
	s.actBy(1, reportNow)
	s.maybe(loseCache)
	s.actBy(0, repeatOne)
	s.maybe(landAll)
}

// relyOn has a service rely on another's write whose answer was lost: it deletes a cleared object, or receives
// the report again. Then the other service and the cache are lost.
func (s *sequence) relyOn(d *dice) {
	clear(s.w.delayed)
	s.spread()
	s.focus, s.objects = 0, s.objects[:1]
	s.maybe(reportNow)
	s.maybe(archiveAll)
	if s.w.traits.older {
		s.w.snapshot = s.w.cache.Clone()
	}
	s.forced = losesAnswer
	if d.one(2) {
		s.actBy(0, reportNow)
		s.sendAgain(d)
	} else {
		s.actBy(0, clearAll)
		s.actBy(1, removeOne)
	}
	if d.one(2) {
		s.w.kill(s.w.services[s.own[0]].process, "is killed")
		s.w.gather()
	}
	s.maybe(loseCache)
}

// sendAgain resends the first device's unanswered report through another service.
func (s *sequence) sendAgain(d *dice) {
	c := s.clients[0]
	if c.busy > 0 || len(c.outbox) == 0 {
		return
	}
	last := len(c.outbox) - 1
	hb := c.outbox[last]
	c.outbox = c.outbox[:last]
	s.w.through = s.own[1%len(s.own)]
	s.post(c, hb, d)
}

// leaveBehind brings the cache back older during a partial outage of a store, which prevents the restore of the
// user's archived records. The user plays on until the outage ends.
func (s *sequence) leaveBehind(d *dice) {
	w := s.w
	clear(w.delayed)
	s.focus = d.n(len(s.objects))
	s.maybe(reportNow)
	s.maybe(archiveAll)
	if w.traits.older {
		w.snapshot = w.cache.Clone()
	}
	for range 1 + d.n(3) {
		s.maybe([...]action{reportNow, reportNow, reportLate, removeOne}[d.n(4)])
	}
	s.maybe(archiveAll)
	w.pass(w.traits.hold + w.traits.retain)
	store, away := d.n(queueStore), w.noticed()+[...]time.Duration{5 * time.Second, 20 * time.Second}[d.n(2)]
	w.leavePart(store, s.uid, away)
	s.maybe(loseCache)
	s.goOnUntil(200, 200, func() bool { return time.Since(w.lived) > w.noticed() })
	for range 1 + d.n(3) {
		s.maybe([...]action{reportNow, reportAgain, turnPages, passTime}[d.n(4)])
	}
	if d.one(2) { // to the other job
		w.queue.rebalance(d)
	}
	s.goOnUntil(500, 500, func() bool { return !time.Now().Before(w.parts[store].until) })
	s.maybe(archiveAll)
	s.maybe(turnPages)
}

// outlast keeps the archive unavailable, or without puts, for longer than two sweep ages. Meanwhile the cache is
// lost again and again, jobs die, and the user plays on. Every queued acknowledgement from before must survive.
func (s *sequence) outlast(d *dice) {
	w := s.w
	clear(w.delayed)
	s.objects = s.objects[:1]
	s.maybe([...]action{reportNow, removeOne, passTime}[d.n(3)])
	s.maybe(archiveAll)
	if w.traits.older {
		w.snapshot = w.cache.Clone()
	}
	away := 2*sweepAge + [...]time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second}[d.n(3)]
	began := time.Now()
	end := began.Add(away)
	switch d.n(4) {
	case 0:
		w.leaveFor(archiveStore, away)
	case 1:
		w.leavePart(archiveStore, s.uid, away)
	default:
		w.delayed["put"] = true
	}
	s.ack = historyv1.Ack_ACK_QUEUED
	for range 1 + d.n(2) {
		s.maybe([...]action{reportNow, reportNow, reportLate}[d.n(3)])
	}
	s.ack = historyv1.Ack_ACK_UNSPECIFIED
	for w.failure == "" && time.Now().Before(end) {
		until := time.Now().Add([...]time.Duration{time.Second, 3 * time.Second, 2 * sweepAge}[d.n(3)])
		s.goOnUntil(200, 200, func() bool { return !time.Now().Before(until) })
		w.forgetPuts(0)
		kind := d.n(8)
		if kind < 4 && w.traits.loses {
			w.resetCache(d)
			w.gather()
		}
		switch kind {
		case 0, 7:
			s.startJobsAnew(d, began)
		case 4:
			w.queue.rebalance(d)
		case 5, 6:
			s.maybe([...]action{reportAgain, reportNow, reportLate}[d.n(3)])
		}
	}
	s.maybe(loseCache)
	s.maybe(landAll)
	s.maybe(archiveAll)
}

// startJobsAnew kills one job or all. If the cache may come back older, jobs die only while nothing can be put.
// All die then only after each has reread the queue, if the cache was lost since a time.
func (s *sequence) startJobsAnew(d *dice, since time.Time) {
	w := s.w
	if w.away[cacheStore].Store(0); w.delayed["put"] {
		w.away[archiveStore].Store(0)
	}
	compared := func() bool {
		return !slices.ContainsFunc(w.jobs, func(j *jobProcess) bool { return j.reread.Load() != w.epochs.Load() })
	}
	end := time.Now().Add([...]time.Duration{0, 15 * time.Second, 15 * time.Second}[d.n(3)])
	s.goOnUntil(1000, 200, func() bool { return compared() || !time.Now().Before(end) })
	nothingPut := w.delayed["put"] || w.isAway(archiveStore) || time.Now().Before(w.parts[archiveStore].until)
	if w.traits.older && !nothingPut { // only they know what was put
		return
	}
	all := !w.traits.older || compared() && (w.delayed["put"] || w.lived.Before(since))
	for n := range w.jobs {
		if n == 0 || all && !d.one(3) {
			w.kill(w.jobs[n].process, "is killed")
		}
	}
	w.gather()
	end = time.Now().Add(w.traits.down + w.noticed() + sweepEvery)
	s.goOnUntil(1000, 200, func() bool { return !time.Now().Before(end) })
	w.forgetPuts(0)
}

// forgetPuts drops puts abandoned that long ago: a put never lands so late.
func (w *World) forgetPuts(ago time.Duration) {
	w.ghosts = slices.DeleteFunc(w.ghosts, func(g *ghost) bool { return g.x.store() == archiveStore && time.Since(g.since) >= ago })
}

// waits reports whether a background exchange is held up.
func (s *sequence) waits() bool {
	return slices.ContainsFunc(s.w.pending, func(x *exchange) bool { return x.call == 0 && s.w.delayed[x.what] })
}

// meanwhile are the actions during a held-up exchange.
var meanwhile = [...]action{
	reportNow, reportNow, reportNow, reportNext, reportLate, removeOne, clearAll, clearLast, switchRecording, switchRecording,
	readSome, archiveAll, forgetUser, passTime, passTime, loseCache, loseCache,
}

// maybe makes an action, unless a shrunk run omits it.
func (s *sequence) maybe(a action) {
	if d, ok := s.w.src.chance(streamSequence, 10_000); ok && s.w.failure == "" {
		s.act(a, d)
	}
}

func (s *sequence) draw(d *dice) action {
	sum := 0
	for _, n := range s.weights {
		sum += n
	}
	at := d.n(sum)
	for a, n := range s.weights {
		if at -= n; at < 0 {
			return action(a)
		}
	}
	return reportNow
}

// idle returns a client without a call in flight, or nil. It directs calls to that client's service.
func (s *sequence) idle(d *dice) *client {
	first := d.n(len(s.clients))
	for i := range s.clients {
		if n := (first + i) % len(s.clients); s.clients[n].busy == 0 {
			s.w.through = s.own[n]
			return s.clients[n]
		}
	}
	return nil
}

// act makes an action, and waits until it ends or is held up.
func (s *sequence) act(a action, d *dice) {
	w := s.w
	c := s.idle(d)
	if c == nil {
		a = landAll
	}
	if w.traits.older && d.one(4) {
		w.snapshot = w.cache.Clone()
	}
	switch a {
	case reportNow, reportNext, reportLate, reportAgain:
		s.report(c, a, d)
	case repeatOne:
		if len(c.done) > 0 {
			s.post(c, c.done[d.n(len(c.done))], d)
		}
	case removeOne, removeAll, clearAll, clearLast, clearBefore, switchRecording, markOne, dismissOne:
		s.decide(c, a, d)
	case readSome:
		s.readWith(c, d)
		s.answered(c)
	case turnPages:
		s.turnPages(c, d)
		s.answered(c)
	case readChanges:
		w.sync(c)
		s.answered(c)
	case backUp:
		w.course = s.drawCourse(d)
		w.takeBackup(c)
		s.answered(c)
	case archiveAll:
		if d.one(2) {
			clear(w.delayed)
		}
		s.goOnUntil(300, 200, func() bool { return len(w.cache.marks) == 0 })
		s.goOnUntil(10, 2, func() bool { return false }) // and trimmed
	case forgetUser:
		w.pass(3*requestLimit + 100*time.Millisecond)
		w.forget(s.uid)
	case passTime:
		end := time.Now().Add([...]time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}[d.n(3)])
		s.goOnUntil(100, 100, func() bool { return !time.Now().Before(end) })
	case landAll:
		s.land()
	case holdBack:
		w.holdBack(d)
	default:
		s.befall(a, d)
	}
}

// befall makes an action of stores, processes and clocks.
func (s *sequence) befall(a action, d *dice) {
	w := s.w
	switch a {
	case loseCache:
		if w.traits.loses {
			s.lose(d)
		}
	case storeAway:
		w.leave(d.n(stores), d)
	case killService:
		w.kill(w.services[d.n(len(w.services))].process, "is killed")
		w.gather()
	case setClock:
		s.shift(time.Duration(d.n(8000)-4000)*time.Millisecond, d)
	default:
	}
}

// shift sets the clock of a service, of its devices, or of both.
func (s *sequence) shift(offset time.Duration, d *dice) {
	n, which := d.n(len(s.w.services)), d.n(3)
	for i, c := range s.clients {
		if s.own[i] == n && which != 0 {
			c.offset = offset
		}
	}
	if p := s.w.services[n]; which != 1 {
		p.clock.set(offset)
		s.w.disturbed()
		s.w.tracef("%-7s its clock shows %s", p.name, moment(p.clock.nowMS()))
	}
}

func (s *sequence) lose(d *dice) {
	w := s.w
	w.resetCache(d)
	if d.one(2) {
		w.away[cacheStore].Store(0)
		w.away[archiveStore].Store(0)
	}
	w.gather()
	switch d.n(5) {
	case 0, 1:
		s.land()
	case 2, 3:
		end := time.Now().Add(w.noticed())
		s.goOnUntil(100, 100, func() bool { return !time.Now().Before(end) })
	}
}

func (s *sequence) drawCourse(d *dice) course {
	if c := s.forced; c != goesWell {
		s.forced = goesWell
		return c
	}
	if s.focus < 0 && d.one(3) {
		return course(d.n(int(courses)))
	}
	return goesWell
}

// drawObject draws an object, usually the one in focus.
func (s *sequence) drawObject(d *dice) history.Object {
	if s.focus >= 0 && !d.one(5) {
		return s.objects[s.focus]
	}
	return s.objects[d.n(len(s.objects))]
}

// report sends one or a few reports in separate messages.
func (s *sequence) report(c *client, a action, d *dice) {
	now, messages := c.nowMS(), 1
	if a != reportAgain || c.session == "" {
		c.sessions++
		c.session, c.object = fmt.Sprintf("%s-%d", c.device, c.sessions), s.drawObject(d)
		c.started, c.position, c.watched = now-20_000, d.n(len(positions)), 0
	}
	last := s.lastReport()
	if a == reportLate {
		messages = 1 + d.n(3)
	}
	for n := range messages {
		hb := c.heartbeat(d)
		switch {
		case last == 0:
		case a == reportNext:
			hb.EventTimeMs = last + 1
		case a == reportLate:
			hb.EventTimeMs = last - int64([...]int{1, 100, 10_000}[d.n(3)]) - int64(n)
		}
		if c.last = hb.EventTimeMs; d.one(s.knowing) {
			hb.IfMatch = c.etags[c.object]
		}
		s.post(c, hb, d)
		if c.last = max(hb.EventTimeMs, last); c.busy > 0 {
			return
		}
	}
}

func (s *sequence) lastReport() (at int64) {
	for _, c := range s.clients {
		at = max(at, c.last)
	}
	return at
}

// post sends one report past the edge.
func (s *sequence) post(c *client, hb *historyv1.Heartbeat, d *dice) {
	m := &submission{client: c, heartbeats: []*historyv1.Heartbeat{hb}}
	if s.ack != 0 || d.one(s.w.traits.queued*2) {
		m.ack = historyv1.Ack_ACK_QUEUED
	}
	c.outbox = append(c.outbox, hb)
	c.busy++
	s.w.course = s.drawCourse(d)
	s.w.submit([]*submission{m}, 1)
	s.answered(c)
}

func (s *sequence) decide(c *client, a action, d *dice) {
	o := s.drawObject(d)
	s.w.course = s.drawCourse(d)
	defer s.answered(c)
	switch a {
	case removeOne:
		s.remove(c, o, d)
	case removeAll:
		for _, o := range s.objects {
			s.remove(c, o, d)
			s.answered(c)
		}
	case clearAll:
		s.w.clear(c, &historyv1.ClearRequest{Uid: c.uid, Type: uint32(d.n(3))}) //nolint:gosec // small
	case clearLast:
		s.w.clear(c, &historyv1.ClearRequest{Uid: c.uid, Type: uint32(d.n(2)) * o.Type, UntilMs: s.lastReport()}) //nolint:gosec // small
	case clearBefore:
		s.w.clear(c, &historyv1.ClearRequest{Uid: c.uid, Type: uint32(d.n(2)) * o.Type, UntilMs: max(s.lastReport()-[...]int64{1, 1000}[d.n(2)], 0)}) //nolint:gosec // small
	case markOne:
		at := [...]int64{c.nowMS(), s.lastReport() + 1, max(s.lastReport()-1, 1)}[d.n(3)]
		req := &historyv1.MarkRequest{Mark: historyv1.Mark(1 + d.n(3)), AtMs: at, OnlyRecorded: d.one(3)} //nolint:gosec // small
		req.UnlessCompleted = req.Mark == historyv1.Mark_MARK_WATCHED && d.one(2)
		s.w.mark(c, o, req)
	case dismissOne:
		s.w.dismiss(c, o, d.one(3))
	default:
		s.w.pause(c, &historyv1.PutSettingsRequest{Uid: c.uid, Recording: d.one(3)})
	}
}

func (s *sequence) remove(c *client, o history.Object, d *dice) {
	req := &historyv1.DeleteRequest{Uid: c.uid, Objects: []*historyv1.Object{{Id: o.ID, Type: o.Type}}}
	if d.one(4) {
		req.AtMs = s.lastReport()
	}
	s.w.remove(c, o, req)
}

func (s *sequence) readWith(c *client, d *dice) {
	switch d.n(6) {
	case 0, 1:
		s.turnPages(c, d)
	case 2:
		s.w.sync(c)
	default:
		s.w.points(c, s.objects)
	}
}

func (s *sequence) turnPages(c *client, d *dice) {
	s.w.list(c, &historyv1.ListRequest{Uid: c.uid, Limit: [...]uint32{1, 1, 1, 2}[d.n(4)]})
}

func (s *sequence) read(d *dice) {
	for range 2 {
		if c := s.idle(d); c != nil && s.w.failure == "" {
			s.readWith(c, d)
			s.answered(c)
		}
	}
}

// land resumes every held exchange and lands the abandoned ones.
func (s *sequence) land() {
	for _, x := range s.w.pending {
		x.idle = time.Time{}
	}
	for len(s.w.ghosts) > 0 {
		s.w.landOne(0)
	}
	clear(s.w.delayed)
	s.goOnUntil(20, 2, func() bool { return false })
}

// answered runs until a client has its answer, or nothing happens.
func (s *sequence) answered(c *client) {
	s.goOnUntil(60, 3, func() bool { return c.busy == 0 })
	s.w.course = goesWell
}

// goOnUntil runs until done, for at most turns turns. It stops after patience idle turns.
func (s *sequence) goOnUntil(turns, patience int, done func() bool) {
	w := s.w
	w.gather()
	for idle := 0; turns > 0 && idle < patience && w.failure == "" && !done(); turns-- {
		w.turns++
		w.revive()
		if x := w.pick(); x != nil {
			w.steps++
			idle = 0
			w.proceed(x)
			w.pass(time.Millisecond / 2)
		} else {
			idle++
			w.pass(50 * time.Millisecond)
		}
	}
}

// holdBack draws the background exchanges to hold up.
func (w *World) holdBack(d *dice) {
	clear(w.delayed)
	for range 1 + d.n(2) {
		w.delayed[[...]string{"apply", "apply", "warm", "page", "put", "put", "get", "load", "mark_clean", "publish"}[d.n(10)]] = true
	}
	if w.traced() {
		w.tracef("held    in the background: %v", slices.Sorted(maps.Keys(w.delayed)))
	}
}
