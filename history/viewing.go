package history

import (
	"cmp"
	"slices"
	"strings"
)

// MaxViewings limits the viewings listed in addition to the latest event's. The oldest are dropped. A dropped
// viewing that reports again is listed as a new one.
const MaxViewings = 16

// listed reports whether the latest event belongs to a viewing. Deletes, marks and equivalent reports do not.
func (r *Record) listed() bool {
	return r.State < StateStopped || r.State != StateDeleted && (r.Session != "" || r.Device != "" || r.Position != 0)
}

// current returns the viewing of the latest event. r must be listed.
func (r *Record) current() Viewing {
	return Viewing{Viewing: viewing(r.Session, r.Device), Version: r.own(), Position: r.Position, State: r.State, AtEnd: r.AtEnd, Device: r.Device, Start: r.Start}
}

// leftBy returns the viewing that set the resume point, if known. named reports whether it has a session
// instead of a device.
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

// goesOn reports whether r continues the session of an earlier record o, so that starts do not change. It
// returns the merged stays below the end.
func (r *Record) goesOn(o *Record) (lows []Low, ok bool) {
	if !r.sameSession(o) || !r.listed() || !o.listed() || o.Version.Time() <= r.RemovedAt || r.AtEnd != o.AtEnd || r.Duration != o.Duration || r.Start != o.Start && r.Start.At > 0 && o.Start.At > 0 ||
		!sameOrNone(r.Viewings, o.Viewings) || !sameOrNone(r.Lows, o.Lows) || !sameOrNone(r.Starts, o.Starts) {
		return nil, false
	}
	switch {
	case r.AtEnd:
		return longer(r.Lows, o.Lows), true
	case r.Start.At == 0 && o.Start.At == 0 && r.PlayedAt() != o.PlayedAt():
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

// extend returns the stays of o with the latest one extended to r's report. Neither record has a start, and r
// lists no stays. It returns false in rare cases, for the general merge.
func (r *Record) extend(o *Record) (lows []Low, ok bool) {
	at, from, n := r.PlayedAt(), o.PlayedAt(), len(o.Lows)
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

// sameSession reports whether the latest events belong to one session, or to one device without sessions.
func (r *Record) sameSession(o *Record) bool {
	return r.Session == o.Session && (r.Session != "" || r.Device == o.Device)
}

func sameOrNone[T comparable](a, b []T) bool {
	return len(a) == 0 || len(b) == 0 || slices.Equal(a, b)
}

// mergeViewings unites the viewings. The latest event's viewing is not listed, so a continuing session
// allocates no list.
func (r *Record) mergeViewings(o *Record) {
	listed, last := r.listed(), o.listed() && o.Version.Time() > r.RemovedAt
	if listed && last && r.sameSession(o) {
		r.Start, last = later(r.Start, o.Start), false
		if len(r.Viewings) == 0 { // a continuing session
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

// mostViewings is one more if the latest event is a mark, which is no viewing.
func (r *Record) mostViewings() int {
	if r.listed() {
		return MaxViewings
	}
	return MaxViewings + 1
}

// withViewing adds a viewing to a list, or merges it into its entry.
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

// compareEnds orders the latest reports of one viewing like compareLatest.
func compareEnds(a, b Viewing) int {
	return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Position, b.Position), cmp.Compare(a.State, b.State), strings.Compare(a.Device, b.Device), compareFlags(b.AtEnd, a.AtEnd))
}

// IndexOf returns a viewing's index in r: 0 for the latest event's, from 1 for listed ones, -1 if unknown.
func (r *Record) IndexOf(id uint64) int {
	if id == viewing(r.Session, r.Device) {
		return 0
	}
	if i := slices.IndexFunc(r.Viewings, func(v Viewing) bool { return v.Viewing == id }); i >= 0 {
		return i + 1
	}
	return -1
}

// ViewingAt is the inverse of IndexOf. It returns 0 for an unknown index.
func (r *Record) ViewingAt(index uint64) uint64 {
	switch {
	case index == 0:
		return viewing(r.Session, r.Device)
	case index <= uint64(len(r.Viewings)):
		return r.Viewings[index-1].Viewing
	}
	return 0
}

// SameButViewings reports whether two records differ only in their viewings. That is the effect of a report
// older than the latest that adds nothing but another session.
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

// forgetViewings drops everything at or before the removal.
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

// Session is a viewing as readers see it. An unlisted viewing has only the end, the watched time and the
// completion.
type Session struct {
	// Begin and End are the times of the start and of the last report, in Unix milliseconds. Begin is 0 without
	// a reported start.
	Begin, End int64
	// From and To are the positions at Begin and End, in milliseconds. Known means that To is set.
	From, To int64
	Known    bool
	State    State
	Device   string
	// Watched is the watched time in milliseconds of the object, 0 if not reported.
	Watched int64
	// CompletedAt is the time of the last report at the end, 0 without one.
	CompletedAt int64
}

// MaxSessions limits the result of [Record.Sessions].
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
	for _, w := range r.watches() { // the oldest report of a viewing has the most
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

// Activity tells when a record was played. Its slices are reused by [Record.Activity].
type Activity struct {
	// Viewings are those of [Record.Sessions], without its limit, in no order.
	Viewings []ActiveViewing
	// Plays are the times of the completed plays, in Unix milliseconds.
	Plays []int64
}

// ActiveViewing is when one viewing was played.
type ActiveViewing struct {
	viewing uint64
	// End is the time of the last report, in Unix milliseconds. Device is empty unless the record lists the viewing.
	End    int64
	Device string
	// Watched is the part of the object played from Began to Until, in milliseconds, at most the time between them.
	// All are 0 for a player that reports none.
	Began, Until, Watched int64
}

// Activity stores the activity of a visible record in a.
func (r *Record) Activity(a *Activity) {
	a.Viewings, a.Plays = a.Viewings[:0], a.Plays[:0]
	for v := range r.all {
		a.Viewings = append(a.Viewings, ActiveViewing{viewing: v.Viewing, End: v.Version.Time(), Device: v.Device})
	}
	for _, w := range r.watches() {
		v := a.at(w.Viewing, w.At)
		if w.Began <= 0 {
			w.Began = w.At - w.Watched
		}
		if watched := min(w.Watched, w.At-w.Began); watched > v.Watched {
			v.Began, v.Until, v.Watched = w.Began, w.At, watched
		}
	}
	for _, p := range r.plays() {
		a.Plays = append(a.Plays, p.At)
		if p.Viewing != markViewing {
			a.at(p.Viewing, p.At)
		}
	}
}

// at returns a viewing that reported at a time.
func (a *Activity) at(viewing uint64, at int64) *ActiveViewing {
	for i := range a.Viewings {
		if v := &a.Viewings[i]; v.viewing == viewing {
			v.End = max(v.End, at)
			return v
		}
	}
	a.Viewings = append(a.Viewings, ActiveViewing{viewing: viewing, End: at})
	return &a.Viewings[len(a.Viewings)-1]
}
