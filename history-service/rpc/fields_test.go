package rpc_test

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// notOfTheEvent lists the heartbeat fields that do not reach the record, with the reason.
var notOfTheEvent = map[protoreflect.Name]string{
	"failed":    "nothing is stored",
	"incognito": "nothing is stored",
	"if_match":  "nothing is stored over another record",
	"origin":    "it is told with the change",
	"day":       "it asks for another answer",
}

// TestEveryFieldOfAHeartbeat changes each field of a heartbeat. Every field has an effect, and all except the
// listed ones change the record.
func TestEveryFieldOfAHeartbeat(t *testing.T) {
	base := effectOf(t, func(*historyv1.Heartbeat) {})
	fields := new(historyv1.Heartbeat).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		got := effectOf(t, func(hb *historyv1.Heartbeat) { alter(hb.ProtoReflect(), field) })
		if reflect.DeepEqual(got, base) {
			t.Errorf("%s makes no difference", field.Name())
		}
		stored := got.Record != nil && !reflect.DeepEqual(got.kept, base.kept)
		if why, listed := notOfTheEvent[field.Name()]; stored == listed {
			t.Errorf("%s: it reaches the record: %v (%s)\n%+v", field.Name(), stored, why, got.Record)
		}
	}
}

// kept is a record and its key.
type kept struct {
	Key history.Key
	*history.Record
}

// effect is everything that a heartbeat causes.
type effect struct {
	kept
	statuses []historyv1.Status
	days     int // number of answers
	told     []history.Change
}

// effectOf sends a heartbeat with every field set, after change.
func effectOf(t *testing.T, change func(*historyv1.Heartbeat)) (e effect) {
	t.Helper()
	bubble(t, func(f *fed) {
		_, days := f.almanac()
		s := f.another(days)
		hb := &historyv1.Heartbeat{
			Uid: "ann", ObjectId: "film", ObjectType: 10, Kind: progress, EventTimeMs: start - 60_000, PositionMs: 60_000, DurationMs: 600_000,
			Session: "s", Device: "d", Meta: map[string]string{"k": "v"},
			SentAtMs: start, ReceivedAtMs: start - 1000, StartedAtMs: start - 65_000, WatchedMs: 5400, SpeedPercent: 110,
		}
		change(hb)
		e.Key = history.Key{UID: hb.Uid, Object: history.Object{ID: hb.ObjectId, Type: hb.ObjectType}}
		var mu sync.Mutex
		sub := f.feed.Subscribe(func(n history.Notice) {
			mu.Lock()
			defer mu.Unlock()
			e.told = append(e.told, n.Changes...)
		})
		sub.Follow(history.BucketOf(hb.Uid))
		resp, err := s.Apply(f.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{hb}})
		if err != nil {
			f.Fatal(err)
		}
		pass(second)
		_ = sub.Close()
		e.statuses, e.days = resp.GetStatuses(), len(resp.GetDays())
		if r := f.db.Cache().Load(f.Context(), []history.Key{e.Key})[0].Record; r != nil {
			e.Record = new(*r)
			e.Revision, e.Partial = 0, false
		}
	})
	return e
}

// alter changes a field: times by an hour, other numbers by half.
func alter(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	if field.IsList() {
		m.Mutable(field).List().Append(protoreflect.ValueOfString("k2"))
		return
	}
	v := m.Get(field)
	switch field.Kind() {
	case protoreflect.StringKind:
		v = protoreflect.ValueOfString(v.String() + "x")
	case protoreflect.BoolKind:
		v = protoreflect.ValueOfBool(!v.Bool())
	case protoreflect.EnumKind:
		v = protoreflect.ValueOfEnum(v.Enum() + 1)
	case protoreflect.Uint32Kind:
		v = protoreflect.ValueOfUint32(uint32(v.Uint() / 2)) //nolint:gosec // it was one
	case protoreflect.Fixed64Kind:
		v = protoreflect.ValueOfUint64(v.Uint() + 1)
	case protoreflect.Int64Kind:
		v = protoreflect.ValueOfInt64(lower(v.Int()))
	case protoreflect.MessageKind:
		v = m.NewField(field)
		if field.IsMap() {
			v.Map().Set(protoreflect.ValueOfString("k2").MapKey(), protoreflect.ValueOfString("v2"))
		}
	default:
		panic("alter: teach me " + field.Kind().String())
	}
	m.Set(field, v)
}

