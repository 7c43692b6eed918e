package codec

import (
	"strconv"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Object is what was watched, read or heard.
type Object struct {
	ID   string `json:"id" minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9._~@:-]+$" example:"100"`
	Type uint32 `json:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Business type: 1 video, 2 episode, 3 audio, 4 article; others are free." example:"1"`
}

// Record is where a user stopped in an object.
type Record struct {
	Object      Object            `json:"object"`
	PositionMS  int64             `json:"position_ms" doc:"Where the user stopped, in milliseconds from the start."`
	DurationMS  int64             `json:"duration_ms" doc:"Milliseconds; 0 when no player knew it."`
	FurthestMS  int64             `json:"furthest_ms" doc:"The furthest position ever reported."`
	Plays       uint64            `json:"plays" doc:"How many viewings reached the end."`
	State       string            `json:"state" enum:"playing,paused,stopped,finished"`
	EventTime   string            `json:"event_time" format:"date-time" doc:"When the player last reported."`
	CompletedAt string            `json:"completed_at,omitempty" format:"date-time" doc:"When a viewing last reached the end."`
	Session     string            `json:"session,omitempty"`
	Device      string            `json:"device,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	WatchedMS   int64             `json:"watched_ms,omitempty" doc:"Milliseconds of the object that were played, over all sessions that said so."`
	Incomplete  bool              `json:"incomplete,omitempty" doc:"There may be an older part that could not be read in time: plays, the furthest position and others may be less than they are."`
	ETag        string            `json:"etag" doc:"Another one whenever anything else of the record is, but incomplete."`
}

// NewRecord returns an item of the service's, nil for one without an object: there
// is no record.
func NewRecord(it *historyv1.Item) *Record {
	if it.GetObject() == nil {
		return nil
	}
	return &Record{
		Object:      Object{ID: it.Object.Id, Type: it.Object.Type},
		PositionMS:  it.PositionMs,
		DurationMS:  it.DurationMs,
		FurthestMS:  it.FurthestMs,
		Plays:       it.Plays,
		State:       history.State(it.State).String(),
		EventTime:   FormatTime(it.EventTimeMs),
		CompletedAt: FormatTime(it.CompletedAtMs),
		Session:     it.Session,
		Device:      it.Device,
		Meta:        it.Meta,
		WatchedMS:   it.WatchedMs,
		Incomplete:  it.Incomplete,
		ETag:        FormatETag(it.Etag),
	}
}

// FormatETag returns an etag as records show it.
func FormatETag(tag uint64) string { return strconv.FormatUint(tag, 16) }

// ParseETag is the inverse.
func ParseETag(text string) (tag uint64, ok bool) {
	tag, err := strconv.ParseUint(text, 16, 64)
	return tag, err == nil && tag != 0
}

// NewRecords returns one record for each item.
func NewRecords(items []*historyv1.Item) []*Record {
	records := make([]*Record, len(items)) // not nil: an empty page is an array
	for i, it := range items {
		records[i] = NewRecord(it)
	}
	return records
}
