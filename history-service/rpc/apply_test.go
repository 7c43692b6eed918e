package rpc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	stored      = historyv1.Status_STATUS_STORED
	unchanged   = historyv1.Status_STATUS_UNCHANGED
	stale       = historyv1.Status_STATUS_STALE
	expired     = historyv1.Status_STATUS_EXPIRED
	cleared     = historyv1.Status_STATUS_CLEARED
	invalid     = historyv1.Status_STATUS_INVALID
	unavailable = historyv1.Status_STATUS_UNAVAILABLE

	begin    = historyv1.Kind_KIND_START
	pause    = historyv1.Kind_KIND_PAUSE
	progress = historyv1.Kind_KIND_PROGRESS
	stop     = historyv1.Kind_KIND_STOP
)

func TestStatuses(t *testing.T) {
	s := newHouse(t).service(t)
	failed := beat("ann/7", progress, 0, 90)
	failed.Failed = true
	steps := []struct {
		name string
		hb   *historyv1.Heartbeat
		want historyv1.Status
	}{
		{"a first report", beat("ann/7", progress, 5000, 20), stored},
		{"the same again", beat("ann/7", progress, 5000, 20), unchanged},
		{"a newer one", beat("ann/7", progress, 4000, 30), stored},
		{"an older one that got less far", beat("ann/7", progress, 6000, 10), stale},
		{"an older one that got further", beat("ann/7", progress, 7000, 60), stored},
		{"one from 91 days ago", beat("ann/7", progress, 91*24*3600*1000, 10), expired},
		{"one from tomorrow, taken as now", beat("ann/7", stop, -24*3600*1000, 40), stored},
		{"a failed playback", failed, unchanged},
	}
	for _, step := range steps {
		if got := apply(t, s, step.hb); got[0] != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got[0], step.want)
		}
	}
	it := point(t, s, "ann", "7")
	if it.GetPositionMs() != 40_000 || it.GetFurthestMs() != 60_000 || it.GetEventTimeMs() != start {
		t.Errorf("in the end: got %v, want position 40 s, furthest 60 s, at %d", it, start)
	}
}

// TestBadInput sends one invalid heartbeat of each kind between two valid ones. It is refused with its field, and
// the valid ones are stored.
func TestBadInput(t *testing.T) {
	s := newHouse(t).service(t)
	cases := []struct {
		name, field string
		spoil       func(*historyv1.Heartbeat)
	}{
		{"type 0", "object.type", func(h *historyv1.Heartbeat) { h.ObjectType = 0 }},
		{"no uid", "uid", func(h *historyv1.Heartbeat) { h.Uid = "" }},
		{"line feed in the uid", "uid", func(h *historyv1.Heartbeat) { h.Uid = "a\nb" }},
		{"long uid", "uid", func(h *historyv1.Heartbeat) { h.Uid = strings.Repeat("a", 257) }},
		{"no object id", "object.id", func(h *historyv1.Heartbeat) { h.ObjectId = "" }},
		{"line feed in the object id", "object.id", func(h *historyv1.Heartbeat) { h.ObjectId = "a\nb" }},
		{"long object id", "object.id", func(h *historyv1.Heartbeat) { h.ObjectId = strings.Repeat("a", 257) }},
		{"no kind", "kind", func(h *historyv1.Heartbeat) { h.Kind = 0 }},
		{"a kind that does not exist", "kind", func(h *historyv1.Heartbeat) { h.Kind = 7 }},
		{"kind 263, which is 7 in a byte", "kind", func(h *historyv1.Heartbeat) { h.Kind = 263 }},
		{"a negative kind", "kind", func(h *historyv1.Heartbeat) { h.Kind = -250 }},
		{"time in seconds", "event_time", func(h *historyv1.Heartbeat) { h.EventTimeMs /= 1000 }},
		{"no time", "event_time", func(h *historyv1.Heartbeat) { h.EventTimeMs = 0 }},
		{"negative position", "position_ms", func(h *historyv1.Heartbeat) { h.PositionMs = -1 }},
		{"absurd position", "position_ms", func(h *historyv1.Heartbeat) { h.PositionMs = 1 << 50 }},
		{"negative duration", "duration_ms", func(h *historyv1.Heartbeat) { h.DurationMs = -1 }},
		{"absurd duration", "duration_ms", func(h *historyv1.Heartbeat) { h.DurationMs = 1 << 50 }},
		{"long session", "session", func(h *historyv1.Heartbeat) { h.Session = strings.Repeat("s", 129) }},
		{"invalid UTF-8 in the device", "device", func(h *historyv1.Heartbeat) { h.Device = "\xff" }},
		{"17 meta keys", "meta", func(h *historyv1.Heartbeat) { h.Meta = metas(17, 1) }},
		{"1,025 bytes of meta", "meta", func(h *historyv1.Heartbeat) { h.Meta = map[string]string{"k": strings.Repeat("v", 1024)} }},
	}
	for i, c := range cases {
		before, after := beat("ann/"+fmt.Sprint("b", i), begin, 0, 0), beat("ann/"+fmt.Sprint("a", i), begin, 0, 0)
		bad := beat("ann/bad", progress, 0, 1)
		c.spoil(bad)
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{before, bad, after}})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, want := resp.GetStatuses(), []historyv1.Status{stored, invalid, stored}; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", c.name, got, want)
		}
		if r := resp.GetRefusals(); len(r) != 1 || r[0].GetIndex() != 1 || r[0].GetField() != c.field || r[0].GetReason() == "" {
			t.Errorf("%s: got refusals %v, want one of %s at index 1", c.name, r, c.field)
		}
	}
}

