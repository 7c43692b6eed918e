package wire_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// heartbeat is the record that a running viewing leaves behind.
func heartbeat() *history.Record {
	v := history.VersionOf(1_760_000_000_000, history.RankProgress)
	return &history.Record{
		Revision: 0x1122334455667788, CellTime: v.Time(), Version: v, State: history.StatePlaying, Position: 1_234_567,
		Duration: 5_400_000, DurationVersion: v, Session: "s-0123456789", Device: "phone-17",
	}
}

// described is one whose player says more of the object.
func described() *history.Record {
	r := heartbeat()
	r.Meta, r.MetaVersion = map[string]string{"season": "2", "episode": "11"}, r.Version
	return r
}

func BenchmarkAppendRecord(b *testing.B) {
	r := described()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = wire.AppendRecord(buf[:0], r)
	}
}

func BenchmarkRecord(b *testing.B) {
	buf := wire.AppendRecord(nil, described())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Record(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// flush is what a tick announces: keys of many users, one or two each.
func flush(n int) []history.Announcement {
	keys := make([]history.Announcement, n)
	for i := range keys {
		k := history.Key{UID: fmt.Sprintf("user%d", i*2/3), Object: history.Object{ID: fmt.Sprint(7_000_000 + i), Type: 1}}
		keys[i] = history.Announcement{Key: k}
	}
	return keys
}

func BenchmarkAppendBatch(b *testing.B) {
	keys := flush(10_000)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = wire.AppendBatch(buf[:0], keys)
	}
	perKey(b, len(keys))
}

func BenchmarkBatch(b *testing.B) {
	keys := flush(10_000)
	buf := wire.AppendBatch(nil, keys)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Batch(buf); err != nil {
			b.Fatal(err)
		}
	}
	perKey(b, len(keys))
}

func perKey(b *testing.B, keys int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
}
