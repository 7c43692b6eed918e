package history

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of a report.
type Kind uint8

// Kinds of events.
const (
	KindStart Kind = iota + 1
	KindProgress
	KindPause
	KindSeek
	KindStop
	KindFinish
	KindDelete
	// Marks, made by a user without playback.
	KindWatched
	KindUnwatched
	KindReset
)

// Ends reports whether the kind ends the viewing, so there is no point in waiting for another report.
func (k Kind) Ends() bool { return k >= KindStop }

// Marks reports whether the kind is a mark, made by a user without playback: it has no position, session or
// device.
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

// Event is one report for one key.
type Event struct {
	Key      Key
	Kind     Kind
	At       int64 // Unix milliseconds
	Position int64 // milliseconds from the start
	Duration int64 // milliseconds; 0 if unknown to the player
	Session  string
	Device   string
	Meta     Meta
	// StartedAt is the begin of the session, 0 if unknown.
	StartedAt int64
	// Watched is the amount of the object that the session has played, in milliseconds; it counts only with
	// StartedAt. Speed is the session's maximum in percent; 0 means 100.
	Watched int64
	Speed   int64
}

// Bounds of an event.
const (
	MaxPosition  = 30 * 24 * 3600 * 1000 // milliseconds: thirty days
	MaxMetaKeys  = 16
	MaxMetaBytes = 1024 // all keys and values of a report, or one entry in a record: 16 KiB at most there
	MaxLabel     = 128  // bytes of a session or device
	MinSpeed     = 25   // percent
	MaxSpeed     = 400
	// MinTime, in 1973, separates Unix milliseconds from seconds.
	MinTime = 100_000_000_000
	maxTime = 1 << 43
)

// Validate returns a [FieldError] for the first illegal field of e.
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

// Clamp moves impossible values to the nearest possible ones. Players report positions past the duration
// because of loops and rounding. A session cannot begin after its report, nor play more than the elapsed time
// times the speed.
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

// BoundWatched drops the watched time of a report whose session overlaps a pause of recording: the session
// counts as reported before the pause. In a restored record the session adds to an earlier report at most the
// elapsed time since. Its playback before the removal may not have come back.
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

// tempo returns a speed in percent, 100 for 0.
func tempo(speed int64) int64 { return cmp.Or(speed, 100) }

// playable returns the milliseconds of an object that play in ms milliseconds, at a speed in percent; 0 means
// 100.
func playable(ms, speed int64) int64 { return ms * tempo(speed) / 100 }

// Viewing identifies a viewing by session, or by device without a session. All marks of an object as watched
// share one.
func (e *Event) Viewing() uint64 {
	if e.Kind.Marks() {
		return markViewing
	}
	return viewing(e.Session, e.Device)
}

// markViewing stands for the marks of an object as watched. No session has this name: it is invalid UTF-8.
var markViewing = ViewingOf("\xffmark")

func viewing(session, device string) uint64 {
	if session != "" {
		return ViewingOf(session)
	}
	return ViewingOf("device/" + device)
}

// State is the state after the latest event.
type State uint8

// States of a record.
const (
	StatePlaying State = iota + 1
	StatePaused
	StateStopped
	StateFinished
	StateDeleted
)

// String returns the state as in APIs.
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

// Record is the fold of the events of one key. Records are shared between goroutines and immutable: [Merge] and
// [Record.After] return new ones.
type Record struct {
	// Revision identifies this content in the cache. The version cannot: a late event may add a completed play
	// without becoming the latest. The writer draws it with [NewRevision]; 0 is no content. The cache sets
	// [CleanBit] once the archive has the content.
	Revision uint64
	// CellTime orders the contents of a key in the archive, in Unix milliseconds: the put with the latest one
	// wins. It is the event time, or later if needed to exceed the cell times of all contents that this one
	// includes; see [Record.Successor].
	CellTime int64

	// Partial means that the archive may have events outside this fold.
	Partial bool

	// The latest event. Early means that it is from the first seconds of its session: a start by mistake must
	// not move the resume point.
	State    State // next to the flags to keep records small
	Early    bool
	AtEnd    bool // at the end of its viewing, by its own content
	Restored bool // see RemovedAt
	Version  Version
	// Original is the version of the latest event before its removal and restore, 0 if not restored; see
	// [Record.Restore].
	Original Version
	Position int64 // milliseconds
	Session  string
	Device   string
	// ResumePoint is the latest event that was not early, if the latest event is early. It may be zero.
	ResumePoint ResumePoint

	// The duration in milliseconds, from the latest event with one.
	Duration        int64
	DurationVersion Version
	// The newest entry per key, for the newest [MaxMetaKeys] keys including removed ones. MetaVersion is the
	// newest version among them.
	Meta        Meta
	MetaVersion Version

	// Peaks are earlier positions beyond those of every later event, furthest first. All are kept, so that the
	// right one remains after a late delete of the older ones.
	Peaks []Peak

	// Completions are the newest stays of viewings at their ends, oldest first. PlaysBefore counts the earlier
	// plays, the last at PlaysBeforeAt. It is 0 if the user marked the object as unwatched at that time.
	Completions   []Stay
	PlaysBefore   uint64
	PlaysBeforeAt int64

	// Watches are the newest viewings with a watched time, oldest first. WatchedBefore is the sum of the earlier
	// ones in milliseconds, the last at WatchedBeforeAt.
	Watches         []WatchedTime
	WatchedBefore   int64
	WatchedBeforeAt int64

	// Start is the latest start below the end in the latest event's viewing, zero without one. Viewings are the
	// newest others, oldest first.
	Start    Peak
	Viewings []Viewing
	// Lows are stays of these viewings below their ends, oldest first, except those implied by [Record.below].
	// Starts are earlier starts of viewings, oldest first.
	Lows   []Low
	Starts []Start

	// RemovedAt is the time of the latest delete: nothing at or before it contributes. The exception is content
	// restored after it: the record is then Restored and keeps its original times.
	RemovedAt int64

	// Dismissed is the latest decision about "continue watching": its time, with the rank [RankDismissed] or
	// [RankOffered]; 0 without one. It may be later than the latest event; see [Record.DismissedAt].
	Dismissed Version

	// Told is what the stream of plays has of the record, empty if it has nothing; see [Record.Untold].
	Told string

	// Unknown are encoded fields from a newer version of Playhead, and the version of the latest event at that
	// time. They are kept like metadata for newer processes.
	Unknown        string
	UnknownVersion Version
}

