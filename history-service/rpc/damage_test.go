package rpc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/internal/obs/obstest"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// rotten is an archive with unreadable cells of one object.
type rotten struct {
	history.Archive
	object history.Object
}

func (r rotten) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	page, err := r.Archive.Page(ctx, uid, q)
	n := len(page.Items)
	page.Items = slices.DeleteFunc(page.Items, func(it history.Item) bool { return it.Object == r.object })
	if len(page.Items) < n {
		page.Damaged = append(page.Damaged, history.Damage{Object: r.object, Err: r.err()})
	}
	return page, err
}

func (r rotten) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := r.Archive.Get(ctx, keys)
	for i := range entries {
		if keys[i].Object == r.object {
			entries[i] = history.Entry{User: entries[i].User, Err: r.err()}
		}
	}
	return entries, err
}

func (r rotten) err() error { return fmt.Errorf("decode: %w", history.ErrPermanent) }

// TestDamagedCell: an unreadable cell hides no other object, and is counted and logged.
func TestDamagedCell(t *testing.T) {
	for name, wait := range map[string]bool{"cold": false, "warm": true} {
		h, reg, log := smallHouse(t, 10), prometheus.NewRegistry(), &bytes.Buffer{}
		ids := put(t, h, 30, 10_000)
		bad := ids[20]
		configure := func(c *rpc.Config) {
			c.Archive, c.Keep = rotten{c.Archive, history.Object{ID: bad, Type: 1}}, 10
			c.Registry, c.Logger = reg, slog.New(slog.NewTextHandler(log, nil))
		}
		s := h.idle(t, configure)
		if wait {
			warmUp(t, h, 10)
		}
		want := slices.Delete(slices.Clone(ids), 20, 21)
		for range 2 {
			if got := list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: 7}); !slices.Equal(got, want) {
				t.Errorf("%s: the list has %q, want all but %s", name, got, bad)
			}
		}
		if got := strings.Fields(goOn(t, s, &historyv1.ContinueRequest{Limit: 100})); !slices.Equal(got, want) {
			t.Errorf("%s: to continue are %q, want all but %s", name, got, bad)
		}
		if n := obstest.Sum(t, reg, "playhead_stores_damaged_cells_total"); n < 2 {
			t.Errorf("%s: %v damaged cells were counted", name, n)
		}
		if text := log.String(); strings.Count(text, "unreadable archive cell skipped") != 1 || !strings.Contains(text, "user="+history.Pseudonym("ann")) || !strings.Contains(text, "column="+bad+"_1") {
			t.Errorf("%s: the log has %q", name, text)
		}
	}
}

// TestDamagedCellOfAColdUser: warm-ups, settings, points and heartbeats work despite the cell, and a new report of
// its object is stored.
func TestDamagedCellOfAColdUser(t *testing.T) {
	h := smallHouse(t, 10)
	ids := put(t, h, 30, 10_000)
	bad := ids[2]
	s := h.service(t, func(c *rpc.Config) { c.Archive, c.Keep = rotten{c.Archive, history.Object{ID: bad, Type: 1}}, 10 })
	record(t, s, "ann", start)
	record(t, s, "ann", 0)
	if it := point(t, s, "ann", ids[0]); it.GetPositionMs() != 200_000 {
		t.Errorf("another object: got %v", it)
	}
	if it := point(t, s, "ann", bad); it != nil {
		t.Errorf("the object: got %v, want none", it)
	}
	h.clock.Add(10_000)
	if got := apply(t, s, beat("ann/"+bad, progress, -5000, 20), beat("ann/"+ids[1], progress, -5000, 20)); got[0] != stored || got[1] != stored {
		t.Errorf("got %v", got)
	}
	if it := point(t, s, "ann", bad); it.GetPositionMs() != 20_000 || it.GetIncomplete() {
		t.Errorf("the object since: got %v, want 20 s", it)
	}
}

// smudged is a cache with an unreadable record of one object.
type smudged struct {
	history.Cache
	object history.Object
}

func (s smudged) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := s.Cache.Load(ctx, keys)
	for i := range entries {
		if r := entries[i].Record; r != nil && keys[i].Object == s.object {
			entries[i].Record = &history.Record{Revision: r.Revision, Partial: true}
		}
	}
	return entries
}

func (s smudged) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	page, err := s.Cache.List(ctx, uid, q)
	for i, it := range page.Items {
		if it.Object == s.object {
			page.Items[i].Record = &history.Record{Revision: it.Record.Revision, Version: it.Record.Version, Partial: true}
		}
	}
	return page, err
}

