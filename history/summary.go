package history

import (
	"cmp"
	"strings"
)

// Summary outlives an object's expired records. It sums up the latest record, and in Before the records that
// expired before that one began.
type Summary struct {
	Object Object
	// Version is the latest record's version. Summaries sort by it, like records.
	Version Version
	// First and Last are the first and last playback in the latest record, in Unix milliseconds.
	First, Last int64
	Plays       uint64
	Watched     int64 // milliseconds, also Furthest and Duration
	Furthest    int64
	Duration    int64
	Finished    bool // left at its end
	Before      Ended
	// Imported are viewings that imports brought after their record would have expired. Without a latest record,
	// First to Finished are zero, and Version is that of the last of them.
	Imported Imported
}

// Ended sums up the records of an object that expired before its latest record began. The zero value is no
// record.
type Ended struct {
	First, Until      int64 // Unix milliseconds; Until is the newest version's time
	Plays             uint64
	Watched, Furthest int64
}

// SummaryPage is a page of a user's summaries.
type SummaryPage struct {
	Items []Summary
	// More reports further summaries for the query.
	More bool
	User User // clear marks only
}

// Place returns the summary's place in the user's list.
func (s *Summary) Place() Cursor { return Cursor{Version: s.Version, Object: s.Object} }

// Total returns the summary with Before and Imported added, as readers see it.
func (s Summary) Total() Summary {
	b := s.ended()
	s.First, s.Plays, s.Watched, s.Furthest, s.Before = b.First, b.Plays, b.Watched, b.Furthest, Ended{}
	return s.withImported()
}

// ended sums up all records.
func (s *Summary) ended() Ended {
	e := Ended{First: s.First, Until: s.Version.Time(), Plays: s.Plays, Watched: s.Watched, Furthest: s.Furthest}
	b := s.Before
	if s.Last == 0 {
		return b
	}
	if b.Until > 0 {
		e.First = min(e.First, b.First)
		e.Plays += b.Plays
		e.Watched += b.Watched
		e.Furthest = max(e.Furthest, b.Furthest)
	}
	return e
}

// LatestFirst orders summaries like records in a list.
func LatestFirst(a, b Summary) int {
	return cmp.Or(cmp.Compare(b.Version, a.Version), strings.Compare(b.Object.String(), a.Object.String()))
}

// Summarize returns the summary of a visible record under the rules of its type.
func Summarize(o Object, r *Record, rules Rules) Summary {
	s := Summary{
		Object: o, Version: r.Version, First: r.Oldest(), Last: r.PlayedAt(), Plays: r.Plays(), Watched: r.Watched(),
		Furthest: r.Furthest(), Duration: r.Duration, Finished: rules.Completed(r),
	}
	for _, w := range r.Watches {
		if w.Began > 0 {
			s.First = min(s.First, max(w.Began, r.RemovedAt+1))
		}
	}
	return s
}

// After returns the summary without everything up to a time, and whether anything remains. Sums across that
// time become 0, since they cannot be split.
func (s Summary) After(at int64) (Summary, bool) {
	if s.Version.Time() <= at {
		return Summary{}, false
	}
	if s.Before.First <= at {
		s.Before = Ended{}
	}
	if s.Last > 0 && s.First <= at {
		s.First, s.Plays, s.Watched, s.Furthest = max(s.Last, at+1), 0, 0, 0
	}
	s.Imported = s.Imported.after(at)
	return s, true
}

// With returns the summary with record r counted, and whether one remains: a delete may remove all of it. The
// zero Summary is an empty one. A record counts once, even if With is repeated with it or with later content.
func (s Summary) With(o Object, r *Record, b *Rulebook) (Summary, bool) {
	s, there := s.After(r.RemovedAt)
	if r.Deleted() {
		return s, there
	}
	n := Summarize(o, r, b.Of(o.Type))
	n.Imported = s.Imported.apart(&n, r)
	switch {
	case !there:
		n.Imported = ""
	case r.Version < s.Version: // older content: already counted
		return s, true
	case s.Last == 0 || s.isIn(r, b.TTL(o.Type)):
		n.Before = s.Before
		if r.Version == s.Version { // possibly older content
			n.First, n.Watched, n.Furthest = min(n.First, s.First), max(n.Watched, s.Watched), max(n.Furthest, s.Furthest)
			if !r.unwatched() {
				n.Plays = max(n.Plays, s.Plays)
			}
		}
	default:
		n.Before = s.ended()
	}
	if r.unwatched() {
		n.Before.Plays = 0
	}
	return n, true
}

// unwatched reports whether the user marked the object as unwatched, which discards the completed plays before.
func (r *Record) unwatched() bool { return r.PlaysBefore == 0 && r.PlaysBeforeAt > 0 }

// isIn reports whether r continues the summary's latest record: its oldest event is not after Last. Otherwise r
// began later. Without session names the oldest event may be unknown. An event within the TTL then most likely
// belongs to the same record.
func (s *Summary) isIn(r *Record, ttl int64) bool {
	oldest := r.Oldest()
	return oldest <= s.Last || r.Session == "" && oldest < s.Last+ttl
}
