package history

import (
	"cmp"
	"slices"
	"strings"
)

// MaxViewings is how many viewings a record lists beside that of its latest event. Beyond it the
// oldest are dropped, and one of them that reports again is listed as of then.
const MaxViewings = 16

// listed reports whether the latest event of r belongs to a viewing. A delete does not, and
// neither does a mark, or a report that says as little.
func (r *Record) listed() bool {
	return r.State < StateStopped || r.State != StateDeleted && (r.Session != "" || r.Device != "" || r.Position != 0)
}

// current is the viewing of the latest event of a record that has one.
func (r *Record) current() Viewing {
	return Viewing{Viewing: viewing(r.Session, r.Device), Version: r.own(), Position: r.Position, State: r.State, AtEnd: r.AtEnd, Device: r.Device, Start: r.Start}
}

// leftBy returns the viewing that left the user where a reader resumes, if it is known, and whether it is that of a session
// and not of a device.
func (r *Record) leftBy() (id uint64, named, known bool) {
	if !r.ResumesEarlier() {
		return viewing(r.Session, r.Device), r.Session != "", true
	}
	for _, v := range r.Viewings {
		if v.Version == r.ResumePoint.Version && v.Position == r.ResumePoint.Position {
			return v.Viewing, v.Viewing != viewing("", v.Device), true
		}
	}
	return 0, false, false
}

// goesOn reports whether r continues the session of an earlier record o, so that no list of starts changes. It returns the stays below the
// end of both.
func (r *Record) goesOn(o *Record) (lows []Low, ok bool) {
	same := r.Session == o.Session && (r.Session != "" || r.Device == o.Device) && r.listed() && o.listed()
	if !same || o.Version.Time() <= r.RemovedAt || r.AtEnd != o.AtEnd || r.Duration != o.Duration || r.Start != o.Start && r.Start.At > 0 && o.Start.At > 0 ||
		!sameOrNone(r.Viewings, o.Viewings) || !sameOrNone(r.Lows, o.Lows) || !sameOrNone(r.Starts, o.Starts) {
		return nil, false
	}
	switch {
	case r.AtEnd:
		return longer(r.Lows, o.Lows), true
	case r.Start.At == 0 && o.Start.At == 0:
		return r.extend(o)
	}
	newer, older := r.current(), o.current()
	own := func(l Low) bool { return l.Viewing == newer.Viewing }
	if slices.ContainsFunc(longer(r.Lows, o.Lows), own) {
		return nil, false
	}
	a, _ := r.below(&newer)
	b, _ := o.below(&older)
	newer.Start = later(r.Start, o.Start)
	both, _ := r.below(&newer)
	return longer(r.Lows, o.Lows), b.At >= a.from()-lowGap && both.from() == min(a.from(), b.from())
}

// extend returns the stays of o, of which the one of its latest report goes on to that of r. Neither has a start, and r lists no stays. It
// returns false in cases that are rare.
func (r *Record) extend(o *Record) (lows []Low, ok bool) {
	at, from, n := r.PlayedAt(), o.PlayedAt(), len(o.Lows)
	if at == from { // the same report, or one of the same time
		return longer(r.Lows, o.Lows), true
	}
	if len(r.Lows) > 0 || r.Original != 0 || o.Original != 0 || at <= from || at-from > lowGap || n > 0 && o.Lows[n-1].At >= at {
		return nil, false
	}
	next := Low{At: at, Viewing: viewing(r.Session, r.Device), Length: at - from, Duration: r.Duration}
	own := -1
	for i, l := range o.Lows {
		switch {
		case l.Viewing != next.Viewing:
		case own >= 0 || l.At != from || l.Duration != next.Duration:
			return nil, false
		default:
			own = i
			next.Length += l.Length
		}
	}
	switch {
	case own >= 0:
		lows = append(append(make([]Low, 0, n), o.Lows[:own]...), o.Lows[own+1:]...)
	case n == MaxLows:
		return nil, false
	default:
		lows = append(make([]Low, 0, n+1), o.Lows...)
	}
	return append(lows, next), true
}

func sameOrNone[T comparable](a, b []T) bool {
	return len(a) == 0 || len(b) == 0 || slices.Equal(a, b)
}

// mergeViewings unites the viewings. That of the latest event is not in the list: so a session that
// goes on costs a report no list.
func (r *Record) mergeViewings(o *Record) {
	listed, last := r.listed(), o.listed() && o.Version.Time() > r.RemovedAt
	if same := r.Session == o.Session && (r.Session != "" || r.Device == o.Device); listed && last && same {
		r.Start, last = later(r.Start, o.Start), false
		if len(r.Viewings) == 0 { // a report of a session that goes on
			r.Viewings = o.Viewings
			return
		}
	}
	if !last && (len(o.Viewings) == 0 || slices.Equal(r.Viewings, o.Viewings)) {
		return
	}
	all := slices.Clone(r.Viewings) // records are shared
	for _, v := range o.Viewings {
		all = withViewing(all, v)
	}
	if last {
		all = withViewing(all, o.current())
	}
	if listed {
		own := viewing(r.Session, r.Device)
		if i := slices.IndexFunc(all, func(v Viewing) bool { return v.Viewing == own }); i >= 0 {
			r.Start = later(r.Start, all[i].Start)
			all = slices.Delete(all, i, i+1)
		}
	}
	slices.SortFunc(all, func(a, b Viewing) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Viewing, b.Viewing))
	})
	r.Viewings = orNil(slices.Clone(all[max(len(all)-r.mostViewings(), 0):]))
}

