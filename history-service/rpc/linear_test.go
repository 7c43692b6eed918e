package rpc_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// linearOp is a client's call: store an event, or read one object.
type linearOp struct {
	key   history.Key
	event *history.Event // nil for a read
}

// linearAnswer is the status of a write, or the item of a read.
type linearAnswer struct {
	status historyv1.Status
	item   *historyv1.Item
}

// fold is the sequential model of an object: a write merges, a read sees all earlier writes.
var fold = porcupine.Model{
	Partition: func(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[history.Key][]porcupine.Operation{}
		for _, op := range ops {
			k := op.Input.(linearOp).key
			byKey[k] = append(byKey[k], op)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return (*history.Record)(nil) },
	Step: func(state, input, output any) (bool, any) {
		was, op, got := state.(*history.Record), input.(linearOp), output.(linearAnswer)
		if op.event == nil {
			return sees(was, got.item), was
		}
		is := history.Merge(was, op.event.Record())
		return (got.status == stored) == !history.SameButViewings(was, is), is
	},
	Equal: func(a, b any) bool { return history.Same(a.(*history.Record), b.(*history.Record)) },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
}

// sees reports whether an item shows a record.
func sees(r *history.Record, it *historyv1.Item) bool {
	if r == nil || r.Deleted() {
		return it.GetObject() == nil
	}
	return it.GetPositionMs() == r.Resume() && it.GetEventTimeMs() == r.Version.Time() &&
		it.GetFurthestMs() == r.Furthest() && int64(it.GetPlays()) == int64(r.Plays())
}

// linear runs concurrent reads and writes of two objects through two services, and checks that one order explains
// every answer.
func linear(t *testing.T, uid string, cache history.Cache, archive history.Archive) {
	t.Helper()
	const clients, each = 6, 60
	var services []*rpc.Server
	for range 2 {
		services = append(services, servicetest.New(t, rpc.Config{Cache: cache, Archive: archive}))
	}
	if err := cache.Warm(t.Context(), uid, history.WarmSet{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	histories := make([][]porcupine.Operation, clients)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 0)) //nolint:gosec // to be repeatable
			for range each {
				op := drawn(random, uid, began)
				call := time.Since(began)
				answer := ask(t, services[c%2], op)
				histories[c] = append(histories[c], porcupine.Operation{
					ClientId: c, Input: op, Call: int64(call), Output: answer, Return: int64(time.Since(began)),
				})
			}
		})
	}
	all.Wait()
	var ops []porcupine.Operation
	for _, h := range histories {
		ops = append(ops, h...)
	}
	if got := porcupine.CheckOperationsTimeout(fold, ops, 30*time.Second); got != porcupine.Ok {
		t.Errorf("%d operations: %v, want one order that explains all", len(ops), got)
	}
}

// drawn returns a random read or event.
func drawn(random *rand.Rand, uid string, began time.Time) linearOp {
	k := history.Key{UID: uid, Object: history.Object{ID: fmt.Sprint(random.IntN(2)), Type: 1}}
	if random.IntN(2) == 0 {
		return linearOp{key: k}
	}
	e := &history.Event{
		Key: k, Kind: history.Kind(1 + random.IntN(int(history.KindDelete)-1)), At: began.UnixMilli() - int64(random.IntN(1000)),
		Position: 1000 * int64(random.IntN(9)), Duration: 8000, Session: fmt.Sprint(random.IntN(3)), Device: "tv",
	}
	return linearOp{key: k, event: e}
}

func ask(t *testing.T, s *rpc.Server, op linearOp) linearAnswer {
	object := &historyv1.Object{Id: op.key.Object.ID, Type: 1}
	if op.event == nil {
		resp, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: op.key.UID, Objects: []*historyv1.Object{object}})
		if err != nil {
			t.Error(err)
			return linearAnswer{}
		}
		return linearAnswer{item: resp.Items[0]}
	}
	e := op.event
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{{
		Uid: e.Key.UID, ObjectId: object.Id, ObjectType: 1, Kind: historyv1.Kind(e.Kind), EventTimeMs: e.At, //nolint:gosec // seven of them
		PositionMs: e.Position, DurationMs: e.Duration, Session: e.Session, Device: e.Device,
	}}})
	if err != nil {
		t.Error(err)
		return linearAnswer{}
	}
	return linearAnswer{status: resp.Statuses[0]}
}

// TestLinear checks linearizability with the embedded store.
func TestLinear(t *testing.T) {
	h := newHouse(t)
	for n := range 5 {
		linear(t, fmt.Sprint("ann", n), h.db.Cache(), h.db.Archive())
	}
}