// TestDamagedRecord: readers get the archived record instead, even if the cache should be complete. Without the
// archive, reads fail.
func TestDamagedRecord(t *testing.T) {
	for name, keep := range map[string]int{"complete": 100, "with a low watermark": 10} {
		h := smallHouse(t, keep)
		ids := put(t, h, 30, 10_000)
		warmUp(t, h, keep)
		a := &gone{Archive: h.db.Archive()}
		s := h.idle(t, func(c *rpc.Config) {
			c.Cache, c.Archive, c.Keep = smudged{c.Cache, history.Object{ID: ids[2], Type: 1}}, a, keep
		})
		if got := list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: 7}); !slices.Equal(got, ids) {
			t.Errorf("%s: the list has %q, want all", name, got)
		}
		if it := point(t, s, "ann", ids[2]); it.GetPositionMs() != 200_000 || it.GetIncomplete() {
			t.Errorf("%s: the point is %v, want the archive's", name, it)
		}
		a.down.Store(true)
		if resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 7}); err == nil {
			t.Errorf("%s: without the archive: got %v, want no page", name, resp)
		}
		if resp, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: ids[2], Type: 1}}}); err == nil {
			t.Errorf("%s: without the archive: got %v, want no point", name, resp)
		}
	}
}

// TestReportOnADamagedRecord: a report that replaces an unreadable record is partial, even if the cache is complete
// for the user.
func TestReportOnADamagedRecord(t *testing.T) {
	for _, cleared := range []int64{0, start - 100_000_000} {
		h := smallHouse(t, 100)
		ids := put(t, h, 30, 10_000)
		if err := h.db.Archive().PutUser(t.Context(), "ann", history.User{Cleared: map[uint32]int64{0: cleared}}); err != nil {
			t.Fatal(err)
		}
		warmUp(t, h, 100)
		bad := history.Key{UID: "ann", Object: history.Object{ID: ids[2], Type: 1}}
		s := h.idle(t, func(c *rpc.Config) { c.Cache, c.Keep = smudged{c.Cache, bad.Object}, 100 })
		if got := apply(t, s, beat("ann/"+bad.Object.ID, progress, 0, 20)); got[0] != stored {
			t.Errorf("got %v, want %v", got, stored)
		}
		if e := h.db.Cache().Load(t.Context(), []history.Key{bad})[0]; !e.Record.Partial || !e.User.Complete() {
			t.Errorf("cleared up to %d: the cache has %+v, want it partial", cleared, e.Record)
		}
	}
}

// TestDeleteOfADamagedRecord: a service with a slow clock deletes an unreadable record. Only the archive knows
// which time the delete must cover.
func TestDeleteOfADamagedRecord(t *testing.T) {
	h := smallHouse(t, 100)
	ids := put(t, h, 3, 10_000)
	warmUp(t, h, 100)
	a := &gone{Archive: h.db.Archive()}
	bad := history.Object{ID: ids[0], Type: 1}
	s := h.idle(t, func(c *rpc.Config) { c.Cache, c.Archive, c.Keep = smudged{c.Cache, bad}, a, 100 })
	h.clock.Store(start - 1_000_000)
	a.down.Store(true)
	req := &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: bad.ID, Type: bad.Type}}}
	_, err := s.Delete(t.Context(), req)
	wantCode(t, "without the archive", err, codes.Unavailable)
	a.down.Store(false)
	if _, err := s.Delete(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	archived, err := h.db.Archive().Get(t.Context(), []history.Key{{UID: "ann", Object: bad}})
	if err != nil {
		t.Fatal(err)
	}
	if e := h.db.Cache().Load(t.Context(), []history.Key{{UID: "ann", Object: bad}})[0]; e.Record.Version < archived[0].Record.Version {
		t.Errorf("it covers %v, want %v", e.Record.Version, archived[0].Record.Version)
	}
}

// TestOldDeleteOfADamagedRecord: a delete earlier than the last event of an unreadable record leaves it visible.
func TestOldDeleteOfADamagedRecord(t *testing.T) {
	h := smallHouse(t, 100)
	ids := put(t, h, 3, 10_000)
	warmUp(t, h, 100)
	a := &gone{Archive: h.db.Archive()}
	bad := history.Key{UID: "ann", Object: history.Object{ID: ids[1], Type: 1}}
	s := h.idle(t, func(c *rpc.Config) { c.Cache, c.Archive, c.Keep = smudged{c.Cache, bad.Object}, a, 100 })
	archived, err := h.db.Archive().Get(t.Context(), []history.Key{bad})
	if err != nil {
		t.Fatal(err)
	}
	req := &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: bad.Object.ID, Type: 1}}, AtMs: archived[0].Record.Version.Time() - 1}
	a.down.Store(true)
	_, err = s.Delete(t.Context(), req)
	wantCode(t, "without the archive", err, codes.Unavailable)
	a.down.Store(false)
	if _, err := s.Delete(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	healed := h.idle(t, func(c *rpc.Config) { c.Keep = 100 })
	if got := list(t, healed, &historyv1.ListRequest{Uid: "ann", Limit: 7}); !slices.Equal(got, ids) {
		t.Errorf("the list has %q, want all of %q", got, ids)
	}
}

