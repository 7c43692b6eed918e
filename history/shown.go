package history

import (
	"cmp"
	"slices"
)

// Resume returns where the user left off, in milliseconds: the position of the latest event that is not early,
// or else of the latest. See also [Rules.Resume].
func (r *Record) Resume() int64 {
	at, _ := r.resume()
	return at
}

// ResumesEarlier reports whether the resume point is from an event before the latest.
func (r *Record) ResumesEarlier() bool { return r.Early && r.ResumePoint.Version != 0 }

// LeftOff returns the event that sets the resume point.
func (r *Record) LeftOff() ResumePoint {
	if r.ResumesEarlier() {
		return r.ResumePoint
	}
	return ResumePoint{Version: r.own(), Position: r.Position}
}

func (r *Record) resume() (position, at int64) {
	e := r.LeftOff()
	return r.within(e.Position), e.Version.Time()
}

// DismissedAt returns when the user removed the record from "continue watching", in Unix milliseconds. It is 0
// after a revocation or a later viewing. Marks are no viewings.
func (r *Record) DismissedAt() int64 {
	if at := r.Dismissed.Time(); r.Dismissed == VersionOf(at, RankDismissed) && at >= r.ViewedAt() {
		return at
	}
	return 0
}

// ViewedAt returns the time of the latest report of a viewing, in Unix milliseconds, 0 without one. Marks are
// no viewings: if the latest event is a mark, ViewedAt is before [Record.PlayedAt].
func (r *Record) ViewedAt() int64 {
	if r.listed() {
		return r.PlayedAt()
	}
	if n := len(r.Viewings); n > 0 { // oldest first
		return r.Viewings[n-1].Version.Time()
	}
	return 0
}

// Dismiss returns r with a dismissal, or its revocation, at a time. The time moves after the latest event and
// the previous decision if needed.
func (r *Record) Dismiss(at int64, dismissed bool) *Record {
	m, rank := *r, RankOffered
	if dismissed {
		rank = RankDismissed
	}
	at = max(at, r.Version.Time(), r.Dismissed.Time())
	if m.Dismissed = VersionOf(at, rank); m.Dismissed < r.Dismissed {
		m.Dismissed = VersionOf(at+1, rank)
	}
	return &m
}

// within limits a position to the longest known duration. A report with a duration is limited on arrival,
// others only here.
func (r *Record) within(position int64) int64 {
	if longest := r.longest(); longest > 0 {
		return min(position, longest)
	}
	return position
}

// Furthest returns the furthest reported position in milliseconds, except scrubs to the end. Of a stay at the end
// the latest position counts.
func (r *Record) Furthest() int64 {
	furthest := r.solid()
	if len(r.Peaks) > 0 {
		furthest = max(furthest, r.Peaks[0].Position)
	}
	if slices.ContainsFunc(r.Completions, func(s Stay) bool { return s.Position > furthest }) {
		lows, starts := r.lows(), r.begun()
		for _, s := range r.Completions {
			if g := r.segmentOf(s.Viewing, s.At, starts, lows); s.Position > furthest && !g.scrubbed(s, lows) {
				furthest = s.Position
			}
		}
	}
	return r.within(furthest)
}

// solid returns the position of the latest event, 0 if it may be a scrub.
func (r *Record) solid() int64 {
	if r.weak() {
		return 0
	}
	return r.Position
}

// Plays returns the number of completed plays.
func (r *Record) Plays() uint64 { return r.PlaysBefore + uint64(len(r.plays())) }

// CompletedAt returns the time of the last report at an end, 0 without one.
func (r *Record) CompletedAt() int64 {
	if plays := r.plays(); len(plays) > 0 {
		return plays[len(plays)-1].At
	}
	if r.PlaysBefore == 0 {
		return 0
	}
	return r.PlaysBeforeAt
}

// completedAt reports whether a play last reported its end at that time.
func (r *Record) completedAt(at int64) bool {
	return r.CompletedAt() == at || slices.ContainsFunc(r.plays(), func(p play) bool { return p.At == at })
}

