package codec

import (
	"errors"
	"strings"

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
}

// DecodeDeletion reads {"objects"}, at most limit of them, or {"type","since","until"}
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
	default:
		d.unknown("", []byte(name))
	}
}

func (d *decoder) bound(field string) int64 {
	if d.in.Kind() == scan.Null {
		d.in.Skip()
		d.refuse(field, wantTime)
		return 0
	}
	return d.time(field)
}

func (d *Deletion) check() error {
	ranged := d.Type != 0 || d.SinceMs != 0 || d.UntilMs != 0
	switch {
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
		switch {
		case string(name) == "objects":
			objects = d.objects(limit)
		case string(name) == "dismissed" && d.in.Kind() == scan.Null:
			d.in.Skip()
			d.refuse("dismissed", "want true or false")
		case string(name) == "dismissed":
			dismissed = d.flag("dismissed")
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

// DecodeMark reads {"objects","mark","event_time"}, 1 to limit objects. It fails as
// [DecodeObjects] does, and for null.
func DecodeMark(uid string, body []byte, limit int) (*historyv1.MarkRequest, error) {
	d, req := newDecoder(body, "objects"), &historyv1.MarkRequest{Uid: uid}
	if !d.bodyIsObject() {
		return nil, d.in.End()
	}
	for name := range d.in.Object() {
		switch string(name) {
		case "objects":
			req.Objects = d.objects(limit)
		case "mark":
			text, _ := d.in.Text()
			if req.Mark = marks[string(text)]; req.Mark == 0 {
				d.refuse("mark", wantMark)
			}
		case "event_time":
			req.AtMs = d.bound("event_time")
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
		d.in.Fail(history.Invalid("body.recording", "want true or false"))
	}
	return recording, d.in.End()
}

// DecodeRow reads a record, as [Record] writes it, as the report that left it behind. What
// a report cannot carry over is passed by: the furthest position, plays, what was played,
// whether that is all, and the etag.
// The error is one of [FieldError], for the row alone.
func DecodeRow(uid string, line []byte) (*historyv1.Heartbeat, *FieldError) {
	d := batchDecoder{decoder: newDecoder(line, "rows"), uid: uid, batch: &Batch{}}
	h := &historyv1.Heartbeat{Uid: uid}
	if d.bodyIsObject() {
		d.row(h)
	}
	if err := d.in.End(); err != nil {
		if field, ok := errors.AsType[*history.FieldError](err); ok {
			return nil, &FieldError{Field: strings.TrimPrefix(field.Field, "body."), Reason: field.Reason}
		}
		return nil, &FieldError{Field: "body", Reason: err.Error()}
	}
	d.required(h)
	raise(h)
	return h, (*FieldError)(d.wrong)
}

func (d *batchDecoder) row(h *historyv1.Heartbeat) {
	for name := range d.in.Object() {
		switch string(name) {
		case "state":
			h.Kind = d.state()
		case "furthest_ms", "plays", "completed", "completed_at", "resume_ms", "watched_ms", "incomplete", "etag", "played_at", "dismissed_at", "next":
			d.in.Skip()
		default:
			d.field(h, name)
		}
	}
}

func (d *batchDecoder) state() historyv1.Kind {
	text, _ := d.in.Text()
	switch string(text) {
	case "playing":
		return historyv1.Kind_KIND_PROGRESS
	case "paused":
		return historyv1.Kind_KIND_PAUSE
	case "stopped":
		return historyv1.Kind_KIND_STOP
	case "finished":
		return historyv1.Kind_KIND_FINISH
	}
	d.refuse("state", "want playing, paused, stopped or finished")
	return historyv1.Kind_KIND_UNSPECIFIED
}
