package codec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// ofTheStore are the record fields outside exports.
var ofTheStore = map[protoreflect.Name]bool{"revision": true, "cell_drift_ms": true, "partial": true, "told": true}

// fullRecord has every exported field and matches fullItem.
func fullRecord(t *testing.T) *historyv1.Record {
	t.Helper()
	v := func(ms int64, rank int) int64 { return int64(history.VersionOf(1772396100000+ms, rank)) }
	r := &historyv1.Record{
		State: historyv1.State_STATE_PAUSED, Version: v(0, 0), OriginalVersion: v(-99, 0), PositionMs: 5, Early: true, Restored: true, RemovedMs: 1772396099999,
		DurationMs: 90000, DurationVersion: v(-300, 0), Session: "s", Device: "d", MetaVersion: v(-400, 1),
		Meta:          []*historyv1.MetaEntry{{Key: "a", Value: new("b")}, {Key: "gone", Version: v(-450, 1)}, {Key: "lost"}, {Key: "old", Value: new(""), Version: v(-600, 0)}},
		ResumeVersion: v(-200, 1), ResumePositionMs: 61000, UnknownVersion: v(-500, 0),
		Peaks:       []*historyv1.Peak{{TimeMs: 1772396000000, PositionMs: 70000}},
		Completions: []*historyv1.Completion{{TimeMs: 1772396000000, Viewing: 1 << 63, LengthMs: 5, DurationMs: new(int64(80000)), PositionMs: 79000, ReachMs: new(int64(0)), AgeMs: new(int64(90)), Sure: true}}, PlaysBefore: 2, PlaysBeforeMs: 1772390000000,
		Watched: []*historyv1.Watched{
			{TimeMs: 1772395900000, Viewing: 6, WatchedMs: 9, LengthMs: new(int64(10)), Speed: 150}, {TimeMs: 1772396000000, Viewing: 7, WatchedMs: 9},
		}, WatchedBeforeMs: 8, WatchedBeforeTimeMs: 1772390000000, DismissedVersion: v(1, 1),
		StartMs: 1772396000000, StartPositionMs: 3, Viewings: []*historyv1.Viewing{
			{Version: v(-900, 1), Viewing: 1 << 62, PositionMs: 4, State: historyv1.State_STATE_FINISHED, Device: new(""), StartMs: 1772395000000, StartPositionMs: 2},
			{Version: v(-800, 0), Viewing: 8, State: historyv1.State_STATE_PLAYING, AtEnd: true},
		},
		AtEnd: true, Lows: []*historyv1.Low{{BeforeMs: 700, Viewing: new(uint64(8)), LengthMs: 6, DurationMs: new(int64(80000))}},
		Starts: []*historyv1.Start{{TimeMs: 1772395000000, Viewing: 8, PositionMs: 3, DurationMs: 80000}},
	}
	r.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 3000, protowire.VarintType), 5))
	for name, field := range fieldsOf(r) {
		if r.ProtoReflect().Has(field) == ofTheStore[name] {
			t.Errorf("teach fullRecord %s", name)
		}
	}
	return r
}

func valuesOf(r *historyv1.Record) map[string]string {
	values := make(map[string]string)
	for _, e := range r.Meta {
		if e.Value != nil {
			values[e.Key] = *e.Value
		}
	}
	return values
}

