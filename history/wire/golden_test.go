package wire_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// everything is a record with all that a record can hold.
func everything() *history.Record {
	v := history.VersionOf(1_760_000_000_123, history.RankStop)
	return &history.Record{
		Revision: 0xf1e2d3c4b5a69788, CellTime: v.Time() + 300, Version: v, State: history.StateStopped, Position: 61_000,
		Duration: 5_400_000, DurationVersion: v - 4000, Session: "s-1", Device: "téléphone",
		Meta: map[string]string{"title": "Ä", "season": "2", "empty": ""}, MetaVersion: v - 8000,
		Peaks:       []history.Peak{{At: 1_750_000_000_000, Position: 5_399_000}, {At: 1_755_000_000_000, Position: 70_000}},
		Completions: []history.Completion{{At: 1_740_000_000_000, Viewing: history.ViewingOf("s-0")}, {At: 1_750_000_000_000, Viewing: 1}},
		PlaysBefore: 7, PlaysBeforeAt: 1_730_000_000_000, Reset: 1_720_000_000_000, Partial: true,
	}
}

// watched is a record of viewings that say how much they have played, after a start.
func watched() *history.Record {
	v := history.VersionOf(1_760_000_000_123, history.RankProgress)
	return &history.Record{
		Revision: 2, CellTime: v.Time(), Version: v, State: history.StatePlaying, Position: 1000, Session: "s-2", Early: true,
		NonEarly:      history.NonEarly{Version: v - 4000, Position: 70_000},
		Watches:       []history.Watch{{At: 1_750_000_000_000, Viewing: 1, Watched: 60_000}, {At: 1_760_000_000_123, Viewing: history.ViewingOf("s-2"), Watched: 1000}},
		WatchedBefore: 3_600_000, WatchedBeforeAt: 1_740_000_000_000,
	}
}

// golden reads bytes that stores and queues already hold: they never change.
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
	tests := map[string]*history.Record{"heartbeat": heartbeat(), "everything": everything(), "tombstone": deleted, "watched": watched()}
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
