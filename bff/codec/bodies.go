package codec

import (
	"fmt"
	"strings"
	"time"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// DecodeObjects reads {"objects":[{"id","type"}]}, 1 to limit of them. It fails with
// [scan.ErrSyntax], with [ErrTooLarge], and with [history.ErrInvalid] for any field
// that is unknown or wrong.
func DecodeObjects(body []byte, limit int) ([]*historyv1.Object, error) {
	d := newDecoder(body, "objects")
	var objects []*historyv1.Object
	if !d.bodyIsObject() {
		return nil, d.in.End()
	}
	for name := range d.in.Object() {
		if string(name) == "objects" {
			objects = d.objects(limit)
		} else {
			d.unknown("", name)
		}
		d.strict()
	}
	if len(objects) == 0 {
		d.in.Fail(history.Invalid("body.objects", "want at least one"))
	}
	return objects, d.in.End()
}

func (d *decoder) objects(limit int) (objects []*historyv1.Object) {
	for range d.entries(limit) {
		id, typ := d.object("")
		d.strict()
		objects = append(objects, &historyv1.Object{Id: id, Type: typ})
	}
	return objects
}

// Deletion is what a body asks to remove: objects, or else what was last reported in a
// range of times.
type Deletion struct {
	Objects []*historyv1.Object
	// Type is 0 for all types, SinceMs and UntilMs, both inclusive, are 0 for no bound.
	Type             uint32
	SinceMs, UntilMs int64
	// Cursor is how far a range has been removed.
	Cursor string
}

// DecodeDeletion reads {"objects"}, at most limit of them, or {"type","since","until","cursor"}
// with at least one of these. It fails as [DecodeObjects] does, and for null too: where a
// bound is missing more is removed, and that must not be a slip.
func DecodeDeletion(body []byte, limit int) (*Deletion, error) {
	d, deletion := newDecoder(body, "objects"), &Deletion{}
	if !d.bodyIsObject() {
		return nil, d.in.End()
	}
	for name := range d.in.Object() {
		d.deletion(deletion, string(name), limit)
		d.strict()
	}
	if err := d.in.End(); err != nil {
		return nil, err
	}
	return deletion, deletion.check()
}

func (d *decoder) deletion(into *Deletion, name string, limit int) {
	switch name {
	case "objects":
		into.Objects = d.objects(limit)
		d.strict()
		if len(into.Objects) == 0 {
			d.in.Fail(history.Invalid("body.objects", "want at least one"))
		}
	case "type":
		into.Type = d.objectType(name)
	case "since":
		into.SinceMs = d.bound(name)
	case "until":
		into.UntilMs = d.bound(name)
	case "cursor":
		into.Cursor = d.text(name, "")
	default:
		d.unknown("", []byte(name))
	}
}

func (d *decoder) bound(field string) int64 {
	if d.refuseNull(field, wantTime) {
		return 0
	}
	return d.time(field)
}

func (d *Deletion) check() error {
	ranged := d.Type != 0 || d.SinceMs != 0 || d.UntilMs != 0
	switch {
	case d.Cursor != "" && d.SinceMs == 0:
		return history.Invalid("body.cursor", "want it with since, as next has both")
	case len(d.Objects) > 0 && ranged:
		return history.Invalid("body", "want objects or a range, not both")
	case len(d.Objects) == 0 && !ranged:
		return history.Invalid("body", "want objects, or a range of type, since and until")
	case d.UntilMs != 0 && d.SinceMs > d.UntilMs:
		return history.Invalid("body.since", "want a time before until")
	}
	return nil
}

// DecodeDismissal reads {"objects","dismissed"}, 1 to limit objects; dismissed, true where it is
// not given, is false to take the decision back. It fails as [DecodeObjects] does, and for null.
func DecodeDismissal(body []byte, limit int) (objects []*historyv1.Object, dismissed bool, err error) {
	d := newDecoder(body, "objects")
	if dismissed = true; !d.bodyIsObject() {
		return nil, false, d.in.End()
	}
	for name := range d.in.Object() {
		switch string(name) {
		case "objects":
			objects = d.objects(limit)
		case "dismissed":
			dismissed = d.given("dismissed")
		default:
			d.unknown("", name)
		}
		d.strict()
	}
	if len(objects) == 0 {
		d.in.Fail(history.Invalid("body.objects", "want at least one"))
	}
	return objects, dismissed, d.in.End()
}

// marks are the names of what a user may say of an object.
var marks = map[string]historyv1.Mark{
	"watched": historyv1.Mark_MARK_WATCHED, "unwatched": historyv1.Mark_MARK_UNWATCHED, "reset": historyv1.Mark_MARK_RESET,
}

// DecodeMark reads {"objects":[{"id","type","meta"}],"mark","event_time","only_recorded","unless_completed"}, 1 to limit
// objects. It fails as [DecodeObjects] does, and for null.
func DecodeMark(uid string, body []byte, limit int) (*historyv1.MarkRequest, error) {
	d, req := newDecoder(body, "objects"), &historyv1.MarkRequest{Uid: uid}
	if !d.bodyIsObject() {
		return nil, d.in.End()
	}
	for name := range d.in.Object() {
		switch string(name) {
		case "objects":
			req.Objects = d.markedObjects(limit)
		case "mark":
			text, _ := d.in.Text()
			if req.Mark = marks[string(text)]; req.Mark == 0 {
				d.refuse("mark", wantMark)
			}
		case "event_time":
			req.AtMs = max(d.bound("event_time"), history.MinTime) // and so expired
		case "only_recorded":
			req.OnlyRecorded = d.given("only_recorded")
		case "unless_completed":
			req.UnlessCompleted = d.given("unless_completed")
		default:
			d.unknown("", name)
		}
		d.strict()
	}
	switch {
	case len(req.Objects) == 0:
		d.in.Fail(history.Invalid("body.objects", "want at least one"))
	case req.Mark == 0:
		d.in.Fail(history.Invalid("body.mark", wantMark))
	}
	return req, d.in.End()
}

func (d *decoder) markedObjects(limit int) (objects []*historyv1.MarkedObject) {
	for range d.entries(limit) {
		one := &historyv1.MarkedObject{}
		id, typ := d.objectWith("", func() {
			var removed []string
			if one.Meta, removed = d.meta(); len(removed) > 0 {
				d.refuse("meta", "want an object of strings: a mark removes no key")
			}
		})
		d.strict()
		one.Object = &historyv1.Object{Id: id, Type: typ}
		objects = append(objects, one)
	}
	return objects
}

const wantMark = "want watched, unwatched or reset"

// DecodeSettings reads {"recording"}, which must be given: to switch by a slip what a
// user has decided is worse than to refuse. It fails as [DecodeObjects] does.
func DecodeSettings(body []byte) (recording bool, err error) {
	d, given := newDecoder(body, ""), false
	if !d.bodyIsObject() {
		return false, d.in.End()
	}
	for name := range d.in.Object() {
		if string(name) != "recording" {
			d.unknown("", name)
			continue
		}
		given = d.in.Kind() != scan.Null
		recording = d.flag("recording")
		d.strict()
	}
	if !given {
		d.in.Fail(history.Invalid("body.recording", wantFlag))
	}
	return recording, d.in.End()
}

// Reply is the answer to a message of a stream, or a push, which answers none.
type Reply struct {
	Seq     uint64   `json:"seq,omitzero"`
	Results []Result `json:"results,omitzero"`
	Error   *Failure `json:"error,omitzero"`
	Push    *Push    `json:"push,omitzero"`
	// FirstFlag is today, to be sent back, and FirstOfDay says that the user comes for the
	// first time on it.
	FirstFlag  string `json:"first_flag,omitzero"`
	FirstOfDay bool   `json:"first_of_day,omitzero"`
	// NowMS is the time by which events are judged, Unix milliseconds; 0 when not known.
	NowMS int64 `json:"now_ms,omitzero"`
}

// Failure says why a message was not stored.
type Failure struct {
	Code         string `json:"code" enum:"invalid,too_large,rate_limited,unavailable,timeout,internal"`
	Detail       string `json:"detail" doc:"For people."`
	Field        string `json:"field,omitempty" doc:"What is invalid."`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty" doc:"In how many milliseconds to send the same again: nobody knows whether it is stored."`
}

// Result is what became of one heartbeat.
type Result struct {
	Status string      `json:"status" enum:"stored,unchanged,stale,conflict,expired,cleared,paused,brief,invalid,unavailable,unknown" doc:"Send it again only if it is unavailable."`
	Record *Record     `json:"record,omitempty" doc:"The record as it now stands."`
	Error  *FieldError `json:"error,omitempty"`
	// Of a stale report: when it happened, as it was judged, and when the record's latest event did.
	EventTime  string `json:"event_time,omitempty" format:"date-time" doc:"Only of a stale report: when it happened, by the clock of the history."`
	RecordTime string `json:"record_time,omitempty" format:"date-time" doc:"Only of a stale report: when the record's latest event happened, or its delete. A time that is yet to come is of a clock that was wrong."`
}

// FieldError says what is wrong with a field.
type FieldError struct {
	Field  string `json:"field" example:"position_ms"`
	Reason string `json:"reason"`
}

// Results returns one result for each heartbeat of the body: what the service
// answered to those that it was sent, and a refusal for the others. Without any
// sent, the answer may be nil.
func (b *Batch) Results(resp *historyv1.ApplyResponse) ([]Result, error) {
	answers, err := b.answers(resp)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(b.refused))
	for i, e := range b.refused {
		if e == nil {
			results[i], answers = answers[0], answers[1:]
			continue
		}
		results[i] = Result{Status: StatusName(historyv1.Status_STATUS_INVALID), Error: (*FieldError)(e)}
	}
	return results, nil
}

