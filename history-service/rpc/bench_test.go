package rpc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// instant is a cache that has nothing and takes everything at once.
type instant struct{ history.Cache }

func (instant) Load(_ context.Context, keys []history.Key) []history.Entry {
	entries := make([]history.Entry, len(keys))
	for i := range entries {
		entries[i].User.Warm = true
	}
	return entries
}

func (instant) Apply(_ context.Context, writes []history.Write) []history.Outcome {
	outs := make([]history.Outcome, len(writes))
	for i := range writes {
		outs[i].Status = history.Applied
	}
	return outs
}

// BenchmarkApply is what the door itself costs: a hundred heartbeats of as many viewings
// that are held, without a store.
func BenchmarkApply(b *testing.B) {
	queue := memqueue.New(memqueue.Config{})
	held, err := aggregate.New(aggregate.Config{Publisher: queue})
	if err != nil {
		b.Fatal(err)
	}
	s, err := rpc.New(rpc.Config{Cache: instant{}, Archive: void{}, Aggregate: held, Queue: queue, Now: func() time.Time { return time.UnixMilli(start) }})
	if err != nil {
		b.Fatal(err)
	}
	req := &historyv1.ApplyRequest{}
	for i := range 100 {
		req.Heartbeats = append(req.Heartbeats, beat(fmt.Sprint("user", i, "/7"), progress, 60_000_000, 20))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, hb := range req.Heartbeats {
			hb.EventTimeMs++
		}
		if resp, err := s.Apply(b.Context(), req); err != nil || resp.GetStatuses()[99] != stored {
			b.Fatal(resp, err)
		}
	}
}

type void struct{ history.Archive }

// BenchmarkPoint reads where a user stopped in an object, of which the cache has all or
// lacks what only the archive has: that is folded in with each read, until the job has.
func BenchmarkPoint(b *testing.B) {
	for _, lacking := range []bool{false, true} {
		b.Run(fmt.Sprint("incomplete=", lacking), func(b *testing.B) {
			h := smallHouse(b, 100)
			ids := put(b, h, 200, 10_000)
			warmUp(b, h, 100)
			s, id := h.idle(b), ids[0]
			if lacking {
				id = ids[199]
				if resp, err := s.Apply(b.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat("ann/"+id, stop, 0, 20)}}); err != nil {
					b.Fatal(resp, err)
				}
			}
			req := &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: id, Type: 1}}}
			b.ReportAllocs()
			for b.Loop() {
				if resp, err := s.Points(b.Context(), req); err != nil || resp.GetItems()[0].GetDurationMs() == 0 {
					b.Fatal(resp, err)
				}
			}
		})
	}
}

// BenchmarkPageBelow reads a page of which the archive has all.
func BenchmarkPageBelow(b *testing.B) {
	h := smallHouse(b, 100)
	put(b, h, 1000, 10_000)
	warmUp(b, h, 100)
	s := h.idle(b)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := s.List(b.Context(), &historyv1.ListRequest{Uid: "ann", UntilMs: start - 500_000, Limit: 100})
		if err != nil || len(resp.GetItems()) != 100 {
			b.Fatal(len(resp.GetItems()), err)
		}
	}
}
