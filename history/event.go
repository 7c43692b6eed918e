package history

import (
	"cmp"
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
	MaxMetaBytes = 1024 // of all keys and values
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
	return cmp.Or(validateTime("event_time", e.At), validateTime("started_at", e.StartedAt), e.validateWatched(), e.Meta.validate())
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
	e.Watched = min(e.Watched, (e.At-e.StartedAt)*cmp.Or(e.Speed, 100)/100)
}

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
		rec.Reset = e.At
		return
	}
	if !e.Kind.Marks() {
		rec.Position, rec.Early = e.Position, r.early(e)
	}
	if e.Kind == KindStart {
		rec.Start = Peak{At: e.At, Position: e.Position}
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
		rec.Completions = []Completion{{At: e.At, Viewing: e.Viewing()}}
	}
	if e.Watched > 0 {
		rec.Watches = []Watch{{At: e.At, Viewing: e.Viewing(), Watched: e.Watched}}
	}
}

// event is the inverse, as far as the bounds of an event say something about the fields of a
// record. The key and the kind are only legal ones.
func (r *Record) event() *Event {
	return &Event{
		Key: Key{UID: "-", Object: Object{ID: "-", Type: 1}}, Kind: KindProgress, At: r.PlayedAt(),
		Duration: r.Duration, Session: r.Session, Device: r.Device, Meta: r.Meta,
	}
}