// Refused is how many heartbeats of the body could not be read.
func (b *Batch) Refused() (n int) {
	for _, e := range b.refused {
		if e != nil {
			n++
		}
	}
	return n
}

// answers returns one result for each heartbeat sent.
func (b *Batch) answers(resp *historyv1.ApplyResponse) ([]Result, error) {
	sent, statuses, records := len(b.Heartbeats), resp.GetStatuses(), resp.GetRecords()
	if len(statuses) != sent || len(records) != 0 && len(records) != sent {
		return nil, fmt.Errorf("%d statuses and %d records for %d heartbeats", len(statuses), len(records), sent)
	}
	results := make([]Result, sent)
	for i, s := range statuses {
		results[i].Status = StatusName(s)
	}
	for i, it := range records {
		results[i].Record = NewRecord(it)
	}
	for _, r := range resp.GetRefusals() {
		if int(r.Index) < sent {
			results[r.Index].Error = &FieldError{Field: r.Field, Reason: r.Reason}
		}
	}
	for _, s := range resp.GetStale() {
		if int(s.Index) < sent {
			results[s.Index].EventTime, results[s.Index].RecordTime = FormatTime(s.EventTimeMs), FormatTime(s.RecordTimeMs)
		}
	}
	return results, nil
}

// NewMarked returns one result for each object of a request to mark.
func NewMarked(req *historyv1.MarkRequest, resp *historyv1.MarkResponse) ([]Result, error) {
	n, statuses, records := len(req.GetObjects()), resp.GetStatuses(), resp.GetRecords()
	if len(statuses) != n || len(records) != n {
		return nil, fmt.Errorf("%d statuses and %d records for %d objects", len(statuses), len(records), n)
	}
	results := make([]Result, n)
	for i := range results {
		results[i] = Result{Status: StatusName(statuses[i]), Record: NewRecord(records[i])}
	}
	return results, nil
}

