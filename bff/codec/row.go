package codec

import (
	"errors"
	"strings"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// DecodeRow reads a record, as [Record] writes it, as the report that left it behind. What
// a report cannot carry over is passed by: the furthest position, plays, what was played,
// whether that is all, and the etag.
// The error is one of [FieldError], for the row alone.
func DecodeRow(uid string, line []byte) (*historyv1.Heartbeat, *FieldError) {
	d := batchDecoder{decoder: newDecoder(line, "rows"), uid: uid, batch: &Batch{}}
	h := &historyv1.Heartbeat{Uid: uid}
	if d.in.Kind() == scan.Object {
		d.row(h)
	} else {
		d.noObject()
	}
	if err := d.in.End(); err != nil {
		if field, ok := errors.AsType[*history.FieldError](err); ok {
			return nil, &FieldError{Field: strings.TrimPrefix(field.Field, "body."), Reason: field.Reason}
		}
		return nil, &FieldError{Field: "body", Reason: err.Error()}
	}
	d.required(h)
	return h, (*FieldError)(d.wrong)
}

func (d *batchDecoder) row(h *historyv1.Heartbeat) {
	for name := range d.in.Object() {
		switch string(name) {
		case "state":
			h.Kind = d.state()
		case "furthest_ms", "plays", "completed_at", "watched_ms", "incomplete", "etag":
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