// Record returns the record of a single event. It is partial: it lacks all earlier events.
func (r Rules) Record(e *Event) *Record {
	rec := new(Record)
	r.RecordInto(rec, e)
	return rec
}

// RecordInto stores the result of [Rules.Record] in rec.
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
		rec.PlaysBeforeAt = e.At // all earlier plays stop counting
	case r.Completes(e):
		rec.Completions = []Stay{r.end(e)}
	}
	if e.Watched > 0 {
		rec.Watches = []WatchedTime{{At: e.At, Viewing: e.Viewing(), Watched: e.Watched, Began: e.StartedAt, Speed: e.Speed}}
	}
}

// event returns an event with the fields of r that share an event's bounds. Key and kind are placeholders.
func (r *Record) event() *Event {
	return &Event{
		Key: Key{UID: "-", Object: Object{ID: "-", Type: 1}}, Kind: KindProgress, At: r.PlayedAt(),
		Duration: r.Duration, Session: r.Session, Device: r.Device,
	}
}

// PlayedAt returns the time of the latest event, in Unix milliseconds. In a restored record it is before the
// version's time.
func (r *Record) PlayedAt() int64 { return r.own().Time() }

// own is the latest event's version at its report.
func (r *Record) own() Version { return cmp.Or(r.Original, r.Version) }

// Same reports whether two records have the same content, regardless of revision and cell time.
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
		a.Dismissed == b.Dismissed && a.Told == b.Told && a.UnknownVersion == b.UnknownVersion && a.Unknown == b.Unknown
}

// compareLatest orders latest events by version, then by content, so that every order of arrival gives the same
// result.
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
		compareFlags(b.AtEnd, a.AtEnd), // before Early, as in compareEnds
		compareFlags(a.Early, b.Early),
	)
}

// compareFlags sorts true first.
func compareFlags(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Bounds of a record. Beyond them the fold is inexact: after a late delete the furthest position may be too low
// or plays too high. A late report of a viewing older than the listed ones is not counted. Plays in the order
// of their times stay exact, and so does the furthest position without deletes. Watched times are bounded like
// plays.
const (
	MaxPeaks       = 8
	MaxCompletions = 128
	MaxWatches     = 128
)

// Peak is a position and the time of its report.
type Peak struct {
	At       int64
	Position int64
}

// ResumePoint is an event that sets the resume position.
type ResumePoint struct {
	Version  Version
	Position int64
}

// WatchedTime is a session's reported watched time, limited by its wall time times its speed.
type WatchedTime struct {
	At      int64 // latest report of this amount or less, Unix milliseconds
	Viewing uint64
	Watched int64 // milliseconds of the object
	Began   int64 // begin of the session, Unix milliseconds
	Speed   int64 // maximum in percent; 0 means 100
}

// Viewing is one session of an object.
type Viewing struct {
	Viewing uint64 // hash of the session, or of the device without a session
	// The latest report.
	Version  Version
	Position int64 // milliseconds
	State    State
	AtEnd    bool
	Device   string
	// Start is its latest start, zero without a reported one.
	Start Peak
}

// CleanBit is set in the revision of a content that the archive has. A content without it has a dirty mark.
const CleanBit uint64 = 1 << 63

// NewRevision returns 63 random bits. A repeat within one key is practically impossible, so no coordination is
// needed.
func NewRevision() uint64 { return max(rand.Uint64()>>1, 1) }

// Clean reports whether the archive has this content.
func (r *Record) Clean() bool { return r != nil && r.Revision&CleanBit != 0 }

// SameContent reports whether two revisions identify one content, clean or not.
func SameContent(a, b uint64) bool { return a&^CleanBit == b&^CleanBit }

// Successor returns r as a new content of its key, with a new revision and a later cell time. The cell time
// exceeds those of the contents in the fold and of content removed by clear marks (see [User.CutTime]).
func (r *Record) Successor(u *User) *Record {
	m := *r
	m.Succeed(u)
	return &m
}

// Succeed turns r into its [Record.Successor]. The caller is the only user of r.
func (r *Record) Succeed(u *User) {
	r.Revision = NewRevision()
	r.CellTime = max(r.Version.Time(), r.CellTime+1)
	if u != nil {
		r.CellTime = max(r.CellTime, u.CutTime+1)
	}
}

// Deleted reports whether the record is a tombstone.
func (r *Record) Deleted() bool { return r.State == StateDeleted }

// Own copies the latest event's texts so that they do not keep the request buffer in memory. It reuses equal
// texts of the previous record.
func (r *Record) Own(was *Record) {
	r.Session, r.Device, r.Meta = own(r.Session, was.Session), own(r.Device, was.Device), own(r.Meta, was.Meta)
}

func own[T ~string](text, was T) T {
	if text == was {
		return was
	}
	return T(strings.Clone(string(text)))
}

// orNil normalizes empty lists to nil, so that equal contents have equal fields.
func orNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}
