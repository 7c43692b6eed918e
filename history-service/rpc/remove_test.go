package rpc_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestDelete(t *testing.T) {
	h := newHouse(t)
	s, other := h.service(t), h.service(t)
	apply(t, s, beat("ann/7", progress, 5000, 20), beat("ann/8", progress, 5000, 20))
	apply(t, other, beat("ann/7", progress, 4000, 30)) // both services hold it
	resp, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "7", Type: 1}, {Id: "9", Type: 1}}})
	if err != nil || resp.GetDeleted() != 1 {
		t.Fatalf("delete: got %v, %v; want 1 deleted: there never was a 9", resp, err)
	}
	if got := apply(t, other, beat("ann/7", progress, 3000, 40)); got[0] != stale {
		t.Errorf("an event from before the delete through the other service: got %v, want stale", got[0])
	}
	if it := point(t, other, "ann", "7"); it != nil {
		t.Errorf("deleted, and yet: %v", it)
	}
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(got) != 1 || got[0] != "8" {
		t.Errorf("the list shows %v, want only 8", got)
	}
	h.clock.Add(1000)
	late := beat("ann/7", progress, -1000, 10)
	if got := apply(t, other, late); got[0] != stored {
		t.Errorf("an event from after the delete: got %v, want stored", got[0])
	}
	if it := point(t, s, "ann", "7"); it.GetFurthestMs() != 10_000 {
		t.Errorf("after the delete the furthest is %d, want 10000: nothing of before counts", it.GetFurthestMs())
	}
}

// TestDeletedOfTheArchive counts deleted objects that are only in the archive. A delete with a time does not need
// the archive.
func TestDeletedOfTheArchive(t *testing.T) {
	for name, warm := range map[string]bool{"cold": false, "warm": true} {
		for _, at := range []int64{0, start} {
			h := smallHouse(t, 10)
			ids := put(t, h, 30, 1000)
			if warm {
				warmUp(t, h, 10)
			}
			a := &gone{Archive: h.db.Archive()}
			s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
			req := &historyv1.DeleteRequest{Uid: "ann", AtMs: at, Objects: append(videos("never"), videos(ids[5:15]...)...)}
			for _, want := range []uint32{10, 0} {
				if resp, err := s.Delete(t.Context(), req); err != nil || resp.GetDeleted() != want {
					t.Errorf("%s, as of %d: got %v, %v; want %d deleted", name, at, resp, err, want)
				}
			}
			a.down.Store(true)
			req.AtMs, req.Objects = start, []*historyv1.Object{{Id: ids[20], Type: 1}}
			if _, err := s.Delete(t.Context(), req); err != nil {
				t.Errorf("%s, without the archive: %v", name, err)
			}
			a.down.Store(false)
			if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(got) != 19 {
				t.Errorf("%s: %d are left, want 19", name, len(got))
			}
		}
	}
}

// TestSameMillisecond puts, deletes and puts one object in one millisecond, in every order, through two services:
// the delete wins.
func TestSameMillisecond(t *testing.T) {
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for _, order := range orders {
		for split := range 8 {
			h := newHouse(t)
			services := []*rpc.Server{h.service(t), h.service(t)}
			for i, step := range order {
				putOrDelete(t, services[split>>i&1], step)
			}
			if it := point(t, h.service(t), "ann", "7"); it != nil {
				t.Errorf("order %v, split %03b: %v came back", order, split, it)
			}
		}
	}
}

// putOrDelete does one of the three steps.
func putOrDelete(t *testing.T, s *rpc.Server, step int) {
	t.Helper()
	if step != 1 {
		apply(t, s, beat("ann/7", progress, 0, int64(10+step)))
		return
	}
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "7", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
}

func TestClear(t *testing.T) {
	h := newHouse(t)
	s, other := h.service(t), h.service(t)
	hbs := []*historyv1.Heartbeat{beat("ann/7", progress, 9000, 20), beat("ann/8", progress, 2000, 20), beat("ann/9", progress, 9000, 20)}
	hbs[2].ObjectType = 2
	apply(t, s, hbs...)
	apply(t, other, beat("ann/7", progress, 8000, 30))
	resp, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: 1, UntilMs: start - 5000})
	if err != nil || resp.GetClearedMs() != start-5000 {
		t.Fatalf("clear: %v, %v", resp, err)
	}
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); fmt.Sprint(got) != "[8 9]" {
		t.Errorf("after clearing type 1 until 5 s ago the list is %v, want [8 9]", got)
	}
	if got := apply(t, other, beat("ann/7", progress, 6000, 40)); got[0] != cleared {
		t.Errorf("an event from before the mark, where the key is held: got %v, want cleared", got[0])
	}
	if got := apply(t, s, beat("ann/new", progress, 6000, 40)); got[0] != cleared {
		t.Errorf("a new object from before the mark: got %v, want cleared", got[0])
	}
	if got := apply(t, s, beat("ann/7", progress, 1000, 40)); got[0] != stored {
		t.Errorf("an event from after the mark: got %v, want stored", got[0])
	}
	if it := point(t, s, "ann", "7"); it.GetFurthestMs() != 40_000 {
		t.Errorf("furthest %d, want 40000", it.GetFurthestMs())
	}
}

func TestRemoveRefusals(t *testing.T) {
	s := newHouse(t).service(t)
	_, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann"})
	wantCode(t, "delete nothing", err, codes.InvalidArgument)
	_, err = s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "a\nb", Objects: []*historyv1.Object{{Id: "7", Type: 1}}})
	wantCode(t, "delete of an illegal user", err, codes.InvalidArgument)
	_, err = s.Clear(t.Context(), &historyv1.ClearRequest{Uid: ""})
	wantCode(t, "clear nobody", err, codes.InvalidArgument)
	_, err = s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: -1})
	wantCode(t, "clear until before 1970", err, codes.InvalidArgument)
}

// TestHeldOverAClear: a service that holds a cleared record does not return it for a repeated old heartbeat.
func TestHeldOverAClear(t *testing.T) {
	h := newHouse(t)
	for name, clearer := range map[string]*rpc.Server{"another": h.service(t), "the same": nil} {
		s, hb := h.service(t), beat("ann/7", stop, 5000, 50)
		if clearer == nil {
			clearer = s
		}
		hb.ObjectId = name[:3]
		apply(t, s, hb)
		if _, err := clearer.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 4000}); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{hb}, ReturnRecords: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetStatuses()[0]; got != historyv1.Status_STATUS_CLEARED || resp.GetRecords()[0].GetObject() != nil {
			t.Errorf("cleared through %s service: got %v, want it cleared", name, resp)
		}
		h.clock.Add(1)
	}
}
