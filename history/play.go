package history

import (
	"cmp"
	"math"
	"slices"
)

// Plays are not counted as reports come. A record keeps, of each viewing, when it was at its end, when it was below it, and when
// it began. Each is a union of times, so that no order matters. What is a play is read from the three.

// Bounds of what tells plays apart.
const (
	// MaxLows and MaxStarts bound [Record.Lows] and [Record.Starts].
	MaxLows   = 64
	MaxStarts = 128
	// endGap and lowGap are up to which gap reports are one stay, in milliseconds. A heartbeat is shorter.
	endGap = 20_000
	lowGap = 15 * minute
	// minStay is how long a viewing stays at its end at least, unless it stops there: less is a scrub.
	minStay = 10_000
	// standardDone is the percentage that [Stay.Reach] mostly comes from.
	standardDone = 90
)

// Stay is a time that a viewing spent at its end, or below it.
type Stay struct {
	At      int64 // the latest report, Unix milliseconds
	Viewing uint64
	Length  int64 // milliseconds from the first report to the latest
	// Duration is that of the latest report.
	Duration int64

	// The rest is of a stay at the end, and of its latest report.
	Position int64
	// Reach is the longest duration of the viewing that makes this an end, 0 for any.
	Reach int64
	// Began is when the viewing had begun, 0 where the report did not say so or the viewing began at the end.
	Began int64
	// Sure says that it stopped or finished.
	Sure bool
}

func (s Stay) from() int64 { return s.At - s.Length }

// Low is a stay below the end, as a record lists it.
type Low struct {
	At       int64
	Viewing  uint64
	Length   int64
	Duration int64
}

func (l Low) stay() Stay {
	return Stay{At: l.At, Viewing: l.Viewing, Length: l.Length, Duration: l.Duration}
}

// Start is where a viewing began, below the end. A viewing may begin again.
type Start struct {
	At       int64
	Viewing  uint64
	Position int64
	// Duration is 0 of a reported start. Else the player reported none, but played near the beginning of an object of that duration: that is
	// a start where the viewing had reached the end of as long an object.
	Duration int64
}

// ReachOf returns the longest duration of which a position is the end under the standard rules, in milliseconds.
func ReachOf(position int64) int64 { return reach(position, standardDone) }

func reach(position, done int64) int64 { return min(position*100/max(done, 1), MaxPosition) }

// end returns what an event at the end of its viewing leaves.
func (r Rules) end(e *Event) Stay {
	s := Stay{At: e.At, Viewing: e.Viewing(), Sure: e.Kind >= KindStop}
	if e.Kind.Marks() {
		return s
	}
	s.Duration, s.Position = e.Duration, e.Position
	if e.Duration > 0 {
		s.Reach = reach(e.Position, r.Done)
		if e.Kind == KindFinish {
			s.Reach = max(s.Reach, e.Duration)
		}
	}
	if e.StartedAt > 0 && (e.Duration == 0 || (e.Position-(e.At-e.StartedAt))*100 < e.Duration*r.Done) {
		s.Began = e.StartedAt
	}
	return s
}

// beginsAgain reports whether a player without sessions, which reports no start, seems to begin with an event.
func (r Rules) beginsAgain(e *Event) bool {
	return e.Kind == KindProgress && e.Session == "" && e.StartedAt == 0 && e.Duration > 0 && e.Position < r.Grace && e.Position*100 < e.Duration*r.Begun
}

// weak reports whether the latest event is at the end and may be a scrub.
func (r *Record) weak() bool { return r.AtEnd && r.State < StateStopped }

// below returns the stay below the end that a viewing of r implies: up to its latest report, from its start. Most viewings have
// no other one, and those are not listed.
func (r *Record) below(v *Viewing) (s Stay, ok bool) {
	at := v.Version.Time()
	if v.AtEnd || at <= r.RemovedAt && !r.Restored {
		return s, false
	}
	s = Stay{At: at, Viewing: v.Viewing, Duration: r.Duration}
	if v.Start.At > 0 && v.Start.At <= at {
		s.Length = at - v.Start.At
	}
	return s, true
}

// all goes through the viewings that r lists, and that of its latest report.
func (r *Record) all(yield func(*Viewing) bool) {
	for i := range r.Viewings {
		if !yield(&r.Viewings[i]) {
			return
		}
	}
	if r.listed() {
		v := r.current()
		yield(&v)
	}
}

// lows returns all stays below the end.
func (r *Record) lows() []Stay {
	lows := make([]Stay, 0, len(r.Lows)+len(r.Viewings)+1)
	for _, l := range r.Lows {
		lows = append(lows, l.stay())
	}
	for v := range r.all {
		s, ok := r.below(v)
		if ok && !slices.ContainsFunc(r.Lows, func(l Low) bool { return l.Viewing == s.Viewing && l.At == s.At }) {
			lows = append(lows, s)
		}
	}
	return lows
}

// begun returns the starts by which plays are told apart.
func (r *Record) begun() []Start {
	return slices.DeleteFunc(r.starts(), func(s Start) bool {
		return s.Duration > 0 && !slices.ContainsFunc(r.Completions, func(c Stay) bool {
			return c.Viewing == s.Viewing && c.At <= s.At && limit(c.Reach) >= s.Duration
		})
	})
}