func metas(keys, size int) map[string]string {
	m := make(map[string]string)
	for i := range keys {
		m[fmt.Sprint("key", i)] = strings.Repeat("v", size)
	}
	return m
}

func TestBatchBound(t *testing.T) {
	s := newHouse(t).service(t)
	_, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: make([]*historyv1.Heartbeat, write.MaxBatch+1)})
	wantCode(t, "1,001 heartbeats", err, codes.InvalidArgument)
	if got := field(err); got != "heartbeats" {
		t.Errorf("1,001 heartbeats: the error names %q, want heartbeats", got)
	}
}

// TestClocksThatAgree: a small difference between the clocks is not corrected.
func TestClocksThatAgree(t *testing.T) {
	s := newHouse(t).service(t)
	hb := beat("ann/7", stop, 800, 5)
	hb.SentAtMs = start + 20
	apply(t, s, hb)
	if it := point(t, s, "ann", "7"); it.GetEventTimeMs() != start-800 {
		t.Errorf("it is of %d ms ago, want 800", start-it.GetEventTimeMs())
	}
}

// TestClockCorrection: the times of a device that is an hour ahead are corrected by an hour.
func TestClockCorrection(t *testing.T) {
	s := newHouse(t).service(t)
	const hour = 3600 * 1000
	hb := beat("ann/7", progress, 10_000-hour, 20)
	hb.SentAtMs = start + hour
	apply(t, s, hb)
	if got, want := point(t, s, "ann", "7").GetEventTimeMs(), start-10_000; got != want {
		t.Errorf("event time %d, want %d: 10 s before it was sent", got, want)
	}
}

// TestALittleAhead: the reports of one message keep their order even if the device's clock is ahead.
func TestALittleAhead(t *testing.T) {
	for _, ahead := range []int64{500, 1000, 4000, 6000} {
		s := newHouse(t).service(t)
		var hbs []*historyv1.Heartbeat
		for i, position := range []int64{60, 10, 12} {
			hb := beat("ann/7", progress, 200-int64(i)*100-ahead, position)
			hb.SentAtMs = start + ahead
			hbs = append(hbs, hb)
		}
		apply(t, s, hbs...)
		if it := point(t, s, "ann", "7"); it.GetPositionMs() != 12_000 || it.GetEventTimeMs() != start {
			t.Errorf("%d ms ahead: got %v, want 12 s, now", ahead, it)
		}
	}
}

// TestClocksOfAnyDate: clocks in the wrong year are corrected.
func TestClocksOfAnyDate(t *testing.T) {
	for _, date := range []string{"1900-01-01", "1969-12-31", "1970-01-02", "1980-01-01", "2084-01-01", "2106-02-07"} {
		shown, err := time.Parse(time.DateOnly, date)
		if err != nil {
			t.Fatal(err)
		}
		s := newHouse(t).service(t)
		hb := beat("ann/7", progress, 0, 20)
		hb.SentAtMs, hb.EventTimeMs = shown.UnixMilli(), shown.UnixMilli()-10_000
		apply(t, s, hb)
		if it := point(t, s, "ann", "7"); it.GetEventTimeMs() != start-10_000 {
			t.Errorf("%s: got %v, want 10 s ago", date, it)
		}
	}
}

// TestLongOnItsWayFromTheEdge: a report with a wrong clock is delayed behind the edge. The correction does not date
// it after reports sent meanwhile.
func TestLongOnItsWayFromTheEdge(t *testing.T) {
	for _, ahead := range []int64{3000, 3_600_000, -3_600_000} {
		s := newHouse(t).service(t)
		first, last := beat("ann/7", progress, 1600-ahead, 20), beat("ann/7", stop, 1200-ahead, 50)
		first.SentAtMs, first.ReceivedAtMs = start-1600+ahead, start-1600
		last.SentAtMs, last.ReceivedAtMs = start+ahead, start
		apply(t, s, first)
		if got := apply(t, s, last); got[0] != stored {
			t.Errorf("%d ms ahead: the last report is %v, want %v", ahead, got[0], stored)
		}
		if it := point(t, s, "ann", "7"); it.GetPositionMs() != 50_000 || it.GetEventTimeMs() != start-1200 {
			t.Errorf("%d ms ahead: got %v, want the last report", ahead, it)
		}
	}
}