// StatusName is the protocol's own name in small letters. One that a newer service
// sends, and this edge has no name for, is "unknown": to call it unavailable would
// have the player send it for ever.
func StatusName(s historyv1.Status) string {
	name, ok := historyv1.Status_name[int32(s)]
	if !ok || s == historyv1.Status_STATUS_UNSPECIFIED {
		return "unknown"
	}
	return strings.ToLower(strings.TrimPrefix(name, "STATUS_"))
}

// Statuses returns every status that [Batch.Results] may give.
func Statuses() []string {
	names := make([]string, 0, len(historyv1.Status_name))
	for n := range historyv1.Status_name {
		names = append(names, StatusName(historyv1.Status(n)))
	}
	return names
}

// Today returns what day it is for the player, "" where that is not known, and whether
// this is the first report of the user on it. Where the service says nothing, the day is
// the one that the player said.
func (b *Batch) Today(resp *historyv1.ApplyResponse) (flag string, first bool) {
	known := b.Day.GetKnown()
	for _, d := range resp.GetDays() {
		known, first = d.GetDate(), first || d.GetFirst()
	}
	if known == 0 {
		return "", false
	}
	t := time.Date(int(known/10_000), time.Month(known/100%100), int(known%100), 0, 0, 0, 0, time.UTC)
	return t.Format(time.DateOnly), first
}

// Push is what others have changed in the user's history.
type Push struct {
	Items   []*Record `json:"items,omitempty" nullable:"false" doc:"Records as they now stand."`
	Removed []Object  `json:"removed,omitempty" nullable:"false" doc:"Objects that have none any more."`
	Resync  bool      `json:"resync,omitempty" doc:"More has changed than is told, or may have: read again."`
}

// NewPush returns a change of the service's.
func NewPush(c *historyv1.Change) *Push {
	return &Push{Items: NewRecords(c.GetItems()), Removed: NewObjects(c.GetRemoved()), Resync: c.GetResync()}
}