func lower(n int64) int64 {
	if n > start/2 {
		return n - 3_600_000
	}
	return n / 2
}

// unseen lists the record fields that are invisible to readers, with the reason.
var unseen = map[string]string{
	"Revision":        "it names the content",
	"CellTime":        "it orders contents",
	"DurationVersion": "it orders durations",
	"MetaVersion":     "it orders metadata",
	"PlaysBeforeAt":   "there is a newer completion",
	"WatchedBeforeAt": "it orders sessions",
	"RemovedAt":       "it keeps out what comes late",
	"Restored":        "it keeps in what was removed",
	"Start":           "it is read with the viewings",
	"Viewings":        "they are read apart",
	"Position":        "it is early, and there is a later one that is not",
	"AtEnd":           "plays are read from it",
	"Lows":            "plays are read from them",
	"Starts":          "plays are read from them",
	"Told":            "it is about the stream of plays",
	"Unknown":         "only a newer version knows what it is",
	"UnknownVersion":  "it orders unknown fields",
}

// ofWhereItWasLeft lists the fields in the upper half of an etag, by whether the record's latest event is early.
var ofWhereItWasLeft = map[bool][]string{true: {"Early", "ResumePoint"}, false: {"Early", "Original", "Position"}}

// notHashed lists the item fields that are not in the etag, with the reason.
var notHashed = map[protoreflect.Name]string{
	"object":     "an etag is that of one object",
	"etag":       "it is the etag",
	"incomplete": "the record is the same one",
	"resume_ms":  "it is position_ms, or 0 once completed",
	"next":       "it is about another one",
}

// TestReadersSeeEveryField changes each field of a record. The item and its etag change, except for the listed
// fields. Each item field is once the only difference, so the etag misses none.
func TestReadersSeeEveryField(t *testing.T) {
	h := newHouse(t)
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	point(t, s, "ann", "warm")
	a.down.Store(true) // keeps a partial record partial
	base := h.shown(t, s, "base", everything())
	sure := make(map[protoreflect.Name]bool)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		r := everything()
		if f.Name == "Unknown" { // must be a valid field
			r.Unknown = string(protowire.AppendVarint(protowire.AppendTag(nil, 3001, protowire.VarintType), 5))
		} else {
			revise(reflect.ValueOf(r).Elem().FieldByIndex(f.Index))
		}
		it := h.shown(t, s, f.Name, r)
		seen := differing(base, it)
		if why, listed := unseen[f.Name]; listed == (len(seen) > 0) {
			t.Errorf("%s: readers see it in %v (%s)", f.Name, seen, why)
		}
		if left := base.Etag>>32 != it.Etag>>32; left != slices.Contains(ofWhereItWasLeft[true], f.Name) {
			t.Errorf("%s: left off elsewhere, by the etag: %v", f.Name, left)
		}
		hashed := slices.DeleteFunc(seen, func(name protoreflect.Name) bool { return notHashed[name] != "" })
		if len(hashed) > 0 && it.Etag == base.Etag {
			t.Errorf("%s: the etag does not name %v", f.Name, hashed)
		}
		if len(hashed) == 1 {
			sure[hashed[0]] = true
		}
	}
	r := everything()
	r.ResumePoint.Version = history.VersionOf(r.CompletedAt(), history.RankStop)
	it := h.shown(t, s, "completed", r)
	sure["completed"] = it.Completed && it.Etag != base.Etag && slices.Equal(differing(base, it), []protoreflect.Name{"etag", "resume_ms", "completed"})
	begun, beyond := everything(), everything()
	begun.Position, beyond.Position, beyond.Early = begun.ResumePoint.Position, begun.ResumePoint.Position, false
	one, other := h.shown(t, s, "begun", begun), h.shown(t, s, "beyond", beyond)
	sure["early"] = one.Early && slices.Equal(differing(one, other), []protoreflect.Name{"etag", "early"})
	fields := base.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if name := fields.Get(i).Name(); !sure[name] && notHashed[name] == "" {
			t.Errorf("%s: no field of a record changes it alone", name)
		}
	}
}

