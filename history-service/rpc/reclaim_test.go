package rpc_test

import (
	"context"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// reborn is a cache that can be replaced, as after a restart.
type reborn struct{ history.Cache }

// older opens a second store to replace a cache with.
func (h *house) older(t *testing.T) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), pebble.Config{Now: h.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// marked returns the ids of dirty objects.
func marked(t *testing.T, c history.Ledger) map[string]bool {
	t.Helper()
	dirty, err := c.Overdue(t.Context(), history.AllBuckets(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for _, k := range dirty {
		ids[k.Object.ID] = true
	}
	return ids
}

// TestReclaimDecisions: the cache restarts without a clear and a pause. Cleared records that are still held stay
// cleared, and the pause is restored.
func TestReclaimDecisions(t *testing.T) {
	h := newHouse(t)
	cache := &reborn{h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
	older := h.older(t)
	progress := historyv1.Kind_KIND_PROGRESS
	apply(t, s, beat("u/cleared", progress, 0, 10), beat("w/before", progress, 0, 10))
	for _, until := range []int64{0, start - 9000} { // the second changes nothing
		if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "u", UntilMs: until}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "w"}); err != nil {
		t.Fatal(err)
	}
	point(t, s, "u", "none") // wait until the users are warm, so no warm-up runs meanwhile
	point(t, s, "w", "none")
	cache.Cache = older.Cache()
	for range 2 { // a repeat is harmless
		if err := s.Reclaim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if it := point(t, s, "u", "cleared"); it != nil {
		t.Errorf("what was cleared is %v", it)
	}
	if it := point(t, s, "w", "before"); it == nil {
		t.Error("what was recorded before the pause is lost")
	}
	got, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "w"})
	if err != nil || got.GetSettings().GetRecording() {
		t.Errorf("settings are %v, error %v; want recording off", got, err)
	}
}

// TestReclaim: the cache restarts without some held records. They are restored and dirty; newer and cleared ones
// stay.
func TestReclaim(t *testing.T) {
	h := newHouse(t)
	cache := &reborn{h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
	older := h.older(t)
	another := h.service(t, func(c *rpc.Config) { c.Cache = older.Cache() })
	progress := historyv1.Kind_KIND_PROGRESS
	apply(t, s, beat("u/lost", progress, 0, 10), beat("u/older", progress, 0, 20), beat("u/newer", progress, 2000, 30), beat("v/cleared", progress, 9000, 40))
	apply(t, another, beat("u/older", progress, 5000, 5), beat("u/newer", progress, 1000, 35))
	if _, err := another.Clear(t.Context(), &historyv1.ClearRequest{Uid: "v", UntilMs: start - 5000}); err != nil {
		t.Fatal(err)
	}
	point(t, s, "u", "none") // waits until the user is warm, so no warm-up runs meanwhile
	point(t, s, "v", "none")
	cache.Cache = older.Cache()
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int64{"lost": 10, "older": 20, "newer": 35} {
		if it := point(t, s, "u", id); it.GetPositionMs() != want*1000 {
			t.Errorf("%s is at %v, want %d s", id, it, want)
		}
	}
	if it := point(t, s, "v", "cleared"); it != nil {
		t.Errorf("what was cleared is %v", it)
	}
	if ids := marked(t, older.Cache()); !ids["lost"] || !ids["older"] {
		t.Errorf("marks of %v, want those of lost and older", ids)
	}
	apply(t, s, beat("u/lost", progress, -1000, 11))
	if it := point(t, s, "u", "lost"); it.GetPositionMs() != 11_000 {
		t.Errorf("lost goes on at %v, want 11 s", it)
	}
}

// TestReclaimOfAClearThatADeleteReliesOn: a delete finds nothing because of an unacknowledged clear. The cache
// restarts without the clear, and the delete still holds.
func TestReclaimOfAClearThatADeleteReliesOn(t *testing.T) {
	h := newHouse(t)
	cache := &reborn{h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
	older := h.older(t)
	another := h.service(t, func(c *rpc.Config) { c.Cache = older.Cache() })
	progress := historyv1.Kind_KIND_PROGRESS
	apply(t, another, beat("u/old", progress, 2000, 10))
	apply(t, s, beat("u/old", progress, 2000, 10))
	if _, err := h.db.Cache().Clear(t.Context(), "u", history.Clear{Until: start - 1000}); err != nil {
		t.Fatal(err)
	}
	req := &historyv1.DeleteRequest{Uid: "u", Objects: []*historyv1.Object{{Id: "old", Type: 1}}, AtMs: start - 1500}
	if _, err := s.Delete(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	point(t, s, "u", "none") // waits until the user is warm, so no warm-up runs meanwhile
	point(t, another, "u", "none")
	cache.Cache = older.Cache()
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it := point(t, s, "u", "old"); it != nil {
		t.Errorf("what was deleted is %v", it)
	}
}

// TestReclaimOfWhatWasCopied: a report copies an unacknowledged clear and pause to its class's namespace. The cache
// restarts without them, and gets them back in both namespaces.
func TestReclaimOfWhatWasCopied(t *testing.T) {
	h, classes := classHouse(t, 0, "a: types=1")
	cache := &reborn{h.db.Cache()}
	s := h.service(t, classes, func(c *rpc.Config) { c.Cache = cache })
	cut, pause := history.Clear{Until: start - 5000}, history.Pause{Since: start - 4000, Until: start - 3000}
	if _, err := h.db.Cache().Clear(t.Context(), "u", cut); err != nil {
		t.Fatal(err)
	}
	if err := h.db.Cache().Pause(t.Context(), "u", history.Pause{}, pause); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "a report", apply(t, s, beat("u/new", stop, 2000, 10)), stored)
	older := h.older(t).Cache()
	cache.Cache = older
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"u", history.NamespaceUID("u", "a")} {
		e := older.Load(t.Context(), []history.Key{history.UserKey(namespace)})[0]
		if e.User.ClearedAt(1) < cut.Until || e.User.Pause != pause {
			t.Errorf("%s: cleared up to %d, pause %+v; want %d and %+v", namespace, e.User.ClearedAt(1), e.User.Pause, cut.Until, pause)
		}
	}
}

// TestReclaimOfAnErasedClass: the cache restarts with the state before an erasure, including a removed class. The
// class is cleared again too.
func TestReclaimOfAnErasedClass(t *testing.T) {
	h, classes := classHouse(t, 0, "gone: types=9")
	apply(t, h.service(t, classes), typed("u/old_9", stop, 2000, 10))
	cache := &reborn{h.db.Cache()}
	s := h.service(t, erasers(h.db), func(c *rpc.Config) { c.Cache = cache })
	resp, err := s.Erase(t.Context(), &historyv1.EraseRequest{Uid: "u"})
	if err != nil {
		t.Fatal(err)
	}
	older := h.older(t).Cache()
	cache.Cache = older
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := older.Load(t.Context(), []history.Key{history.UserKey(history.NamespaceUID("u", "gone"))})[0]; e.User.ClearedAt(9) < resp.GetUntilMs() {
		t.Errorf("the class is cleared up to %d, want %d", e.User.ClearedAt(9), resp.GetUntilMs())
	}
}

// outrun calls first before its next load.
type outrun struct {
	history.Cache
	first func()
}

func (c *outrun) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if first := c.first; first != nil {
		c.first = nil
		first()
	}
	return c.Cache.Load(ctx, keys)
}

// TestReclaimOfADeleteThatCameMeanwhile: between a report's Get and its load, the record is deleted and the cache
// restarts with the older state. The delete is kept.
func TestReclaimOfADeleteThatCameMeanwhile(t *testing.T) {
	h := newHouse(t)
	cache, older := &outrun{Cache: h.db.Cache()}, h.older(t)
	s := h.idle(t, func(c *rpc.Config) { c.Cache = cache })
	watched := beat("u/a", historyv1.Kind_KIND_PROGRESS, 3000, 80)
	apply(t, h.idle(t), watched)
	apply(t, h.idle(t, func(c *rpc.Config) { c.Cache = older.Cache() }), watched)
	cache.first = func() {
		req := &historyv1.DeleteRequest{Uid: "u", Objects: []*historyv1.Object{{Id: "a", Type: 1}}, AtMs: start - 2000}
		if _, err := s.Delete(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		cache.Cache = older.Cache()
	}
	apply(t, s, beat("u/a", historyv1.Kind_KIND_PROGRESS, 1000, 10))
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := older.Cache().Load(t.Context(), []history.Key{{UID: "u", Object: history.Object{ID: "a", Type: 1}}})[0]
	if got := e.Record.Furthest(); got != 10_000 {
		t.Errorf("the furthest position is %d, want 10000: what was before is deleted", got)
	}
}

// TestReclaimLosesNothing: if the cache lost nothing, nothing is written.
func TestReclaimLosesNothing(t *testing.T) {
	h := newHouse(t)
	cache := &counting{Cache: h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
	apply(t, s, beat("u/a", historyv1.Kind_KIND_PROGRESS, 0, 10), beat("u/b", historyv1.Kind_KIND_STOP, 0, 20))
	point(t, s, "u", "none")
	before := cache.writes
	if err := s.Reclaim(t.Context()); err != nil || cache.writes != before {
		t.Errorf("Reclaim = %v, %d writes, want none", err, cache.writes-before)
	}
}

// counting counts writes and can be down.
type counting struct {
	history.Cache
	writes int
	down   bool
}

func (c *counting) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	c.writes += len(writes)
	return c.Cache.Write(ctx, writes)
}

func (c *counting) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if !c.down {
		return c.Cache.Load(ctx, keys)
	}
	entries := make([]history.Entry, len(keys))
	for i := range entries {
		entries[i].Err = errDown
	}
	return entries
}

// TestReclaimInOutage: Reclaim fails, keeps everything held, and succeeds on a retry.
func TestReclaimInOutage(t *testing.T) {
	h := newHouse(t)
	cache := &counting{Cache: h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
	apply(t, s, beat("u/a", historyv1.Kind_KIND_PROGRESS, 0, 10))
	point(t, s, "u", "none") // waits until the user is warm, so no warm-up runs meanwhile
	cache.Cache, cache.down = h.older(t).Cache(), true
	if err := s.Reclaim(t.Context()); err == nil {
		t.Error("Reclaim = nil, want an error")
	}
	cache.down = false
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it := point(t, s, "u", "a"); it.GetPositionMs() != 10_000 {
		t.Errorf("a is at %v, want 10 s", it)
	}
}

// TestFirstEpoch: writes from before the first known epoch are compared once the epoch is known.
func TestFirstEpoch(t *testing.T) {
	h := newHouse(t)
	cache, epoch, fails := &reborn{h.db.Cache()}, "a", true
	s := h.service(t, func(c *rpc.Config) {
		c.Cache = cache
		c.Epoch = func(context.Context) (string, error) {
			if fails {
				return "", errDown
			}
			return epoch, nil
		}
	})
	apply(t, s, beat("u/lost", historyv1.Kind_KIND_PROGRESS, 0, 10))
	point(t, s, "u", "none") // waits until the user is warm
	if s.Confirm(t.Context()) == nil {
		t.Fatal("confirmed without an answer")
	}
	cache.Cache, epoch, fails = h.older(t).Cache(), "b", false // one master has restarted
	if err := s.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it := point(t, s, "u", "lost"); it.GetPositionMs() != 10_000 {
		t.Errorf("got %v, want the 10 s that were acknowledged and are held", it)
	}
}

// TestFirstEpochOfADecision: the same for settings, without a held record.
func TestFirstEpochOfADecision(t *testing.T) {
	h := newHouse(t)
	cache := &reborn{h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) {
		c.Cache = cache
		c.Epoch = func(context.Context) (string, error) { return "b", nil }
	})
	if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "u"}); err != nil {
		t.Fatal(err)
	}
	cache.Cache = h.older(t).Cache()
	if err := s.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "u"}); err != nil || got.Settings.Recording {
		t.Errorf("got %v, %v; want recording switched off as it was", got, err)
	}
}

