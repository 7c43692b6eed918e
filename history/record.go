package history

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kind is what a player reports.
type Kind uint8

// The kinds of events.
const (
	KindStart Kind = iota + 1
	KindProgress
	KindPause
	KindSeek
	KindStop
	KindFinish
	KindDelete
	// The marks, which a user makes without playing anything.
	KindWatched
	KindUnwatched
	KindReset
)

// Ends reports whether the viewing is over with an event of this kind, so that
// there is no reason to wait for another one.
func (k Kind) Ends() bool { return k >= KindStop }

// Marks reports whether an event of this kind is one that a user makes without playing
// anything: it has no position, session or device.
func (k Kind) Marks() bool { return k >= KindWatched }

func (k Kind) rank() int {
	switch k {
	case KindStop, KindFinish, KindWatched, KindUnwatched, KindReset:
		return RankStop
	case KindDelete:
		return RankDelete
	default:
		return RankProgress
	}
}

func (k Kind) state() State {
	switch k {
	case KindPause:
		return StatePaused
	case KindStop, KindUnwatched, KindReset:
		return StateStopped
	case KindFinish, KindWatched:
		return StateFinished
	case KindDelete:
		return StateDeleted
	default:
		return StatePlaying
	}
}

// Event is one report about one key.
type Event struct {
	Key      Key
	Kind     Kind
	At       int64 // Unix milliseconds
	Position int64 // milliseconds from the start
	Duration int64 // milliseconds; 0 when the player does not know
	Session  string
	Device   string
	Meta     Meta
	// StartedAt is when the session began, 0 when the player does not say.
	StartedAt int64
	// Watched is how much of the object the session has played, in milliseconds; it
	// counts only with StartedAt. Speed is the fastest of the session in percent; 0
	// means 100.
	Watched int64
	Speed   int64
}

// Bounds of an event.
const (
	MaxPosition  = 30 * 24 * 3600 * 1000 // milliseconds: thirty days
	MaxMetaKeys  = 16
	MaxMetaBytes = 1024 // of all keys and values of a report, and of a key and its value in a record: 16 KiB at most
	MaxLabel     = 128  // bytes of a session or device
	MinSpeed     = 25   // percent
	MaxSpeed     = 400
	// MinTime, in 1973, tells Unix milliseconds from seconds, which mostly are less.
	MinTime = 100_000_000_000
	maxTime = 1 << 43
)

// Validate reports the first field of e that is not legal, as a [FieldError].
func (e *Event) Validate() error {
	if err := ValidateUID(e.Key.UID); err != nil {
		return err
	}
	if err := e.Key.Object.Validate(); err != nil {
		return err
	}
	switch {
	case e.Kind < KindStart || e.Kind > KindReset:
		return Invalid("kind", "want start, progress, pause, seek, stop or finish")
	case e.At <= 0:
		return Invalid("event_time", wantTime)
	case e.Position < 0 || e.Position > MaxPosition:
		return Invalid("position_ms", "want 0 to 2592000000 milliseconds (30 days)")
	case e.Duration < 0 || e.Duration > MaxPosition:
		return Invalid("duration_ms", "want 0 (unknown) to 2592000000 milliseconds (30 days)")
	case len(e.Session) > MaxLabel || !utf8.ValidString(e.Session):
		return Invalid("session", "want at most 128 bytes of UTF-8")
	case len(e.Device) > MaxLabel || !utf8.ValidString(e.Device):
		return Invalid("device", "want at most 128 bytes of UTF-8")
	}
	return cmp.Or(validateTime("event_time", e.At), validateTime("started_at", e.StartedAt), e.validateWatched(), e.Meta.validate(MaxMetaBytes))
}

const wantTime = "want a time from 1973 to 2248"

func validateTime(field string, at int64) error {
	switch {
	case at > 0 && at < MinTime:
		return Invalid(field, "looks like seconds; want Unix milliseconds")
	case at < 0 || at >= maxTime:
		return Invalid(field, wantTime)
	}
	return nil
}

func (e *Event) validateWatched() error {
	switch {
	case e.Watched < 0 || e.Watched > MaxPosition:
		return Invalid("watched_ms", "want 0 to 2592000000 milliseconds (30 days)")
	case e.Speed != 0 && (e.Speed < MinSpeed || e.Speed > MaxSpeed):
		return Invalid("speed", "want 0.25 to 4")
	}
	return nil
}

// Clamp brings what cannot be to the nearest that can: players report positions past a
// known duration for loops and rounding, sessions cannot begin after they report, and
// cannot have played more than has passed since, times the speed.
func (e *Event) Clamp() {
	if e.Duration > 0 {
		e.Position = min(e.Position, e.Duration)
	}
	if e.StartedAt == 0 {
		e.Watched = 0
		return
	}
	e.StartedAt = min(e.StartedAt, e.At)
	e.Watched = min(e.Watched, playable(e.At-e.StartedAt, e.Speed))
}