// TestEdgesThatCannotBeRight: a receiving time in the future or too far in the past is ignored, and the service's
// clock counts.
func TestEdgesThatCannotBeRight(t *testing.T) {
	for _, received := range []int64{0, start + 1, start - 120_001, 1} {
		s := newHouse(t).service(t)
		hb := beat("ann/7", progress, 10_000-3_600_000, 20)
		hb.SentAtMs, hb.ReceivedAtMs = start+3_600_000, received
		apply(t, s, hb)
		if got := point(t, s, "ann", "7").GetEventTimeMs(); got != start-10_000 {
			t.Errorf("received at %d: of %d ms ago, want 10 s", received, start-got)
		}
	}
}

// TestLongOnItsWay: a device with a correct clock sends a report that arrives late, as in a tunnel. It does not
// count as later than newer reports.
func TestLongOnItsWay(t *testing.T) {
	s := newHouse(t).service(t)
	first, last := beat("ann/7", progress, 100_000, 20), beat("ann/7", stop, 10_000, 50)
	first.SentAtMs, last.SentAtMs = start-100_000, start
	apply(t, s, first)
	if got := apply(t, s, last); got[0] != stored {
		t.Errorf("the last report is %v, want %v", got[0], stored)
	}
	if it := point(t, s, "ann", "7"); it.GetPositionMs() != 50_000 || it.GetEventTimeMs() != start-10_000 {
		t.Errorf("got %v, want the last report", it)
	}
}

// TestTwoServices sends one user's events alternately through two services that both hold the key. The result is
// still exact.
func TestTwoServices(t *testing.T) {
	h := newHouse(t)
	services := []*rpc.Server{h.service(t), h.service(t)}
	const viewings = 20
	for v := range int64(viewings) {
		for i, seconds := range []int64{0, 50, 95, 30} {
			hb := beat("ann/7", progress, (viewings-v)*10_000-int64(i)*1000, seconds+v%5)
			if seconds == 95 { // no seek
				hb.Kind = stop
			}
			hb.Session = fmt.Sprint("s", v)
			apply(t, services[i%2], hb)
		}
	}
	it := point(t, services[0], "ann", "7")
	if it.GetPlays() != viewings || it.GetFurthestMs() != 99_000 || it.GetPositionMs() != 34_000 {
		t.Errorf("got %d plays, furthest %d, position %d; want %d, 99000, 34000",
			it.GetPlays(), it.GetFurthestMs(), it.GetPositionMs(), viewings)
	}
}

// TestConcurrentBatches sends concurrent batches of one user through two services.
func TestConcurrentBatches(t *testing.T) {
	h := newHouse(t)
	services := []*rpc.Server{h.service(t), h.service(t)}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range int64(15) {
				hb := beat("ann/7", progress, 100_000-i*1000-int64(g), 95)
				hb.Session = fmt.Sprint(g, "/", i)
				if got := apply(t, services[g%2], hb, beat("ann/"+fmt.Sprint(g), begin, i, 1)); slices.Contains(got, unavailable) {
					t.Errorf("writer %d, event %d: %v", g, i, got)
				}
			}
		})
	}
	wg.Wait()
	if got := point(t, services[1], "ann", "7").GetPlays(); got != 120 {
		t.Errorf("got %d completed plays, want 120", got)
	}
}

// TestOneBatch: several reports of one object in one batch are merged in order.
func TestOneBatch(t *testing.T) {
	s := newHouse(t).service(t)
	got := apply(t, s, beat("ann/7", begin, 3000, 0), beat("bob/7", begin, 3000, 5), beat("ann/7", progress, 2000, 50),
		beat("ann/7", progress, 2000, 50), beat("ann/7", stop, 1000, 60))
	if want := []historyv1.Status{stored, stored, stored, unchanged, stored}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if a, b := point(t, s, "ann", "7").GetPositionMs(), point(t, s, "bob", "7").GetPositionMs(); a != 60_000 || b != 5_000 {
		t.Errorf("ann is at %d and bob at %d, want 60000 and 5000", a, b)
	}
}

// lost is a cache whose writes return no answer; applied decides whether they happen.
type lost struct {
	history.Cache
	applied bool
}

