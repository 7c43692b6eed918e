package codec

import (
	"math"
	"unicode/utf8"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Object identifies what is played.
type Object struct {
	ID   string `json:"id" minLength:"1" maxLength:"256" doc:"1 to 256 bytes of UTF-8 without control characters and U+FFFD; compared byte by byte." example:"100"`
	Type uint32 `json:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Business type: 1 video, 2 episode, 3 audio, 4 article; others are free." example:"1"`
}

// Texts returns the texts of a report, except metadata.
func Texts(h *historyv1.Heartbeat) [5]string {
	return [...]string{h.GetUid(), h.GetObjectId(), h.GetSession(), h.GetDevice(), h.GetDay().GetZone()}
}

// Heartbeat documents a report; the decoder reads its fields one by one. Defaults are described in prose:
// generators treat fields with a default as always present.
type Heartbeat struct {
	Object     Object  `json:"object"`
	Kind       string  `json:"kind" enum:"start,progress,pause,seek,stop,finish"`
	PositionMS int64   `json:"position_ms" minimum:"0" maximum:"2592000000"`
	DurationMS int64   `json:"duration_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"0 when the player does not know it."`
	EventTime  string  `json:"event_time" format:"date-time"`
	StartedAt  string  `json:"started_at,omitempty" format:"date-time" doc:"When the session began. Its first seconds do not take away where the user stopped before."`
	WatchedMS  int64   `json:"watched_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"Milliseconds of the object that the session has played so far. It counts only with started_at, and at most the time since then times the speed."`
	Speed      float64 `json:"speed,omitempty" minimum:"0.25" maximum:"4" doc:"The fastest of the session; 1, the normal one, by default."`
	IfMatch    string  `json:"if_match,omitempty" pattern:"^[0-9A-Fa-f]{1,16}$" doc:"The etag of the record that the device knows. When the user has gone on elsewhere since, for more than the first seconds of a session, nothing is stored, the status is conflict, and the result carries the record unless it was removed. Meant for the first report after a pause; later ones do without."`
	Session    string  `json:"session,omitempty" doc:"Names the viewing, at most 128 bytes; a completed play counts once per session."`
	Device     string  `json:"device,omitempty" doc:"At most 128 bytes."`
	Failed     bool    `json:"failed,omitempty" doc:"The playback failed: the position is not to be remembered."`
	Incognito  bool    `json:"incognito,omitempty" doc:"Nothing of it is to be kept."`

	Meta        map[string]string `json:"meta,omitempty" maxProperties:"16" doc:"Texts by key. They take the place of what the record has of these keys. With removed_meta at most 16 keys and 1 KiB."`
	RemovedMeta []string          `json:"removed_meta,omitempty" maxItems:"16" nullable:"false" doc:"Keys of the metadata to remove. A null in meta does the same, which typed clients cannot express."`
}

const wantKind = "want start, progress, pause, seek, stop or finish"

func (d *batchDecoder) field(h *historyv1.Heartbeat, name []byte) {
	switch string(name) {
	case "object":
		h.ObjectId, h.ObjectType = d.object("object.")
	case "kind":
		h.Kind = d.kind()
	case "position_ms":
		h.PositionMs, d.given = d.millis("position_ms")
	case "duration_ms":
		h.DurationMs, _ = d.millis("duration_ms")
	case "event_time":
		h.EventTimeMs = d.time("event_time")
	case "session":
		h.Session = d.text("session", d.last.GetSession())
	case "device":
		h.Device = d.text("device", d.last.GetDevice())
	case "started_at":
		h.StartedAtMs = d.time("started_at")
	case "watched_ms":
		h.WatchedMs, _ = d.millis("watched_ms")
	case "speed":
		h.SpeedPercent = d.speed()
	case "if_match":
		h.IfMatch = d.etag("if_match")
	case "failed":
		h.Failed = d.flag("failed")
	case "incognito":
		h.Incognito = d.flag("incognito")
	case "meta":
		var removed []string
		h.Meta, removed = d.meta()
		h.RemovedMeta = append(h.RemovedMeta, removed...)
	case "removed_meta":
		h.RemovedMeta = append(h.RemovedMeta, d.keys("removed_meta")...)
	default:
		d.unknown("", name)
	}
}

func (d *batchDecoder) kind() historyv1.Kind {
	text, _ := d.in.Text()
	switch string(text) {
	case "start":
		return historyv1.Kind_KIND_START
	case "progress":
		return historyv1.Kind_KIND_PROGRESS
	case "pause":
		return historyv1.Kind_KIND_PAUSE
	case "seek":
		return historyv1.Kind_KIND_SEEK
	case "stop":
		return historyv1.Kind_KIND_STOP
	case "finish":
		return historyv1.Kind_KIND_FINISH
	}
	d.refuse("kind", wantKind)
	return historyv1.Kind_KIND_UNSPECIFIED
}

// speed returns a percentage, 0 for null.
func (d *batchDecoder) speed() uint32 {
	if d.in.Null() {
		return 0
	}
	f, ok := d.in.Float()
	percent, legal := speedOf(f)
	if !ok || !legal {
		d.refuse("speed", wantSpeed)
		return 0
	}
	return percent
}

const wantSpeed = "want a number from 0.25 to 4"

// speedOf converts a speed to percent and reports whether it is valid.
func speedOf(f float64) (percent uint32, ok bool) {
	if f*100 < history.MinSpeed || f*100 > history.MaxSpeed {
		return 0, false
	}
	return uint32(math.Round(f * 100)), true
}

// meta returns values and removed keys. It keeps one entry over the limit, enough for the service to refuse it.
func (d *decoder) meta() (values map[string]string, removed []string) {
	if d.in.Null() {
		return nil, nil
	}
	if d.in.Kind() != scan.Object {
		d.in.Skip()
		d.refuse("meta", "want an object of strings")
		return nil, nil
	}
	values = make(map[string]string)
	for name := range d.in.Object() {
		key := string(name)
		gone := d.in.Null()
		var text []byte
		ok := true
		if !gone {
			text, ok = d.in.Text()
		}
		if !ok || !utf8.ValidString(key) {
			d.refuse("meta", "want an object of strings of whole characters, or null")
		}
		switch full := len(values)+len(removed) > history.MaxMetaKeys; {
		case full:
		case gone:
			removed = append(removed, key)
		default:
			values[key] = string(text)
		}
	}
	return values, removed
}

// keys returns the texts of an array. Like meta it keeps one over the limit.
func (d *decoder) keys(field string) (keys []string) {
	const want = "want an array of strings of whole characters"
	if d.in.Null() {
		return nil
	}
	if d.in.Kind() != scan.Array {
		d.in.Skip()
		d.refuse(field, want)
		return nil
	}
	for range d.in.Array() {
		text, ok := d.in.Text()
		if !ok {
			d.refuse(field, want)
		}
		if len(keys) <= history.MaxMetaKeys {
			keys = append(keys, string(text))
		}
	}
	return keys
}

// Record is the resume point and the statistics of an object.
type Record struct {
	Object      Object            `json:"object"`
	PositionMS  int64             `json:"position_ms" doc:"Where the user stopped, in milliseconds from the start."`
	ResumeMS    int64             `json:"resume_ms" doc:"Where a player begins: position_ms, or 0 once completed."`
	Completed   bool              `json:"completed,omitempty" doc:"The user left it at its end, by the rules of its type. It is not completed after the user has watched it again and stopped in the middle."`
	DurationMS  int64             `json:"duration_ms" doc:"Milliseconds; 0 when no player knew it."`
	FurthestMS  int64             `json:"furthest_ms" doc:"The furthest position ever reported."`
	Plays       uint64            `json:"plays" doc:"How many viewings reached the end."`
	State       string            `json:"state" enum:"playing,paused,stopped,finished"`
	EventTime   string            `json:"event_time" format:"date-time" doc:"When the player last reported; of a record that was restored, the moment after it was removed."`
	PlayedAt    string            `json:"played_at,omitempty" format:"date-time" doc:"When the player last reported, of a record that was removed and restored, and not played since."`
	CompletedAt string            `json:"completed_at,omitempty" format:"date-time" doc:"When a viewing last reached the end."`
	Session     string            `json:"session,omitempty"`
	Device      string            `json:"device,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	WatchedMS   int64             `json:"watched_ms,omitempty" doc:"Milliseconds of the object that were played, over all sessions that said so."`
	Early       bool              `json:"early,omitempty" doc:"The player that reported last has only just begun, which takes nothing away: position_ms, resume_ms and completed are of the report before; state, session, device and event_time are its own."`
	Incomplete  bool              `json:"incomplete,omitempty" doc:"There may be an older part that could not be read in time: plays, the furthest position and others may be less than they are."`
	ETag        string            `json:"etag" doc:"Another one whenever anything else of the record is, but incomplete and next."`
	DismissedAt string            `json:"dismissed_at,omitempty" format:"date-time" doc:"When the user removed it from what to go on with; absent once it was played again, or that was taken back."`
	Next        *NextPart         `json:"next,omitempty" doc:"In /v1/continue, of the part of a series that was completed last: the part that comes next, of which the history knows nothing."`
}

// NextPart is the season and episode of the next part of a series.
type NextPart struct {
	Season  *uint32 `json:"season,omitempty" doc:"Absent where the part before has none."`
	Episode *uint32 `json:"episode,omitempty" doc:"Where there is no such part, the first of the next season comes next. Absent where the number of the part before cannot be read."`
}

// NewRecord converts an item. It returns nil for one without an object, which means no record.
func NewRecord(it *historyv1.Item) *Record {
	if it.GetObject() == nil {
		return nil
	}
	r := &Record{
		Object:      Object{ID: it.Object.Id, Type: it.Object.Type},
		PositionMS:  it.PositionMs,
		ResumeMS:    it.ResumeMs,
		Completed:   it.Completed,
		DurationMS:  it.DurationMs,
		FurthestMS:  it.FurthestMs,
		Plays:       it.Plays,
		State:       history.State(it.State).String(),
		EventTime:   FormatTime(it.EventTimeMs),
		PlayedAt:    FormatTime(it.PlayedMs),
		CompletedAt: FormatTime(it.CompletedAtMs),
		Session:     it.Session,
		Device:      it.Device,
		Meta:        it.Meta,
		WatchedMS:   it.WatchedMs,
		Early:       it.Early,
		Incomplete:  it.Incomplete,
		ETag:        formatETag(it.Etag),
		DismissedAt: FormatTime(it.DismissedMs),
	}
	if next := it.Next; next != nil {
		r.Next = &NextPart{Season: next.Season, Episode: next.Episode}
	}
	return r
}

// Summary is the small form of an object. It remains after the record has expired.
type Summary struct {
	Object     Object `json:"object"`
	First      string `json:"first" format:"date-time" doc:"When it was first played, as far as is known."`
	Last       string `json:"last" format:"date-time" doc:"When it was last played."`
	Plays      uint64 `json:"plays,omitempty" doc:"How many viewings reached the end."`
	WatchedMS  int64  `json:"watched_ms,omitempty" doc:"Milliseconds of the object that were played, over all sessions that said so."`
	FurthestMS int64  `json:"furthest_ms,omitempty" doc:"The furthest position ever reported."`
	DurationMS int64  `json:"duration_ms,omitempty" doc:"Milliseconds; 0 when no player knew it."`
	Completed  bool   `json:"completed,omitempty" doc:"The user left it at its end."`
	Title      string `json:"title,omitempty" doc:"The title, if viewings were imported after they had expired. Others have none: the backend knows its objects."`
}

// NewSummaries converts summaries.
func NewSummaries(all []*historyv1.Summary) []Summary {
	var summaries []Summary // nil if not requested
	for _, s := range all {
		summaries = append(summaries, Summary{
			Object: Object{ID: s.Object.GetId(), Type: s.Object.GetType()}, First: FormatTime(s.FirstMs), Last: FormatTime(s.LastMs),
			Plays: s.Plays, WatchedMS: s.WatchedMs, FurthestMS: s.FurthestMs, DurationMS: s.DurationMs, Completed: s.Completed, Title: s.Title,
		})
	}
	return summaries
}

// Viewing is one viewing of an object.
type Viewing struct {
	Begin       string `json:"begin,omitempty" format:"date-time" doc:"When it began; absent where the player reported no start, or it is not known any more."`
	End         string `json:"end" format:"date-time" doc:"When it last reported."`
	FromMS      *int64 `json:"from_ms,omitempty" doc:"Where it began, in milliseconds from the start; absent as begin is."`
	ToMS        *int64 `json:"to_ms,omitempty" doc:"Where it ended. It is known of the newest 17 sessions of an object. Those before are told only if they said watched_ms or reached the end."`
	State       string `json:"state,omitempty" enum:"playing,paused,stopped,finished" doc:"What the session last said; absent as to_ms is."`
	Device      string `json:"device,omitempty"`
	WatchedMS   int64  `json:"watched_ms,omitempty" doc:"Milliseconds of the object that it played, where it said so."`
	CompletedAt string `json:"completed_at,omitempty" format:"date-time" doc:"When it last reached the end."`
}

// NewViewing converts a session.
func NewViewing(s *historyv1.Session) Viewing {
	v := Viewing{
		Begin: FormatTime(s.BeginMs), End: FormatTime(s.EndMs), FromMS: s.FromMs, ToMS: s.ToMs,
		Device: s.Device, WatchedMS: s.WatchedMs, CompletedAt: FormatTime(s.CompletedAtMs),
	}
	if s.State != historyv1.State_STATE_UNSPECIFIED {
		v.State = history.State(s.State).String()
	}
	return v
}

// fill sets the fields of m that an import reads from the record, not from its details.
func (r *Record) fill(m *historyv1.Record) {
	m.DurationMs, m.Session, m.Device = r.DurationMS, r.Session, r.Device
}

// NewRecords returns one record per item.
func NewRecords(items []*historyv1.Item) []*Record {
	records := make([]*Record, len(items)) // not nil: an empty page is an array
	for i, it := range items {
		records[i] = NewRecord(it)
	}
	return records
}

// NewObjects converts objects.
func NewObjects(objects []*historyv1.Object) []Object {
	named := make([]Object, len(objects)) // not nil, as above
	for i, o := range objects {
		named[i] = Object{ID: o.GetId(), Type: o.GetType()}
	}
	return named
}
