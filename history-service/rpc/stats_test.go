package rpc_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// sums are the buckets of ann as "name watched/plays/viewings", in seconds, and the total.
func sums(t *testing.T, s *rpc.Server, req *historyv1.StatsRequest) string {
	t.Helper()
	req.Uid = "ann"
	resp, err := s.Stats(t.Context(), req)
	if err != nil {
		t.Fatalf("stats %v: %v", req, err)
	}
	text := func(s *historyv1.StatsSum) string {
		return fmt.Sprint(s.GetWatchedMs()/1000, "/", s.GetPlays(), "/", s.GetViewings())
	}
	var all []string
	for _, b := range resp.GetBuckets() {
		name := fmt.Sprint(b.GetDay(), b.GetObject().GetId(), b.GetObject().GetType())
		all = append(all, strings.Trim(name, "0")+" "+text(b.GetSum()))
	}
	return strings.Join(append(all, "all "+text(resp.GetTotal())), ", ")
}

// seen is a viewing of some seconds that ended ago milliseconds before start, on its own device.
func seen(key string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat {
	hb := beat(key, kind, ago, seconds)
	hb.Session, hb.Device = fmt.Sprint("s", ago), fmt.Sprint("d", ago)
	hb.StartedAtMs, hb.WatchedMs = start-ago-seconds*1000, seconds*1000
	return hb
}

func retyped(typ uint32, hb *historyv1.Heartbeat) *historyv1.Heartbeat {
	hb.ObjectType = typ
	return hb
}

const dayOf = 24 * 3600 * 1000

// TestStats: start is 14:13:20 in UTC on September 21, 2026.
func TestStats(t *testing.T) {
	s := newHouse(t).service(t)
	apply(t, s, seen("ann/a", finish, 1000, 95), seen("ann/a", stop, dayOf, 50), retyped(2, seen("ann/b", stop, 2*dayOf, 80)), seen("bob/a", stop, 0, 60))
	tests := []struct {
		req  *historyv1.StatsRequest
		want string
	}{
		{&historyv1.StatsRequest{}, "20260919 80/0/1, 2026092 50/0/1, 20260921 95/1/1, all 225/1/3"},
		{&historyv1.StatsRequest{By: historyv1.StatsBy_STATS_BY_TYPE}, "1 145/1/2, 2 80/0/1, all 225/1/3"},
		{&historyv1.StatsRequest{By: historyv1.StatsBy_STATS_BY_OBJECT}, "a1 145/1/2, b2 80/0/1, all 225/1/3"},
		{&historyv1.StatsRequest{By: historyv1.StatsBy_STATS_BY_OBJECT, Limit: 1}, "a1 145/1/2, all 225/1/3"},
		{&historyv1.StatsRequest{Zone: "Pacific/Auckland"}, "2026092 80/0/1, 20260921 50/0/1, 20260922 95/1/1, all 225/1/3"},
		{&historyv1.StatsRequest{SinceMs: start - dayOf - 10_000}, "2026092 10/0/1, 20260921 95/1/1, all 105/1/2"},
		{&historyv1.StatsRequest{UntilMs: start - dayOf - 10_001}, "20260919 80/0/1, 2026092 40/0/0, all 120/0/1"},
	}
	for _, test := range tests {
		if got := sums(t, s, test.req); got != test.want {
			t.Errorf("%v:\ngot  %s\nwant %s", test.req, got, test.want)
		}
	}
	resp, err := s.Stats(t.Context(), &historyv1.StatsRequest{Uid: "ann"})
	if err != nil || resp.GetLongestStreak() != 3 || resp.GetCurrentStreak() != 3 || resp.GetRecords() != 2 {
		t.Errorf("got %v, %v", resp, err)
	}
}

// TestStatsOfWhatIsGone: deletes and clears count at once, and what is not recorded never does.
func TestStatsOfWhatIsGone(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, seen("ann/a", finish, 1000, 95), retyped(2, seen("ann/b", stop, dayOf, 80)), retyped(3, seen("ann/c", stop, 2*dayOf, 50)))
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "a", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	byType := &historyv1.StatsRequest{By: historyv1.StatsBy_STATS_BY_TYPE}
	if got := sums(t, s, byType); got != "2 80/0/1, 3 50/0/1, all 130/0/2" {
		t.Errorf("after a delete: got %s", got)
	}
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - dayOf - 30_000}); err != nil {
		t.Fatal(err)
	}
	if got := sums(t, s, byType); got != "2 30/0/1, all 30/0/1" {
		t.Errorf("after a clear up to within a viewing: got %s", got)
	}
	unseen := retyped(4, seen("ann/d", finish, 500, 95))
	unseen.Incognito = true
	apply(t, s, unseen)
	if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.clock.Add(60_000)
	apply(t, s, retyped(4, seen("ann/e", finish, -60_000, 50)))
	if got := sums(t, s, byType); got != "2 30/0/1, all 30/0/1" {
		t.Errorf("after what is not recorded: got %s", got)
	}
}

