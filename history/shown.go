package history

import "slices"

// Resume returns where the user left off, in milliseconds: where the latest event did,
// or, as long as that is early, the latest that was not. See also [Rules.Resume].
func (r *Record) Resume() int64 {
	at, _ := r.resume()
	return at
}

// ResumesEarlier reports whether that is where an earlier event left off than the latest.
func (r *Record) ResumesEarlier() bool { return r.Early && r.ResumePoint.Version != 0 }

// LeftOff returns the event that says where that is.
func (r *Record) LeftOff() ResumePoint {
	if r.ResumesEarlier() {
		return r.ResumePoint
	}
	return ResumePoint{Version: r.own(), Position: r.Position}
}

// resume returns also when that was.
func (r *Record) resume() (position, at int64) {
	e := r.LeftOff()
	return r.within(e.Position), e.Version.Time()
}

// DismissedAt returns when the user took the record out of what to go on with, in Unix
// milliseconds; 0 where that was taken back, or something was played after it. A mark plays nothing.
func (r *Record) DismissedAt() int64 {
	if at := r.Dismissed.Time(); r.Dismissed == VersionOf(at, RankDismissed) && at >= r.ViewedAt() {
		return at
	}
	return 0
}

// ViewedAt returns the time of the latest report of a viewing, in Unix milliseconds, and 0 where there is none. A mark by the user is
// no viewing: where the latest event is a mark, ViewedAt is before [Record.PlayedAt].
func (r *Record) ViewedAt() int64 {
	if r.listed() {
		return r.PlayedAt()
	}
	if n := len(r.Viewings); n > 0 { // oldest first
		return r.Viewings[n-1].Version.Time()
	}
	return 0
}

// Dismiss returns r with a decision of the given time, or of a later one where that is needed
// to come after the latest event and the decision before.
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

// within returns a position as far as the object goes. Reports that know the duration are
// bounded by it as they come; the others are by what came with another report.
func (r *Record) within(position int64) int64 {
	if longest := r.longest(); longest > 0 {
		return min(position, longest)
	}
	return position
}

// Furthest returns the furthest position ever reported but for scrubs to the end, in milliseconds.
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

// solid returns the position of the latest event, 0 where that may be a scrub.
func (r *Record) solid() int64 {
	if r.weak() {
		return 0
	}
	return r.Position
}

// Plays returns how often the object was played to its end.
func (r *Record) Plays() uint64 { return r.PlaysBefore + uint64(len(r.plays())) }

// CompletedAt returns when a viewing last reported its end, 0 if none did.
func (r *Record) CompletedAt() int64 {
	if plays := r.plays(); len(plays) > 0 {
		return plays[len(plays)-1].At
	}
	if r.PlaysBefore == 0 {
		return 0
	}
	return r.PlaysBeforeAt
}

// completedAt reports whether any viewing last reported its end at that time.
func (r *Record) completedAt(at int64) bool {
	return r.CompletedAt() == at || slices.ContainsFunc(r.plays(), func(p play) bool { return p.At == at })
}

// NewPlays returns when the viewings reached the end that are plays of a later content of a record and not of
// the earlier one, oldest first. Either may be nil.
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
	if len(at) == 0 { // older than those that are listed
		at = append(at, later.PlaysBeforeAt)
	}
	return at
}

// Marked reports whether the latest event of r is such a mark, or says the same.
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

// Watched returns how much was played in all sessions that said so, in milliseconds of
// the object.
func (r *Record) Watched() int64 { return r.WatchedBefore + played(r.watches()) }
