package rpc_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memfeed"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkApply measures the server itself: a hundred heartbeats of held viewings, without a store.
func BenchmarkApply(b *testing.B) {
	s := servicetest.New(b, rpc.Config{Cache: quick{}, Archive: void{}, Now: func() time.Time { return time.UnixMilli(start) }})
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

// BenchmarkPoint reads the resume point of an object, either complete in the cache or incomplete. An incomplete
// record is merged with the archive at each read.
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

// BenchmarkPageBelow reads a page that is only in the archive.
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

// quick is a cache that accepts every write at once.
type quick struct{ history.Cache }

func (quick) Load(_ context.Context, keys []history.Key) []history.Entry {
	entries := make([]history.Entry, len(keys))
	for i := range entries {
		entries[i].User.Warm = true
	}
	return entries
}

func (quick) Write(_ context.Context, writes []history.Write) []history.Outcome {
	out := make([]history.Outcome, len(writes))
	for i := range out {
		out[i].Status = history.Applied
	}
	return out
}

// encoding is a feed that only encodes the changes.
type encoding struct{ history.Feed }

func (*encoding) Announce(_ context.Context, changes []history.Change) error {
	wire.AppendChanges(nil, changes)
	return nil
}

// BenchmarkAnnounce measures batches of 100 heartbeats, without a feed and with one that nobody follows. The cache
// is free; the CPU time is the process's.
func BenchmarkAnnounce(b *testing.B) {
	for _, users := range []int{1000, 100_000} {
		for name, feed := range map[string]history.Feed{"off": nil, "on": &encoding{new(memfeed.Feed)}} {
			b.Run(fmt.Sprintf("%s/users=%d", name, users), func(b *testing.B) { announcing(b, feed, users) })
		}
	}
}

func announcing(b *testing.B, feed history.Feed, users int) {
	const batch = 100
	s := servicetest.New(b, rpc.Config{Cache: quick{}, Archive: struct{ history.Archive }{}, Feed: feed})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(b.Context()) }()
	b.Cleanup(func() { <-done })
	uids := make([]string, users)
	for i := range uids {
		uids[i] = fmt.Sprint("user", i)
	}
	req := &historyv1.ApplyRequest{}
	for range batch {
		req.Heartbeats = append(req.Heartbeats, beat("u/film", historyv1.Kind_KIND_PROGRESS, 0, 10))
	}
	at := time.Now().Add(-30 * 24 * time.Hour).UnixMilli()
	b.ReportAllocs()
	n, before := 0, cpu(b)
	for b.Loop() {
		for _, h := range req.Heartbeats {
			n++
			h.Uid, h.EventTimeMs = uids[n%users], at+int64(n/users)
		}
		if _, err := s.Apply(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(n), "cpu-ns/beat")
}

// cpu returns the CPU time of the process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
