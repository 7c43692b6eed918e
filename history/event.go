package history

import "unicode/utf8"

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
)

// Ends reports whether the viewing is over with an event of this kind, so that
// there is no reason to wait for another one.
func (k Kind) Ends() bool { return k >= KindStop }

func (k Kind) rank() int {
	switch k {
	case KindStop, KindFinish:
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
	case KindStop:
		return StateStopped
	case KindFinish:
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
	Meta     map[string]string
}

// Bounds of an event.
const (
	MaxPosition  = 30 * 24 * 3600 * 1000 // milliseconds: thirty days
	MaxMetaKeys  = 16
	MaxMetaBytes = 1024 // of all keys and values
	MaxLabel     = 128  // bytes of a session or device
	minTime      = 100_000_000_000
	maxTime      = 1 << 43
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
	case e.Kind < KindStart || e.Kind > KindDelete:
		return Invalid("kind", "want start, progress, pause, seek, stop or finish")
	case e.At > 0 && e.At < minTime:
		return Invalid("event_time", "looks like seconds; want Unix milliseconds")
	case e.At <= 0 || e.At >= maxTime:
		return Invalid("event_time", "want Unix milliseconds")
	case e.Position < 0 || e.Position > MaxPosition:
		return Invalid("position_ms", "want 0 to 2592000000 milliseconds (30 days)")
	case e.Duration < 0 || e.Duration > MaxPosition:
		return Invalid("duration_ms", "want 0 (unknown) to 2592000000 milliseconds (30 days)")
	case len(e.Session) > MaxLabel || !utf8.ValidString(e.Session):
		return Invalid("session", "want at most 128 bytes of UTF-8")
	case len(e.Device) > MaxLabel || !utf8.ValidString(e.Device):
		return Invalid("device", "want at most 128 bytes of UTF-8")
	}
	return validateMeta(e.Meta)
}

func validateMeta(meta map[string]string) error {
	if len(meta) > MaxMetaKeys {
		return Invalid("meta", "want at most 16 entries")
	}
	size := 0
	for k, v := range meta {
		size += len(k) + len(v)
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return Invalid("meta", "want non-empty keys and valid UTF-8")
		}
	}
	if size > MaxMetaBytes {
		return Invalid("meta", "want at most 1024 bytes of keys and values")
	}
	return nil
}

// Clamp moves a position past a known duration back to it: players report loops
// and rounding that way.
func (e *Event) Clamp() {
	if e.Duration > 0 {
		e.Position = min(e.Position, e.Duration)
	}
}

// Completes reports whether the event says that the viewing reached the end: it
// finished, or got at least nine tenths of a known duration behind it.
func (e *Event) Completes() bool {
	return e.Kind == KindFinish ||
		e.Kind != KindDelete && e.Duration > 0 && e.Position*10 >= e.Duration*9
}

// Record returns what the event alone says. It is partial: it knows nothing of
// what came before.
func (e *Event) Record() *Record {
	r := &Record{Version: VersionOf(e.At, e.Kind.rank()), State: e.Kind.state(), Session: e.Session, Device: e.Device, Partial: true}
	if e.Kind == KindDelete {
		r.Reset = e.At
		return r
	}
	r.Position = e.Position
	if e.Duration > 0 {
		r.Duration, r.DurationVersion = e.Duration, r.Version
	}
	if len(e.Meta) > 0 {
		r.Meta, r.MetaVersion = e.Meta, r.Version
	}
	if e.Completes() {
		r.Completions = []Completion{{At: e.At, Viewing: viewing(e)}}
	}
	return r
}

// viewing tells viewings apart by session; a player without sessions has one
// viewing per device.
func viewing(e *Event) uint64 {
	if e.Session != "" {
		return ViewingOf(e.Session)
	}
	return ViewingOf("device/" + e.Device)
}