func TestStatsRefuses(t *testing.T) {
	h := newHouse(t)
	a := &gone{Archive: h.db.Archive()}
	s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
	for want, req := range map[string]*historyv1.StatsRequest{
		"uid": {}, "by": {Uid: "ann", By: 9}, "limit": {Uid: "ann", Limit: 101}, "zone": {Uid: "ann", Zone: "Europe/Atlantis"},
		"since": {Uid: "ann", SinceMs: 2, UntilMs: 1},
	} {
		_, err := s.Stats(t.Context(), req)
		wantCode(t, want, err, codes.InvalidArgument)
		if got := field(err); got != want {
			t.Errorf("%v: got field %q, want %q", req, got, want)
		}
	}
	for _, zone := range []string{"Local", "../etc/passwd", "+25:00"} {
		_, err := s.Stats(t.Context(), &historyv1.StatsRequest{Uid: "ann", Zone: zone})
		wantCode(t, zone, err, codes.InvalidArgument)
	}
	a.down.Store(true)
	_, err := s.Stats(t.Context(), &historyv1.StatsRequest{Uid: "ann"})
	wantCode(t, "without the archive", err, codes.Unavailable)
	a.down.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = s.Stats(ctx, &historyv1.StatsRequest{Uid: "ann"}); err == nil {
		t.Error("a canceled request got numbers")
	}
}

// TestStatsOfTheArchive: pages from the cache and from the archive, in several namespaces, add up to everything.
func TestStatsOfTheArchive(t *testing.T) {
	rules, err := history.ParseRules("", []string{"songs: types=3 list=10"})
	if err != nil {
		t.Fatal(err)
	}
	h := houseOf(t, pebble.Config{Keep: 10, Rules: rules})
	s := h.service(t, func(c *rpc.Config) { c.Keep, c.Rules = 10, rules })
	for i := range int64(1200) {
		apply(t, s, retyped(uint32(i%3+1), seen(fmt.Sprint("ann/", i), stop, (i+1)*100_000, 60))) //nolint:gosec // small
	}
	if got := sums(t, s, &historyv1.StatsRequest{By: historyv1.StatsBy_STATS_BY_TYPE}); got != "1 24000/0/400, 2 24000/0/400, 3 24000/0/400, all 72000/0/1200" {
		t.Errorf("got %s", got)
	}
}

// BenchmarkStats adds up histories of a year, most of it compacted, with a thousand cached records. peak-MiB is how
// much the heap grows at most. Only the median of several runs says something.
func BenchmarkStats(b *testing.B) {
	rules, err := history.ParseRules("forever", nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{1000, 100_000} {
		h := houseOf(b, pebble.Config{Keep: 1000, CompactAbove: 1999, Rules: rules})
		h.year(b, size)
		h.clock.Store(start + dayOf + 1000)
		if size > 1999 {
			compact(b, h)
		}
		warmUp(b, h, 1000)
		s := h.idle(b, func(c *rpc.Config) { c.Rules, c.Deadline = rules, time.Minute })
		for name, by := range map[string]historyv1.StatsBy{"day": historyv1.StatsBy_STATS_BY_DAY, "object": historyv1.StatsBy_STATS_BY_OBJECT} {
			b.Run(fmt.Sprintf("records=%d/by=%s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				var took []time.Duration
				stop := heap()
				for b.Loop() {
					began := cpu(b)
					resp, err := s.Stats(b.Context(), &historyv1.StatsRequest{Uid: "ann", By: by, Zone: "Europe/Berlin"})
					if err != nil || resp.GetTotal().GetViewings() != int64(size) {
						b.Fatal(resp.GetTotal(), err)
					}
					took = append(took, cpu(b)-began)
				}
				b.ReportMetric(float64(stop())/(1<<20), "peak-MiB")
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-cpu-ms")
			})
		}
	}
}

// heap samples the heap until stop, which returns by how much it grew at most.
func heap() (stop func() uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	base, most := m.HeapAlloc, uint64(0)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-stopped
		return most - min(base, most)
	}
}

// year archives a viewing for each of n records, over a year.
func (h *house) year(b *testing.B, n int) {
	b.Helper()
	var cells []history.Cell
	for i := range int64(n) {
		ago := i * 365 * dayOf / int64(n)
		e := history.Event{
			Key:  history.Key{UID: "ann", Object: history.Object{ID: fmt.Sprintf("%06d", i), Type: uint32(i%3 + 1)}}, //nolint:gosec // small
			Kind: history.KindStop, At: start - ago, Position: 200_000, Duration: 600_000, Session: fmt.Sprint("s", i), Device: "tv",
			StartedAt: start - ago - 250_000, Watched: 200_000,
		}
		cells = append(cells, history.Cell{Key: e.Key, Record: whole(e.Record()).Successor(nil)})
	}
	for _, err := range h.db.Archive().Put(b.Context(), cells) {
		if err != nil {
			b.Fatal(err)
		}
	}
}
