package history

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
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

// PastViewing is a viewing that an import brings after its record would have expired. It counts in a summary only.
type PastViewing struct {
	Object      Object
	Began, Last int64 // Unix milliseconds
	Watched     int64 // milliseconds, also Furthest and Duration
	Furthest    int64
	Duration    int64
	Played      bool   // to the end
	Title       string // if known
	// Kept reports, after a store took it, whether it counts: the summary has room, or a record has it already.
	Kept bool
}

// Past returns the viewing in a record that consists of one.
func Past(o Object, r *Record, rules Rules) PastViewing {
	s := Summarize(o, r, rules)
	return PastViewing{
		Object: o, Began: s.First, Last: s.Last, Watched: s.Watched, Furthest: s.Furthest, Duration: s.Duration,
		Played: s.Plays > 0, Title: r.Meta.Get("title"),
	}
}

// After returns the viewing without everything up to a time, and whether anything remains, as [Summary.After] does.
func (v PastViewing) After(at int64) (PastViewing, bool) {
	if v.Began <= at {
		v.Began, v.Watched, v.Furthest, v.Played = at+1, 0, 0, false
	}
	return v, v.Last > at
}

// MaxPast limits the past viewings of an object. Beyond it they do not count, because a sum could not tell which it
// has.
const MaxPast = 2000

// Imported has the past viewings of an object, encoded: a set by the times at which they began. So each counts once,
// however often and in whatever order files bring it. It is compared and stored as is; "" is none.
type Imported string

// imported is a decoded [Imported].
type imported struct {
	title              string
	furthest, duration int64
	viewings           []PastViewing // Began, Last, Watched and Played only, in order
}

// Title returns the title of the object, "" if unknown.
func (i Imported) Title() string {
	all, _ := i.parse()
	return all.title
}

// Valid reports whether i is what an import makes.
func (i Imported) Valid() bool {
	if i == "" {
		return true
	}
	all, ok := i.parse()
	return ok && all.encode() == i
}

func (i Imported) parse() (all imported, ok bool) {
	b, ok := []byte(i), true
	number := func(most uint64) uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > most {
			b, ok = nil, false
			return 0
		}
		b = b[size:]
		return n
	}
	if n := number(uint64(len(b))); n <= uint64(len(b)) {
		all.title, b = string(b[:n]), b[n:]
	} else {
		return all, false
	}
	const most = 1 << 50
	all.furthest, all.duration = int64(number(most)), int64(number(most)) //nolint:gosec // bounded, as below
	for at := int64(0); len(b) > 0 && len(all.viewings) < MaxPast; {
		v := PastViewing{Began: at + int64(number(most))} //nolint:gosec // bounded
		length := number(math.MaxInt64)
		v.Last, v.Played = v.Began+int64(length>>1), length&1 == 1 //nolint:gosec // bounded
		v.Watched = int64(number(most))                            //nolint:gosec // bounded
		all.viewings, at = append(all.viewings, v), v.Began
	}
	return all, ok && len(b) == 0
}

func (i *imported) encode() Imported {
	if len(i.viewings) == 0 {
		return ""
	}
	b := binary.AppendUvarint(nil, uint64(len(i.title)))
	b = append(b, i.title...)
	number := func(n int64) { b = binary.AppendUvarint(b, uint64(n)) } //nolint:gosec // never negative
	number(i.furthest)
	number(i.duration)
	at := int64(0)
	for _, v := range i.viewings {
		number(v.Began - at)
		played := int64(0)
		if v.Played {
			played = 1
		}
		number((v.Last-v.Began)<<1 | played)
		number(v.Watched)
		at = v.Began
	}
	return Imported(b)
}

// add unites the viewings with one more, and reports whether there was room.
func (i *imported) add(v PastViewing) bool {
	n, found := slices.BinarySearchFunc(i.viewings, v.Began, func(o PastViewing, at int64) int { return int(o.Began - at) })
	if !found && len(i.viewings) == MaxPast {
		return false
	}
	if !found {
		i.viewings = slices.Insert(i.viewings, n, PastViewing{Began: v.Began})
	}
	o := &i.viewings[n]
	o.Last, o.Watched, o.Played = max(o.Last, v.Last), max(o.Watched, v.Watched), o.Played || v.Played
	i.title, i.furthest, i.duration = max(i.title, v.Title), max(i.furthest, v.Furthest), max(i.duration, v.Duration)
	return true
}

// each applies do to the viewings, and drops those that it refuses.
func (i Imported) each(do func(PastViewing) (PastViewing, bool)) Imported {
	if i == "" {
		return i
	}
	all, _ := i.parse()
	kept := imported{title: all.title, furthest: all.furthest, duration: all.duration}
	for _, v := range all.viewings {
		n, left := do(v)
		if n != v || !left {
			kept.furthest = 0 // its viewing is unknown
		}
		if left {
			kept.add(n)
		}
	}
	return kept.encode()
}

// after returns the viewings without everything up to a time.
func (i Imported) after(at int64) Imported {
	return i.each(func(v PastViewing) (PastViewing, bool) { return v.After(at) })
}

// apart returns the viewings that a record's time does not overlap: the record has the others. Of an unwatched
// record, the plays before that mark do not count.
func (i Imported) apart(s *Summary, r *Record) Imported {
	return i.each(func(v PastViewing) (PastViewing, bool) {
		v.Played = v.Played && (!r.unwatched() || v.Last > r.PlaysBeforeAt)
		return v, !overlaps(v, s.First, s.Last)
	})
}

func overlaps(v PastViewing, from, to int64) bool { return v.Began <= to && v.Last >= from }

// Lacks returns the viewings that the record does not have, and marks the others as kept.
func (r *Record) Lacks(all []*PastViewing) []*PastViewing {
	if r.Deleted() {
		return all
	}
	return slices.DeleteFunc(all, func(v *PastViewing) bool {
		v.Kept = overlaps(*v, r.Oldest(), r.PlayedAt())
		v.Played = v.Played && (!r.unwatched() || v.Last > r.PlaysBeforeAt)
		return v.Kept
	})
}

// WithPast returns the summary with a past viewing counted, and whether it has it. The zero Summary is an empty one.
// Repeated, or in another order, it returns the same.
func (s Summary) WithPast(v PastViewing) (Summary, bool) {
	if s.Last > 0 && overlaps(v, s.First, s.Last) || s.Before.Until > 0 && overlaps(v, s.Before.First, s.Before.Until) {
		return s, true
	}
	all, _ := s.Imported.parse()
	if !all.add(v) {
		return s, false
	}
	if v.Last > s.Version.Time() {
		if s.Last > 0 { // that record has expired, and ends before the viewing
			all.duration = max(all.duration, s.Duration)
			s = Summary{Before: s.ended()}
		}
		s.Version = VersionOf(v.Last, RankStop)
	}
	s.Object, s.Imported = v.Object, all.encode()
	return s, true
}

// withImported returns the sum with the imported viewings.
func (s Summary) withImported() Summary {
	all, _ := s.Imported.parse()
	if s.Imported = ""; len(all.viewings) == 0 {
		return s
	}
	latest := all.viewings[0]
	for _, v := range all.viewings {
		if v.Last >= latest.Last {
			latest = v
		}
		if v.Played {
			s.Plays++
		}
		s.Watched += v.Watched
	}
	if first := all.viewings[0].Began; s.First == 0 || first < s.First {
		s.First = first
	}
	if latest.Last > s.Last {
		s.Last, s.Finished = latest.Last, latest.Played
	}
	if s.Duration == 0 {
		s.Duration = all.duration
	}
	s.Furthest = max(s.Furthest, all.furthest)
	return s
}
