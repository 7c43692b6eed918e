package rpc_test

import (
	"strconv"
	"testing"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// overtaken is a service that holds "old" of ann, which another one has deleted since. The
// tombstone was archived and has left the cache.
func overtaken(t *testing.T) (holder *rpc.Server, a *gone) {
	t.Helper()
	h := newHouse(t)
	a = &gone{Archive: h.db.Archive()}
	holder, other := h.service(t, func(c *rpc.Config) { c.Archive = a }), h.service(t)
	ids := fill(t, other, 1000, 1000)
	apply(t, holder, beat("ann/old", progress, 3_000_000, 80))
	_, err := other.Delete(t.Context(), &historyv1.DeleteRequest{
		Uid: "ann", Objects: []*historyv1.Object{{Id: "old", Type: 1}}, AtMs: start - 2_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	deleteMany(t, other, 1000)
	waitWarm(t, h)
	archive(t, h, append(ids, "old")...)
	settle(t, h)
	return holder, a
}

// deleteMany leaves so many tombstones of ann, of which the cache keeps no more.
func deleteMany(t *testing.T, s *rpc.Server, n int) {
	t.Helper()
	objects := make([]*historyv1.Object, n)
	for i := range objects {
		objects[i] = &historyv1.Object{Id: "never-" + strconv.Itoa(i), Type: 1}
	}
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: objects}); err != nil {
		t.Fatal(err)
	}
}

// What was deleted elsewhere does not come back from what a service still holds: not with
// an event from before, and not as a part of what a later one tells.
func TestWhatIsHeldAndWasDeletedElsewhere(t *testing.T) {
	s, _ := overtaken(t)
	if got := apply(t, s, beat("ann/old", progress, 2_900_000, 85)); got[0] != stale {
		t.Errorf("an event from before the delete: %v, want %v", got[0], stale)
	}
	if it := point(t, s, "ann", "old"); it != nil {
		t.Errorf("it is seen again: %v", it)
	}
	if got := apply(t, s, beat("ann/old", progress, 1_900_000, 20)); got[0] != stored {
		t.Errorf("an event from after the delete: %v, want %v", got[0], stored)
	}
	want(t, s, "old", exact{20, 20, 0})
}

// Without the archive nobody knows whether it was.
func TestWhatIsHeldAndGoneWithoutTheArchive(t *testing.T) {
	s, a := overtaken(t)
	a.down.Store(true)
	if got, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{
		beat("ann/old", progress, 1_900_000, 20), beat("ann/0500", progress, 0, 10),
	}}); err != nil || got.Statuses[0] != unavailable || got.Statuses[1] != stored {
		t.Errorf("got %v, %v, want the first alone %v", got, err, unavailable)
	}
	a.down.Store(false)
	apply(t, s, beat("ann/old", progress, 1_900_000, 20))
	want(t, s, "old", exact{20, 20, 0})
}