// BoundWatched drops the watched time of a report whose session met a pause of recording: the session counts as reported before that
// pause. In a restored record r the session adds no more to an earlier report than fits in the time since: what it played before the
// removal may not have come back.
func (e *Event) BoundWatched(p Pause, r *Record) {
	if e.Watched > 0 && p.Meets(e.StartedAt, e.At) {
		e.Watched = 0
	}
	if e.Watched == 0 || r == nil || !r.Restored {
		return
	}
	for _, w := range r.Watches {
		if w.Viewing == e.Viewing() && w.At <= e.At {
			e.Watched = min(e.Watched, w.Watched+playable(e.At-w.At, e.Speed))
		}
	}
}

// tempo returns a speed in percent, which 0 may stand for.
func tempo(speed int64) int64 { return cmp.Or(speed, 100) }

// playable returns how much of an object plays in so many milliseconds, at a speed in percent; 0 means 100.
func playable(ms, speed int64) int64 { return ms * tempo(speed) / 100 }

// Viewing tells viewings apart by session; a player without sessions has one viewing
// per device, and all marks of an object as watched are one.
func (e *Event) Viewing() uint64 {
	if e.Kind.Marks() {
		return markViewing
	}
	return viewing(e.Session, e.Device)
}

// markViewing stands for the marks of an object as watched: no session has such a name, since
// it is no UTF-8.
var markViewing = ViewingOf("\xffmark")

func viewing(session, device string) uint64 {
	if session != "" {
		return ViewingOf(session)
	}
	return ViewingOf("device/" + device)
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
	// [NewRevision]; 0 is no content. The cache sets [CleanBit] in it once the
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
	AtEnd    bool // of its viewing, by what it says itself
	Restored bool // see RemovedAt
	Version  Version
	// Original is the version that the latest event had before it was removed and brought
	// back, 0 where it was not; see [Record.Restore].
	Original Version
	Position int64 // milliseconds
	Session  string
	Device   string
	// ResumePoint is the latest event that was not early, beside an early one. There may be
	// none.
	ResumePoint ResumePoint

	// The latest event that knew the duration (milliseconds).
	Duration        int64
	DurationVersion Version
	// What the newest event that named a key says of it, for the newest [MaxMetaKeys] keys, removed ones too.
	// MetaVersion is the newest version among them.
	Meta        Meta
	MetaVersion Version

	// Peaks are earlier positions beyond those of every later event, furthest
	// first. All of them are kept, not only the furthest, so that the right one is
	// left when a late delete takes the older ones away.
	Peaks []Peak

	// Completions are the newest stays of viewings at their ends, oldest first. PlaysBefore
	// counts the plays before, the newest of them at PlaysBeforeAt. It is 0 where the user says
	// that none up to then counts.
	Completions   []Stay
	PlaysBefore   uint64
	PlaysBeforeAt int64

	// Watches are the newest viewings that said how much they have played, oldest
	// first. WatchedBefore is the sum of those before, the newest of them at
	// WatchedBeforeAt, in milliseconds.
	Watches         []WatchedTime
	WatchedBefore   int64
	WatchedBeforeAt int64

	// Start is the latest start of the viewing of the latest event below its end, zero where it reported none.
	// Viewings are the newest others, oldest first.
	Start    Peak
	Viewings []Viewing
	// Lows are stays of these viewings below their ends, oldest first, but for those that [Record.below] implies. Starts are
	// earlier starts of viewings, oldest first.
	Lows   []Low
	Starts []Start

	// RemovedAt is the time of the latest delete: nothing at or before it contributes, but for
	// what was brought back after it, which is in the record where it is Restored, with
	// the times that it always had.
	RemovedAt int64

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

// Record returns what the event alone says. It is partial: it knows nothing of
// what came before.
func (r Rules) Record(e *Event) *Record {
	rec := new(Record)
	r.RecordInto(rec, e)
	return rec
}

// RecordInto makes rec what [Rules.Record] returns of an event.
func (r Rules) RecordInto(rec *Record, e *Event) {
	*rec = Record{Version: VersionOf(e.At, e.Kind.rank()), State: e.Kind.state(), Session: e.Session, Device: e.Device, Partial: true}
	if e.Kind == KindDelete {
		rec.RemovedAt = e.At
		return
	}
	if !e.Kind.Marks() {
		rec.Position, rec.Early, rec.AtEnd = e.Position, r.early(e), r.Completes(e)
	}
	switch {
	case rec.AtEnd:
	case e.Kind == KindStart:
		rec.Start = Peak{At: e.At, Position: e.Position}
	case r.beginsAgain(e):
		rec.Starts = []Start{{At: e.At - e.Position, Viewing: e.Viewing(), Duration: e.Duration}}
	}
	if e.Duration > 0 {
		rec.Duration, rec.DurationVersion = e.Duration, rec.Version
	}
	if len(e.Meta) > 0 {
		rec.Meta, rec.MetaVersion = e.Meta, rec.Version
	}
	switch {
	case e.Kind == KindUnwatched:
		rec.PlaysBeforeAt = e.At // and none of them counts
	case r.Completes(e):
		rec.Completions = []Stay{r.end(e)}
	}
	if e.Watched > 0 {
		rec.Watches = []WatchedTime{{At: e.At, Viewing: e.Viewing(), Watched: e.Watched, Began: e.StartedAt, Speed: e.Speed}}
	}
}

// event is the inverse, as far as the bounds of an event say something about the fields of a
// record. The key and the kind are only legal ones.
func (r *Record) event() *Event {
	return &Event{
		Key: Key{UID: "-", Object: Object{ID: "-", Type: 1}}, Kind: KindProgress, At: r.PlayedAt(),
		Duration: r.Duration, Session: r.Session, Device: r.Device,
	}
}

// PlayedAt returns when the latest event happened, in Unix milliseconds: before the time of
// the version where the event was removed and brought back.
func (r *Record) PlayedAt() int64 { return r.own().Time() }

// own is the version that the latest event came with.
func (r *Record) own() Version { return cmp.Or(r.Original, r.Version) }

// Same reports whether two records have the same content, whatever their
// revisions and cell times.
func Same(a, b *Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	return compareLatest(a, b) == 0 && a.Partial == b.Partial && a.RemovedAt == b.RemovedAt && a.Restored == b.Restored && a.Original == b.Original &&
		a.Duration == b.Duration && a.DurationVersion == b.DurationVersion &&
		a.MetaVersion == b.MetaVersion && a.Meta == b.Meta &&
		a.PlaysBefore == b.PlaysBefore && a.PlaysBeforeAt == b.PlaysBeforeAt &&
		slices.Equal(a.Peaks, b.Peaks) && slices.Equal(a.Completions, b.Completions) && a.ResumePoint == b.ResumePoint &&
		a.WatchedBefore == b.WatchedBefore && a.WatchedBeforeAt == b.WatchedBeforeAt && slices.Equal(a.Watches, b.Watches) &&
		a.Start == b.Start && slices.Equal(a.Viewings, b.Viewings) && slices.Equal(a.Lows, b.Lows) && slices.Equal(a.Starts, b.Starts) &&
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
		compareFlags(a.Early, b.Early),
		compareFlags(b.AtEnd, a.AtEnd),
	)
}