// A user has changed the settings many times, and the cache restarts without them. One Confirm restores the last
// setting, and other users' held records.
func TestManySwitchesAreOne(t *testing.T) {
	h := newHouse(t)
	cache, epoch := &reborn{h.db.Cache()}, "a"
	s := h.service(t, func(c *rpc.Config) {
		c.Cache = cache
		c.Epoch = func(context.Context) (string, error) { return epoch, nil }
	})
	apply(t, s, beat("u/lost", historyv1.Kind_KIND_PROGRESS, 0, 10))
	if err := s.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	const n = 100
	for i := range n {
		if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "w", Recording: i%2 == 1}); err != nil {
			t.Fatal(err)
		}
	}
	point(t, s, "u", "none") // wait until the users are warm, so no warm-up runs meanwhile
	point(t, s, "w", "none")
	cache.Cache, epoch = h.older(t).Cache(), "b"
	if err := s.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	if it := point(t, s, "u", "lost"); it == nil {
		t.Error("what somebody else reported is not shown")
	}
	got, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "w"})
	if err != nil || !got.GetSettings().GetRecording() {
		t.Errorf("settings are %v, error %v; want recording on", got, err)
	}
}

// TestReclaimBesideABatch: the cache restarts with an older state during a batch. One record was written before,
// and another one met a concurrent update. All acknowledged writes are in the second epoch and dirty. This also
// holds for a service's first batch, before it knows the epoch.
func TestReclaimBesideABatch(t *testing.T) {
	for _, first := range []bool{false, true} {
		h := newHouse(t)
		cache := &rebornWithin{reborn: reborn{h.db.Cache()}}
		epoch := "first"
		s := h.service(t, func(c *rpc.Config) {
			c.Cache = cache
			c.Epoch = func(context.Context) (string, error) { return epoch, nil }
		})
		progress, held := historyv1.Kind_KIND_PROGRESS, map[string]int64{"written": 20, "raced": 30}
		if !first {
			apply(t, s, beat("u/before", progress, -1000, 10))
			held["before"] = 10
		}
		point(t, s, "u", "none") // waits until the user is warm, so no warm-up runs meanwhile
		if !first {
			if err := s.Confirm(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		older := h.older(t)
		cache.within = func() {
			cache.Cache, epoch = older.Cache(), "second"
			if err := s.Confirm(t.Context()); err != nil {
				t.Error(err)
			}
		}
		apply(t, s, beat("u/written", progress, 0, 20), beat("u/raced", progress, 0, 30))
		if err := s.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids := marked(t, older.Cache())
		for id, want := range held {
			if it := point(t, s, "u", id); it.GetPositionMs() != want*1000 || !ids[id] {
				t.Errorf("first %v: %s is at %v, with a mark %v; want %d s and a mark", first, id, it, ids[id], want)
			}
		}
	}
}

// rebornWithin calls within during the next batch, after a conflict for its last record.
type rebornWithin struct {
	reborn
	within func()
}

func (c *rebornWithin) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	within := c.within
	if c.within = nil; within == nil {
		return c.reborn.Write(ctx, writes)
	}
	last := len(writes) - 1
	out := c.reborn.Write(ctx, writes[:last])
	out = append(out, history.Outcome{Status: history.Conflict, Current: c.Load(ctx, []history.Key{writes[last].Key})[0]})
	within()
	return out
}
