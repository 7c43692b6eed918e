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

// book is everything reported about one key.
type book struct {
	facts   []*known
	by      map[fact]*known
	deletes []*cut
	// dismissals, in the order sent
	dismissals []*dismissal
	restored   []*known // records that a backup may have restored
}

// known is a fact with its fate.
type known struct {
	fact
	sent  int64
	acked int64 // 0 while unacknowledged
	// safe means that the answer promised survival of a cache loss.
	safe    bool
	open    int // attempts in flight
	unknown int // attempts without an answer
	// late means that a pause excludes the fact until recording is switched again.
	late bool
	// began is the number of switches sent before the fact. unsure means that the pauses were uncertain then, or
	// unknown to the cache. pauses are the ones that the service applied, if exact.
	began  int
	unsure bool
	pauses []interval
	exact  bool
	witnesses
}

// interval is a pause: recording was off for since < time ≤ until.
type interval struct{ since, until int64 }

const lasting = int64(1) << 62 // end of an open pause

// recorded returns the milliseconds of recording between two times.
func recorded(pauses []interval, from, to int64) int64 {
	on := to - from
	for _, p := range pauses {
		on -= max(min(p.until, to)-max(p.since, from), 0)
	}
	return on
}

// witnesses are the services that acknowledged a fact or a decision.
type witnesses struct {
	by   []int
	told time.Time // time of the latest acknowledgement
	// promised means that it must return at the next rest: the cache was lost, but the queue, the archive or a
	// live service has it.
	promised bool
	archived bool
	remember []int
}

// memory reports whether a service remembers what it acknowledged about a key at a time.
type memory func(service int, k history.Key, at time.Time) bool

func (s *witnesses) said(service int) {
	s.told = time.Now()
	if !slices.Contains(s.by, service) {
		s.by = append(s.by, service)
	}
}

// saidBeside notes an acknowledgement of something the cache may have lost before. The service restores it.
func (s *witnesses) saidBeside(service int) {
	if s.said(service); !slices.Contains(s.remember, service) {
		s.remember = append(s.remember, service)
	}
	s.promised = true
}

// lost notes a cache loss. Something safe, such as an archived fact, needs no witness.
func (s *witnesses) lost(k history.Key, safe bool, remembers memory) {
	s.remember = s.remember[:0]
	for _, service := range s.by {
		if remembers(service, k, s.told) {
			s.remember = append(s.remember, service)
		}
	}
	s.promised = safe || s.archived || len(s.remember) > 0
}

// died notes the death of a service, and with it the loss of its memory.
func (s *witnesses) died(service int, safe bool) {
	s.remember = slices.DeleteFunc(s.remember, func(o int) bool { return o == service })
	s.promised = s.promised && (safe || s.archived || len(s.remember) > 0)
}

func (k *known) may() bool { return k.acked > 0 || !k.late && (k.open > 0 || k.unknown > 0) }

// cut is a delete or a clear: it removes everything up to a time.
type cut struct {
	typ    uint32 // of a clear
	at     int64
	own    int64 // time it covers whatever the service found
	raised bool  // may extend to the time of any existing report
	sent   int64
	acked  int64
	closed bool    // answered, or nothing is in flight any more
	times  []int64 // of a closed raised cut: the times of the reports by then
	witnesses
}

// close fixes the reports that may raise the cut.
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

