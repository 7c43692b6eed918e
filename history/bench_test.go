package history_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
)

// sessions are what players tell of a session.
var sessions = map[string]func(e *history.Event, i int){
	"nothing": func(*history.Event, int) {},
	"watched": func(e *history.Event, i int) { e.StartedAt, e.Watched = epoch-10_000, int64(i) },
}

// BenchmarkMerge folds one heartbeat after another of a viewing into its record, which
// has seen some others.
func BenchmarkMerge(b *testing.B) {
	for name, session := range sessions {
		b.Run(name, func(b *testing.B) {
			e := history.Event{Kind: history.KindProgress, Duration: 5_400_000, Device: "phone", Meta: map[string]string{"title": "x"}}
			var r *history.Record
			for i := range 5 {
				e.At, e.Position, e.Session = epoch+int64(i), 5_400_000, fmt.Sprint(i)
				session(&e, 1)
				r = history.Merge(r, e.Record())
			}
			e.Session = "s"
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.At, e.Position = epoch+100+int64(i), 60_000+int64(i)%5_000_000
				session(&e, i)
				said := e.Record()
				if m := history.Merge(r, said); !history.Same(m, r) {
					r = m
				}
			}
		})
	}
}