func exported(t *testing.T, r *historyv1.Record) []byte {
	t.Helper()
	it := fullItem(t)
	it.DurationMs, it.State, it.Session, it.Device, it.Meta = r.DurationMs, r.State, r.Session, r.Device, valuesOf(r)
	it.EventTimeMs, it.PlayedMs = history.Version(r.Version).Time(), history.Version(r.OriginalVersion).Time()
	line, err := json.Marshal(codec.NewExportLine("u1", it, r))
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// TestEveryFieldOfAnExport clears one record field at a time and checks the round trip.
func TestEveryFieldOfAnExport(t *testing.T) {
	parts := map[protoreflect.Name][]protoreflect.Name{ // fields that are set together
		"duration_ms": {"duration_version"}, "meta": {"meta_version"}, "plays_before": {"plays_before_ms"},
		"watched_before_ms": {"watched_before_time_ms"}, "resume_version": {"resume_position_ms"}, "start_ms": {"start_position_ms"},
	}
	full := fullRecord(t)
	fields := full.ProtoReflect().Descriptor().Fields()
	for name, field := range fieldsOf(full) {
		r := proto.CloneOf(full)
		r.ProtoReflect().Clear(field)
		switch name {
		case "version", "state", "duration_version", "meta_version", "plays_before_ms", "watched_before_time_ms", "unknown_version":
			continue // always set
		}
		for _, part := range parts[name] {
			r.ProtoReflect().Clear(fields.ByName(part))
		}
		line := exported(t, r)
		got, wrong := codec.DecodeExportLine("u1", line)
		if wrong != nil {
			t.Errorf("without %s: %v\n%s", name, wrong, line)
			continue
		}
		if !proto.Equal(got.GetRecord(), r) || got.GetObject().GetId() != "100" || got.GetObject().GetType() != 2 {
			t.Errorf("without %s:\ngot  %v\nwant %v\n%s", name, got, r, line)
		}
		if !codec.IsExportLine(line) {
			t.Errorf("not taken for a line of an export: %s", line)
		}
	}
	own := &historyv1.Record{State: 3, Version: int64(history.VersionOf(1772396100000, 1)), DurationMs: 5, Meta: []*historyv1.MetaEntry{{Key: "a", Value: new("b")}}}
	got, wrong := codec.DecodeExportLine("u1", exported(t, own))
	own.DurationVersion, own.MetaVersion = own.Version, own.Version // equal versions are omitted
	if wrong != nil || !proto.Equal(got.GetRecord(), own) {
		t.Errorf("got %v, %v, want %v", got, wrong, own)
	}
}

// TestBadLines checks that each error names its field.
func TestBadLines(t *testing.T) {
	line := string(exported(t, fullRecord(t)))
	if strings.Contains(line, "\n") {
		t.Errorf("more than one line: %s", line)
	}
	for _, tt := range []struct{ old, new, field string }{
		{line[len(line)-40:], "", "body"},
		{`{"version":1`, `{"version":2`, "version"},
		{`{"version":1`, `{"version":0`, "version"},
		{`{"version":1`, `{"version":null`, "version"},
		{`{"version":1`, `{"version":"1"`, "version"},
		{`{"version":1`, `{"version":1,"surprise":1`, "surprise"},
		{`"user":"u1"`, `"user":"u2"`, "user"},
		{`"details":{`, `"details":null,"x":{`, "details"},
		{`"details":{`, `"details":{"surprise":1,`, "surprise"},
		{`"state":"paused"`, `"state":"deleted"`, "state"},
		{`"state":"paused"`, `"state":5`, "state"},
		{`"event_time":"2026`, `"event_time":"tomorrow`, "event_time"},
		{`"event_time"`, `"completed_at":"","event_time":"","completed_at"`, "event_time"},
		{`"played_at":"2026`, `"played_at":"x`, "played_at"},
		{`"duration_ms":90000`, `"duration_ms":"long"`, "duration_ms"},
		{`"duration_ms":90000`, `"duration_ms":0`, "details.duration"},
		{`"meta":{"a":"b","old":""}`, `"meta":{"a":"b"}`, "details.meta.keys"},
		{`"meta":{"a":"b",`, `"meta":{"a":5,`, "meta"},
		{`"meta":{"a":"b",`, `"meta":{"lost":"b",`, "details.meta.keys"},
		{`"keys":{"gone":{"time":"2026`, `"keys":{"gone":{"time":"x`, "details.meta.keys.gone.time"},
		{`"rank":"stop","removed":true`, `"rank":"delete","removed":true`, "details.meta.keys.gone.rank"},
		{`"rank":"stop"`, `"rank":"delete"`, "details.resume_point.rank"},
		{`"peaks":[{"time":"2026`, `"peaks":[{"time":"x`, "details.peaks[0].time"},
		{`"viewing":"8000000000000000"`, `"viewing":"g"`, "details.completions[0].viewing"},
		{`"started_at":"2026`, `"started_at":"x`, "details.completions[0].started_at"},
		{`"speed":1.5`, `"speed":1e300`, "details.watches[0].speed"},
		{`"speed":1.5`, `"speed":-1`, "details.watches[0].speed"},
		{`"viewing":"4000000000000000"`, `"viewing":"g"`, "details.viewings[0].viewing"},
		{`"state":"finished"`, `"state":"deleted"`, "details.viewings[0].state"},
		{`"start":{"time":"2026-03-01T20:13:20.000Z"`, `"start":{"time":"x"`, "details.start.time"},
		{`"bytes":"`, `"bytes":"!`, "details.unknown.bytes"},
		{`"bytes":"wLsBBQ=="`, `"bytes":"wLsB"`, "details.unknown.bytes"},
		{`"session":"s"`, "\"session\":\"\xff\"", "body"},
		{`"id":"100"`, `"id":100`, "object.id"},
	} {
		text := strings.Replace(line, tt.old, tt.new, 1)
		if text == line {
			t.Fatalf("%s is not in %s", tt.old, line)
		}
		_, wrong := codec.DecodeExportLine("u1", []byte(text))
		if wrong == nil || wrong.Field != tt.field || wrong.Reason == "" {
			t.Errorf("%s: got %+v, want %s", tt.new, wrong, tt.field)
		}
	}
	anybody := strings.Replace(line, `"user":"u1",`, "", 1)
	if _, wrong := codec.DecodeExportLine("u2", []byte(anybody)); wrong != nil {
		t.Errorf("without a user: %+v", wrong)
	}
	for _, text := range []string{"", "x", "{}", "[1]", line + line} {
		if codec.IsExportLine([]byte(text)) {
			t.Errorf("%.40q is taken for a line of an export", text)
		}
	}
}

// TestLargestLine checks that the largest possible record can be imported.
func TestLargestLine(t *testing.T) {
	r := fullRecord(t)
	r.Meta = nil
	for i := range history.MaxMetaKeys {
		key := fmt.Sprintf("%02d", i)
		r.Meta = append(r.Meta, &historyv1.MetaEntry{Key: key, Value: new(strings.Repeat("\x01", history.MaxMetaBytes-len(key))), Version: r.MetaVersion - 4*int64(i)})
	}
	r.Meta[0].Version = 0
	r.Session, r.Device = strings.Repeat("\x01", history.MaxLabel), strings.Repeat("\x01", history.MaxLabel)
	r.Peaks = slices.Repeat(r.Peaks, history.MaxPeaks)
	r.Completions, r.Watched = slices.Repeat(r.Completions, history.MaxCompletions), slices.Repeat(r.Watched[:1], history.MaxWatches)
	r.Viewings = slices.Repeat(r.Viewings[:1], history.MaxViewings)
	r.Lows, r.Starts = slices.Repeat(r.Lows, history.MaxLows), slices.Repeat(r.Starts, history.MaxStarts)
	r.Viewings[0].Device = new(strings.Repeat("\x01", history.MaxLabel))
	r.Watched[0].WatchedMs, r.Watched[0].Viewing, r.Watched[0].Speed = history.MaxPosition, 1<<64-1, 399
	r.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 3000, protowire.BytesType), make([]byte, history.MaxUnknown-5)))
	if line := exported(t, r); len(line) > 256<<10 {
		t.Errorf("%d bytes", len(line))
	} else if got, wrong := codec.DecodeExportLine("u1", line); wrong != nil || !proto.Equal(got.GetRecord(), r) {
		t.Errorf("got %v, %+v", got, wrong)
	}
}