// everything is a record with every field set.
func everything() *history.Record {
	v := func(ago int64) history.Version { return history.VersionOf(start-ago, history.RankStop) }
	return &history.Record{
		Revision: history.NewRevision(), CellTime: start,
		Version: v(60_000), State: history.StateStopped, Early: true, Position: 5000, Session: "s", Device: "d",
		ResumePoint: history.ResumePoint{Version: v(70_000), Position: 60_000},
		Duration:    600_000, DurationVersion: v(80_000), Meta: history.NewMeta(map[string]string{"k": "v"}), MetaVersion: v(80_000),
		Peaks:       []history.Peak{{At: start - 90_000, Position: 200_000}},
		Completions: []history.Stay{{At: start - 90_000, Viewing: 10}}, PlaysBefore: 2, PlaysBeforeAt: start - 200_000,
		Watches: []history.WatchedTime{{At: start - 90_000, Viewing: 10, Watched: 30_000, Began: start - 130_000, Speed: 150}}, WatchedBefore: 10_000, WatchedBeforeAt: start - 100_000,
		RemovedAt: start - 7_200_000, Restored: true, Original: v(7_300_000), Dismissed: history.VersionOf(start-50_000, history.RankDismissed),
		Start: history.Peak{At: start - 7_400_000, Position: 4000}, Viewings: []history.Viewing{
			{Viewing: 10, Version: v(95_000), Position: 30_000, State: history.StateStopped, Device: "e"},
		},
		Lows:    []history.Low{{At: start - 97_000, Viewing: 10, Length: 1000, Duration: 600_000}},
		Starts:  []history.Start{{At: start - 99_000, Viewing: 10, Position: 1000}},
		Unknown: string(protowire.AppendVarint(protowire.AppendTag(nil, 3000, protowire.VarintType), 5)), UnknownVersion: v(80_000),
	}
}

// revise is alter for records.
func revise(v reflect.Value) {
	if meta, ok := reflect.TypeAssert[*history.Meta](v.Addr()); ok {
		*meta = history.NewMeta(map[string]string{"k2": "v2"})
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			revise(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(slices.Concat(v.Bytes(), v.Bytes()))
			return
		}
		revise(v.Index(0))
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int64:
		v.SetInt(lower(v.Int()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() / 2)
	default:
		panic("revise: teach me " + v.Kind().String())
	}
}

// shown returns the item of a cached record.
func (h *house) shown(t *testing.T, s *rpc.Server, id string, r *history.Record) *historyv1.Item {
	t.Helper()
	key := history.Key{UID: "ann", Object: history.Object{ID: id, Type: 1}}
	if out := h.db.Cache().Write(t.Context(), []history.Write{{Key: key, Record: r}})[0]; out.Status != history.Applied {
		t.Fatalf("apply %s: %+v", id, out)
	}
	return cmp.Or(point(t, s, "ann", id), new(historyv1.Item))
}

// differing returns the fields in which two items differ, except the object.
func differing(a, b *historyv1.Item) (names []protoreflect.Name) {
	fields := a.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() != "object" && !a.ProtoReflect().Get(f).Equal(b.ProtoReflect().Get(f)) {
			names = append(names, f.Name())
		}
	}
	return names
}
