package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// everything returns a record with all fields.
func everything() *history.Record {
	v := history.VersionOf(1_760_000_000_123, history.RankStop)
	return &history.Record{
		Revision: 0xf1e2d3c4b5a69788, CellTime: v.Time() + 300, Version: v, State: history.StateStopped, Position: 61_000,
		Duration: 5_400_000, DurationVersion: v - 4000, Session: "s-1", Device: "téléphone",
		Meta: history.NewMeta(map[string]string{"title": "Ä", "season": "2", "empty": ""}), MetaVersion: v - 8000,
		Peaks: []history.Peak{{At: 1_750_000_000_000, Position: 5_399_000}, {At: 1_755_000_000_000, Position: 70_000}},
		Completions: []history.Stay{
			{At: 1_740_000_000_000, Viewing: history.ViewingOf("s-0"), Length: 15_000, Duration: 5_400_000, Position: 5_000_000, Reach: 5_555_555, Began: 1_739_990_000_000, Sure: true},
			{At: 1_750_000_000_000, Viewing: 1, Duration: 100_000, Position: 60_000, Reach: 100_000},
		},
		PlaysBefore: 7, PlaysBeforeAt: 1_730_000_000_000, RemovedAt: 1_720_000_000_000, Partial: true,
	}
}

func watched() *history.Record {
	v := history.VersionOf(1_760_000_000_123, history.RankProgress)
	return &history.Record{
		Revision: 2, CellTime: v.Time(), Version: v, State: history.StatePlaying, Position: 1000, Session: "s-2", Early: true,
		ResumePoint: history.ResumePoint{Version: v - 4000, Position: 70_000},
		Watches: []history.WatchedTime{
			{At: 1_750_000_000_000, Viewing: 1, Watched: 60_000, Began: 1_749_999_940_000},
			{At: 1_760_000_000_123, Viewing: history.ViewingOf("s-2"), Watched: 1000, Began: 1_759_999_999_123},
		},
		WatchedBefore: 3_600_000, WatchedBeforeAt: 1_740_000_000_000,
	}
}

func paused() *history.Record {
	r := watched()
	r.Revision, r.Device = 5, "tv"
	r.Watches = []history.WatchedTime{
		{At: 1_750_000_000_000, Viewing: 1, Watched: 60_000, Began: 1_749_999_900_000, Speed: 125},
		{At: 1_760_000_000_123, Viewing: history.ViewingOf("s-2"), Watched: 1000, Began: 1_759_999_990_123},
	}
	return r
}

// dismissed returns a record that was restored, then dismissed from continue watching.
func dismissed() *history.Record {
	v := history.VersionOf(1_760_000_000_124, history.RankProgress)
	return &history.Record{
		Revision: 3, CellTime: v.Time(), Version: v, State: history.StateStopped, Position: 70_000, Session: "s-3",
		RemovedAt: 1_760_000_000_123, Restored: true, Original: v - 4_000_003, Dismissed: history.VersionOf(1_760_000_100_000, history.RankDismissed),
	}
}

func viewed() *history.Record {
	v := history.VersionOf(1_760_000_000_125, history.RankProgress)
	return &history.Record{
		Revision: 4, CellTime: v.Time(), Version: v, State: history.StatePlaying, Position: 70_000, Session: "s-4", Device: "tv",
		Start: history.Peak{At: 1_760_000_000_025, Position: 69_900},
		Viewings: []history.Viewing{
			{Viewing: 7, Version: v - 800_003, Position: 5_000, State: history.StateStopped, Device: "tv"},
			{Viewing: 6, Version: v - 400_003, Position: 69_000, State: history.StateFinished, Device: "phone", Start: history.Peak{At: 1_759_999_000_025, Position: 4_000}},
			{Viewing: 5, Version: v - 400_000, Position: 9_000, State: history.StatePaused, AtEnd: true},
		},
		Lows:   []history.Low{{At: 1_759_999_000_100, Viewing: 5, Length: 9_000, Duration: 60_000}, {At: 1_759_999_999_125, Viewing: history.ViewingOf("s-4")}},
		Starts: []history.Start{{At: 1_759_999_000_000, Viewing: history.ViewingOf("s-4"), Position: 3}, {At: 1_759_999_100_000, Viewing: 6, Duration: 60_000}},
	}
}

// named returns a record with one report's title alone and another's removed key.
func named() *history.Record {
	r := heartbeat()
	r.Revision = 6
	r.Meta, r.MetaVersion = history.MetaOf([]history.MetaEntry[string]{
		{Key: "series", Value: "Harbour", Version: r.Version - 400_000}, {Key: "season", Version: r.Version - 200_000, Removed: true}, {Key: "title", Value: "Low Tide", Version: r.Version},
	})
	return r
}

