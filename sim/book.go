package sim

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type userBook struct {
	keys   map[history.Object]*book
	clears []*cut
	pause  pauseBook
}

// book is what was said of one key.
type book struct {
	facts   []*known
	by      map[fact]*known
	deletes []*cut
	// dismissals are about whether the object is offered to go on with, in the order in which they were sent.
	dismissals []*dismissal
	restored   []*known // what was brought back from a backup, perhaps
}

// known is a fact with what is known of its fate.
type known struct {
	fact
	sent  int64
	acked int64 // 0 while nobody was told that it is in
	// safe means that the answer says that it outlives the cache.
	safe    bool
	open    int // attempts on their way
	unknown int // attempts of which nobody knows
	// late means that a pause has made it too late for it, until recording is switched again.
	late bool
	// began is how many switches of recording had been sent when it was first sent, and unsure that what was known of them was
	// not certain then, or not to the cache. Pauses are those that it was judged by, where exact says that this is certain.
	began  int
	unsure bool
	pauses []interval
	exact  bool
	witnesses
}

// interval is a time in which recording was off: after since, and up to until.
type interval struct{ since, until int64 }

const lasting = int64(1) << 62 // until nobody knows when

// recorded returns for how many milliseconds of a time recording was on.
func recorded(pauses []interval, from, to int64) int64 {
	on := to - from
	for _, p := range pauses {
		on -= max(min(p.until, to)-max(p.since, from), 0)
	}
	return on
}

// witnesses are the services that said of something that it is in.
type witnesses struct {
	by   []int
	told time.Time // when one said so last
	// promised means that it is to be there again when nothing is under way any more: the
	// cache was lost, and it is in the queue, or in the archive, or those who remember it live.
	promised bool
	archived bool
	remember []int
}

// memory reports whether a service remembers what it has said of a key at a time.
type memory func(service int, k history.Key, at time.Time) bool

func (s *witnesses) said(service int) {
	s.told = time.Now()
	if !slices.Contains(s.by, service) {
		s.by = append(s.by, service)
	}
}

// saidBeside notes that a service said so of what the cache may have lost before: it brings that back.
func (s *witnesses) saidBeside(service int) {
	if s.said(service); !slices.Contains(s.remember, service) {
		s.remember = append(s.remember, service)
	}
	s.promised = true
}

// lost notes that the cache was lost. Safe is what needs no witness, as what is archived.
func (s *witnesses) lost(k history.Key, safe bool, remembers memory) {
	s.remember = s.remember[:0]
	for _, service := range s.by {
		if remembers(service, k, s.told) {
			s.remember = append(s.remember, service)
		}
	}
	s.promised = safe || s.archived || len(s.remember) > 0
}

// died notes that a service takes with it what it remembers.
func (s *witnesses) died(service int, safe bool) {
	s.remember = slices.DeleteFunc(s.remember, func(o int) bool { return o == service })
	s.promised = s.promised && (safe || s.archived || len(s.remember) > 0)
}

func (k *known) may() bool { return k.acked > 0 || !k.late && (k.open > 0 || k.unknown > 0) }

// cut is a delete or a clear: nothing at or before a time exists.
type cut struct {
	typ    uint32 // of a clear
	at     int64
	own    int64 // what it covers whatever the service has found
	raised bool  // the time may be that of any report that there was, if that is later
	sent   int64
	acked  int64
	closed bool    // it was answered, or nothing is under way any more
	times  []int64 // of a raised one that is closed, those of the reports by then
	witnesses
}

// close notes the reports that there are: what comes later raises the cut no more.
func (c *cut) close(books ...*book) {
	if c.closed || !c.raised {
		return
	}
	var times []int64
	for _, b := range books {
		times = append(times, c.raisedBy(b)...)
	}
	c.closed, c.times = true, times
}

