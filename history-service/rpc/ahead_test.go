package rpc_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const aDay = int64(24 * 3600 * 1000)

// TestRemovalsWhileTheClockIsAhead: removals made while the clock is ahead remove everything visible. After the
// clock is corrected, new reports are stored. The exceptions are objects played while it was ahead, until they are
// rebased.
func TestRemovalsWhileTheClockIsAhead(t *testing.T) {
	const ahead, cleared, stale = 20 * aDay, historyv1.Status_STATUS_CLEARED, historyv1.Status_STATUS_STALE
	objects := []*historyv1.Object{{Id: "1", Type: 1}, {Id: "2", Type: 1}, {Id: "3", Type: 1}}
	clearUp := func(until int64) func(*testing.T, *rpc.Server) {
		return func(t *testing.T, s *rpc.Server) {
			if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: until}); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(at int64) func(*testing.T, *rpc.Server) {
		return func(t *testing.T, s *rpc.Server) {
			if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: objects, AtMs: at}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		remove func(*testing.T, *rpc.Server)
		at     int64            // clock at the removal
		late   historyv1.Status // status of an earlier report
	}{
		"clear":                                 {clearUp(0), start + ahead, cleared},
		"clear up to a time":                    {clearUp(start + ahead), start + ahead, cleared},
		"clear while a record is of the future": {clearUp(0), start, cleared},
		"delete":                                {remove(0), start + ahead, stale},
		"delete at a time":                      {remove(start + ahead), start + ahead, stale},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			trusted := start
			s := h.service(t, func(c *rpc.Config) { c.Horizon = func() time.Time { return time.UnixMilli(trusted) } })
			apply(t, s, beat("ann/1", progress, 1000, 50), beat("ann/2", progress, 1000, 50))
			h.clock.Store(start + ahead)
			wantStatuses(t, "ahead", apply(t, s, beat("ann/2", progress, 1000-ahead, 60)), stored)
			h.clock.Store(c.at)
			c.remove(t, s)
			if ids := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(ids) > 0 {
				t.Errorf("got %v, want all removed", ids)
			}
			wantStatuses(t, "from before", apply(t, s, beat("ann/1", progress, 500, 50)), c.late)
			now := start + 2*aDay
			h.clock.Store(now)
			trusted = now
			wantStatuses(t, "once the clock is right", apply(t, s, beat("ann/1", progress, -2*aDay, 70), beat("ann/3", progress, -2*aDay, 70)), stored, stored)
			wantStatuses(t, "of what was played while it was ahead", apply(t, s, beat("ann/2", progress, -2*aDay, 70)), stale)
			ids := list(t, s, &historyv1.ListRequest{Uid: "ann"})
			if slices.Sort(ids); !slices.Equal(ids, []string{"1", "3"}) {
				t.Errorf("got %v, want what was played since", ids)
			}
		})
	}
}

// TestEraseWhileTheClockIsAhead: an erasure is refused, because it would leave object names behind.
func TestEraseWhileTheClockIsAhead(t *testing.T) {
	h := newHouse(t)
	s := h.service(t, func(c *rpc.Config) { c.Horizon = func() time.Time { return time.UnixMilli(start) } })
	h.clock.Store(start + 2*aDay)
	_, err := s.Erase(t.Context(), &historyv1.EraseRequest{Uid: "ann"})
	wantCode(t, "erase", err, codes.Unavailable)
}
