package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
)

// BenchmarkPinRelease is what a heartbeat of a running viewing costs.
func BenchmarkPinRelease(b *testing.B) {
	a, err := aggregate.New(aggregate.Config{Publisher: &queue{}})
	if err != nil {
		b.Fatal(err)
	}
	keys := make([]history.Key, 100_000)
	for i := range keys {
		keys[i] = key(fmt.Sprint("user", i), i)
		a.Release(a.Pin(keys[i]), aggregate.Result{Written: &history.Record{}, Mark: 1})
	}
	record := &history.Record{}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			p := a.Pin(keys[i*7919%len(keys)])
			a.Release(p, aggregate.Result{Written: record})
		}
	})
}

// BenchmarkViewing is what a viewing of one heartbeat costs: it is opened and ends.
func BenchmarkViewing(b *testing.B) {
	a, err := aggregate.New(aggregate.Config{Publisher: &queue{}, Max: 64_000})
	if err != nil {
		b.Fatal(err)
	}
	uids := make([]string, 1000)
	for i := range uids {
		uids[i] = fmt.Sprint("user", i)
	}
	record := &history.Record{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := history.Key{UID: uids[i%len(uids)], Object: history.Object{ID: "100", Type: uint32(i)}}
		a.Release(a.Pin(k), aggregate.Result{Written: record, Mark: history.Mark(i + 1), Ended: true})
	}
}
