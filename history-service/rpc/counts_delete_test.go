package rpc_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/count"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// topicOfCounts keeps what is published, unless it is down.
type topicOfCounts struct {
	mu        sync.Mutex
	said      []count.Statement
	down      bool
	meanwhile func() // once, during a call
}

func (c *topicOfCounts) Publish(_ context.Context, statements []count.Statement) ([]count.Statement, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if meanwhile := c.meanwhile; meanwhile != nil {
		c.meanwhile = nil
		meanwhile()
	}
	if c.down {
		return statements, errDown
	}
	c.said = append(c.said, statements...)
	return nil, nil
}

func (c *topicOfCounts) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// plays counts what was published as a counter does, and returns the plays of an object.
func (c *topicOfCounts) plays(t *testing.T, h *house, id string) int64 {
	t.Helper()
	c.mu.Lock()
	said := slices.Clone(c.said)
	c.mu.Unlock()
	counters := count.NewMemory(new(history.Rulebook), h.now)
	counters.Count(t.Context(), said)
	all, err := counters.Totals(t.Context(), []history.Object{{ID: id, Type: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return all[0].All.Plays
}

// published makes a service publish what deleted records of type 1 say.
func published(t *testing.T, h *house) (*topicOfCounts, func(*rpc.Config)) {
	t.Helper()
	types, err := count.ParseTypes([]string{"1"})
	if err != nil {
		t.Fatal(err)
	}
	c := new(topicOfCounts)
	return c, func(cfg *rpc.Config) { cfg.Counters, cfg.Counts, cfg.Counted = h.db.Counters(), c, types }
}

// TestDeletedCounts: a play counts although it is deleted before a job archives it.
func TestDeletedCounts(t *testing.T) {
	h := newHouse(t)
	c, counted := published(t, h)
	s, other := h.service(t, counted), h.service(t, counted)
	song := viewing("1", "ann/b", 7000, 100)
	song.ObjectType = 2
	apply(t, s, viewing("1", "ann/a", 9000, 100), viewing("1", "ann/b", 8000, 100), song, beat("ann/c", progress, 7000, 5))
	apply(t, other, viewing("2", "ann/a", 6000, 100))
	both := append(videos("a", "b", "c", "never"), &historyv1.Object{Id: "b", Type: 2})
	remove := func(want uint32) {
		t.Helper()
		if resp, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: both}); err != nil || resp.GetDeleted() != want {
			t.Fatalf("delete: %v, %v; want %d deleted", resp, err, want)
		}
	}
	remove(4)
	remove(0)
	if a, b, n := c.plays(t, h, "a"), c.plays(t, h, "b"), len(c.said); a != 2 || b != 1 || n != 2 {
		t.Errorf("got %d and %d plays of %d statements, want 2 and 1 of 2", a, b, n)
	}
	if got := apply(t, s, viewing("1", "ann/a", 9000, 100)); got[0] != stale {
		t.Errorf("the report again: %v", got)
	}
	h.clock.Add(20_000)
	apply(t, s, viewing("3", "ann/a", -10_000, 100))
	remove(1)
	if a := c.plays(t, h, "a"); a != 3 {
		t.Errorf("played again and deleted again: got %d plays, want 3", a)
	}
}

// TestDeletedCountsArchived: a delete of a record whose user the cache does not know adds to what was archived.
func TestDeletedCountsArchived(t *testing.T) {
	archived := viewing("1", "ann/a", 50_000, 100)
	for name, reports := range map[string][]*historyv1.Heartbeat{
		"later": {viewing("2", "ann/a", 9000, 100)},
		"late":  {viewing("2", "ann/a", 90_000, 100)},
		"again": {viewing("2", "ann/a", 90_000, 100), archived},
	} {
		h := newHouse(t)
		c, counted := published(t, h)
		k := history.Key{UID: "ann", Object: history.Object{ID: "a", Type: 1}}
		e := history.Event{
			Key: k, Kind: history.KindFinish, At: archived.GetEventTimeMs(), Position: 100_000, Duration: 100_000,
			Session: archived.GetSession(), Device: archived.GetDevice(),
		}
		r := whole(e.Record()).Successor(nil).Successor(nil) // as after two writes
		said, _ := count.Of(k, r)
		if _, err := c.Publish(t.Context(), []count.Statement{said}); err != nil {
			t.Fatal(err)
		}
		if errs := h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
		s := h.idle(t, counted)
		apply(t, s, reports...)
		if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: videos("a")}); err != nil {
			t.Fatal(err)
		}
		if got := c.plays(t, h, "a"); got != 2 {
			t.Errorf("%s: got %d plays, want 2; said %+v", name, got, c.said)
		}
		if it := point(t, h.service(t), "ann", "a"); it != nil {
			t.Errorf("%s: %v is left", name, it)
		}
	}
}

// TestDeletedCountsConflict: what another service wrote meanwhile counts too.
func TestDeletedCountsConflict(t *testing.T) {
	h := newHouse(t)
	c, counted := published(t, h)
	s, other := h.idle(t, counted), h.idle(t, counted)
	apply(t, s, viewing("1", "ann/a", 50_000, 100))
	c.meanwhile = func() { apply(t, other, viewing("2", "ann/a", 9000, 100)) }
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: videos("a")}); err != nil {
		t.Fatal(err)
	}
	if got := c.plays(t, h, "a"); got != 2 {
		t.Errorf("got %d plays, want 2; said %+v", got, c.said)
	}
}

// TestDeletedCountsUnavailable: what cannot be counted is not deleted. Other objects are, and reports go on.
func TestDeletedCountsUnavailable(t *testing.T) {
	h := newHouse(t)
	c, counted := published(t, h)
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, counted, func(cfg *rpc.Config) { cfg.Archive = a })
	apply(t, s, viewing("1", "ann/a", 9000, 100), beat("ann/b", progress, 8000, 5))
	remove := func(id string) error {
		_, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: videos(id)})
		return err
	}
	c.setDown(true)
	wantCode(t, "delete", remove("a"), codes.Unavailable)
	if err := remove("b"); err != nil {
		t.Errorf("delete what nobody has completed: %v", err)
	}
	if got := apply(t, s, viewing("2", "ann/a", 5000, 100)); fmt.Sprint(got) != fmt.Sprint([]historyv1.Status{stored}) {
		t.Errorf("a report: %v", got)
	}
	if it := point(t, s, "ann", "a"); it.GetPlays() != 2 {
		t.Errorf("got %v, want it with two plays", it)
	}
	c.setDown(false)
	a.down.Store(true)
	wantCode(t, "delete what may be archived too", remove("a"), codes.Unavailable)
	a.down.Store(false)
	if err := remove("a"); err != nil || c.plays(t, h, "a") != 2 {
		t.Errorf("delete again: %v, %d plays, want 2", err, c.plays(t, h, "a"))
	}
}
