package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/paired"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkBesideCompactions compares heartbeats and archive puts on all processors, with and without concurrent
// compaction of long users. Use -benchtime 7x, up to 20x. A turn takes about 15 s, to include several compactions.
// Each takes a third of a second, then pauses 19 times as long.
func BenchmarkBesideCompactions(b *testing.B) {
	const long, records, callers, batches = 40, 10_000, 4, 8000
	registry := prometheus.NewRegistry()
	h := houseOf(b, pebble.Config{Keep: 1000, CompactAbove: 1000, Registry: registry})
	uids := make([]string, long)
	for i := range uids {
		uids[i] = fmt.Sprint("long", i)
		var cells []history.Cell
		for n := range records {
			k := history.Key{UID: uids[i], Object: history.Object{ID: fmt.Sprint(n), Type: 1}}
			e := history.Event{Key: k, Kind: history.KindStop, At: start - 30*24*time.Hour.Milliseconds() - int64(n)*1000, Position: 200_000, Duration: 600_000, Session: fmt.Sprintf("%016x", n*7919)}
			cells = append(cells, history.Cell{Key: k, Record: whole(e.Record()).Successor(nil)})
		}
		if errs := h.db.Archive().Put(b.Context(), cells); errs != nil {
			b.Fatal(errs)
		}
		if _, err := h.db.Archive().Page(b.Context(), uids[i], history.Query{Limit: 1}); err != nil { // registers the user for compaction
			b.Fatal(err)
		}
	}
	s := h.idle(b)
	at := int64(0)
	load := func() {
		at += batches
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				req := &historyv1.ApplyRequest{}
				for i := range 100 {
					req.Heartbeats = append(req.Heartbeats, beat(fmt.Sprintf("user%d-%d/7", caller, i), progress, 60_000_000-at, 20))
				}
				for n := range int64(batches) {
					var cells []history.Cell
					for i, hb := range req.GetHeartbeats() {
						if hb.EventTimeMs++; i < 4 { // a viewing has about 26 heartbeats
							k := history.Key{UID: hb.GetUid(), Object: history.Object{ID: fmt.Sprint(at + n), Type: 1}}
							e := history.Event{Key: k, Kind: history.KindStop, At: hb.GetEventTimeMs(), Position: 200_000, Session: "s1"}
							cells = append(cells, history.Cell{Key: k, Record: whole(e.Record()).Successor(nil)})
						}
					}
					if resp, err := s.Apply(b.Context(), req); err != nil || resp.GetStatuses()[99] != stored {
						b.Error(resp, err)
						return
					}
					if errs := h.db.Archive().Put(b.Context(), cells); errs != nil {
						b.Error(errs)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	beside := func() {
		ctx, stop := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := h.db.Run(ctx); err != nil {
				b.Error(err)
			}
		})
		load()
		stop()
		wg.Wait()
	}
	paired.Run(b, []paired.Variant{{Name: "alone", Times: 1, Do: load}, {Name: "beside", Of: "alone", Times: 1, Do: beside}})
	compacted, waiting := figureOf(b, registry, "playhead_segments_compacted_records_total"), figureOf(b, registry, "playhead_segments_waiting_users")
	if b.ReportMetric(compacted/float64(b.N), "compacted/op"); compacted == 0 || waiting == 0 {
		b.Fatalf("%v records compacted, %v users left: that is no backlog", compacted, waiting)
	}
}

// figureOf returns the value of a counter or gauge.
func figureOf(b *testing.B, registry *prometheus.Registry, name string) float64 {
	b.Helper()
	families, err := registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	b.Fatalf("there is no %s", name)
	return 0
}
