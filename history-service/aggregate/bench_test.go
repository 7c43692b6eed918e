package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
)

// BenchmarkHeartbeat measures a heartbeat of a running viewing.
func BenchmarkHeartbeat(b *testing.B) {
	a, err := aggregate.New(aggregate.Config{Publisher: &queue{}})
	if err != nil {
		b.Fatal(err)
	}
	held := aggregate.Held{Record: &history.Record{}}
	keys := make([]history.Key, 100_000)
	for i := range keys {
		keys[i] = key(fmt.Sprint("user", i), i)
		a.Put(keys[i], held, false)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			k := keys[i*7919%len(keys)]
			a.Get(k)
			a.Put(k, held, false)
		}
	})
}

// BenchmarkViewing measures a viewing of one heartbeat, from start to end.
func BenchmarkViewing(b *testing.B) {
	a, err := aggregate.New(aggregate.Config{Publisher: &queue{}, Max: 64_000})
	if err != nil {
		b.Fatal(err)
	}
	uids := make([]string, 1000)
	for i := range uids {
		uids[i] = fmt.Sprint("user", i)
	}
	held := aggregate.Held{Record: &history.Record{}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := history.Key{UID: uids[i%len(uids)], Object: history.Object{ID: "100", Type: uint32(i)}}
		a.Get(k)
		a.Put(k, held, true)
	}
}
