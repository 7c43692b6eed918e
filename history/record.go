package history

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
)

// Completion is a viewing that reached the end, and when it last reported so.
type Completion struct {
	At      int64
	Viewing uint64
}

func (c Completion) watch() Watch { return Watch{At: c.At, Viewing: c.Viewing} }

// Watch is how much of an object a viewing has played, in milliseconds, and when it last
// reported that much or less.
type Watch struct {
	At      int64
	Viewing uint64
	Watched int64
}

func (w Watch) watch() Watch { return w }

// report is what one viewing reports.
type report interface{ watch() Watch }

// sum returns how much all viewings together have played: of each the most.
func sum(ws []Watch) (total int64) {
	for i, w := range ws {
		if !slices.ContainsFunc(ws[:i], func(o Watch) bool { return o.Viewing == w.Viewing }) { // the oldest says most
			total += w.Watched
		}
	}
	return total
}

// State is what the newest event left behind.
type State uint8

// The states of a record.
const (
	StatePlaying State = iota + 1
	StatePaused
	StateStopped
	StateFinished
	StateDeleted
)

// String returns the state as interfaces write it.
func (s State) String() string {
	switch s {
	case StatePlaying:
		return "playing"
	case StatePaused:
		return "paused"
	case StateStopped:
		return "stopped"
	case StateFinished:
		return "finished"
	case StateDeleted:
		return "deleted"
	}
	return "unknown"
}

// Record is the fold of the events of one key. Records are shared between
// goroutines and never changed: [Merge] and [Record.After] return new ones.
type Record struct {
	// Revision names this content in the cache. The version cannot: a late event
	// may add a completed play without becoming the latest. Its writer draws it with
	// [NewRevision]; 0 is no content. The cache sets [SettledBit] in it once the
	// archive has the content.
	Revision uint64
	// CellTime orders the contents of one key in the archive, in Unix milliseconds: of
	// two puts the one with the later cell time stays, whatever their order. It is the
	// event time, or later where that would not be later than the cell time of every
	// content that this one was made from; see [Record.Successor].
	CellTime int64

	// Partial means that the archive may hold something that this fold lacks.
	Partial bool

	// The latest event. Early means that it is of the first seconds of its session: a
	// start by mistake must not take away where the user stopped.
	State    State // beside the flags, or every record would be larger
	Early    bool
	Restored bool // see Reset
	Version  Version
	// Original is the version that the latest event had before it was removed and brought
	// back, 0 where it was not; see [Record.Restore].
	Original Version
	Position int64 // milliseconds
	Session  string
	Device   string
	// NonEarly is the latest event that was not early, beside an early one. There may be
	// none.
	NonEarly NonEarly

	// The latest event that knew the duration (milliseconds) or gave metadata.
	Duration        int64
	DurationVersion Version
	Meta            Meta
	MetaVersion     Version

	// Peaks are earlier positions beyond those of every later event, furthest
	// first. All of them are kept, not only the furthest, so that the right one is
	// left when a late delete takes the older ones away.
	Peaks []Peak

	// Completions are the newest completed viewings, oldest first. PlaysBefore
	// counts those before, the newest of them at PlaysBeforeAt. It is 0 where the user says
	// that none up to then counts.
	Completions   []Completion
	PlaysBefore   uint64
	PlaysBeforeAt int64

	// Watches are the newest viewings that said how much they have played, oldest
	// first. WatchedBefore is the sum of those before, the newest of them at
	// WatchedBeforeAt, in milliseconds.
	Watches         []Watch
	WatchedBefore   int64
	WatchedBeforeAt int64

	// Start is the latest start of the viewing of the latest event, zero where it reported none.
	// Viewings are the newest others, oldest first.
	Start    Peak
	Viewings []Viewing

	// Reset is the time of the latest delete: nothing at or before it contributes, but for
	// what was brought back after it, which is in the record where it is Restored, with
	// the times that it always had.
	Reset int64

	// Dismissed is the latest decision about whether the record is offered to go on with: its
	// time, and as rank [RankDismissed] or [RankOffered]. 0 is none. It may be later than the
	// latest event; see [Record.DismissedAt].
	Dismissed Version

	// Unknown are the encoded fields that a newer version of Playhead has written and this
	// one does not know, and the version of the latest event when it did. They are kept as
	// metadata is, so that a newer process finds them again.
	Unknown        string
	UnknownVersion Version
}

// Bounds of a record. Beyond them the fold is no longer exact: a late delete may
// leave a furthest position too low or plays too high, a late report of a viewing
// older than those listed stays uncounted, and a viewing that reports its end again
// after so many others counts twice. Plays that come in the order of their times
// are exact nevertheless, and so is the furthest position where nothing is deleted.
// The watched times are bounded as plays are.
const (
	MaxPeaks       = 8
	MaxCompletions = 128
	MaxWatches     = 128
)

// Peak is a position and when it was reported.
type Peak struct {
	At       int64
	Position int64
}

// NonEarly is an event that is not early: its version, and where it left the user.
type NonEarly struct {
	Version  Version
	Position int64
}

// SettledBit is set in the revision of a content that the archive has. A content
// without it has a dirty mark.
const SettledBit uint64 = 1 << 63