func (l *lost) Write(ctx context.Context, ws []history.Write) []history.Outcome {
	if l.applied {
		l.Cache.Write(ctx, ws)
	}
	outs := make([]history.Outcome, len(ws))
	for i := range outs {
		outs[i].Err = errDown
	}
	return outs
}

// TestLostAnswer: a write without an answer is unavailable whether or not it happened, and a retry succeeds.
func TestLostAnswer(t *testing.T) {
	for _, applied := range []bool{false, true} {
		h := newHouse(t)
		cache := &lost{Cache: h.db.Cache(), applied: applied}
		s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
		_, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat("ann/7", begin, 0, 3)}})
		wantCode(t, "a write without an answer", err, codes.Unavailable)
		again := h.service(t)
		want := map[bool]historyv1.Status{false: stored, true: unchanged}[applied]
		if got := apply(t, again, beat("ann/7", begin, 0, 3)); got[0] != want {
			t.Errorf("sent again (applied before: %v): got %v, want %v", applied, got[0], want)
		}
	}
}

// TestLongHistoryNewestFirst: every completed viewing of an upload counts, in any order, even beyond the plays that
// a record stores one by one.
func TestLongHistoryNewestFirst(t *testing.T) {
	const viewings = 2*history.MaxCompletions + 1
	s := newHouse(t).service(t)
	var hbs []*historyv1.Heartbeat
	for i := range int64(viewings) {
		h := beat("ann/7", historyv1.Kind_KIND_FINISH, i*3_600_000, 100)
		h.Session = fmt.Sprint("s", i)
		hbs = append(hbs, h)
	}
	apply(t, s, hbs...)
	if got := point(t, s, "ann", "7").GetPlays(); got != viewings {
		t.Errorf("%d plays, want %d", got, viewings)
	}
}

// TestClockOf1970: a device without the current year sends that time too, so its times are corrected before
// validation.
func TestClockOf1970(t *testing.T) {
	s := newHouse(t).service(t)
	hb := beat("ann/7", progress, 0, 20)
	hb.EventTimeMs, hb.StartedAtMs, hb.SentAtMs = 70_000, 10_000, 80_000
	if got := apply(t, s, hb); got[0] != stored {
		t.Fatalf("got %v, want stored", got[0])
	}
	if got, want := point(t, s, "ann", "7").GetEventTimeMs(), start-10_000; got != want {
		t.Errorf("event time %d, want %d: 10 s before it was sent", got, want)
	}
}

// notebook is a queue that records its keys, or fails.
type notebook struct {
	down bool
	keys []history.Announcement
}

func (n *notebook) Publish(_ context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	if n.down {
		return keys, errDown
	}
	n.keys = append(n.keys, keys...)
	return nil, nil
}

func queued(t *testing.T, s *rpc.Server, hbs ...*historyv1.Heartbeat) ([]historyv1.Status, error) {
	t.Helper()
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: hbs, Ack: historyv1.Ack_ACK_QUEUED})
	return resp.GetStatuses(), err
}

// TestQueued: a report acknowledged as queued is in the queue with its record, even if the cache had it before. A
// queue failure is not acknowledged.
func TestQueued(t *testing.T) {
	q := &notebook{}
	s := newHouse(t).service(t, func(c *rpc.Config) { c.Queue = q })
	apply(t, s, beat("ann/7", progress, 5000, 20))
	if len(q.keys) != 0 {
		t.Errorf("acknowledged as cached, and yet the queue has %v", q.keys)
	}
	old := beat("ann/8", progress, 0, 1)
	old.EventTimeMs = 1
	got, err := queued(t, s, beat("ann/7", progress, 5000, 20), beat("bob/7", stop, 3000, 95), old)
	if want := []historyv1.Status{unchanged, stored, invalid}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if len(q.keys) != 2 {
		t.Fatalf("the queue has %v, want the records of ann and bob", q.keys)
	}
	for _, d := range q.keys {
		if d.Record == nil {
			t.Errorf("%s went without its record", d.Key)
		}
	}
	q.down = true
	_, err = queued(t, s, beat("ann/9", progress, 1000, 20))
	wantCode(t, "with the queue away", err, codes.Unavailable)
	if got := apply(t, s, beat("ann/9", progress, 1000, 20)); got[0] != unchanged {
		t.Errorf("the same again, as cached: got %v, want unchanged: the cache has it", got[0])
	}
}

// TestAnswersTellTheTime: the response has the server's time, so that a player can use it instead of its own clock.
func TestAnswersTellTheTime(t *testing.T) {
	s := newHouse(t).service(t)
	for _, hbs := range [][]*historyv1.Heartbeat{nil, {beat("ann/7", progress, 0, 20)}} {
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: hbs})
		if err != nil || resp.GetNowMs() != start {
			t.Errorf("%d heartbeats: got %v, %v, want %d", len(hbs), resp, err, start)
		}
	}
}
