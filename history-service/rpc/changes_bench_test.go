package rpc_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkChanges reads the changes since a token, for short and long histories with some changed objects, and a
// first token.
func BenchmarkChanges(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000} {
		h := houseOf(b, pebble.Config{Keep: 1000})
		put(b, h, size, 1000)
		warmUp(b, h, 1000)
		s := h.idle(b)
		ask := func(b *testing.B, since string, told int) string {
			b.Helper()
			resp, err := s.Changes(b.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: since})
			if err != nil || len(resp.GetItems()) != told {
				b.Fatalf("%d objects told (%v), want %d", len(resp.GetItems()), err, told)
			}
			return resp.GetToken()
		}
		for _, changed := range []int{0, 1, 10, 100} {
			since := ask(b, "", 0)
			var keys []history.Key
			for n := range changed {
				keys = append(keys, history.Key{UID: "ann", Object: history.Object{ID: fmt.Sprintf("%04d", n), Type: 1}})
			}
			for i, e := range h.db.Cache().Load(b.Context(), keys) {
				out := h.db.Cache().Write(b.Context(), []history.Write{history.WriteOn(e.Record, keys[i], e.Record.Successor(&e.User), &e.User)})[0]
				if out.Status != history.Applied {
					b.Fatal(out)
				}
			}
			b.Run(fmt.Sprintf("records=%d/changed=%d", size, changed), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ask(b, since, changed)
				}
			})
			var clean []history.Content
			for i, e := range h.db.Cache().Load(b.Context(), keys) {
				clean = append(clean, history.Content{Key: keys[i], Revision: e.Record.Revision})
			}
			if err := h.db.Cache().MarkClean(b.Context(), clean); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("records=%d/first", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask(b, "", 0)
			}
		})
	}
}