// NewPlays returns the completion times of the plays that later has and earlier lacks, oldest first. Either
// record may be nil.
func NewPlays(earlier, later *Record) (at []int64) {
	if earlier == nil {
		earlier = new(Record)
	}
	if later == nil || later.Plays() <= earlier.Plays() {
		return nil
	}
	known := earlier.plays()
	for _, p := range later.plays() {
		if !slices.ContainsFunc(known, func(o play) bool { return o.Viewing == p.Viewing && o.At > p.Began && o.At <= p.At }) {
			at = append(at, p.At)
		}
	}
	if len(at) == 0 { // older than the listed plays
		at = append(at, later.PlaysBeforeAt)
	}
	return at
}

// Marked reports whether the latest event of r is the mark k or equivalent to it.
func (r *Record) Marked(k Kind) bool {
	at := r.own()
	if r.Position != 0 || r.Session != "" || r.State != k.state() || at != VersionOf(at.Time(), RankStop) {
		return false
	}
	switch k {
	case KindWatched:
		return r.CompletedAt() == at.Time() && r.completedBy(markViewing)
	case KindUnwatched:
		return r.Plays() == 0 && r.PlaysBeforeAt == at.Time()
	}
	return k == KindReset
}

func (r *Record) completedBy(viewing uint64) bool {
	return slices.ContainsFunc(r.plays(), func(p play) bool { return p.Viewing == viewing })
}

// Watched returns the watched time of all sessions, in milliseconds of the object.
func (r *Record) Watched() int64 { return r.WatchedBefore + played(r.watches()) }

// Played is what a user played of an object up to a time.
type Played struct {
	At      int64 // last report of the plays and sessions, Unix milliseconds
	Plays   uint64
	Watched int64 // milliseconds
}

const dayMS = daySeconds * 1000

// Day returns the UTC day.
func (p Played) Day() Day { return Day(p.At / dayMS) }

// Played returns what the record has since its latest removal, in order of time. A play has the time of its last report
// at the end, and a session's watched time that of its last report. What no longer fits into the record has the
// last time that it may be of. Restored content was played before the removal, and is left out.
func (r *Record) Played() []Played {
	if r.Restored {
		r = r.cut(r.RemovedAt)
	}
	var all []Played
	add := func(at int64, plays uint64, watched int64) {
		if plays == 0 && watched == 0 {
			return
		}
		i, ok := slices.BinarySearchFunc(all, at, func(p Played, at int64) int { return cmp.Compare(p.At, at) })
		if !ok {
			all = slices.Insert(all, i, Played{At: at})
		}
		all[i].Plays += plays
		all[i].Watched += watched
	}
	add(r.PlaysBeforeAt, r.PlaysBefore, 0)
	for _, p := range r.plays() {
		add(p.At, 1, 0)
	}
	add(r.WatchedBeforeAt, 0, r.WatchedBefore)
	ws := r.watches()
	for i := range ws {
		add(ws[i].At, 0, played(ws[:i+1])-played(ws[:i]))
	}
	return all
}

// NeverPlayed reports whether no content of the record since its latest removal can ever have had a play or a watched
// time. It may be false for one that had none.
func (r *Record) NeverPlayed() bool {
	return !r.Deleted() && len(r.Completions) == 0 && r.PlaysBeforeAt == 0 && len(r.Watches) == 0 && r.WatchedBeforeAt == 0 && len(r.Viewings) < MaxViewings
}

// watches returns the effective watched times. A session from before a removal counts at most what fits in the
// time since.
func (r *Record) watches() []WatchedTime {
	if r.Restored || !slices.ContainsFunc(r.Watches, func(w WatchedTime) bool { return w.Began < r.RemovedAt }) {
		return r.Watches
	}
	ws := slices.Clone(r.Watches)
	for i := range ws {
		w := &ws[i]
		w.Began = max(w.Began, r.RemovedAt)
		w.Watched = min(w.Watched, playable(w.At-w.Began, w.Speed))
	}
	return ws
}

// played sums up the sessions. A session listed several times counts with its maximum.
func played(ws []WatchedTime) (total int64) {
	for i, w := range ws {
		counted := int64(0)
		for _, o := range ws[:i] {
			if o.Viewing == w.Viewing {
				counted = max(counted, o.Watched)
			}
		}
		total += max(w.Watched-counted, 0)
	}
	return total
}
