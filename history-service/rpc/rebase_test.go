package rpc_test

import (
	"slices"
	"testing"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func rebase(t *testing.T, s *rpc.Server, want int) {
	t.Helper()
	resp, err := s.Rebase(t.Context(), &historyv1.RebaseRequest{Uid: "ann"})
	if err != nil || len(resp.GetRecords()) != want {
		t.Fatalf("rebase: got %v, %v, want %d records", resp, err, want)
	}
}

// TestRebaseBesideAHold: another service holds a record from before the rebase, and its next report restores the
// wrong time. The next rebase fixes it.
func TestRebaseBesideAHold(t *testing.T) {
	h := newHouse(t)
	s, other := h.service(t), h.service(t)
	const day = 24 * 3600 * 1000
	h.clock.Store(start + day)
	wantStatuses(t, "ahead", apply(t, other, beat("ann/1", progress, -day, 50), beat("ann/2", progress, -day+10, 50)), stored, stored)
	h.clock.Store(start)
	stale := historyv1.Status_STATUS_STALE
	wantStatuses(t, "the clock is back", apply(t, other, beat("ann/1", progress, 0, 60)), stale)
	rebase(t, s, 2)
	if ids := list(t, s, &historyv1.ListRequest{Uid: "ann"}); !slices.Equal(ids, []string{"1", "2"}) {
		t.Errorf("got %v, want both in their order", ids)
	}
	if at := point(t, s, "ann", "1").GetEventTimeMs(); at != start {
		t.Errorf("got it at %d, want %d", at, start)
	}
	h.clock.Store(start + 1000)
	wantStatuses(t, "the other still holds it", apply(t, other, beat("ann/1", progress, -1000, 70)), stale)
	rebase(t, s, 1)
	rebase(t, other, 0)
	h.clock.Store(start + 2000)
	wantStatuses(t, "rebased where it is held", apply(t, s, beat("ann/1", progress, -2000, 80)), stored)
	if it := point(t, s, "ann", "1"); it.GetPositionMs() != 80_000 {
		t.Errorf("got %v, want it moved on", it)
	}
}