// starts returns all starts.
func (r *Record) starts() []Start {
	starts := slices.Clone(r.Starts)
	for v := range r.all {
		if v.Start.At > 0 {
			starts = append(starts, Start{At: v.Start.At, Viewing: v.Viewing, Position: v.Start.Position})
		}
	}
	return starts
}

// setLows keeps stays below the end, but for those that are implied and those of viewings that are not listed any more. Of the
// latter only the plays are kept.
func (r *Record) setLows(lows []Stay) {
	gone := make(map[uint64]bool)
	for i := range lows {
		gone[lows[i].Viewing] = true
	}
	for v := range r.all {
		delete(gone, v.Viewing)
		if s, ok := r.below(v); ok {
			lows = slices.DeleteFunc(lows, func(l Stay) bool { return l == s })
		}
	}
	if len(gone) > 0 {
		r.Lows = lowsOf(lows)
		ends := slices.DeleteFunc(slices.Clone(r.Completions), func(s Stay) bool { return gone[s.Viewing] && !r.counts(s) })
		r.Completions = orNil(ends)
		lows = slices.DeleteFunc(lows, func(l Stay) bool { return gone[l.Viewing] })
	}
	slices.SortFunc(lows, compareStays)
	r.Lows = lowsOf(lows[max(len(lows)-MaxLows, 0):])
}

func lowsOf(stays []Stay) (lows []Low) {
	for _, s := range stays {
		lows = append(lows, Low{At: s.At, Viewing: s.Viewing, Length: s.Length, Duration: s.Duration})
	}
	return lows
}

// setStarts keeps starts, but for those that are implied, and those of viewings that are not listed and have not reached the end.
func (r *Record) setStarts(starts []Start) {
	needed := make(map[uint64]Peak)
	for _, c := range r.Completions {
		needed[c.Viewing] = Peak{}
	}
	for v := range r.all {
		needed[v.Viewing] = v.Start
	}
	starts = slices.DeleteFunc(starts, func(s Start) bool {
		latest, ok := needed[s.Viewing]
		return !ok || s.Duration == 0 && latest == Peak{At: s.At, Position: s.Position} || s.At <= r.RemovedAt && !r.Restored
	})
	slices.SortFunc(starts, func(a, b Start) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Viewing, b.Viewing), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Duration, b.Duration))
	})
	starts = slices.Compact(starts)
	r.Starts = orNil(starts[max(len(starts)-MaxStarts, 0):])
}

func compareStays(a, b Stay) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Viewing, b.Viewing), cmp.Compare(a.Duration, b.Duration), compareFlags(a.Sure, b.Sure))
}

// uniteStays returns the stays of both, oldest first. Those of one viewing with no more than a gap between them are one. It is listed by its
// latest report, by each that knew a longer duration than all later ones, and by each that is sure and knew a longer one than all later of these.
func uniteStays(a, b []Stay, gap int64) []Stay {
	switch {
	case len(b) == 0 || slices.Equal(a, b):
		return a
	case len(a) == 0:
		return b
	}
	return joinStays(slices.Concat(a, b), gap)
}

// joinStays changes all.
func joinStays(all []Stay, gap int64) []Stay {
	slices.SortFunc(all, func(a, b Stay) int { // newest first
		return cmp.Or(
			cmp.Compare(a.Viewing, b.Viewing), cmp.Compare(b.At, a.At), compareFlags(a.Sure, b.Sure), cmp.Compare(b.Duration, a.Duration),
			cmp.Compare(b.Position, a.Position), cmp.Compare(limit(b.Reach), limit(a.Reach)), cmp.Compare(b.Began, a.Began),
		)
	})
	kept := all[:0]
	for i := 0; i < len(all); {
		first, from, known, surely := len(kept), all[i].from(), int64(-1), int64(-1)
		viewing := all[i].Viewing
		for i < len(all) && all[i].Viewing == viewing && (all[i].At >= from-gap || viewing == markViewing) {
			s := all[i]
			from, i = min(from, s.from()), i+1
			if s.Duration > known || s.Sure && s.Duration > surely {
				known, kept = max(known, s.Duration), append(kept, s)
			}
			if s.Sure {
				surely = max(surely, s.Duration)
			}
		}
		for j := range kept[first:] {
			if s := &kept[first+j]; viewing != markViewing {
				s.Length = s.At - from
			}
		}
	}
	slices.SortFunc(kept, compareStays)
	return slices.Clip(kept)
}

// limit is the reach of an end, which 0 does not limit.
func limit(reach int64) int64 {
	if reach == 0 {
		return math.MaxInt64
	}
	return reach
}

// staysAfter drops what is of up to a time. A stay that began hardly later begins right after that time, since it may have gone on over it:
// so it is the same whether the time is known before its reports or after them.
func staysAfter(stays []Stay, at, gap int64) []Stay {
	if at == 0 || !slices.ContainsFunc(stays, func(s Stay) bool { return s.from() <= at+gap }) {
		return stays
	}
	var kept []Stay
	for _, s := range stays {
		if s.At <= at {
			continue
		}
		if s.from() <= at+gap && s.Viewing != markViewing {
			s.Length = s.At - at - 1
		}
		kept = append(kept, s)
	}
	return kept
}