// raisedBy returns the times in a book that may have raised the cut: reports, restored records and tombstones.
func (c *cut) raisedBy(b *book) (times []int64) {
	if c.closed || !c.raised {
		return c.times
	}
	for _, k := range slices.Concat(b.facts, b.restored) {
		if k.may() && k.at > c.at {
			times = append(times, k.at)
		}
	}
	for _, d := range b.deletes { // a tombstone counts like the report it removed
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

// covers reports whether the cut may cover a report of that type.
func (c *cut) covers(typ uint32, at int64) bool {
	return (c.typ == 0 || c.typ == typ) && c.may(at)
}

// dismissal is a decision about an object's offer and its known fate. Its time is the earliest possible one.
type dismissal struct {
	known
	offer  bool
	latest int64 // latest report acknowledged before it
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

// revoked reports whether an acknowledged decision was later taken back.
func (b *book) revoked(d *dismissal, begun int64) bool {
	return d.acked > 0 && slices.ContainsFunc(b.dismissals, func(o *dismissal) bool {
		return o.offer && o.sent > d.acked && o.acked > 0 && o.acked < begun
	})
}

// pauseBook is the judge's knowledge of a user's recording setting.
type pauseBook struct {
	cold      bool  // The cache may not know it until the next request.
	first     int64 // Earliest possible time of a switch; 0 without one.
	latest    int64 // Latest possible time of a switch.
	changes   int   // Switches sent.
	open      int   // Switches in flight.
	unknown   int   // Unanswered switches, which may still land.
	sure      bool  // The fields below are certain.
	isOff     bool
	since     int64 // Time it was switched off, if known.
	until     int64 // Time it was switched on again.
	divided   bool  // The user has namespaces; a switch reaches them one after the other.
	halfway   bool  // The switch may have reached some namespaces only, until the next one.
	beside    bool  // Concurrent switches: their answers come in any order.
	forgotten bool  // The cache forgot the user; perhaps no request since.
	// pauses that services remember, oldest first; certain if exact
	pauses    []interval
	exact     bool
	witnesses // of the last switch
}

// pauseState is a snapshot of a pauseBook.
type pauseState struct {
	changes int
	sure    bool
}

func (p *pauseBook) state() pauseState { return pauseState{p.changes, p.sure && p.open == 0} }

// off reports whether recording was certainly off at a time, without a switch since then.
func (p *pauseBook) off(then pauseState, at int64) bool {
	return then.sure && p.sure && then.changes == p.changes && p.isOff && at > p.since && !p.cold
}

// on reports whether recording was certainly on.
func (p *pauseBook) on(then pauseState, at int64) bool {
	return then.sure && p.sure && then.changes == p.changes && !p.isOff && at > max(p.until, p.latest) && p.until > 0 && !p.cold
}

// gone reports whether a known pause excludes the attempt's report.
func (p *pauseBook) gone(a *attempt) bool {
	return a.exact && p.certain() && a.pauses.changes == p.changes &&
		slices.ContainsFunc(p.pauses, func(s interval) bool { return a.k.at > s.since && a.k.at <= s.until })
}

// certain reports whether services apply exactly the known pauses.
func (p *pauseBook) certain() bool { return p.exact && p.open == 0 && !p.cold && !p.forgotten }

// judged notes the pauses that applied to a report at its first acknowledgement.
func (k *known) judged(p *pauseBook) {
	if k.exact = p.certain() && !k.unsure && k.began == p.changes; k.exact {
		k.pauses = slices.Clone(p.pauses)
	}
}

// remember adds a switch to the known pauses. stored is the cache's pause, the only source of the time of a
// switch-on.
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

// learn adopts the stored pauses as exact. The caller calls it at rest, when all services agree.
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

// switching notes a switch sent to a service whose clock shows now.
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

// answered notes the answer to a switch; s is nil without one.
func (p *pauseBook) answered(s *historyv1.Settings, service int, now int64) {
	p.exact = p.exact && s != nil
	p.open--
	p.latest = max(p.latest, now)
	if s == nil {
		p.unknown, p.halfway = p.unknown+1, p.divided
	} else {
		if p.said(service); !p.divided { // the service has warmed the user up
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

// read notes the settings shown at rest.
func (p *pauseBook) read(s *historyv1.Settings) {
	if p.unknown, p.cold = 0, false; p.halfway {
		return
	}
	if recording := s.GetRecording(); !p.sure || p.isOff == recording {
		p.sure, p.isOff, p.since, p.until = true, !recording, s.GetPausedMs(), 0
	}
}

// oracle knows what clients sent and received, and nothing else. Its times number these events in order.
type oracle struct {
	time   int64
	rested int64 // when everything was last archived
	lost   int64 // when the cache last lost data
	users  map[string]*userBook
}
