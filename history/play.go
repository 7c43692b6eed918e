package history

import (
	"cmp"
	"math"
	"slices"
)

// A record does not count plays as reports arrive. Per viewing it keeps the times at the end, the times below
// the end, and the starts. Each is a union of times and independent of order. Plays are derived from the three.

// Bounds of the lists from which plays are derived.
const (
	// MaxLows and MaxStarts limit [Record.Lows] and [Record.Starts].
	MaxLows   = 64
	MaxStarts = 128
	// endGap and lowGap are the maximum gaps within one stay, in milliseconds. Heartbeats are more frequent.
	endGap = 20_000
	lowGap = 15 * minute
	// minStay is the shortest stay at the end without a stop, in milliseconds: less is a scrub.
	minStay = 10_000
	// standardDone is the usual percentage behind [Stay.Reach].
	standardDone = 90
)

// Stay is an interval of a viewing at its end, or below it.
type Stay struct {
	At      int64 // latest report, Unix milliseconds
	Viewing uint64
	Length  int64 // milliseconds from the first report to the latest
	// Duration is from the latest report.
	Duration int64

	// The other fields are of the latest report of a stay at the end.
	Position int64
	// Reach is the longest duration that makes this position an end, 0 for any.
	Reach int64
	// Began is the begin of the viewing, 0 if the report lacks it or the viewing began at the end.
	Began int64
	// Sure means that the viewing stopped or finished.
	Sure bool
}

func (s Stay) from() int64 { return s.At - s.Length }

// Low is a stay below the end in a record's list.
type Low struct {
	At       int64
	Viewing  uint64
	Length   int64
	Duration int64
}

func (l Low) stay() Stay {
	return Stay{At: l.At, Viewing: l.Viewing, Length: l.Length, Duration: l.Duration}
}

// Start is a start of a viewing below the end. A viewing may start again.
type Start struct {
	At       int64
	Viewing  uint64
	Position int64
	// Duration is 0 for a reported start. Otherwise a player without start reports played near the beginning of
	// an object of this duration. It counts as a start once the viewing had reached the end of an object this
	// long.
	Duration int64
}

// ReachOf returns the longest duration with its end at position under the standard rules, in milliseconds.
func ReachOf(position int64) int64 { return reach(position, standardDone) }

func reach(position, done int64) int64 { return min(position*100/max(done, 1), MaxPosition) }

// end returns the stay for an event at the end of its viewing.
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

// beginsAgain reports whether an event looks like a restart by a player without sessions and start reports.
func (r Rules) beginsAgain(e *Event) bool {
	return e.Kind == KindProgress && e.Session == "" && e.StartedAt == 0 && e.Duration > 0 && e.Position < r.Grace && e.Position*100 < e.Duration*r.Begun
}

// weak reports whether the latest event is at the end and may be a scrub.
func (r *Record) weak() bool { return r.AtEnd && r.State < StateStopped }

// below returns the stay below the end implied by a viewing of r: from its start to its latest report. Most
// viewings have no other, and implied stays are not listed.
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

// all iterates over the listed viewings and the viewing of the latest report.
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

// lows returns all stays below the end, including implied ones.
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

// begun returns the starts that separate plays.
func (r *Record) begun() []Start {
	return slices.DeleteFunc(r.starts(), func(s Start) bool {
		return s.Duration > 0 && !slices.ContainsFunc(r.Completions, func(c Stay) bool {
			return c.Viewing == s.Viewing && c.At <= s.At && limit(c.Reach) >= s.Duration
		})
	})
}

// starts returns all starts, including implied ones.
func (r *Record) starts() []Start {
	starts := slices.Clone(r.Starts)
	for v := range r.all {
		if v.Start.At > 0 {
			starts = append(starts, Start{At: v.Start.At, Viewing: v.Viewing, Position: v.Start.Position})
		}
	}
	return starts
}

// setLows stores the stays below the end, except implied ones and those of unlisted viewings. Of unlisted
// viewings it keeps only the plays.
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

