package rpc_test

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history-service/admin"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// downEraser is an unavailable store.
type downEraser struct{ admin.Eraser }

func (downEraser) Held(context.Context, string, int64) (map[string]int, error) {
	return nil, history.ErrUnavailable
}

func (downEraser) Erase(context.Context, string, int64) error { return history.ErrUnavailable }

func erasers(all ...admin.Eraser) func(*rpc.Config) {
	return func(c *rpc.Config) { c.Erasers = all }
}

// TestErase erases a user whose records another service holds. Earlier records that arrive later, by a report,
// archiving or a dead letter, are dropped; later ones are stored. A pause stays.
func TestErase(t *testing.T) {
	h := newHouse(t)
	s, other := h.service(t, erasers(h.db)), h.service(t)
	apply(t, other, beat("ann/1", progress, 5000, 10), beat("ann/2", stop, 4000, 20), beat("bob/1", stop, 4000, 20))
	for _, recording := range []bool{false, true} {
		h.clock.Add(10)
		if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann", Recording: recording}); err != nil {
			t.Fatal(err)
		}
	}
	key := history.Key{UID: "ann", Object: history.Object{ID: "2", Type: 1}}
	before := h.db.Cache().Load(t.Context(), []history.Key{key, history.UserKey("ann")})
	h.clock.Add(1000)
	resp, err := s.Erase(t.Context(), &historyv1.EraseRequest{Uid: "ann"})
	if err != nil || resp.GetUntilMs() != h.clock.Load() {
		t.Fatalf("got %v, %v, want all up to now", resp, err)
	}
	found := int64(0)
	for _, p := range resp.GetPlaces() {
		if found += p.GetFound(); p.GetLeft() > 0 {
			t.Errorf("%v is left", p)
		}
	}
	if found < 4 { // records and marks
		t.Errorf("%d found, want more", found)
	}
	wantStatuses(t, "what is sent again", apply(t, other, beat("ann/1", progress, 5000, 10), beat("ann/2", stop, 4000, 20)),
		historyv1.Status_STATUS_CLEARED, historyv1.Status_STATUS_CLEARED)
	if errs := h.db.Archive().Put(t.Context(), []history.Cell{{Key: key, Record: before[0].Record}}); errs != nil {
		t.Fatal(errs)
	}
	letter := history.Dead{Key: key, Record: before[0].Record, Origin: "archive", Reason: "refused"}
	if err := (&replay.Redriver{Cache: h.db.Cache(), Queue: memqueue.New(memqueue.Config{})}).Drive(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	for _, service := range []*rpc.Server{s, other} {
		if got := list(t, service, &historyv1.ListRequest{Uid: "ann"}); len(got) > 0 {
			t.Errorf("%v came back", got)
		}
	}
	after := h.db.Cache().Load(t.Context(), []history.Key{history.UserKey("ann")})[0].User
	if after.Pause != before[1].User.Pause || after.Pause.Since == 0 {
		t.Errorf("the pause is %v, want %v", after.Pause, before[1].User.Pause)
	}
	h.clock.Add(1000)
	wantStatuses(t, "what is later", apply(t, other, beat("ann/1", progress, -2000, 30)), stored)
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(got) != 1 {
		t.Errorf("the list is %v, want what was later", got)
	}
	if got := list(t, s, &historyv1.ListRequest{Uid: "bob"}); len(got) != 1 {
		t.Errorf("bob has %v, want what there was", got)
	}
}

// markedEraser reports a waiting clear mark for the given number of looks.
type markedEraser struct {
	admin.Eraser
	looks  int
	happen func(look int) // called at each look
}

func (e *markedEraser) Held(_ context.Context, _ string, until int64) (map[string]int, error) {
	places := map[string]int{history.StatePlace: 0}
	if until > 0 {
		e.happen(e.looks)
		if e.looks--; e.looks > 0 {
			places[history.StatePlace] = 1
		}
	}
	return places, nil
}

func (*markedEraser) Erase(context.Context, string, int64) error { return nil }

// TestEraseWaitsForAJob: the answer waits until a job has archived the clear mark. It starts over after a
// concurrent clear, or if the cache restarts without the mark.
func TestEraseWaitsForAJob(t *testing.T) {
	for name, tt := range map[string]struct {
		looks int
		left  int64
	}{
		"no mark":            {looks: 1},
		"a mark":             {looks: 4},
		"no job":             {looks: 1 << 30, left: 1},
		"a clear in between": {looks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				e := &markedEraser{Eraser: h.db, looks: tt.looks, happen: func(look int) {
					if name == "a clear in between" && look == 1 {
						if _, err := h.db.Cache().Clear(t.Context(), "ann", history.Clear{Type: 1, Until: h.clock.Add(1)}); err != nil {
							t.Error(err)
						}
					}
				}}
				resp, err := h.service(t, erasers(e)).Erase(t.Context(), &historyv1.EraseRequest{Uid: "ann"})
				if err != nil {
					t.Fatal(err)
				}
				if p := resp.GetPlaces(); len(p) != 1 || p[0].GetLeft() != tt.left {
					t.Errorf("got %v, want %d left", p, tt.left)
				}
				if tt.left == 0 && e.looks > 0 {
					t.Errorf("answered before the mark has gone")
				}
				if tt.left == 0 && e.looks == 0 && name == "a clear in between" {
					t.Errorf("answered after another clear, whose mark nobody has looked for")
				}
			})
		})
	}
}

// TestEraseBesideAStoreThatIsAway: the other stores are erased, and the call reports that one is unavailable.
func TestEraseBesideAStoreThatIsAway(t *testing.T) {
	h := newHouse(t)
	s := h.service(t, erasers(downEraser{}, h.db))
	apply(t, s, beat("ann/1", stop, 5000, 10))
	for _, dry := range []bool{true, false} {
		_, err := s.Erase(t.Context(), &historyv1.EraseRequest{Uid: "ann", DryRun: dry})
		if grpcstatus.Code(err) != codes.Unavailable {
			t.Errorf("dry run %v: got %v, want unavailable", dry, err)
		}
		if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(got) > 0 != dry {
			t.Errorf("dry run %v: the list is %v", dry, got)
		}
	}
	if held, err := h.db.Held(t.Context(), "ann", 0); err != nil || held["cache: records"] != 0 {
		t.Errorf("the other store has %v, %v, want nothing", held, err)
	}
	if _, err := s.Erase(t.Context(), &historyv1.EraseRequest{Uid: "a\nb"}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("of no legal user: got %v, want an invalid argument", err)
	}
}
