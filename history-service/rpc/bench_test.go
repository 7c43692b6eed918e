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
	for i, w := range writes {
		outs[i].Status = history.Applied
		if w.Mark {
			outs[i].Mark = 1
		}
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