// raisedBy returns the times of a key's reports, of what was restored and of tombstones that may be the cut's.
func (c *cut) raisedBy(b *book) (times []int64) {
	if c.closed || !c.raised {
		return c.times
	}
	for _, k := range slices.Concat(b.facts, b.restored) {
		if k.may() && k.at > c.at {
			times = append(times, k.at)
		}
	}
	for _, d := range b.deletes { // a tombstone counts as what it removed does
		if d != c && d.at > c.at {
			times = append(times, d.at)
		}
		times = append(times, d.times...)
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// may reports whether the cut may cover a time.
func (c *cut) may(at int64) bool {
	return at <= c.at || c.raised && !c.closed || slices.ContainsFunc(c.times, func(t int64) bool { return at <= t })
}

// covers reports whether it may cover a report of an object of a type.
func (c *cut) covers(typ uint32, at int64) bool {
	return (c.typ == 0 || c.typ == typ) && c.may(at)
}

// dismissal is a decision about whether an object is offered, with what is known of its fate. Its time is the
// earliest that it may have.
type dismissal struct {
	known
	offer  bool
	latest int64 // of the reports that were acknowledged before it
}

func (u *userBook) book(obj history.Object) *book {
	b := u.keys[obj]
	if b == nil {
		b = &book{by: make(map[fact]*known)}
		u.keys[obj] = b
	}
	return b
}

func (u *userBook) all() iter.Seq[*book] { return maps.Values(u.keys) }

// all returns reports and dismissals.
func (b *book) all() []*known {
	all := slices.Clone(b.facts)
	for _, d := range b.dismissals {
		all = append(all, &d.known)
	}
	return all
}

func (u *userBook) cleared(typ uint32, at int64) bool {
	return slices.ContainsFunc(u.clears, func(c *cut) bool { return c.covers(typ, at) })
}

func (b *book) deleted(at int64) bool {
	return slices.ContainsFunc(b.deletes, func(c *cut) bool { return c.may(at) })
}

// revoked reports whether a later decision took an acknowledged one back.
func (b *book) revoked(d *dismissal, begun int64) bool {
	return d.acked > 0 && slices.ContainsFunc(b.dismissals, func(o *dismissal) bool {
		return o.offer && o.sent > d.acked && o.acked > 0 && o.acked < begun
	})
}

// pauseBook is what is known of whether a user wants to be recorded.
type pauseBook struct {
	cold      bool  // the cache may not know of it, until somebody has asked
	first     int64 // no switch is of an earlier time, 0 without any
	latest    int64 // no switch is of a later time
	changes   int   // switches that were sent
	open      int   // of them on their way
	unknown   int   // of them without an answer, which may still come
	sure      bool  // what follows is known for certain
	isOff     bool
	since     int64 // when it was switched off, as far as that is known
	until     int64 // and on again
	divided   bool  // there are namespaces, to which a switch comes one after the other
	halfway   bool  // it may have come to some of them only: those may go on until it is switched once more
	beside    bool  // switches are under way side by side, whose answers come in any order
	forgotten bool  // the cache has forgotten the user, and perhaps nobody has asked since
	// pauses are those that services remember, oldest first, where exact says that this is certain.
	pauses    []interval
	exact     bool
	witnesses // of the last switch
}

// pauseState is what was known at a time.
type pauseState struct {
	changes int
	sure    bool
}

func (p *pauseBook) state() pauseState { return pauseState{p.changes, p.sure && p.open == 0} }

// off reports whether a report of a time must not be recorded: nothing has changed since
// a state in which recording was off.
func (p *pauseBook) off(then pauseState, at int64) bool {
	return then.sure && p.sure && then.changes == p.changes && p.isOff && at > p.since && !p.cold
}

// on reports whether it must be.
func (p *pauseBook) on(then pauseState, at int64) bool {
	return then.sure && p.sure && then.changes == p.changes && !p.isOff && at > max(p.until, p.latest) && p.until > 0 && !p.cold
}

// gone reports whether a report that was sent after so many switches must not be recorded, because recording was off at its
// time, in whichever pause.
func (p *pauseBook) gone(a *attempt) bool {
	return a.exact && p.certain() && a.pauses.changes == p.changes &&
		slices.ContainsFunc(p.pauses, func(s interval) bool { return a.k.at > s.since && a.k.at <= s.until })
}

// certain reports whether a report is judged by just the pauses that are known.
func (p *pauseBook) certain() bool { return p.exact && p.open == 0 && !p.cold && !p.forgotten }

// judged notes by which pauses a report was judged that is acknowledged for the first time.
func (k *known) judged(p *pauseBook) {
	if k.exact = p.certain() && !k.unsure && k.began == p.changes; k.exact {
		k.pauses = slices.Clone(p.pauses)
	}
}

// remember notes what a switch has made of the pauses: stored is what the cache has then, which alone says when
// recording was switched on again.
func (p *pauseBook) remember(stored history.Pause) {
	last := interval{since: p.since}
	n := len(p.pauses) - 1
	if n >= 0 {
		last = p.pauses[n]
	}
	switch off := last.until == lasting; {
	case !p.sure || stored.On() != p.isOff, p.isOff && stored.Since != p.since, off && stored.Since != last.since:
		p.exact = false
	case p.isOff && !off:
		p.pauses = append(p.pauses, interval{p.since, lasting})
		p.pauses = p.pauses[max(0, len(p.pauses)-history.MaxPauses-1):]
	case !p.isOff && off:
		p.pauses[n].until = stored.Until
	}
}

// learn takes over the stored pauses as exact. The caller calls it when no switch is under way: all services know the same then.
func (p *pauseBook) learn(stored history.Pause) {
	times := append([]string{fmt.Sprint(stored.Since), fmt.Sprint(stored.Until)}, strings.Fields(string(stored.Earlier))...)
	p.pauses, p.exact = nil, true
	for i := 0; i < len(times) && stored.Since > 0; i += 2 {
		since, _ := strconv.ParseInt(times[i], 10, 64)
		until, _ := strconv.ParseInt(times[i+1], 10, 64)
		if until < since {
			until = lasting
		}
		p.pauses = append(p.pauses, interval{since, until})
	}
	slices.Reverse(p.pauses)
}

// switching notes that a switch was sent to a service whose clock shows now.
func (u *userBook) switching(now int64) {
	p := &u.pause
	p.changes++
	p.open++
	p.beside = p.beside || p.open > 1
	p.witnesses = witnesses{}
	p.latest = max(p.latest, now)
	if p.first == 0 || now < p.first {
		p.first = now
	}
	for _, b := range u.keys {
		for _, k := range b.facts {
			p.latest, k.late = max(p.latest, k.at), false
		}
	}
}

// answered takes what became of a switch: at is when recording was switched off as the
// answer has it, known whether there was an answer.
func (p *pauseBook) answered(s *historyv1.Settings, service int, now int64) {
	p.exact = p.exact && s != nil
	p.open--
	p.latest = max(p.latest, now)
	if s == nil {
		p.unknown, p.halfway = p.unknown+1, p.divided
	} else {
		if p.said(service); !p.divided { // and has warmed the user up
			p.cold, p.forgotten = false, false
		}
	}
	switch {
	case p.unknown > 0 || p.open > 0 || p.beside:
		p.sure, p.until, p.beside = false, 0, p.beside && p.open > 0
	case s.GetRecording():
		p.halfway = false
		if p.until = 0; p.sure && p.isOff {
			p.until = max(now, p.since+1)
		}
		p.sure, p.isOff = true, false
	default:
		p.sure, p.halfway, p.isOff, p.since, p.until = true, false, true, s.GetPausedMs(), 0
	}
}

// read takes what somebody was shown once nothing is under way any more.
func (p *pauseBook) read(s *historyv1.Settings) {
	if p.unknown, p.cold = 0, false; p.halfway {
		return
	}
	if recording := s.GetRecording(); !p.sure || p.isOff == recording {
		p.sure, p.isOff, p.since, p.until = true, !recording, s.GetPausedMs(), 0
	}
}

// oracle knows what clients sent and what they were told, and nothing else. Its times
// are the order in which clients did and heard things.
type oracle struct {
	time   int64
	rested int64 // when everything was archived last
	lost   int64 // when the cache lost something last
	users  map[string]*userBook
}
