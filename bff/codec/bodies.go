package codec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// DecodeObjects reads {"objects":[{"id","type"}]} with 1 to limit objects. It fails with [scan.ErrSyntax],
// [ErrTooLarge], or [history.ErrInvalid] for an unknown or invalid field.
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
	d.some(objects)
	return objects, d.in.End()
}

// some refuses a body without objects.
func (d *decoder) some(objects []*historyv1.Object) {
	if len(objects) == 0 {
		d.in.Fail(history.Invalid("body.objects", "want at least one"))
	}
}

func (d *decoder) objects(limit int) (objects []*historyv1.Object) {
	for range d.entries(limit) {
		id, typ := d.object("")
		d.strict()
		objects = append(objects, &historyv1.Object{Id: id, Type: typ})
	}
	return objects
}

// Deletion is a request to delete either objects or a time range of last reports.
type Deletion struct {
	Objects []*historyv1.Object
	// Type 0 means all types. SinceMs and UntilMs are inclusive; 0 means unbounded.
	Type             uint32
	SinceMs, UntilMs int64
	// Cursor continues a range delete.
	Cursor string
}

// DecodeDeletion reads {"objects"} with at most limit objects, or {"type","since","until","cursor"} with at
// least one of them. It fails as [DecodeObjects] does. It also refuses null: a bound omitted by mistake would
// delete more.
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
		d.some(into.Objects)
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

// DecodeCounts reads {"objects","since","until"} with 1 to limit objects. It fails as [DecodeObjects] does, and for
// null.
func DecodeCounts(body []byte, limit int) (*historyv1.CountsRequest, error) {
	d, req := newDecoder(body, "objects"), &historyv1.CountsRequest{}
	if !d.bodyIsObject() {
		return nil, d.in.End()
	}
	for name := range d.in.Object() {
		switch string(name) {
		case "objects":
			req.Objects = d.objects(limit)
		case "since":
			req.SinceDay = d.day("since")
		case "until":
			req.UntilDay = d.day("until")
		default:
			d.unknown("", name)
		}
		d.strict()
	}
	d.some(req.Objects)
	return req, d.in.End()
}

// day is date for fields in which null or nothing is ambiguous and therefore refused.
func (d *decoder) day(field string) (n uint32) {
	if !d.refuseNull(field, wantDate) {
		if n = d.date(field); n == 0 {
			d.refuse(field, wantDate)
		}
	}
	return n
}

// DecodeDismissal reads {"objects","dismissed"} with 1 to limit objects. dismissed defaults to true; false
// undoes a dismissal. It fails as [DecodeObjects] does, and for null.
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
	d.some(objects)
	return objects, dismissed, d.in.End()
}

var marks = map[string]historyv1.Mark{
	"watched": historyv1.Mark_MARK_WATCHED, "unwatched": historyv1.Mark_MARK_UNWATCHED, "reset": historyv1.Mark_MARK_RESET,
}

// DecodeMark reads {"objects":[{"id","type","meta"}],"mark","event_time","only_recorded","unless_completed"}
// with 1 to limit objects. It fails as [DecodeObjects] does, and for null.
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
			req.AtMs = max(d.bound("event_time"), history.MinTime) // clamped; just as expired
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

// DecodeSettings reads {"recording"}, which is required: a default could overwrite the user's choice by
// mistake. It fails as [DecodeObjects] does.
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

// Reply is a stream's answer to a message, or a push.
type Reply struct {
	Seq     uint64   `json:"seq,omitzero"`
	Results []Result `json:"results,omitzero"`
	Error   *Failure `json:"error,omitzero"`
	Push    *Push    `json:"push,omitzero"`
	// FirstFlag is today's date, for the player to return. FirstOfDay marks the user's first report of that
	// day.
	FirstFlag  string `json:"first_flag,omitzero"`
	FirstOfDay bool   `json:"first_of_day,omitzero"`
	// NowMS is the time that events are compared with, in Unix milliseconds, 0 if unknown.
	NowMS int64 `json:"now_ms,omitzero"`
}