// golden reads bytes of stores and queues, which never change.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(string(bytes.Join(bytes.Fields(text), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenRecords(t *testing.T) {
	tombstone := &history.Event{Kind: history.KindDelete, At: 1_760_000_000_000, Device: "tv"}
	deleted := tombstone.Record()
	deleted.Revision, deleted.CellTime = 1, tombstone.At
	tests := map[string]*history.Record{"heartbeat": heartbeat(), "everything": everything(), "tombstone": deleted, "watched": watched(), "dismissed": dismissed(), "viewed": viewed(), "paused": paused(), "named": named()}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			b := golden(t, name)
			if got := wire.AppendRecord(nil, r); !bytes.Equal(got, b) {
				t.Errorf("encoded:\ngot  %x\nwant %x", got, b)
			}
			if got, err := wire.Record(b); err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("decoded:\ngot  %+v, %v\nwant %+v", got, err, r)
			}
		})
	}
}

func TestGoldenBatch(t *testing.T) {
	keys := []history.Announcement{
		{Key: history.Key{UID: "1234567", Object: history.Object{ID: "100", Type: 1}}},
		{Key: history.Key{UID: "1234567", Object: history.Object{ID: "ep_7:de", Type: 4_294_967_295}}},
		{Key: history.UserKey("ann@example.org")},
		{Key: history.Key{UID: "_", Object: history.Object{ID: "2", Type: 4}}, Record: heartbeat()},
	}
	b := golden(t, "batch")
	if got := wire.AppendBatch(nil, keys); !bytes.Equal(got, b) {
		t.Errorf("encoded:\ngot  %x\nwant %x", got, b)
	}
	if got, err := wire.Batch(b); err != nil || !equal(got, keys) {
		t.Errorf("decoded:\ngot  %v, %v\nwant %v", got, err, keys)
	}
}

// FuzzRecord compares the decoder with the generated one and with the encoder.
func FuzzRecord(f *testing.F) {
	r := heartbeat()
	f.Add(wire.AppendRecord(nil, r))
	f.Add(wire.AppendRecord(nil, everything()))
	f.Add(wire.AppendRecord(nil, watched()))
	f.Add([]byte{2 << 3, 7, 6 << 3, 7})  // version of an absent duration
	f.Add([]byte{3<<3 | 2, 1, 7})        // number sent as text
	f.Add([]byte{10<<3 | 5, 0, 0, 0, 0}) // metadata sent as a number
	f.Add([]byte{0x8b, 1, 0x8c, 1})      // unknown group
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := wire.Record(b)
		if len(b) == 0 {
			return
		}
		var m historyv1.Record
		generated := proto.Unmarshal(b, &m)
		if (generated == nil) != (err == nil) {
			t.Fatalf("%x: got %v, generated code says %v", b, err, generated)
		}
		if err != nil {
			if !errors.Is(err, wire.ErrCorrupt) {
				t.Fatalf("%x: got %v, want ErrCorrupt", b, err)
			}
			return
		}
		if want := fromMessage(&m); !reflect.DeepEqual(got, want) {
			t.Fatalf("%x:\ngot  %+v\nwant %+v", b, got, want)
		}
		if again, err := wire.Record(wire.AppendRecord(nil, got)); err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%x, encoded and decoded again:\ngot  %+v, %v\nwant %+v", b, again, err, got)
		}
	})
}

// FuzzBatch does the same for batches, which accept only valid keys.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{})
	f.Add(wire.AppendBatch(nil, flush(5)))
	f.Add(wire.AppendBatch(nil, []history.Announcement{{Key: history.UserKey("u"), Record: heartbeat()}}))
	f.Add([]byte{1<<3 | 2, 10, 2<<3 | 2, 5, 1<<3 | 2, 1, '1', 2 << 3, 1, 1<<3 | 2, 1, 'u'}) // the uid comes last
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := wire.Batch(b)
		var m historyv1.FlushBatch
		generated := proto.Unmarshal(b, &m)
		want, content := fromFlushBatch(&m)
		if legal := generated == nil && content == nil && !slices.ContainsFunc(want, illegal); legal != (err == nil) {
			t.Fatalf("%x: got %v, generated code says %v, %v and holds %v", b, err, generated, content, want)
		}
		if err != nil {
			if !errors.Is(err, wire.ErrCorrupt) {
				t.Fatalf("%x: got %v, want ErrCorrupt", b, err)
			}
			return
		}
		if !equal(got, want) {
			t.Fatalf("%x:\ngot  %v\nwant %v", b, got, want)
		}
		if again, err := wire.Batch(wire.AppendBatch(nil, got)); err != nil || !equal(again, got) {
			t.Fatalf("%x, encoded and decoded again: got %v, %v, want %v", b, again, err, got)
		}
	})
}

func illegal(d history.Announcement) bool {
	k, err := history.ParseKey(d.Key.String())
	return err != nil || k != d.Key
}