// NewRevision returns 63 random bits: a repeat within one key is out of the question,
// and nothing needs coordinating.
func NewRevision() uint64 { return max(rand.Uint64()>>1, 1) }

// Settled reports whether the archive has this content.
func (r *Record) Settled() bool { return r != nil && r.Revision&SettledBit != 0 }

// SameContent reports whether two revisions name one content, settled or not.
func SameContent(a, b uint64) bool { return a&^SettledBit == b&^SettledBit }

// Successor returns r as a new content of its key: under a revision of its own and
// with a cell time after those of the contents that it is the fold of, and after what
// the user's clear marks have removed (see [User.CutTime]).
func (r *Record) Successor(u *User) *Record {
	m := *r
	m.Succeed(u)
	return &m
}

// Succeed makes of r, which nobody else has yet, its own [Record.Successor].
func (r *Record) Succeed(u *User) {
	r.Revision = NewRevision()
	r.CellTime = max(r.Version.Time(), r.CellTime+1)
	if u != nil {
		r.CellTime = max(r.CellTime, u.CutTime+1)
	}
}

// Deleted reports whether the record is a tombstone.
func (r *Record) Deleted() bool { return r.State == StateDeleted }

// Resume returns where the user left off, in milliseconds: where the latest event did,
// or, as long as that is early, the latest that was not. See also [Rules.Resume].
func (r *Record) Resume() int64 {
	at, _ := r.resume()
	return at
}

// resume returns also when that was.
func (r *Record) resume() (position, at int64) {
	if r.Early && r.NonEarly.Version != 0 {
		return r.within(r.NonEarly.Position), r.NonEarly.Version.Time()
	}
	return r.within(r.Position), r.PlayedAt()
}

// PlayedAt returns when the latest event happened, in Unix milliseconds: before the time of
// the version where the event was removed and brought back.
func (r *Record) PlayedAt() int64 { return r.own().Time() }

// DismissedAt returns when the user took the record out of what to go on with, in Unix
// milliseconds; 0 where that was taken back, or something was played after it.
func (r *Record) DismissedAt() int64 {
	if at := r.Dismissed.Time(); r.Dismissed == VersionOf(at, RankDismissed) && at >= r.PlayedAt() {
		return at
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

// own is the version that the latest event came with.
func (r *Record) own() Version { return cmp.Or(r.Original, r.Version) }

// within returns a position as far as the object goes. Reports that know the duration are
// bounded by it as they come; the others are by what came with another report.
func (r *Record) within(position int64) int64 {
	if r.Duration > 0 {
		return min(position, r.Duration)
	}
	return position
}

// Furthest returns the furthest position ever reported, in milliseconds.
func (r *Record) Furthest() int64 {
	furthest := r.Position
	if len(r.Peaks) > 0 {
		furthest = max(furthest, r.Peaks[0].Position)
	}
	return r.within(furthest)
}

// Plays returns how many viewings reached the end.
func (r *Record) Plays() uint64 { return r.PlaysBefore + uint64(len(r.Completions)) }

// CompletedAt returns when a viewing last reported its end, 0 if none did.
func (r *Record) CompletedAt() int64 {
	if n := len(r.Completions); n > 0 {
		return r.Completions[n-1].At
	}
	if r.PlaysBefore == 0 {
		return 0
	}
	return r.PlaysBeforeAt
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
	return slices.ContainsFunc(r.Completions, func(c Completion) bool { return c.Viewing == viewing })
}

// Watched returns how much was played in all sessions that said so, in milliseconds of
// the object.
func (r *Record) Watched() int64 { return r.WatchedBefore + sum(r.Watches) }

// Same reports whether two records have the same content, whatever their
// revisions and cell times.
func Same(a, b *Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	return compareLatest(a, b) == 0 && a.Partial == b.Partial && a.Reset == b.Reset && a.Restored == b.Restored && a.Original == b.Original &&
		a.Duration == b.Duration && a.DurationVersion == b.DurationVersion &&
		a.MetaVersion == b.MetaVersion && a.Meta == b.Meta &&
		a.PlaysBefore == b.PlaysBefore && a.PlaysBeforeAt == b.PlaysBeforeAt &&
		slices.Equal(a.Peaks, b.Peaks) && slices.Equal(a.Completions, b.Completions) && a.NonEarly == b.NonEarly &&
		a.WatchedBefore == b.WatchedBefore && a.WatchedBeforeAt == b.WatchedBeforeAt && slices.Equal(a.Watches, b.Watches) &&
		a.Start == b.Start && slices.Equal(a.Viewings, b.Viewings) &&
		a.Dismissed == b.Dismissed && a.UnknownVersion == b.UnknownVersion && a.Unknown == b.Unknown
}

// compareLatest orders latest events by version. Two different events of one
// version are ordered by content, so that every order of arrival picks the same.
func compareLatest(a, b *Record) int {
	if c := cmp.Compare(a.Version, b.Version); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(a.own(), b.own()),
		cmp.Compare(a.Position, b.Position),
		cmp.Compare(a.State, b.State),
		strings.Compare(a.Session, b.Session),
		strings.Compare(a.Device, b.Device),
		compareEarly(a.Early, b.Early),
	)
}

func compareEarly(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// orNil makes sure that equal contents are equal to the last field.
func orNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}
