package rpc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkClasses measures [BenchmarkApply] without classes, with an unrelated class, and with the heartbeats' own
// class. It also reads a film's resume point after 100,000 previews.
func BenchmarkClasses(b *testing.B) {
	for name, texts := range map[string][]string{"none": nil, "others": {previews}, "own": {"films: types=1"}} {
		b.Run("apply="+name, func(b *testing.B) {
			rules := rulesOf(b, texts...)
			s := servicetest.New(b, rpc.Config{Cache: quick{}, Archive: void{}, Rules: rules, Now: func() time.Time { return time.UnixMilli(start) }})
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
		})
	}
	b.Run("resume", func(b *testing.B) {
		s, archive := afterPreviews(b, 100_000, 1000, true)
		req := &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "film", Type: 1}}}
		b.ReportAllocs()
		hits := 0
		for b.Loop() {
			resp, err := s.Points(b.Context(), req)
			if err != nil {
				b.Fatal(err)
			}
			if resp.GetItems()[0].GetPositionMs() == 50_000 {
				hits++
			}
		}
		b.ReportMetric(float64(hits)/float64(b.N), "hits/op")
		b.ReportMetric(float64(archive.calls)/float64(b.N), "archive-reads/op")
	})
}

// countedArchive counts reads.
type countedArchive struct {
	history.Archive
	calls int
}

func (a *countedArchive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	a.calls++
	return a.Archive.Get(ctx, keys)
}

func (a *countedArchive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	a.calls++
	return a.Archive.Page(ctx, uid, q)
}

// afterPreviews returns a service with a user's film, followed by n archived previews, with or without a class. The
// archive counts later reads.
func afterPreviews(t testing.TB, n, keep int, class bool) (*rpc.Server, *countedArchive) {
	t.Helper()
	rules := rulesOf(t)
	if class {
		rules = rulesOf(t, previews)
	}
	h := houseOf(t, pebble.Config{Keep: keep, Rules: rules, Alone: true})
	archive := &countedArchive{Archive: h.db.Archive()}
	s := h.idle(t, func(c *rpc.Config) { c.Rules, c.Keep, c.Archive = rules, keep, archive })
	for _, namespace := range rules.Namespaces("ann") {
		if err := h.db.Cache().Warm(t.Context(), namespace, history.WarmSet{}); err != nil {
			t.Fatal(err)
		}
	}
	report := func(some ...*historyv1.Heartbeat) {
		t.Helper()
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: some})
		if err != nil || resp.GetStatuses()[len(some)-1] != stored {
			t.Fatal(resp, err)
		}
	}
	report(typed("ann/film_1", stop, 10_000_000, 50))
	archives(t, h)
	for i := 0; i < n; {
		var some []*historyv1.Heartbeat
		for range min(500, n-i) {
			some = append(some, typed(fmt.Sprintf("ann/p%d_7", i), stop, 9_000_000-int64(i), 9))
			i++
		}
		report(some...)
		archives(t, h)
	}
	archive.calls = 0
	return s, archive
}

// TestClassResumes: previews in a class do not push a film out of the cache. Without a class they do, and the film
// is read from the archive.
func TestClassResumes(t *testing.T) {
	for _, class := range []bool{true, false} {
		s, archive := afterPreviews(t, 600, 30, class)
		hit := pointOf(t, s, "ann/film_1").GetPositionMs() == 50_000
		if !hit || (archive.calls == 0) != class {
			t.Errorf("class %v: found %v, after %d reads of the archive", class, hit, archive.calls)
		}
	}
}
