package wire_test

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestEveryFieldIsKept varies one field of a full record at a time: the bytes differ and decode to the same
// record. A field missing from the encoder fails here.
func TestEveryFieldIsKept(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		t.Run(f.Name, func(t *testing.T) {
			r := full()
			change(t, reflect.ValueOf(r).Elem().FieldByIndex(f.Index))
			if f.Name == "Unknown" {
				r.Unknown = string(protowire.AppendVarint(protowire.AppendTag(nil, 4000, protowire.VarintType), 5))
			}
			b := wire.AppendRecord(nil, r)
			got, err := wire.Record(b)
			if err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, r)
			}
			if reflect.DeepEqual(got, full()) {
				t.Error("the field is not kept")
			}
		})
	}
}

// TestLastField: all fields of the protocol's record are known, and later ones unknown.
func TestLastField(t *testing.T) {
	fields, last := new(historyv1.Record).ProtoReflect().Descriptor().Fields(), 0
	for i := range fields.Len() {
		last = max(last, int(fields.Get(i).Number()))
	}
	if wire.LastField != last {
		t.Errorf("lastField is %d, and the protocol goes to %d", wire.LastField, last)
	}
}

// full returns everything with the fields that it lacks.
func full() *history.Record {
	r, w := everything(), watched()
	r.Early, r.ResumePoint, r.Watches, r.WatchedBefore, r.WatchedBeforeAt = w.Early, w.ResumePoint, w.Watches, w.WatchedBefore, w.WatchedBeforeAt
	r.Unknown, r.UnknownVersion = string(protowire.AppendVarint(protowire.AppendTag(nil, 3000, protowire.VarintType), 5)), r.Version-12
	r.Restored, r.Original, r.Dismissed = true, r.Version-400, r.Version+400
	r.Start, r.Viewings, r.AtEnd, r.Lows, r.Starts = viewed().Start, viewed().Viewings, true, viewed().Lows, viewed().Starts
	r.Told = "what the stream has"
	return r
}

// change changes a non-zero value.
func change(t *testing.T, v reflect.Value) {
	if meta, ok := reflect.TypeAssert[*history.Meta](v.Addr()); ok {
		*meta = history.NewMeta(map[string]string{"another": "entry"})
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			change(t, field)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			change(t, v.Index(0))
		}
	case reflect.String:
		v.SetString(v.String() + "!")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int64:
		v.SetInt(v.Int() + 4)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() ^ 1)
	default:
		t.Fatalf("change: teach me %v", v.Kind())
	}
}

// TestUnknownFieldsAreKept: an older version preserves a newer one's fields through folds and stores.
func TestUnknownFieldsAreKept(t *testing.T) {
	later := protowire.AppendString(protowire.AppendTag(nil, 77, protowire.BytesType), "from a later version")
	b := append(wire.AppendRecord(nil, heartbeat()), later...)
	r, err := wire.Record(b)
	if err != nil {
		t.Fatal(err)
	}
	e := history.Event{Kind: history.KindStop, At: r.Version.Time() + 15_000, Position: 5}
	next := history.Merge(r, e.Record()).Successor(nil)
	again, err := wire.Record(wire.AppendRecord(nil, next))
	if err != nil || again.Unknown != string(later) || again.UnknownVersion != r.Version {
		t.Errorf("after an event: %q of version %d, %v; want %q of %d", again.Unknown, again.UnknownVersion, err, later, r.Version)
	}
	deleted := history.Event{Kind: history.KindDelete, At: e.At + 1}
	if gone := history.Merge(next, deleted.Record()); gone.Unknown != "" {
		t.Errorf("after a delete: %q is left", gone.Unknown)
	}
}