// TestOldReportOverADamagedRecord: an old report for an unreadable record does not hide the newer archived one: a
// later clear still covers it. Without the archive the old report is stored.
func TestOldReportOverADamagedRecord(t *testing.T) {
	for down, want := range map[bool]historyv1.Status{false: stale, true: stored} {
		h := smallHouse(t, 100)
		ids := put(t, h, 1, 10_000)
		warmUp(t, h, 100)
		a := &gone{Archive: h.db.Archive()}
		bad := history.Object{ID: ids[0], Type: 1}
		s := h.idle(t, func(c *rpc.Config) { c.Cache, c.Archive, c.Keep = smudged{c.Cache, bad}, a, 100 })
		a.down.Store(down)
		wantStatuses(t, "a report from before", apply(t, s, beat("ann/"+ids[0], progress, 60_000, 1)), want)
		h.clock.Store(start - 30_000)
		healed := h.idle(t, func(c *rpc.Config) { c.Keep = 100 })
		resp, err := healed.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"})
		if want := start - 10_000; err != nil || !down && resp.GetClearedMs() != want {
			t.Errorf("clear: got %v, %v; want up to %d", resp, err, want)
		}
	}
}

// unreadable is a cache that cannot read one object, not even its revision, until the next write.
type unreadable struct {
	history.Cache
	object history.Object
	healed bool
}

func (u *unreadable) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := u.Cache.Load(ctx, keys)
	for i, k := range keys {
		if k.Object == u.object && !u.healed {
			entries[i].Record = &history.Record{Partial: true}
		}
	}
	return entries
}

func (u *unreadable) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	w.Items = slices.DeleteFunc(slices.Clone(w.Items), func(it history.Item) bool { return it.Object == u.object })
	return u.Cache.Warm(ctx, uid, w)
}

func (u *unreadable) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	outcomes := u.Cache.Write(ctx, writes)
	for i, w := range writes {
		u.healed = u.healed || w.Key.Object == u.object && outcomes[i].Status == history.Applied
	}
	return outcomes
}

// TestWarmUpOverADamagedRecord: a record without a revision is replaced by the archived one, even if the user has
// once paused recording.
func TestWarmUpOverADamagedRecord(t *testing.T) {
	for name, pause := range map[string]history.Pause{"never paused": {}, "paused once": {Since: start - 9000, Until: start - 8000}} {
		h := newHouse(t)
		ids := put(t, h, 3, 10_000)
		if err := h.db.Archive().PutUser(t.Context(), "ann", history.User{Pause: pause}); err != nil {
			t.Fatal(err)
		}
		u := &unreadable{Cache: h.db.Cache(), object: history.Object{ID: ids[2], Type: 1}}
		w := h.service(t, func(c *rpc.Config) { c.Cache = u })
		if it := point(t, w, "ann", "none"); it != nil {
			t.Errorf("%s: got %v", name, it)
		}
		if !u.healed {
			t.Errorf("%s: the damaged record was not replaced", name)
		}
		if it := point(t, w, "ann", ids[2]); it.GetPositionMs() != 200_000 {
			t.Errorf("%s: the point is %v, want the archive's", name, it)
		}
	}
}

// TestDamagedRecordIsNotToldAsRemoved: a following device gets a resync.
func TestDamagedRecordIsNotToldAsRemoved(t *testing.T) {
	bubble(t, func(f *fed) {
		other := f.another(func(c *rpc.Config) { c.Cache = smudged{c.Cache, history.Object{ID: "film", Type: 1}} })
		v := watch(f.T, other, "u#1")
		apply(f.T, f.Server, by(0, "u/film", 5000, 30))
		v.hears("u: resync")
	})
}

// alone is an archive that fails for one user only.
type alone struct {
	history.Archive
	uid string
}

func (a alone) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := a.Archive.Get(ctx, keys)
	for i := range entries {
		if keys[i].UID == a.uid {
			entries[i] = history.Entry{Err: errDown}
		}
	}
	return entries, err
}

// TestArchiveWithoutOneUser: if the archive fails for one user, other users' reports in the batch are stored.
func TestArchiveWithoutOneUser(t *testing.T) {
	h, reg := newHouse(t), prometheus.NewRegistry()
	s := h.service(t, func(c *rpc.Config) { c.Archive, c.Registry = alone{c.Archive, "bob"}, reg })
	for _, uid := range []string{"ann", "bob"} {
		if err := h.db.Cache().Warm(t.Context(), uid, history.WarmSet{LowWatermark: history.VersionOf(start, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := apply(t, s, beat("ann/a", progress, 5000, 20), beat("bob/a", progress, 5000, 20)); got[0] != stored || got[1] != unavailable {
		t.Errorf("got %v, want that of bob alone %v", got, unavailable)
	}
	if n := obstest.Sum(t, reg, "playhead_stores_damaged_cells_total"); n > 0 {
		t.Errorf("%v damaged cells were counted", n)
	}
}
