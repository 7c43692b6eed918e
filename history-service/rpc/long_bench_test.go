package rpc_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkLongHistory reads users of whom the archive has many records and the cache the newest
// thousand: a page of 20 from below the floor, in the middle and at the end, the same just after
// something else of the user was archived, all of it in pages of 100, and what a warm-up reads.
func BenchmarkLongHistory(b *testing.B) {
	for _, size := range []int{2000, 10_000, 100_000} {
		h := smallHouse(b, 1000)
		ids := put(b, h, size, 1000)
		warmUp(b, h, 1000)
		s := h.idle(b)
		until := func(place int) *historyv1.ListRequest {
			return &historyv1.ListRequest{Uid: "ann", Limit: 20, UntilMs: start - 1000 - int64(place)*1000}
		}
		name := fmt.Sprintf("records=%d/", size)
		for place, at := range map[string]int{"floor": 1000, "middle": size / 2, "end": size - 20} {
			b.Run(name+"page="+place, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					pageOf(b, s, until(at), 20)
				}
			})
		}
		b.Run(name+"page=changed", func(b *testing.B) {
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
		b.Run(name+"export", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := &historyv1.ListRequest{Uid: "ann", Limit: 100, Records: true}
				for n := 0; n < size; n += 100 {
					req.Cursor = pageOf(b, s, req, 100)
				}
			}
		})
		b.Run(name+"warm", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p, err := h.db.Archive().Page(b.Context(), "ann", history.Query{Limit: 1000}); err != nil || len(p.Items) != 1000 {
					b.Fatal(len(p.Items), err)
				}
			}
		})
	}
}

func pageOf(b *testing.B, s *rpc.Server, req *historyv1.ListRequest, n int) (cursor string) {
	resp, err := s.List(b.Context(), req)
	if err != nil || len(resp.GetItems()) != n {
		b.Fatalf("%d items, %v; want %d", len(resp.GetItems()), err, n)
	}
	return resp.GetCursor()
}