// FuzzExportLine checks that a line is refused with a field, or survives a round trip.
func FuzzExportLine(f *testing.F) {
	t := &testing.T{}
	f.Add(exported(t, fullRecord(t)))
	f.Add([]byte(`{"version":1,"object":{"id":"a","type":1},"state":"stopped","event_time":"2026-01-01T00:00:00Z","details":{}}`))
	f.Add([]byte(`{"version":1,"details":{},"":0}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, wrong := codec.DecodeExportLine("u1", line)
		if wrong != nil {
			if got != nil && wrong.Field == "" || wrong.Field == "" || wrong.Reason == "" {
				t.Fatalf("%v, %+v", got, wrong)
			}
			return
		}
		r := got.GetRecord()
		it := &historyv1.Item{
			Object: got.GetObject(), State: r.State, DurationMs: r.DurationMs, Session: r.Session, Device: r.Device, Meta: valuesOf(r),
			EventTimeMs: history.Version(r.Version).Time(), PlayedMs: history.Version(r.OriginalVersion).Time(),
		}
		text, err := json.Marshal(codec.NewExportLine("u1", it, r))
		if err != nil {
			t.Fatal(err)
		}
		again, wrong := codec.DecodeExportLine("u1", text)
		if wrong == nil && !proto.Equal(again, got) {
			t.Fatalf("got  %v\nthen %v", got, again)
		}
	})
}
