package webhook

import (
	"time"

	"github.com/playhead/playhead/history"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Started   Kind = "started"   // first record of the object
	Completed Kind = "completed" // another viewing reached the end, or was marked so
	Removed   Kind = "removed"   // by the user: an object, or everything up to a time
)

// Event is one notification.
type Event struct {
	Kind   Kind    `json:"kind"`
	User   string  `json:"user"`
	Object *Object `json:"object,omitempty"` // nil for everything up to the time
	Type   uint32  `json:"type,omitempty"`   // without an object: only objects of this type
	Time   string  `json:"time"`             // RFC 3339
}

// Object is the object of an event.
type Object struct {
	ID   string `json:"id"`
	Type uint32 `json:"type"`
}

// Changed returns the events of a change of a visible record; before or after is nil for none. at is the time of the
// removal, or of the first report in the new record.
func Changed(k history.Key, before, after *history.Record, at int64) (events []Event) {
	user, _ := history.UserOf(k.UID)
	tell := func(kind Kind, at int64) {
		events = append(events, Event{Kind: kind, User: user, Object: &Object{ID: k.Object.ID, Type: k.Object.Type}, Time: textOf(at)})
	}
	switch {
	case after == nil && before != nil:
		tell(Removed, at)
	case after != nil && before == nil:
		tell(Started, at)
	}
	plays := history.NewPlays(before, after)
	for _, at := range plays {
		tell(Completed, at)
	}
	if len(plays) == 0 && before != nil && after != nil && after.Marked(history.KindWatched) && !before.Marked(history.KindWatched) { // marked again
		tell(Completed, after.PlayedAt())
	}
	return events
}

// Cleared is the removal of everything of a user, or of a type, up to a time.
func Cleared(uid string, c history.Clear) Event {
	return Event{Kind: Removed, User: uid, Type: c.Type, Time: textOf(c.Until)}
}

func textOf(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
