package rpc_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/paired"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkLongHistory reads long histories with a thousand cached records, with and without segments. It reads
// pages of 20 below the low watermark, in the middle and at the end, and just after a put. It also exports in pages
// of 100 and reads a warm-up page.
func BenchmarkLongHistory(b *testing.B) {
	for _, compacted := range []bool{false, true} {
		for _, size := range []int{2000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("parts=%v/records=%d", compacted, size), func(b *testing.B) { longHistory(b, size, compacted) })
		}
	}
}

func longHistory(b *testing.B, size int, compacted bool) {
	h := houseOf(b, pebble.Config{Keep: 1000, CompactAbove: 1999})
	ids := put(b, h, size, 1000)
	if compacted {
		h.clock.Add(25*time.Hour.Milliseconds() + int64(size)*1000)
		compact(b, h)
	}
	warmUp(b, h, 1000)
	s := h.idle(b)
	until := func(place int) *historyv1.ListRequest {
		return &historyv1.ListRequest{Uid: "ann", Limit: 20, UntilMs: start - 1000 - int64(place)*1000}
	}
	for place, at := range map[string]int{"low watermark": 1000, "middle": size / 2, "end": size - 20} {
		b.Run("page="+place, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pageOf(b, s, until(at), 20)
			}
		})
	}
	b.Run("page=changed", func(b *testing.B) {
		b.ReportAllocs()
		k := history.Key{UID: "ann", Object: history.Object{ID: ids[0], Type: 1}}
		for i := int64(0); b.Loop(); i++ {
			e := history.Event{Key: k, Kind: history.KindStop, At: start - 999 + i, Position: 200_000}
			if errs := h.db.Archive().Put(b.Context(), []history.Cell{{Key: k, Record: whole(e.Record()).Successor(nil)}}); errs != nil {
				b.Fatal(errs)
			}
			pageOf(b, s, until(size/2), 20)
		}
	})
	b.Run("export", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			req := &historyv1.ListRequest{Uid: "ann", Limit: 100, Records: true}
			for n := 0; n < size; n += 100 {
				req.Cursor = pageOf(b, s, req, 100)
			}
		}
	})
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p, err := h.db.Archive().Page(b.Context(), "ann", history.Query{Limit: 1000}); err != nil || len(p.Items) != 1000 {
				b.Fatal(len(p.Items), err)
			}
		}
	})
}

// BenchmarkLongHistoryRatios compares a compacted history of 100,000 records with shorter ones, in turns: pages of
// 20, an export and a warm-up read. Use -benchtime 7x.
func BenchmarkLongHistoryRatios(b *testing.B) {
	var variants []paired.Variant
	add := func(name, of string, times int, do func()) {
		variants = append(variants, paired.Variant{Name: name, Of: of, Times: times, Do: do})
	}
	for _, size := range []int{2000, 10_000, 100_000} {
		h := houseOf(b, pebble.Config{Keep: 1000, CompactAbove: 1999})
		put(b, h, size, 1000)
		h.clock.Add(25*time.Hour.Milliseconds() + int64(size)*1000)
		compact(b, h)
		warmUp(b, h, 1000)
		s := h.idle(b)
		page := func(place int) func() {
			req := &historyv1.ListRequest{Uid: "ann", Limit: 20, UntilMs: start - 1000 - int64(place)*1000}
			return func() { pageOf(b, s, req, 20) }
		}
		export := func() {
			req := &historyv1.ListRequest{Uid: "ann", Limit: 100, Records: true}
			for n := 0; n < size; n += 100 {
				req.Cursor = pageOf(b, s, req, 100)
			}
		}
		warm := func() {
			if p, err := h.db.Archive().Page(b.Context(), "ann", history.Query{Limit: 1000}); err != nil || len(p.Items) != 1000 {
				b.Fatal(len(p.Items), err)
			}
		}
		switch size {
		case 2000:
			add("low watermark", "", 500, page(1000))
			add("warm-2000", "", 100, warm)
		case 10_000:
			add("export-10000", "", 1, export)
		default:
			add("middle", "low watermark", 500, page(size/2))
			add("end", "low watermark", 500, page(size-20))
			add("warm-100000", "warm-2000", 100, warm)
			add("export-100000", "export-10000", 1, export)
		}
	}
	paired.Run(b, variants)
}

// compact compacts everything that is due.
func compact(b *testing.B, h *house) {
	began, all := time.Now(), 0
	for {
		n, err := h.db.Archive().Compact(b.Context(), "ann")
		if err != nil {
			b.Fatal(err)
		}
		if all += n; n == 0 {
			b.Logf("compacted %d records, %v each", all, time.Since(began)/time.Duration(all))
			return
		}
	}
}

func pageOf(b *testing.B, s *rpc.Server, req *historyv1.ListRequest, n int) (cursor string) {
	resp, err := s.List(b.Context(), req)
	if err != nil || len(resp.GetItems()) != n {
		b.Fatalf("%d items, %v; want %d", len(resp.GetItems()), err, n)
	}
	return resp.GetCursor()
}
