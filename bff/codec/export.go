package codec

import (
	"encoding/base64"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// exportVersion is the format version of export lines. Any change of fields or meanings needs a new one.
const exportVersion = 1

// ExportLine is a complete record: the listed fields, and the details that they derive from. An import reads
// the details. Of the rest it reads object, duration_ms, state, event_time, played_at, session, device and
// meta.
type ExportLine struct {
	Version int    `json:"version" minimum:"1" maximum:"1" doc:"Of the format of the line."`
	User    string `json:"user,omitempty" doc:"The user whose record it is. An import by somebody else refuses the line, unless it has no user."`
	Record
	Details Details `json:"details" doc:"The parts of which the other fields are made."`
}

// Details are the data behind a record's listed fields.
type Details struct {
	PositionMS  int64    `json:"position_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"Where the latest report left off, also where it is early."`
	Early       bool     `json:"early,omitempty" doc:"The latest report is of the first seconds of its session, and does not take away where the user stopped before."`
	ResumePoint *Earlier `json:"resume_point,omitempty" doc:"The latest report that was not early, beside an early one."`

	Duration *Report      `json:"duration,omitempty" doc:"The report that duration_ms came with."`
	Meta     *MetaReports `json:"meta,omitempty" doc:"The reports that the keys of meta came with."`

	Peaks         []Peak         `json:"peaks,omitempty" nullable:"false" maxItems:"8" doc:"Earlier positions beyond those of every later report, the furthest first, which is the oldest."`
	Completions   []Completion   `json:"completions,omitempty" nullable:"false" maxItems:"128" doc:"The newest stays of viewings at their ends, oldest first."`
	PlaysBefore   *PlaysBefore   `json:"plays_before,omitempty" doc:"The plays before."`
	Watches       []Watch        `json:"watches,omitempty" nullable:"false" maxItems:"128" doc:"The newest viewings that said how much they have played, oldest first."`
	WatchedBefore *WatchedBefore `json:"watched_before,omitempty" doc:"Those before."`

	Start    *Peak           `json:"start,omitempty" doc:"Where the session of the latest report began, where it reported a start."`
	Viewings []ListedViewing `json:"viewings,omitempty" nullable:"false" maxItems:"16" doc:"The newest other sessions, oldest first."`
	AtEnd    bool            `json:"at_end,omitempty" doc:"The latest report is at the end of its session."`
	Lows     []Low           `json:"lows,omitempty" nullable:"false" maxItems:"64" doc:"Stays of these sessions below their ends, oldest first, but for the one from the latest start to the latest report."`
	Starts   []Start         `json:"starts,omitempty" nullable:"false" maxItems:"128" doc:"Earlier starts of sessions, oldest first."`

	Removed  string `json:"removed,omitempty" format:"date-time" doc:"When the object was last deleted: nothing of the record is from before, unless it was restored."`
	Restored bool   `json:"restored,omitempty" doc:"The parts of the record from before that were brought back after it."`

	Dismissed *Decision `json:"dismissed,omitempty" doc:"The latest decision about whether it is offered to go on with."`

	Unknown *Unknown `json:"unknown,omitempty" doc:"Fields that a newer version of Playhead has written."`
}

// Report identifies a report by its time, and by its rank among reports of the same millisecond.
type Report struct {
	Time string `json:"time" format:"date-time"`
	Rank string `json:"rank,omitempty" enum:"progress,stop" doc:"Of reports of one millisecond, stop and finish are later than others, which are progress, the default."`
}

// MetaReports identifies the reports behind the metadata: the newest one, and the older ones by key.
type MetaReports struct {
	Report
	Keys map[string]KeyReport `json:"keys,omitempty" maxProperties:"16" doc:"Those that an earlier report named, or that have no value any more."`
}

// KeyReport identifies the last report of a key.
type KeyReport struct {
	Time    string `json:"time,omitempty" format:"date-time" doc:"Absent where it is the newest report."`
	Rank    string `json:"rank,omitempty" enum:"progress,stop"`
	Removed bool   `json:"removed,omitempty" doc:"The key was removed: an older report does not bring it back."`
}

// Earlier is an earlier report and its position.
type Earlier struct {
	Report
	PositionMS int64 `json:"position_ms" minimum:"0" maximum:"2592000000"`
}

// Peak is a position and its report time.
type Peak struct {
	Time       string `json:"time" format:"date-time"`
	PositionMS int64  `json:"position_ms" minimum:"0" maximum:"2592000000"`
}

// Completion is a viewing's stay at its end, with the time of its last report there.
type Completion struct {
	Time       string `json:"time" format:"date-time"`
	Viewing    string `json:"viewing" pattern:"^[0-9A-Fa-f]{1,16}$" doc:"A hash of the session, or of the device where there is none."`
	LengthMS   int64  `json:"length_ms,omitempty" minimum:"0" doc:"From the first report to the latest."`
	DurationMS *int64 `json:"duration_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"Absent where it is that of the record."`
	PositionMS int64  `json:"position_ms,omitempty" minimum:"0" maximum:"2592000000"`
	ReachMS    *int64 `json:"reach_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"The longest duration of which that is the end, 0 for any; absent where it is a ninth more than the position."`
	StartedAt  string `json:"started_at,omitempty" format:"date-time"`
	Sure       bool   `json:"sure,omitempty" doc:"It stopped or finished."`
}

// Low is a session's stay below its end.
type Low struct {
	Time       string `json:"time" format:"date-time"`
	Viewing    string `json:"viewing" pattern:"^[0-9A-Fa-f]{1,16}$"`
	LengthMS   int64  `json:"length_ms,omitempty" minimum:"0" doc:"From the first report to the latest."`
	DurationMS *int64 `json:"duration_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"Absent where it is that of the record."`
}

// Start is the start of a session.
type Start struct {
	Time       string `json:"time" format:"date-time"`
	Viewing    string `json:"viewing" pattern:"^[0-9A-Fa-f]{1,16}$"`
	PositionMS int64  `json:"position_ms,omitempty" minimum:"0" maximum:"2592000000"`
	DurationMS int64  `json:"duration_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"Of a player that reports no start."`
}

func newCompletion(c *historyv1.Completion) Completion {
	one := Completion{
		Time: FormatTime(c.TimeMs), Viewing: formatETag(c.Viewing), LengthMS: c.LengthMs, DurationMS: c.DurationMs, PositionMS: c.PositionMs, ReachMS: c.ReachMs, Sure: c.Sure,
	}
	if c.AgeMs != nil {
		one.StartedAt = FormatTime(c.TimeMs - *c.AgeMs)
	}
	return one
}

func newLow(l *historyv1.Low, r *historyv1.Record) Low {
	one := Low{Time: FormatTime(history.Version(r.Version).Time() - l.BeforeMs), LengthMS: l.LengthMs, DurationMS: l.DurationMs}
	switch {
	case l.Viewing != nil:
		one.Viewing = formatETag(*l.Viewing)
	case l.Of == 0:
		one.Viewing = formatETag((&history.Event{Session: r.Session, Device: r.Device}).Viewing())
	case int(l.Of) <= len(r.Viewings):
		one.Viewing = formatETag(r.Viewings[l.Of-1].Viewing)
	}
	return one
}

// PlaysBefore counts unlisted plays. Its time is the end of the last one, or the time up to which the user
// discounted plays.
type PlaysBefore struct {
	Plays uint64 `json:"plays" minimum:"0" maximum:"1125899906842624"`
	Time  string `json:"time" format:"date-time"`
}

// Watch is a viewing's watched time, with the time of its last report.
type Watch struct {
	Time      string  `json:"time" format:"date-time"`
	Viewing   string  `json:"viewing" pattern:"^[0-9A-Fa-f]{1,16}$"`
	WatchedMS int64   `json:"watched_ms" minimum:"1" maximum:"2592000000"`
	StartedAt string  `json:"started_at,omitempty" format:"date-time" doc:"When it had begun; absent where it has played without a pause."`
	Speed     float64 `json:"speed,omitempty" minimum:"0.25" maximum:"4" doc:"The fastest of the session; 1 by default."`
}

func newWatch(m *historyv1.Watched) Watch {
	w := Watch{Time: FormatTime(m.TimeMs), Viewing: formatETag(m.Viewing), WatchedMS: m.WatchedMs, Speed: float64(m.Speed) / 100}
	if m.LengthMs != nil {
		w.StartedAt = FormatTime(m.TimeMs - *m.LengthMs)
	}
	return w
}

// WatchedBefore is the watched time of unlisted viewings, with the time of the last report.
type WatchedBefore struct {
	WatchedMS int64  `json:"watched_ms" minimum:"1" maximum:"1125899906842624"`
	Time      string `json:"time" format:"date-time"`
}

// ListedViewing is a session's last report and start.
type ListedViewing struct {
	Time       string  `json:"time" format:"date-time"`
	Viewing    string  `json:"viewing" pattern:"^[0-9A-Fa-f]{1,16}$"`
	PositionMS int64   `json:"position_ms" minimum:"0" maximum:"2592000000"`
	State      string  `json:"state" enum:"playing,paused,stopped,finished"`
	Device     *string `json:"device,omitempty" maxLength:"128" doc:"Absent where it is that of the record."`
	Start      *Peak   `json:"start,omitempty"`
	AtEnd      bool    `json:"at_end,omitempty"`
}

// Decision is a dismissal or its undo.
type Decision struct {
	Time      string `json:"time" format:"date-time"`
	TakenBack bool   `json:"taken_back,omitempty" doc:"It is to be offered again."`
}

// Unknown holds protocol fields unknown to this version.
type Unknown struct {
	Report
	Bytes string `json:"bytes" contentEncoding:"base64" maxLength:"5464" doc:"At most 4,096 bytes, in base64."`
}

// NewImported returns the record of one viewing, as its report would make it.
func NewImported(e *history.Event) (*historyv1.ImportedRecord, error) {
	r := new(historyv1.Record)
	if err := proto.Unmarshal(wire.AppendRecord(nil, e.Record()), r); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return &historyv1.ImportedRecord{Object: &historyv1.Object{Id: e.Key.Object.ID, Type: e.Key.Object.Type}, Record: r}, nil
}

// NewExportLine returns the export line of a user's record.
func NewExportLine(uid string, it *historyv1.Item, r *historyv1.Record) *ExportLine {
	return &ExportLine{Version: exportVersion, User: uid, Record: *NewRecord(it), Details: newDetails(r)}
}

func newDetails(r *historyv1.Record) Details {
	d := Details{
		PositionMS: r.PositionMs, Early: r.Early, Removed: FormatTime(r.RemovedMs), Restored: r.Restored,
		Duration: newReport(r.DurationVersion, r, r.DurationMs != 0), Meta: newMetaReports(r),
	}
	if r.ResumeVersion != 0 {
		d.ResumePoint = &Earlier{*newReport(r.ResumeVersion, r, true), r.ResumePositionMs}
	}
	for _, p := range r.Peaks {
		d.Peaks = append(d.Peaks, Peak{FormatTime(p.TimeMs), p.PositionMs})
	}
	for _, c := range r.Completions {
		d.Completions = append(d.Completions, newCompletion(c))
	}
	if r.PlaysBeforeMs > 0 {
		d.PlaysBefore = &PlaysBefore{r.PlaysBefore, FormatTime(r.PlaysBeforeMs)}
	}
	for _, w := range r.Watched {
		d.Watches = append(d.Watches, newWatch(w))
	}
	if r.WatchedBeforeMs > 0 {
		d.WatchedBefore = &WatchedBefore{r.WatchedBeforeMs, FormatTime(r.WatchedBeforeTimeMs)}
	}
	d.Start, d.AtEnd = newStart(r.StartMs, r.StartPositionMs), r.AtEnd
	for _, l := range r.Lows {
		d.Lows = append(d.Lows, newLow(l, r))
	}
	for _, s := range r.Starts {
		d.Starts = append(d.Starts, Start{FormatTime(s.TimeMs), formatETag(s.Viewing), s.PositionMs, s.DurationMs})
	}
	for _, v := range r.Viewings {
		d.Viewings = append(d.Viewings, ListedViewing{
			FormatTime(history.Version(v.Version).Time()), formatETag(v.Viewing), v.PositionMs, history.State(v.State).String(), v.Device,
			newStart(v.StartMs, v.StartPositionMs), v.AtEnd,
		})
	}
	if v := history.Version(r.DismissedVersion); v != 0 {
		d.Dismissed = &Decision{FormatTime(v.Time()), v != history.VersionOf(v.Time(), history.RankDismissed)}
	}
	if unknown := r.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		d.Unknown = &Unknown{*newReport(r.UnknownVersion, r, true), base64.StdEncoding.EncodeToString(unknown)}
	}
	return d
}

func newStart(at, position int64) *Peak {
	if at == 0 {
		return nil
	}
	return &Peak{FormatTime(at), position}
}

// newReport returns the report of a version; 0 is the record's own.
func newReport(version int64, r *historyv1.Record, present bool) *Report {
	if !present {
		return nil
	}
	if version == 0 {
		version = r.Version
	}
	v := history.Version(version)
	report := &Report{Time: FormatTime(v.Time())}
	if v != history.VersionOf(v.Time(), history.RankProgress) {
		report.Rank = rankStop
	}
	return report
}

func newMetaReports(r *historyv1.Record) *MetaReports {
	if len(r.Meta) == 0 {
		return nil
	}
	n := &MetaReports{Report: *newReport(r.MetaVersion, r, true)}
	for _, e := range r.Meta {
		k := KeyReport{Removed: e.Value == nil}
		if e.Version != 0 {
			report := newReport(e.Version, r, true)
			k.Time, k.Rank = report.Time, report.Rank
		}
		if k == (KeyReport{}) {
			continue
		}
		if n.Keys == nil {
			n.Keys = make(map[string]KeyReport)
		}
		n.Keys[e.Key] = k
	}
	return n
}