// mostViewings is one more where the latest event is a mark, which is no viewing.
func (r *Record) mostViewings() int {
	if r.listed() {
		return MaxViewings
	}
	return MaxViewings + 1
}

// withViewing adds a viewing to a list, or what it says of one that is listed.
func withViewing(all []Viewing, v Viewing) []Viewing {
	i := slices.IndexFunc(all, func(o Viewing) bool { return o.Viewing == v.Viewing })
	if i < 0 {
		return append(all, v)
	}
	start := later(all[i].Start, v.Start)
	if compareEnds(v, all[i]) > 0 {
		all[i] = v
	}
	all[i].Start = start
	return all
}

// compareEnds orders the latest reports of one viewing as compareLatest does.
func compareEnds(a, b Viewing) int {
	return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Position, b.Position), cmp.Compare(a.State, b.State), strings.Compare(a.Device, b.Device), compareFlags(b.AtEnd, a.AtEnd))
}

// IndexOf returns which of the viewings of r one is: 0 is that of the latest event, the others count from 1, and -1 is none.
func (r *Record) IndexOf(id uint64) int {
	if id == viewing(r.Session, r.Device) {
		return 0
	}
	if i := slices.IndexFunc(r.Viewings, func(v Viewing) bool { return v.Viewing == id }); i >= 0 {
		return i + 1
	}
	return -1
}

// ViewingAt is the inverse of IndexOf. It returns 0 where there is no such viewing.
func (r *Record) ViewingAt(index uint64) uint64 {
	switch {
	case index == 0:
		return viewing(r.Session, r.Device)
	case index <= uint64(len(r.Viewings)):
		return r.Viewings[index-1].Viewing
	}
	return 0
}

// SameButViewings reports whether two records differ in their viewings alone, as a report leaves
// them that is older than the latest, and says nothing beyond it but that there was another session.
func SameButViewings(a, b *Record) bool {
	if a == nil || b == nil || a.Version != b.Version {
		return false
	}
	c := *a
	c.Start, c.Viewings, c.Lows, c.Starts = b.Start, b.Viewings, b.Lows, b.Starts
	return Same(&c, b) && a.Furthest() == b.Furthest() && slices.Equal(a.plays(), b.plays())
}

func later(a, b Peak) Peak {
	if cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Position, b.Position)) < 0 {
		return b
	}
	return a
}

// forgetViewings drops what happened at or before the removal.
func (r *Record) forgetViewings() {
	if r.Start.At <= r.RemovedAt {
		r.Start = Peak{}
	}
	r.Viewings = orNil(slices.DeleteFunc(slices.Clone(r.Viewings), func(v Viewing) bool { return v.Version.Time() <= r.RemovedAt }))
	for i := range r.Viewings {
		if v := &r.Viewings[i]; v.Start.At <= r.RemovedAt {
			v.Start = Peak{}
		}
	}
}

// oldestViewing returns the time of the oldest thing that the viewings say, 0 without any.
func (r *Record) oldestViewing() (at int64) {
	at = r.Start.At
	for _, v := range r.Viewings {
		for _, t := range [...]int64{v.Version.Time(), v.Start.At} {
			if t > 0 && (at == 0 || t < at) {
				at = t
			}
		}
	}
	return at
}

// Session is what readers see of a viewing. Of those that a record does not list any more only the
// end, what was played and the completion are known.
type Session struct {
	// Begin and End are when it began and last reported, in Unix milliseconds. Begin is 0 where
	// the player reported no start.
	Begin, End int64
	// From and To are where that was, in milliseconds. Known says that there is a To.
	From, To int64
	Known    bool
	State    State
	Device   string
	// Watched is how many milliseconds of the object it has played, 0 where it did not say.
	Watched int64
	// CompletedAt is when it last reported the end, 0 where it did not.
	CompletedAt int64
}

// MaxSessions is how many sessions [Record.Sessions] returns.
const MaxSessions = 128

// Sessions returns the newest viewings of a visible record, newest first.
func (r *Record) Sessions() []Session {
	all := make(map[uint64]Session, len(r.Viewings)+len(r.Watches)+len(r.Completions)+1)
	for _, v := range r.Viewings {
		all[v.Viewing] = r.session(v)
	}
	if r.listed() {
		v := r.current()
		all[v.Viewing] = r.session(v)
	}
	for _, w := range r.watches() { // the oldest of one viewing says most
		s := all[w.Viewing]
		s.Watched, s.End = max(s.Watched, w.Watched), max(s.End, w.At)
		all[w.Viewing] = s
	}
	for _, p := range r.plays() {
		s := all[p.Viewing]
		s.CompletedAt, s.End = max(s.CompletedAt, p.At), max(s.End, p.At)
		all[p.Viewing] = s
	}
	delete(all, markViewing)
	return newestSessions(all)
}

func (r *Record) session(v Viewing) Session {
	return Session{
		Begin: v.Start.At, From: r.within(v.Start.Position), End: v.Version.Time(), To: r.within(v.Position),
		Known: true, State: v.State, Device: v.Device,
	}
}

func newestSessions(all map[uint64]Session) []Session {
	ids := make([]uint64, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uint64) int { return cmp.Or(cmp.Compare(all[b].End, all[a].End), cmp.Compare(b, a)) })
	sessions := make([]Session, 0, min(len(ids), MaxSessions))
	for _, id := range ids[:cap(sessions)] {
		sessions = append(sessions, all[id])
	}
	return sessions
}