func message(r *history.Record) *historyv1.Record {
	m := &historyv1.Record{
		Revision: r.Revision, CellDriftMs: max(r.CellTime-r.Version.Time(), 0), Version: int64(r.Version), State: historyv1.State(r.State),
		PositionMs: r.Position, DurationMs: r.Duration, DurationVersion: relative(r.DurationVersion, r.Version),
		Session: r.Session, Device: r.Device, Meta: metaMessage(r.Meta), MetaVersion: relative(r.MetaVersion, r.Version),
		PlaysBefore: r.PlaysBefore, PlaysBeforeMs: r.PlaysBeforeAt, RemovedMs: r.RemovedAt, Partial: r.Partial,
		Early: r.Early, ResumeVersion: int64(r.ResumePoint.Version), ResumePositionMs: r.ResumePoint.Position,
		Restored: r.Restored, OriginalVersion: int64(r.Original),
		WatchedBeforeMs: r.WatchedBefore, WatchedBeforeTimeMs: r.WatchedBeforeAt,
		StartMs: r.Start.At, StartPositionMs: r.Start.Position, AtEnd: r.AtEnd, Told: []byte(r.Told),
	}
	if len(r.Unknown) > 0 {
		m.UnknownVersion = relative(r.UnknownVersion, r.Version)
		m.ProtoReflect().SetUnknown([]byte(r.Unknown))
	}
	for _, w := range r.Watches {
		one := &historyv1.Watched{TimeMs: w.At, Viewing: w.Viewing, WatchedMs: w.Watched, Speed: w.Speed}
		if w.At-w.Began != w.Watched {
			one.LengthMs = new(w.At - w.Began)
		}
		m.Watched = append(m.Watched, one)
	}
	for _, v := range r.Viewings {
		m.Viewings = append(m.Viewings, &historyv1.Viewing{
			Version: int64(v.Version), Viewing: v.Viewing, PositionMs: v.Position, State: historyv1.State(v.State),
			StartMs: v.Start.At, StartPositionMs: v.Start.Position, AtEnd: v.AtEnd,
		})
		if v.Device != r.Device {
			m.Viewings[len(m.Viewings)-1].Device = &v.Device
		}
	}
	for _, p := range r.Peaks {
		m.Peaks = append(m.Peaks, &historyv1.Peak{TimeMs: p.At, PositionMs: p.Position})
	}
	for _, c := range r.Completions {
		one := &historyv1.Completion{TimeMs: c.At, Viewing: c.Viewing, LengthMs: c.Length, DurationMs: other(c.Duration, r.Duration), PositionMs: c.Position, ReachMs: other(c.Reach, history.ReachOf(c.Position)), Sure: c.Sure}
		if c.Began != 0 {
			one.AgeMs = new(c.At - c.Began)
		}
		m.Completions = append(m.Completions, one)
	}
	for _, l := range r.Lows {
		one := &historyv1.Low{BeforeMs: r.Version.Time() - l.At, LengthMs: l.Length, DurationMs: other(l.Duration, r.Duration)}
		if of := r.IndexOf(l.Viewing); of >= 0 {
			one.Of = uint32(of)
		} else {
			one.Viewing = &l.Viewing
		}
		m.Lows = append(m.Lows, one)
	}
	for _, s := range r.Starts {
		m.Starts = append(m.Starts, &historyv1.Start{TimeMs: s.At, Viewing: s.Viewing, PositionMs: s.Position, DurationMs: s.Duration})
	}
	return m
}

func metaMessage(m history.Meta) (all []*historyv1.MetaEntry) {
	for e := range m.Entries() {
		one := &historyv1.MetaEntry{Key: e.Key, Version: int64(e.Version)}
		if !e.Removed {
			one.Value = &e.Value
		}
		all = append(all, one)
	}
	return all
}

// metaOf is the inverse. Of two entries with one key the later wins.
func metaOf(all []*historyv1.MetaEntry) history.Meta {
	entries := make(map[string]history.MetaEntry[string])
	for _, e := range all {
		entries[e.Key] = history.MetaEntry[string]{Key: e.Key, Value: e.GetValue(), Removed: e.Value == nil, Version: history.Version(e.Version)}
	}
	var m []byte
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		m = history.AppendMetaEntry(m, entries[key])
	}
	return history.Meta(m)
}

func other(v, usual int64) *int64 {
	if v == usual {
		return nil
	}
	return &v
}

func orElse(v *int64, usual int64) int64 {
	if v == nil {
		return usual
	}
	return *v
}

func relative(v, own history.Version) int64 {
	if v == own {
		return 0
	}
	return int64(v)
}