// Failure is the reason why a message was not stored.
type Failure struct {
	Code         string `json:"code" enum:"invalid,too_large,rate_limited,unavailable,timeout,internal"`
	Detail       string `json:"detail" doc:"For people."`
	Field        string `json:"field,omitempty" doc:"What is invalid."`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty" doc:"In how many milliseconds to send the same again: nobody knows whether it is stored."`
}

// Result is the outcome of one heartbeat.
type Result struct {
	Status string      `json:"status" enum:"stored,unchanged,stale,conflict,expired,cleared,paused,brief,invalid,unavailable,unknown" doc:"Send it again only if it is unavailable."`
	Record *Record     `json:"record,omitempty" doc:"The record as it now stands."`
	Error  *FieldError `json:"error,omitempty"`
	// Both only for stale reports.
	EventTime  string `json:"event_time,omitempty" format:"date-time" doc:"Only of a stale report: when it happened, by the clock of the history."`
	RecordTime string `json:"record_time,omitempty" format:"date-time" doc:"Only of a stale report: when the record's latest event happened, or its delete. A time that is yet to come is of a clock that was wrong."`
}

// FieldError names an invalid field and the reason.
type FieldError struct {
	Field  string `json:"field" example:"position_ms"`
	Reason string `json:"reason"`
}

// Results returns one result per heartbeat of the body: the service's answer, or the decoder's refusal. resp
// may be nil if nothing was sent.
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

// Refused returns the number of malformed heartbeats.
func (b *Batch) Refused() (n int) {
	for _, e := range b.refused {
		if e != nil {
			n++
		}
	}
	return n
}

// answers returns one result per heartbeat sent.
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

// NewMarked returns one result per object of a mark request.
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

// StatusName returns the protocol's name in lower case. A newer service's status is "unknown"; "unavailable"
// would make the player retry forever.
func StatusName(s historyv1.Status) string {
	name, ok := historyv1.Status_name[int32(s)]
	if !ok || s == historyv1.Status_STATUS_UNSPECIFIED {
		return "unknown"
	}
	return strings.ToLower(strings.TrimPrefix(name, "STATUS_"))
}

// Statuses returns every status of [Batch.Results].
func Statuses() []string {
	names := make([]string, 0, len(historyv1.Status_name))
	for n := range historyv1.Status_name {
		names = append(names, StatusName(historyv1.Status(n)))
	}
	return names
}

// Today returns the player's current date, "" if unknown, and whether this is the user's first report of that
// day. Without an answer from the service, the player's own date stands.
func (b *Batch) Today(resp *historyv1.ApplyResponse) (flag string, first bool) {
	known := b.Day.GetKnown()
	for _, d := range resp.GetDays() {
		known, first = d.GetDate(), first || d.GetFirst()
	}
	if known == 0 {
		return "", false
	}
	return FormatDay(known), first
}

// FormatDay returns the day 20261121 as 2026-11-21.
func FormatDay(n uint32) string {
	digits := strconv.FormatUint(100_000_000+uint64(n), 10)[1:] // eight; Sprintf would cost 2 % of a message
	return digits[:4] + "-" + digits[4:6] + "-" + digits[6:]
}

// Push is a change of the user's history by another device.
type Push struct {
	Items   []*Record `json:"items,omitempty" nullable:"false" doc:"Records as they now stand."`
	Removed []Object  `json:"removed,omitempty" nullable:"false" doc:"Objects that have none any more."`
	Resync  bool      `json:"resync,omitempty" doc:"Changes may be missing here: read again."`
}

// NewPush converts a change.
func NewPush(c *historyv1.Change) *Push {
	return &Push{Items: NewRecords(c.GetItems()), Removed: NewObjects(c.GetRemoved()), Resync: c.GetResync()}
}
