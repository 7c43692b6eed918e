package codec

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const rowFields = "object, event_time, state, position_ms, duration_ms, furthest_ms, plays, completed_at, watched_ms, session, device and meta"

type row struct {
	object    *historyv1.Object
	state     historyv1.State
	at        int64
	position  *int64
	duration  int64
	furthest  int64
	watched   int64
	plays     *int64
	completed int64 // Unix milliseconds
	session   string
	device    string
	meta      []*historyv1.MetaEntry
}

// DecodeRow reads a row: a full [Record] or any subset with an object and a time. Without plays, a completed
// row is one play; rows with different times are separate plays. With plays, that many were completed by then.
//
// The error refuses the row only. The service validates texts and the object.
func DecodeRow(line []byte) (*historyv1.ImportedRecord, *FieldError) {
	d, in := batchDecoder{decoder: newDecoder(line, "rows"), batch: &Batch{}}, row{}
	if d.bodyIsObject() {
		for name := range d.in.Object() {
			d.rowField(&in, string(name))
		}
	}
	if err := d.in.End(); err != nil {
		if field, ok := errors.AsType[*history.FieldError](err); ok {
			return nil, &FieldError{Field: strings.TrimPrefix(field.Field, "body."), Reason: field.Reason}
		}
		return nil, &FieldError{Field: "body", Reason: err.Error()}
	}
	switch {
	case in.object == nil:
		d.refuse("object", `want an object {"id","type"}`)
	case in.at == 0:
		d.refuse("event_time", wantTime)
	case in.completed > in.at:
		d.refuse("completed_at", "want no time after event_time")
	}
	in.complete()
	if in.position == nil {
		d.refuse("position_ms", "want milliseconds where state is not finished")
	}
	if d.wrong != nil {
		return nil, (*FieldError)(d.wrong)
	}
	return &historyv1.ImportedRecord{Object: in.object, Record: in.record()}, nil
}

func (d *batchDecoder) rowField(in *row, name string) {
	switch name {
	case "object":
		in.object = new(historyv1.Object)
		in.object.Id, in.object.Type = d.object("object.")
	case "state":
		in.state = d.rowState()
	case "event_time":
		in.at = max(d.time(name), history.MinTime) // clamped; just as expired
	case "position_ms":
		in.position = d.whole(name, history.MaxPosition)
	case "duration_ms":
		in.duration = value(d.whole(name, history.MaxPosition))
	case "furthest_ms":
		in.furthest = value(d.whole(name, history.MaxPosition))
	case "watched_ms":
		in.watched = value(d.whole(name, maxSum))
	case "plays":
		in.plays = d.whole(name, maxSum)
	case "completed_at":
		in.completed = d.time(name)
	case "session":
		in.session = d.text(name, "")
	case "device":
		in.device = d.text(name, "")
	case "meta":
		in.meta = metaEntries(d.meta())
	case "completed", "resume_ms", "early", "incomplete", "etag", "played_at", "dismissed_at", "next": // derived from the others
		d.in.Skip()
	default:
		d.in.Fail(history.Invalid(d.path(name), "unknown field: a row has "+rowFields))
	}
}

// maxSum limits sums. It exceeds any real history and is exact in JavaScript.
const maxSum = 1 << 50

// whole reads an integer from 0 to most, nil for null.
func (d *decoder) whole(field string, most int64) *int64 {
	if d.in.Null() {
		return nil
	}
	n, ok := d.in.Int()
	if !ok || n < 0 || n > most {
		d.refuse(field, "want a whole number, 0 to "+strconv.FormatInt(most, 10))
	}
	return &n
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// complete fills in missing fields. A row was finished, unless it has a position before the end or zero plays.
// Plays without a duration were finished.
func (in *row) complete() {
	ended := in.position == nil || in.duration > 0 && *in.position*100 >= in.duration*doneAt
	if in.state == 0 {
		in.state = historyv1.State_STATE_STOPPED
		if in.plays == nil && ended || value(in.plays) > 0 && (ended || in.duration == 0) {
			in.state = historyv1.State_STATE_FINISHED
		}
	}
	if in.state == historyv1.State_STATE_FINISHED && in.position == nil {
		in.position = &in.duration
	}
}

// metaEntries returns metadata as in records, sorted by key.
func metaEntries(values map[string]string, removed []string) (entries []*historyv1.MetaEntry) {
	for key, value := range values {
		entries = append(entries, &historyv1.MetaEntry{Key: key, Value: &value})
	}
	for _, key := range removed {
		entries = append(entries, &historyv1.MetaEntry{Key: key})
	}
	slices.SortFunc(entries, func(a, b *historyv1.MetaEntry) int { return strings.Compare(a.GetKey(), b.GetKey()) })
	return entries
}

// doneAt is the percentage of the duration that completes a row without a state.
const doneAt = 90

func (in *row) record() *historyv1.Record {
	version := int64(history.VersionOf(in.at, rankOf(in.state)))
	r := &historyv1.Record{
		State: in.state, Version: version, PositionMs: *in.position, DurationMs: in.duration,
		Session: in.session, Device: in.device, Meta: in.meta,
	}
	if r.DurationMs > 0 {
		r.DurationVersion = version
	}
	if len(r.Meta) > 0 {
		r.MetaVersion = version
	}
	if in.furthest > r.PositionMs {
		r.Peaks = []*historyv1.Peak{{TimeMs: in.at, PositionMs: in.furthest}}
	}
	if in.watched > 0 {
		r.WatchedBeforeMs, r.WatchedBeforeTimeMs = in.watched, in.at
	}
	completed := cmp.Or(in.completed, in.at)
	switch {
	case value(in.plays) > 0:
		if in.completed == 0 && in.state != historyv1.State_STATE_FINISHED { // the plays ended before this viewing began
			completed = max(in.at-r.PositionMs, history.MinTime)
		}
		r.PlaysBefore, r.PlaysBeforeMs = uint64(*in.plays), completed //nolint:gosec // it was bounded
	case in.plays == nil && (in.completed > 0 || in.state == historyv1.State_STATE_FINISHED || in.duration > 0 && r.PositionMs*100 >= in.duration*doneAt):
		name := cmp.Or(in.session, "\xffrow "+FormatTime(completed)) // not a valid session
		r.Completions = []*historyv1.Completion{{TimeMs: completed, Viewing: history.ViewingOf(name)}}
	}
	return r
}

func (d *batchDecoder) rowState() historyv1.State {
	text, _ := d.in.Text()
	for s := history.StatePlaying; s < history.StateDeleted; s++ {
		if s.String() == string(text) {
			return historyv1.State(s)
		}
	}
	d.refuse("state", "want playing, paused, stopped or finished")
	return 0
}