func fromMessage(m *historyv1.Record) *history.Record {
	r := &history.Record{
		Revision: m.Revision, CellTime: m.CellDriftMs + history.Version(m.Version).Time(), Version: history.Version(m.Version), State: history.State(min(uint32(m.State), math.MaxUint8)),
		Position: m.PositionMs, Duration: m.DurationMs, DurationVersion: absolute(m.DurationVersion, m.Version, m.DurationMs != 0),
		Session: m.Session, Device: m.Device, Meta: metaOf(m.Meta), MetaVersion: absolute(m.MetaVersion, m.Version, len(m.Meta) > 0),
		PlaysBefore: m.PlaysBefore, PlaysBeforeAt: m.PlaysBeforeMs, RemovedAt: m.RemovedMs, Partial: m.Partial,
		Early: m.Early, ResumePoint: history.ResumePoint{Version: history.Version(m.ResumeVersion), Position: m.ResumePositionMs},
		Restored: m.Restored, Original: history.Version(m.OriginalVersion),
		WatchedBefore: m.WatchedBeforeMs, WatchedBeforeAt: m.WatchedBeforeTimeMs,
		Start: history.Peak{At: m.StartMs, Position: m.StartPositionMs}, AtEnd: m.AtEnd, Told: string(m.Told),
	}
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if number > wire.LastField { // a known number with another wire type is damage
			r.Unknown += string(b[:n])
		}
		b = b[n:]
	}
	r.UnknownVersion = absolute(m.UnknownVersion, m.Version, len(r.Unknown) > 0)
	for _, w := range m.Watched {
		one := history.WatchedTime{At: w.TimeMs, Viewing: w.Viewing, Watched: w.WatchedMs, Began: w.TimeMs - w.WatchedMs, Speed: w.Speed}
		if w.LengthMs != nil {
			one.Began = w.TimeMs - *w.LengthMs
		}
		r.Watches = append(r.Watches, one)
	}
	for _, v := range m.Viewings {
		device := m.Device
		if v.Device != nil {
			device = *v.Device
		}
		r.Viewings = append(r.Viewings, history.Viewing{
			Viewing: v.Viewing, Version: history.Version(v.Version), Position: v.PositionMs, State: history.State(min(uint32(v.State), math.MaxUint8)),
			Device: device, Start: history.Peak{At: v.StartMs, Position: v.StartPositionMs}, AtEnd: v.AtEnd,
		})
	}
	for _, p := range m.Peaks {
		r.Peaks = append(r.Peaks, history.Peak{At: p.TimeMs, Position: p.PositionMs})
	}
	for _, c := range m.Completions {
		one := history.Stay{At: c.TimeMs, Viewing: c.Viewing, Length: c.LengthMs, Duration: orElse(c.DurationMs, m.DurationMs), Position: c.PositionMs, Reach: orElse(c.ReachMs, history.ReachOf(c.PositionMs)), Sure: c.Sure}
		if c.AgeMs != nil {
			one.Began = c.TimeMs - *c.AgeMs
		}
		r.Completions = append(r.Completions, one)
	}
	for _, l := range m.Lows {
		one := history.Low{At: r.Version.Time() - l.BeforeMs, Viewing: r.ViewingAt(uint64(l.Of)), Length: l.LengthMs, Duration: orElse(l.DurationMs, m.DurationMs)}
		if l.Viewing != nil {
			one.Viewing = *l.Viewing
		}
		r.Lows = append(r.Lows, one)
	}
	for _, s := range m.Starts {
		r.Starts = append(r.Starts, history.Start{At: s.TimeMs, Viewing: s.Viewing, Position: s.PositionMs, Duration: s.DurationMs})
	}
	return r
}

func absolute(v, own int64, present bool) history.Version {
	switch {
	case !present:
		return 0
	case v == 0:
		return history.Version(own)
	}
	return history.Version(v)
}

func flushBatch(keys []history.Announcement) *historyv1.FlushBatch {
	m := &historyv1.FlushBatch{}
	for i, d := range keys {
		if i == 0 || keys[i-1].Key.UID != d.Key.UID {
			m.Users = append(m.Users, &historyv1.UserKeys{Uid: d.Key.UID})
		}
		o := &historyv1.AnnouncedObject{Id: d.Key.Object.ID, Type: d.Key.Object.Type}
		if d.Record != nil {
			o.Record = marshal(message(d.Record))
		}
		u := m.Users[len(m.Users)-1]
		u.Objects = append(u.Objects, o)
	}
	return m
}

