package history

import (
	"cmp"
	"context"
	"strings"
)

// Summary is what is kept of an object when its record is past the life of the archive: of the latest record, and of
// those that had ended before that one began.
type Summary struct {
	Object Object
	// Version is that of the latest record, by which summaries stand in the order of records.
	Version Version
	// First and Last are when the object was played, in Unix milliseconds, in the time of the latest record.
	First, Last int64
	Plays       uint64
	Watched     int64 // milliseconds, as the other two
	Furthest    int64
	Duration    int64
	Finished    bool // the user left it at its end
	Before      Ended
}

// Ended is what is kept of records that had ended when another one of their object began. The zero value is none.
type Ended struct {
	First, Until      int64 // Unix milliseconds; until is the time of the latest version
	Plays             uint64
	Watched, Furthest int64
}

// SummaryAge is the age at which records are summarized, in milliseconds: a week before they end. What happens to them in that
// week is counted as well.
const SummaryAge = ArchiveLife - 7*24*3600*1000

// Summarizer is an archive that keeps summaries.
type Summarizer interface {
	// SummaryLife returns for how long summaries are kept, in milliseconds since their object was last played; 0 where there are none.
	SummaryLife(ctx context.Context) (int64, error)
	// Summaries returns a part of what is kept of a user in summaries, in the order of [Cursor.Compare]: what the query asks
	// for, of all times, also where there is a record of the object. Clear marks are applied, and
	// returned. Without summaries there is nothing, and no error.
	Summaries(ctx context.Context, uid string, q Query) (SummaryPage, error)
	// Summarize brings the summaries of a user up to the records that are older than [SummaryAge], and removes what is deleted,
	// cleared, past its life, or of a section of which none are kept ([Rulebook.Summarized]); with all it looks at every tombstone, and not at those of that age alone. It may be
	// repeated, and may end anywhere. It fails with [ErrConflict] when another one came first.
	Summarize(ctx context.Context, uid string, all bool) error
}

// SummaryPage is a part of a user's summaries.
type SummaryPage struct {
	Items []Summary
	// More means that there are further ones of the query.
	More bool
	User User // has the clear marks alone
}

// Place returns where the summary stands in a user's list.
func (s *Summary) Place() Cursor { return Cursor{Version: s.Version, Object: s.Object} }

// Total returns what is to be shown, with what ended before.
func (s Summary) Total() Summary {
	if b := s.Before; b.Until > 0 {
		s.First = min(s.First, b.First)
		s.Plays += b.Plays
		s.Watched += b.Watched
		s.Furthest = max(s.Furthest, b.Furthest)
		s.Before = Ended{}
	}
	return s
}

// LatestFirst is the order of summaries, as that of records.
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
			s.First = min(s.First, max(w.Began, r.Reset+1))
		}
	}
	return s
}

// After returns what is left of a summary when everything up to a time is removed, and whether anything is. What is from both
// sides of that time cannot be told apart: of that only what is known to be later stays.
func (s Summary) After(at int64) (Summary, bool) {
	if s.Version.Time() <= at {
		return Summary{}, false
	}
	if s.Before.First <= at {
		s.Before = Ended{}
	}
	if s.First <= at {
		s.First, s.Plays, s.Watched, s.Furthest = max(s.Last, at+1), 0, 0, 0
	}
	return s, true
}

// With returns the summary of an object when its record is counted, and whether anything is left. Without a summary before it
// is that of the record. It may be called again with the same record, or with what has become of it.
func (s Summary) With(o Object, r *Record, rules Rules) (Summary, bool) {
	s, there := s.After(r.Reset)
	if r.Deleted() {
		return s, there
	}
	n := Summarize(o, r, rules)
	switch {
	case !there:
	case r.Version < s.Version: // as it was before
		return s, true
	case s.isIn(r):
		if n.Before = s.Before; r.Version == s.Version { // perhaps as it was before
			n.First, n.Watched, n.Furthest = min(n.First, s.First), max(n.Watched, s.Watched), max(n.Furthest, s.Furthest)
			if !r.unwatched() {
				n.Plays = max(n.Plays, s.Plays)
			}
		}
	default:
		t := s.Total()
		n.Before = Ended{First: t.First, Until: s.Version.Time(), Plays: t.Plays, Watched: t.Watched, Furthest: t.Furthest}
	}
	if r.unwatched() {
		n.Before.Plays = 0
	}
	return n, true
}

// unwatched reports whether the user has said that no completed viewing up to a time counts.
func (r *Record) unwatched() bool { return r.PlaysBefore == 0 && r.PlaysBeforeAt > 0 }

// isIn reports whether what a summary has of its latest record is in a record: it reaches back to it. Where
// sessions have no names a record may not tell, and an event of its life was most probably folded in.
func (s *Summary) isIn(r *Record) bool {
	oldest := r.Oldest()
	return oldest <= s.Last || r.Session == "" && oldest < s.Last+ArchiveLife
}