// compareFlags has what is set first.
func compareFlags(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Bounds of a record. Beyond them the fold is no longer exact: a late delete may
// leave a furthest position too low or plays too high, and a late report of a viewing
// older than those listed stays uncounted. Plays that come in the order of their times
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

// ResumePoint is an event that takes away where the user stopped before: its version, and where it left the user.
type ResumePoint struct {
	Version  Version
	Position int64
}

// WatchedTime is the watched time that a session reported, bounded by its wall time times its speed.
type WatchedTime struct {
	At      int64 // the latest report of that much or less, Unix milliseconds
	Viewing uint64
	Watched int64 // milliseconds of the object
	Began   int64 // begin of the session, Unix milliseconds
	Speed   int64 // the fastest, in percent; 0 means 100
}

// Viewing is one session of an object, as far as it is known.
type Viewing struct {
	Viewing uint64 // a hash of the session, or of the device where there is none
	// The latest report of it.
	Version  Version
	Position int64 // milliseconds
	State    State
	AtEnd    bool
	Device   string
	// Start is its latest start, zero where it reported none.
	Start Peak
}

// CleanBit is set in the revision of a content that the archive has. A content
// without it has a dirty mark.
const CleanBit uint64 = 1 << 63

// NewRevision returns 63 random bits: a repeat within one key is out of the question,
// and nothing needs coordinating.
func NewRevision() uint64 { return max(rand.Uint64()>>1, 1) }

// Clean reports whether the archive has this content.
func (r *Record) Clean() bool { return r != nil && r.Revision&CleanBit != 0 }

// SameContent reports whether two revisions name one content, clean or not.
func SameContent(a, b uint64) bool { return a&^CleanBit == b&^CleanBit }

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

// Own copies the texts of the latest event out of the text that they are parts of, which would stay in memory as long as
// they do, but for those that are the same in a record that has them already.
func (r *Record) Own(was *Record) {
	r.Session, r.Device, r.Meta = own(r.Session, was.Session), own(r.Device, was.Device), own(r.Meta, was.Meta)
}

func own[T ~string](text, was T) T {
	if text == was {
		return was
	}
	return T(strings.Clone(string(text)))
}

// orNil makes sure that equal contents are equal to the last field.
func orNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}
