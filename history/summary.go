package history

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Summary is kept of an object after its record has expired. It sums up the object's latest record, and in Before those
// that had expired before the latest one began.
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
	Finished    bool // the user left the object at its end
	Before      Ended
}

// Ended sums up the records of an object that had expired before its latest record began. The zero value stands for no record.
type Ended struct {
	First, Until      int64 // Unix milliseconds; Until is the time of the latest of their versions
	Plays             uint64
	Watched, Furthest int64
}

// SummaryAge is the age from which on records are summarized, in milliseconds: a week before they expire. A record that changes
// in that week is summarized again.
const SummaryAge = ArchiveTTL - 7*24*3600*1000

// ValidateSummaryTTL fails unless summaries may be kept for so long: 0 is for as long as the store says.
func ValidateSummaryTTL(d time.Duration) error {
	if d != 0 && d < ArchiveTTL*time.Millisecond {
		return Invalid("summary", "want at least 2160h, for as long as there are records")
	}
	return nil
}

// Summarizer is an archive that keeps summaries.
type Summarizer interface {
	// SummaryTTL returns for how long summaries are kept, in milliseconds since their object was last played; 0 where there are none.
	SummaryTTL(ctx context.Context) (int64, error)
	// Summaries returns a page of a user's summaries, in the order of [Cursor.Compare]. They are of all times that the query
	// asks for, also where the object still has a record. Clear marks are applied, and
	// returned. Without summaries the page is empty, and there is no error.
	Summaries(ctx context.Context, uid string, q Query) (SummaryPage, error)
	// Summarize counts in the summaries of a user the records that are older than [SummaryAge]. It removes summaries that are deleted,
	// cleared, past their TTL, or of a namespace of which none are kept ([Rulebook.Summarized]). With all it looks at every
	// tombstone, otherwise only at those of that age. It may be repeated, and may be broken off anywhere. It fails with
	// [ErrConflict] when another call came first.
	Summarize(ctx context.Context, uid string, all bool) error
}

// SummaryPage is a part of a user's summaries.
type SummaryPage struct {
	Items []Summary
	// More means that the query has further summaries.
	More bool
	User User // has the clear marks alone
}

// Place returns where the summary stands in a user's list.
func (s *Summary) Place() Cursor { return Cursor{Version: s.Version, Object: s.Object} }

// Total returns the summary with the sums of [Summary.Before] added, as readers see it.
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

// LatestFirst compares summaries in the order that records have in a list.
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

// After returns what is left of a summary when everything up to a time is removed, and whether anything is left. Sums
// that have parts from both sides of that time become 0, since the parts cannot be told apart.
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

// With returns the summary of an object after its record r was counted in it, and whether there is one: all of it may have been
// deleted. The zero Summary stands for no summary so far. A record counts once, also where With is called again with it, or with
// a later content of it.
func (s Summary) With(o Object, r *Record, rules Rules) (Summary, bool) {
	s, there := s.After(r.RemovedAt)
	if r.Deleted() {
		return s, there
	}
	n := Summarize(o, r, rules)
	switch {
	case !there:
	case r.Version < s.Version: // an older content: it is counted already
		return s, true
	case s.isIn(r):
		n.Before = s.Before
		if r.Version == s.Version { // perhaps an older content
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

// unwatched reports whether the user has marked the object as unwatched, so that no completed viewing up to a time counts.
func (r *Record) unwatched() bool { return r.PlaysBefore == 0 && r.PlaysBeforeAt > 0 }

// isIn reports whether r is the summary's latest record, grown since, and not a record that began later: its oldest event
// is not after the summary's last one. A record of sessions without names may not know its oldest event. Then an event
// within the TTL of the summary's record was most probably folded into the same one.
func (s *Summary) isIn(r *Record) bool {
	oldest := r.Oldest()
	return oldest <= s.Last || r.Session == "" && oldest < s.Last+ArchiveTTL
}