// fromFlushBatch is the inverse of flushBatch. It fails if a record does not decode.
func fromFlushBatch(m *historyv1.FlushBatch) (keys []history.Announcement, err error) {
	for _, u := range m.Users {
		for _, o := range u.Objects {
			d := history.Announcement{Key: history.UserKey(u.Uid)}
			d.Key.Object = history.Object{ID: o.Id, Type: o.Type}
			if len(o.Record) > 0 {
				var r historyv1.Record
				err = cmp.Or(err, proto.Unmarshal(o.Record, &r))
				d.Record = fromMessage(&r)
			}
			keys = append(keys, d)
		}
	}
	return keys, err
}

// marshal encodes with the generated code, maps in key order.
func marshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// records draws records of every shape, including ones that no fold produces.
func records() *rapid.Generator[*history.Record] {
	return rapid.Custom(func(t *rapid.T) *history.Record {
		r := &history.Record{
			Revision: rapid.Uint64().Draw(t, "revision"),
			Version:  versions().Draw(t, "version"),
			State:    history.State(rapid.Byte().Draw(t, "state")),
			Position: rapid.Int64().Draw(t, "position"),
			Session:  rapid.String().Draw(t, "session"),
			Device:   rapid.String().Draw(t, "device"),

			PlaysBefore:   rapid.Uint64().Draw(t, "plays before"),
			PlaysBeforeAt: rapid.Int64().Draw(t, "plays before at"),
			RemovedAt:     rapid.Int64().Draw(t, "reset"),
			Partial:       rapid.Bool().Draw(t, "partial"),
			Peaks:         list(t, "peaks", history.Peak{}),
			Completions:   list(t, "completions", history.Stay{}),

			Restored:        rapid.Bool().Draw(t, "restored"),
			Original:        rapid.Make[history.Version]().Draw(t, "original"),
			Early:           rapid.Bool().Draw(t, "early"),
			ResumePoint:     rapid.Make[history.ResumePoint]().Draw(t, "non early"),
			Watches:         list(t, "watches", history.WatchedTime{}),
			WatchedBefore:   rapid.Int64().Draw(t, "watched before"),
			WatchedBeforeAt: rapid.Int64().Draw(t, "watched before at"),
			Start:           rapid.Make[history.Peak]().Draw(t, "start"),
			Viewings:        list(t, "viewings", history.Viewing{}),
			AtEnd:           rapid.Bool().Draw(t, "at end"),
			Lows:            list(t, "lows", history.Low{}),
			Starts:          list(t, "starts", history.Start{}),
		}
		if n := len(r.Lows); n > 0 && rapid.Bool().Draw(t, "of a listed session") {
			r.Lows[0].Viewing = r.ViewingAt(uint64(rapid.IntRange(0, len(r.Viewings)).Draw(t, "of")))
		}
		r.CellTime = r.Version.Time() + rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<40)).Draw(t, "cell drift")
		if rapid.Bool().Draw(t, "written by a newer version") {
			r.Unknown = string(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), rapid.Uint64().Draw(t, "unknown")))
			r.UnknownVersion = rapid.OneOf(rapid.Just(r.Version), versions()).Draw(t, "unknown version")
		}
		if rapid.Bool().Draw(t, "knows the duration") {
			r.Duration = rapid.Int64Min(1).Draw(t, "duration")
			r.DurationVersion = rapid.OneOf(rapid.Just(r.Version), versions()).Draw(t, "duration version")
		}
		entry := rapid.Custom(func(t *rapid.T) *historyv1.MetaEntry {
			e := &historyv1.MetaEntry{Key: rapid.StringN(1, -1, -1).Draw(t, "key"), Version: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, "key version")}
			if rapid.Bool().Draw(t, "has a value") {
				e.Value = new(rapid.String().Draw(t, "value"))
			}
			return e
		})
		if m := rapid.SliceOfN(entry, 0, 4).Draw(t, "meta"); len(m) > 0 {
			r.Meta = metaOf(m)
			r.MetaVersion = rapid.OneOf(rapid.Just(r.Version), versions()).Draw(t, "meta version")
		}
		return r
	})
}

// versions draws versions except 0, which no event has.
func versions() *rapid.Generator[history.Version] {
	return rapid.Map(rapid.Int64Min(1), func(v int64) history.Version { return history.Version(v) })
}

func list[E any](t *rapid.T, label string, _ E) []E {
	l := rapid.SliceOfN(rapid.Make[E](), 0, 4).Draw(t, label)
	if len(l) == 0 {
		return nil
	}
	return l
}
