package bench_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/write"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const trace = "../../testdata/kuairand/watch_events.csv.gz"

// TestPutsPerViewing replays the trace in virtual time with its original intervals: a compressed trace flatters
// coalescing. Quarters of days run concurrently, because a fortnight has too many ticks. A short run ends after
// about the first day.
func TestPutsPerViewing(t *testing.T) {
	vs, err := replay.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		vs = vs[:len(vs)/16]
	}
	sideBySide(vs)
	plan := replay.Expand(vs, 0)
	viewings := plan.Reported()
	if viewings != 206_066 && !testing.Short() {
		t.Fatalf("the trace has %d viewings, want 206066", viewings)
	}
	q := live(t, plan)
	perViewing := float64(q.keys) / float64(viewings)
	t.Logf("%d heartbeats of %d viewings: %d keys announced, %.3f per viewing, in %d messages of %d bytes",
		plan.Len(), viewings, q.keys, perViewing, q.messages, q.bytes)
	if perViewing > 1.10 {
		t.Errorf("%.3f keys announced per viewing, want at most 1.10", perViewing)
	}
}

// sideBySide moves every viewing to the first six hours. Viewings of different quarters get different objects,
// which keeps separate holds separate.
func sideBySide(vs []replay.Viewing) {
	const quarter = 6 * 3600 * 1000
	for i := range vs {
		n := (vs[i].At - vs[0].At) / quarter
		vs[i].At -= n * quarter
		vs[i].Object.ID += "." + strconv.FormatInt(n, 10)
	}
}

// TestPutsOfLongViewings has complete viewings: a start, twelve heartbeats, a stop.
func TestPutsOfLongViewings(t *testing.T) {
	plan := replay.Expand(replay.Synthetic(1000, 3, 14), 0)
	q := live(t, plan)
	removed := 1 - float64(q.keys)/float64(plan.Len())
	t.Logf("%d heartbeats: %d keys announced, %.1f %% of the puts removed", plan.Len(), q.keys, 100*removed)
	if removed < 0.85 {
		t.Errorf("%.1f %% of the puts removed, want at least 85 %%", 100*removed)
	}
}

// gather is the time over which heartbeats are batched. They are sent in the middle of it, never at a tick.
const gather = 100 * time.Millisecond

// live sends a plan through the real server and the real aggregator, each heartbeat at its time, and returns the
// announcements. All records are in memory.
func live(t *testing.T, plan *replay.Plan) *announced {
	q := &announced{t: t}
	synctest.Test(t, func(t *testing.T) {
		plan.EndAt(time.Now().Add(time.Second).UnixMilli() + plan.Event(plan.Len()-1).At - plan.Event(0).At)
		held, err := aggregate.New(aggregate.Config{Publisher: q})
		if err != nil {
			t.Fatal(err)
		}
		cache := &memory{records: make(map[history.Key]*history.Record)}
		server, err := rpc.New(rpc.Config{Cache: cache, Archive: struct{ history.Archive }{}, Aggregate: held, Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = held.Run(ctx) }()
		for from := 0; from < plan.Len(); {
			time.Sleep(time.Until(time.UnixMilli(plan.Event(from).At).Truncate(gather).Add(gather * 3 / 2)))
			from += beat(t, server, plan, from)
		}
		cancel()
		synctest.Wait() // held keys are announced
	})
	return q
}

// beat sends the heartbeats that are due and returns their number.
func beat(t *testing.T, server *rpc.Server, plan *replay.Plan, from int) int {
	req := &historyv1.ApplyRequest{}
	now := time.Now().UnixMilli()
	for i := from; i < plan.Len() && i-from < write.MaxBatch; i++ {
		e := plan.Event(i)
		if e.At > now {
			break
		}
		req.Heartbeats = append(req.Heartbeats, &historyv1.Heartbeat{
			Uid: e.Key.UID, ObjectId: e.Key.Object.ID, ObjectType: e.Key.Object.Type,
			Kind: historyv1.Kind(e.Kind), EventTimeMs: e.At, PositionMs: e.Position, DurationMs: e.Duration,
			Session: e.Session, Device: e.Device,
		})
	}
	if _, err := server.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return len(req.Heartbeats)
}

// announced counts the messages to a queue of 16 partitions.
type announced struct {
	t                     *testing.T
	keys, messages, bytes int
}

// Publish implements [history.Publisher].
func (a *announced) Publish(_ context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	used := map[int]bool{}
	for _, m := range wire.Messages(keys, 16, wire.MaxMessage) {
		if used[m.Partition] {
			a.t.Errorf("a flush of %d keys has two messages for partition %d", len(keys), m.Partition)
		}
		used[m.Partition] = true
		a.keys += len(m.Keys)
		a.messages++
		a.bytes += len(m.Payload)
	}
	return nil, nil
}

// memory is a cache of warm and complete users, for records only. It is not safe for concurrent use.
type memory struct {
	history.Cache // nil

	records map[history.Key]*history.Record
}

func (m *memory) entry(k history.Key) history.Entry {
	return history.Entry{Record: m.records[k], User: history.User{Warm: true}}
}

// Load implements [history.Cache].
func (m *memory) Load(_ context.Context, keys []history.Key) []history.Entry {
	entries := make([]history.Entry, len(keys))
	for i, k := range keys {
		entries[i] = m.entry(k)
	}
	return entries
}

// Write implements [history.Cache].
func (m *memory) Write(_ context.Context, writes []history.Write) []history.Outcome {
	outcomes := make([]history.Outcome, len(writes))
	for i, w := range writes {
		outcomes[i] = m.apply(w)
	}
	return outcomes
}

func (m *memory) apply(w history.Write) history.Outcome {
	if old := m.records[w.Key]; old != nil && old.Revision != w.Base || old == nil && w.Base != 0 {
		return history.Outcome{Status: history.Conflict, Current: m.entry(w.Key)}
	}
	m.records[w.Key] = w.Record
	return history.Outcome{Status: history.Applied}
}
