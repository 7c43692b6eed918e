package codec

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const rankStop = "stop"

// IsExportLine reports whether the line has a version. [DecodeRow] reads the others.
func IsExportLine(line []byte) bool {
	var in struct{ Version json.RawMessage }
	return json.Unmarshal(line, &in) == nil && in.Version != nil
}

// DecodeExportLine decodes a line imported by uid. The error refuses the line only. The service validates the
// values.
func DecodeExportLine(uid string, line []byte) (*historyv1.ImportedRecord, *FieldError) {
	d := lineDecoder{}
	d.read(uid, line)
	if d.wrong != nil {
		return nil, d.wrong
	}
	r := d.record()
	return &historyv1.ImportedRecord{Object: &historyv1.Object{Id: d.line.Object.ID, Type: d.line.Object.Type}, Record: r}, d.wrong
}

type lineDecoder struct {
	line  ExportLine
	wrong *FieldError
}

func (d *lineDecoder) refuse(field, reason string) {
	if d.wrong == nil {
		d.wrong = &FieldError{Field: field, Reason: reason}
	}
}

func (d *lineDecoder) read(uid string, line []byte) {
	var given struct { // needed to validate the rest
		Version int              `json:"version"`
		Details *json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal(line, &given); err != nil {
		d.refuse(fieldOf(err))
		return
	}
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	switch {
	case given.Version != exportVersion:
		d.refuse("version", fmt.Sprintf("want %d, the only one that this Playhead reads", exportVersion))
		return
	case !utf8.Valid(line):
		d.refuse("body", "want whole characters of UTF-8")
		return
	case given.Details == nil:
		d.refuse("details", "required")
		return
	}
	if err := in.Decode(&d.line); err != nil {
		d.refuse(fieldOf(err))
	}
	if d.line.User != "" && d.line.User != uid {
		d.refuse("user", "the line is of another user; without the field anybody may import it")
	}
}

// fieldOf returns the field and reason of a JSON error.
func fieldOf(err error) (field, reason string) {
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return cmp.Or(strings.TrimPrefix(typed.Field, "Record."), "body"), fmt.Sprintf("want another type than %s, as the document of the API says", typed.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return cmp.Or(strings.Trim(name, `"`), "body"), "unknown field"
	}
	return "body", err.Error()
}

func (d *lineDecoder) record() *historyv1.Record {
	in := &d.line
	r := &historyv1.Record{
		State: d.state("state", in.State), PositionMs: in.Details.PositionMS, Early: in.Details.Early, Restored: in.Details.Restored,
		RemovedMs: d.time("details.removed", in.Details.Removed),
	}
	in.fill(r)
	rank := rankOf(r.State)
	r.Version = int64(history.VersionOf(d.required("event_time", in.EventTime), rank))
	if in.PlayedAt != "" {
		r.OriginalVersion = int64(history.VersionOf(d.time("played_at", in.PlayedAt), rank))
		r.Version = int64(history.VersionOf(history.Version(r.Version).Time(), history.RankProgress))
	}
	r.DurationVersion = d.version("details.duration", in.Details.Duration, in.DurationMS != 0)
	d.meta(r)
	d.viewings(r)
	d.sessions(r)
	d.rest(r)
	return r
}

func (d *lineDecoder) state(field, name string) historyv1.State {
	for s := history.StatePlaying; s < history.StateDeleted; s++ {
		if s.String() == name {
			return historyv1.State(s)
		}
	}
	d.refuse(field, "want playing, paused, stopped or finished")
	return 0
}

// rankOf returns the rank of reports that lead to a state.
func rankOf(s historyv1.State) int {
	if s == historyv1.State_STATE_STOPPED || s == historyv1.State_STATE_FINISHED {
		return history.RankStop
	}
	return history.RankProgress
}

func (d *lineDecoder) viewings(r *historyv1.Record) {
	details := &d.line.Details
	for i, p := range details.Peaks {
		r.Peaks = append(r.Peaks, &historyv1.Peak{TimeMs: d.required(pathAt("peaks", i, "time"), p.Time), PositionMs: p.PositionMS})
	}
	for i, c := range details.Completions {
		one := &historyv1.Completion{
			TimeMs: d.required(pathAt("completions", i, "time"), c.Time), Viewing: d.viewing(pathAt("completions", i, "viewing"), c.Viewing),
			LengthMs: c.LengthMS, DurationMs: c.DurationMS, PositionMs: c.PositionMS, ReachMs: c.ReachMS, Sure: c.Sure,
		}
		if c.StartedAt != "" {
			one.AgeMs = new(one.TimeMs - d.time(pathAt("completions", i, "started_at"), c.StartedAt))
		}
		r.Completions = append(r.Completions, one)
	}
	for i, l := range details.Lows {
		r.Lows = append(r.Lows, &historyv1.Low{
			BeforeMs: history.Version(r.Version).Time() - d.required(pathAt("lows", i, "time"), l.Time), Viewing: new(d.viewing(pathAt("lows", i, "viewing"), l.Viewing)),
			LengthMs: l.LengthMS, DurationMs: l.DurationMS,
		})
	}
	for i, s := range details.Starts {
		r.Starts = append(r.Starts, &historyv1.Start{
			TimeMs: d.required(pathAt("starts", i, "time"), s.Time), Viewing: d.viewing(pathAt("starts", i, "viewing"), s.Viewing), PositionMs: s.PositionMS, DurationMs: s.DurationMS,
		})
	}
	for i, w := range details.Watches {
		r.Watched = append(r.Watched, d.watch(i, &w))
	}
	if b := details.PlaysBefore; b != nil {
		r.PlaysBefore, r.PlaysBeforeMs = b.Plays, d.required("details.plays_before.time", b.Time)
	}
	if b := details.WatchedBefore; b != nil {
		r.WatchedBeforeMs, r.WatchedBeforeTimeMs = b.WatchedMS, d.required("details.watched_before.time", b.Time)
	}
}

func (d *lineDecoder) watch(i int, w *Watch) *historyv1.Watched {
	m := &historyv1.Watched{
		TimeMs: d.required(pathAt("watches", i, "time"), w.Time), Viewing: d.viewing(pathAt("watches", i, "viewing"), w.Viewing), WatchedMs: w.WatchedMS,
	}
	if w.StartedAt != "" {
		m.LengthMs = new(m.TimeMs - d.time(pathAt("watches", i, "started_at"), w.StartedAt))
	}
	if percent, ok := speedOf(w.Speed); ok {
		m.Speed = int64(percent)
	} else if w.Speed != 0 {
		d.refuse(pathAt("watches", i, "speed"), wantSpeed)
	}
	return m
}

// sessions reads the starts, and the sessions other than the latest.
func (d *lineDecoder) sessions(r *historyv1.Record) {
	r.StartMs, r.StartPositionMs = d.start("details.start", d.line.Details.Start)
	r.AtEnd = d.line.Details.AtEnd
	for i, v := range d.line.Details.Viewings {
		field := fmt.Sprintf("details.viewings[%d].", i)
		one := &historyv1.Viewing{
			Viewing: d.viewing(field+"viewing", v.Viewing), PositionMs: v.PositionMS, State: d.state(field+"state", v.State), Device: v.Device, AtEnd: v.AtEnd,
		}
		one.Version = int64(history.VersionOf(d.required(field+"time", v.Time), rankOf(one.State)))
		one.StartMs, one.StartPositionMs = d.start(field+"start", v.Start)
		r.Viewings = append(r.Viewings, one)
	}
}

func (d *lineDecoder) start(field string, in *Peak) (at, position int64) {
	if in == nil {
		return 0, 0
	}
	return d.required(field+".time", in.Time), in.PositionMS
}

func (d *lineDecoder) rest(r *historyv1.Record) {
	if e := d.line.Details.ResumePoint; e != nil {
		r.ResumeVersion, r.ResumePositionMs = d.version("details.resume_point", &e.Report, true), e.PositionMS
	}
	if c := d.line.Details.Dismissed; c != nil {
		rank := history.RankDismissed
		if c.TakenBack {
			rank = history.RankOffered
		}
		r.DismissedVersion = int64(history.VersionOf(d.required("details.dismissed.time", c.Time), rank))
	}
	if u := d.line.Details.Unknown; u != nil {
		b, err := base64.StdEncoding.DecodeString(u.Bytes)
		if err != nil || proto.Unmarshal(b, new(historyv1.Record)) != nil {
			d.refuse("details.unknown.bytes", "want fields of the protocol, in base64")
			return
		}
		r.UnknownVersion = d.version("details.unknown", &u.Report, true)
		r.ProtoReflect().SetUnknown(b)
	}
}

// meta is the inverse of newMetaReports. The service validates keys and values.
func (d *lineDecoder) meta(r *historyv1.Record) {
	in := d.line.Details.Meta
	if in == nil {
		r.MetaVersion = d.version("details.meta", nil, len(d.line.Meta) > 0)
		return
	}
	for key, value := range d.line.Meta {
		r.Meta = append(r.Meta, &historyv1.MetaEntry{Key: key, Value: &value, Version: d.versionOf(key, in.Keys[key])})
		if in.Keys[key].Removed {
			d.refuse("details.meta.keys", "a removed key has a value")
		}
	}
	for key, k := range in.Keys {
		if _, ok := d.line.Meta[key]; ok {
			continue
		}
		if !k.Removed {
			d.refuse("details.meta.keys", "want keys of meta, or removed ones")
		}
		r.Meta = append(r.Meta, &historyv1.MetaEntry{Key: key, Version: d.versionOf(key, k)})
	}
	slices.SortFunc(r.Meta, func(a, b *historyv1.MetaEntry) int { return strings.Compare(a.Key, b.Key) })
	r.MetaVersion = d.version("details.meta", &in.Report, len(r.Meta) > 0)
}

// versionOf returns 0 for a key of the newest report.
func (d *lineDecoder) versionOf(key string, k KeyReport) int64 {
	if k.Time == "" && k.Rank == "" {
		return 0
	}
	return d.version("details.meta.keys."+key, &Report{k.Time, k.Rank}, true)
}

func pathAt(list string, i int, field string) string {
	return fmt.Sprintf("details.%s[%d].%s", list, i, field)
}

// version is the inverse of newReport.
func (d *lineDecoder) version(field string, in *Report, present bool) int64 {
	switch {
	case in == nil && present:
		d.refuse(field, "required")
		return 0
	case in == nil:
		return 0
	case !present:
		d.refuse(field, "want none, or what came with it")
		return 0
	}
	rank := history.RankProgress
	switch in.Rank {
	case rankStop:
		rank = history.RankStop
	case "", "progress":
	default:
		d.refuse(field+".rank", "want progress or stop")
	}
	return int64(history.VersionOf(d.required(field+".time", in.Time), rank))
}

func (d *lineDecoder) viewing(field, text string) uint64 {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		d.refuse(field, "want 1 to 16 hexadecimal digits")
	}
	return n
}

func (d *lineDecoder) required(field, text string) int64 {
	if text == "" {
		d.refuse(field, "required")
	}
	return d.time(field, text)
}

// time returns 0 for an empty text.
func (d *lineDecoder) time(field, text string) int64 {
	if text == "" {
		return 0
	}
	ms, err := ParseTime(field, []byte(text))
	if err != nil {
		d.refuse(field, wantTime)
	}
	return ms
}
