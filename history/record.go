package history

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
	// may add a completed play without becoming the latest. Its writer draws it at
	// random; 0 is no content.
	Revision uint64

	// The latest event.
	Version  Version
	State    State
	Position int64 // milliseconds
	Session  string
	Device   string

	// The latest event that knew the duration (milliseconds) or gave metadata.
	Duration        int64
	DurationVersion Version
	Meta            map[string]string
	MetaVersion     Version

	// Peaks are earlier positions beyond those of every later event, furthest
	// first. All of them are kept, not only the furthest, so that the right one is
	// left when a late delete takes the older ones away.
	Peaks []Peak

	// Completions are the newest completed viewings, oldest first. PlaysBefore
	// counts those before, the newest of them at PlaysBeforeAt.
	Completions   []Completion
	PlaysBefore   uint64
	PlaysBeforeAt int64

	// Reset is the time of the latest delete: nothing at or before it contributes.
	Reset int64

	// Partial means that the archive may hold something that this fold lacks.
	Partial bool
}

// Bounds of a record. Beyond them the fold is no longer exact: a late delete may
// leave a furthest position too low or plays too high, a late report of a viewing
// older than those listed stays uncounted, and a viewing that reports its end again
// after so many others counts twice. Plays that come in the order of their times
// are exact nevertheless, and so is the furthest position where nothing is deleted.
const (
	MaxPeaks       = 8
	MaxCompletions = 128
)

// Peak is a position and when it was reported.
type Peak struct {
	At       int64
	Position int64
}

// Completion is a viewing that reached the end, and when it last reported so.
type Completion struct {
	At      int64
	Viewing uint64
}

// Deleted reports whether the record is a tombstone.
func (r *Record) Deleted() bool { return r.State == StateDeleted }

// Furthest returns the furthest position ever reported, in milliseconds.
func (r *Record) Furthest() int64 {
	if len(r.Peaks) == 0 {
		return r.Position
	}
	return max(r.Position, r.Peaks[0].Position)
}

// Plays returns how many viewings reached the end.
func (r *Record) Plays() uint64 { return r.PlaysBefore + uint64(len(r.Completions)) }

// CompletedAt returns when a viewing last reported its end, 0 if none did.
func (r *Record) CompletedAt() int64 {
	if n := len(r.Completions); n > 0 {
		return r.Completions[n-1].At
	}
	return r.PlaysBeforeAt
}

// After returns what is left of r when nothing at or before the given time exists,
// nil when that is nothing. A nil record stays nil.
func (r *Record) After(at int64) *Record {
	if r == nil || r.Version.Time() <= at {
		return nil
	}
	return r.since(at)
}

// Visible returns r as a reader may see it under the user's clear marks: nil when
// it is cleared, a tombstone, or absent.
func (r *Record) Visible(o Object, u *User) *Record {
	if r = r.After(u.ClearedAt(o.Type)); r == nil || r.Deleted() {
		return nil
	}
	return r
}