// play is a viewing from a start to the next one that reached its end.
type play struct {
	Viewing uint64
	Began   int64 // 0 where nothing says so
	At      int64 // when it last reported the end
}

// segment is the time of a viewing from one start to the next. A report at its end that comes with a start is from before that.
type segment struct {
	viewing     uint64
	from, until int64 // until is the next start
	fresh       bool  // that is at the beginning of the object
	longest     int64 // duration
	removed     int64 // before which nothing is known, see staysAfter
}

// segmentOf returns the segment of a viewing that a time belongs to.
func (r *Record) segmentOf(viewing uint64, at int64, starts []Start, lows []Stay) segment {
	g := segment{viewing: viewing, until: math.MaxInt64, removed: r.RemovedAt}
	mark := func(t int64, fresh bool) {
		switch {
		case t < at:
			g.from = max(g.from, t)
		case t < g.until:
			g.until, g.fresh = t, fresh
		case t == g.until:
			g.fresh = g.fresh || fresh
		}
	}
	for _, s := range starts {
		if s.Viewing == viewing {
			mark(s.At, s.Position == 0 && s.Duration == 0)
		}
	}
	for _, c := range r.Completions {
		if c.Viewing == viewing && c.Began > 0 {
			mark(c.Began, false)
		}
	}
	for _, s := range lows {
		if s.Viewing == viewing && s.At >= g.from && s.At < g.until {
			g.longest = max(g.longest, s.Duration)
		}
	}
	for _, s := range r.Completions {
		if s.Viewing == viewing && g.has(s.At) {
			g.longest = max(g.longest, s.Duration)
		}
	}
	return g
}

// has reports whether a report at the end is of the segment.
func (g *segment) has(at int64) bool { return at > g.from && at <= g.until }

// left returns how long the object is as far as the viewing knew that left at a time, 0 where it did not, and whether it left at an end
// after it had been played to its end: a clip follows a film.
func (r *Record) left(viewing uint64, at int64) (longest int64, after bool) {
	ended := slices.ContainsFunc(r.Completions, func(s Stay) bool { return s.Viewing == viewing && s.At == at })
	if !ended {
		at++
	}
	g := r.segmentOf(viewing, at, r.begun(), r.lows())
	return g.longest, ended && slices.ContainsFunc(r.plays(), func(p play) bool { return p.Viewing == viewing && g.has(p.At) })
}

// longest returns the longest duration that any viewing knew.
func (r *Record) longest() (longest int64) {
	longest = r.Duration
	for i := range r.Lows {
		longest = max(longest, r.Lows[i].Duration)
	}
	for i := range r.Completions {
		longest = max(longest, r.Completions[i].Duration)
	}
	return longest
}

// scrubbed reports whether a viewing was at its end for a moment only, and went back.
func (g *segment) scrubbed(end Stay, lows []Stay) bool {
	return !end.Sure && end.Length < minStay && slices.ContainsFunc(lows, func(l Stay) bool {
		switch {
		case l.Viewing != g.viewing || l.At <= end.At || l.from() >= g.until:
			return false
		case l.At < g.until:
			return true
		}
		unknown := g.fresh && g.until <= end.At+lowGap || l.from() == g.removed+1 && g.until <= g.removed+lowGap
		return !unknown // otherwise what is below may all be of the next play
	})
}

// counts reports whether a stay at the end is one, and no scrub.
func (r *Record) counts(end Stay) bool {
	lows := r.lows()
	g := r.segmentOf(end.Viewing, end.At, r.begun(), lows)
	return g.longest <= limit(end.Reach) && !g.scrubbed(end, lows)
}

// plays returns the plays that are listed, oldest first.
func (r *Record) plays() (plays []play) {
	if len(r.Completions) == 0 {
		return nil
	}
	lows, starts := r.lows(), r.begun()
	for _, c := range r.Completions {
		g := r.segmentOf(c.Viewing, c.At, starts, lows)
		if g.longest > limit(c.Reach) || g.scrubbed(c, lows) {
			continue
		}
		plays = g.add(plays, c.At)
		cut := c.from() == r.RemovedAt+1 || c.from() == r.PlaysBeforeAt+1 // see staysAfter: perhaps nothing was reported then
		for !cut && g.from > c.from() {                                   // the stay goes on over a start
			at := g.from
			g = r.segmentOf(c.Viewing, at, starts, lows)
			plays = g.add(plays, at)
		}
	}
	slices.SortFunc(plays, func(a, b play) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Viewing, b.Viewing)) })
	return plays
}

// add adds that the segment has reached the end, once.
func (g *segment) add(plays []play, at int64) []play {
	for i := range plays {
		if p := &plays[i]; p.Viewing == g.viewing && g.has(p.At) {
			p.At = max(p.At, at)
			return plays
		}
	}
	return append(plays, play{Viewing: g.viewing, Began: g.from, At: at})
}