// setStarts stores the starts, except implied ones and those of unlisted viewings that never reached the end.
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

// uniteStays returns the stays of both, oldest first. It joins stays of one viewing with a gap up to the given
// one. A joined stay is listed by its latest report, and by each report with a longer duration than all later
// ones. It is also listed by each sure report with a longer duration than all later sure ones.
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

// limit is the reach of an end; 0 is unlimited.
func limit(reach int64) int64 {
	if reach == 0 {
		return math.MaxInt64
	}
	return reach
}

// staysAfter drops everything up to a time. A stay from shortly after may have begun before, so its begin
// becomes that time. The result is thus the same whether the time arrives before its reports or after.
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

// play is one pass of a viewing to its end: from a start to the next start.
type play struct {
	Viewing uint64
	Began   int64 // 0 if unknown
	First   int64 // first report of the end
	At      int64 // last report of the end
}

// segment is the time of a viewing from one start to the next. A report at the end at the time of a start
// belongs to the segment before.
type segment struct {
	viewing     uint64
	from, until int64 // until is the next start
	fresh       bool  // until is at the beginning of the object
	longest     int64 // duration
	removed     int64 // earlier times are unknown, see staysAfter
}

// segmentOf returns the segment of a viewing at a time.
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

// has reports whether a report at the end belongs to the segment.
func (g *segment) has(at int64) bool { return at > g.from && at <= g.until }

// left returns the longest duration known to the viewing in its segment at a time, 0 if unknown. after reports
// whether the viewing left at an end after a completed play, as in a clip after a film.
func (r *Record) left(viewing uint64, at int64) (longest int64, after bool) {
	ended := slices.ContainsFunc(r.Completions, func(s Stay) bool { return s.Viewing == viewing && s.At == at })
	if !ended {
		at++
	}
	g := r.segmentOf(viewing, at, r.begun(), r.lows())
	return g.longest, ended && slices.ContainsFunc(r.plays(), func(p play) bool { return p.Viewing == viewing && g.has(p.At) })
}

// longest returns the longest duration known to any viewing.
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

// scrubbed reports whether a viewing only touched its end and went back.
func (g *segment) scrubbed(end Stay, lows []Stay) bool {
	return !end.Sure && end.Length < minStay && slices.ContainsFunc(lows, func(l Stay) bool {
		switch {
		case l.Viewing != g.viewing || l.At <= end.At || l.from() >= g.until:
			return false
		case l.At < g.until:
			return true
		}
		unknown := g.fresh && g.until <= end.At+lowGap || l.from() == g.removed+1 && g.until <= g.removed+lowGap
		return !unknown // otherwise all stays below may belong to the next play
	})
}

// counts reports whether a stay at the end completes a play and is no scrub.
func (r *Record) counts(end Stay) bool {
	lows := r.lows()
	g := r.segmentOf(end.Viewing, end.At, r.begun(), lows)
	return g.longest <= limit(end.Reach) && !g.scrubbed(end, lows)
}

// plays returns the listed plays, oldest first.
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
		plays = g.add(plays, c.from(), c.At)
		cut := c.from() == r.RemovedAt+1 || c.from() == r.PlaysBeforeAt+1 // moved by staysAfter: not a report's time
		for !cut && g.from > c.from() {                                   // the stay continues across a start
			at := g.from
			g = r.segmentOf(c.Viewing, at, starts, lows)
			plays = g.add(plays, c.from(), at)
		}
	}
	slices.SortFunc(plays, func(a, b play) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Viewing, b.Viewing)) })
	return plays
}

// add adds a report of the end at a time, of a stay from another time on.
func (g *segment) add(plays []play, from, at int64) []play {
	from = max(from, g.from+1)
	for i := range plays {
		if p := &plays[i]; p.Viewing == g.viewing && g.has(p.At) {
			p.First, p.At = min(p.First, from), max(p.At, at)
			return plays
		}
	}
	return append(plays, play{Viewing: g.viewing, Began: g.from, First: from, At: at})
}
