package rpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// reborn is a cache that can come back as another one.
type reborn struct{ stores.Cache }

// older opens a store for a cache to come back as.
func (h *house) older(t *testing.T) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), pebble.Config{Now: h.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// marked returns the objects that have a dirty mark.
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

// TestReclaimDecisions has the cache come back without a clear and a pause: what was cleared
// is not written again although it is held, and nothing is recorded.
func TestReclaimDecisions(t *testing.T) {
	h := newHouse(t)
	cache := &reborn{h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
	older := h.older(t)
	progress := historyv1.Kind_KIND_PROGRESS
	apply(t, s, beat("u/cleared", progress, 0, 10), beat("w/before", progress, 0, 10))
	for _, until := range []int64{0, start - 9000} { // the second one says nothing more
		if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "u", UntilMs: until}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "w"}); err != nil {
		t.Fatal(err)
	}
	point(t, s, "u", "none") // waits until the users are warm, so that nobody reads meanwhile
	point(t, s, "w", "none")
	cache.Cache = older.Cache()
	for range 2 { // once more does no harm
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

// TestReclaim has the cache come back without some of what the service holds: it is
// there again, under a mark; what the cache has newer or has cleared stays.
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
	point(t, s, "u", "none") // waits until the user is warm, so that nobody reads meanwhile
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

// TestReclaimOfAClearThatADeleteReliesOn has a clear land that nobody was told of, and a delete
// that finds nothing left: the cache comes back without the clear, and the delete holds.
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
	point(t, s, "u", "none") // waits until the user is warm, so that nobody reads meanwhile
	point(t, another, "u", "none")
	cache.Cache = older.Cache()
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it := point(t, s, "u", "old"); it != nil {
		t.Errorf("what was deleted is %v", it)
	}
}

// TestReclaimOfAClearOfAnotherNamespace: so it is where the object's type was moved to a class since: the delete relies on the clear
// of the namespace that had its record.
func TestReclaimOfAClearOfAnotherNamespace(t *testing.T) {
	h, classes := classHouse(t, 0, "a: types=1")
	cache := &reborn{h.db.Cache()}
	s := h.service(t, classes, func(c *rpc.Config) { c.Cache = cache })
	apply(t, h.service(t), beat("u/old", historyv1.Kind_KIND_PROGRESS, 2000, 10))
	if _, err := h.db.Cache().Clear(t.Context(), "u", history.Clear{Until: start - 1000}); err != nil {
		t.Fatal(err)
	}
	req := &historyv1.DeleteRequest{Uid: "u", Objects: []*historyv1.Object{{Id: "old", Type: 1}}, AtMs: start - 1500}
	if _, err := s.Delete(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	older := h.older(t).Cache()
	cache.Cache = older
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := older.Load(t.Context(), []history.Key{history.UserKey("u")})[0]; e.User.ClearedAt(1) < start-1500 {
		t.Errorf("the user's history is cleared up to %d, want what the delete relied on", e.User.ClearedAt(1))
	}
}

// TestReclaimOfWhatWasCopied has a clear and a switch land that nobody was told of, and a report of a class, to whose namespace they are copied first. The cache
// comes back without them, and gets them for all of the history.
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

// TestReclaimOfAnErasedClass has the cache come back as it was before a user was erased, who had records of a class that there is no more:
// that is cleared again, too.
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

// TestReclaimOfAMovedType has an object be played after its type was moved, while only the archive has it in the namespace of before. The
// answers go on saying so after the record was brought back to a cache that had lost it.
func TestReclaimOfAMovedType(t *testing.T) {
	moved := "moved=" + time.UnixMilli(start).UTC().Format(time.DateOnly)
	h, empty := houseOf(t, pebble.Config{Keep: 1, Alone: true}), houseOf(t, pebble.Config{Keep: 1, Alone: true})
	apply(t, h.service(t), typed("ann/1_7", finish, 60_000, 100), typed("ann/2_7", stop, 50_000, 20))
	archives(t, h)
	cache := &reborn{h.db.Cache()}
	s := h.idle(t, func(c *rpc.Config) { c.Cache, c.Rules, c.Keep = cache, rulesOf(t, "a: types=7", moved), 1 })
	stop := running(t, s)
	defer func() { stop() }()
	all(t, s, "ann/0", 9) // all namespaces are warm
	for i, when := range []string{"first", "held", "brought back"} {
		again := typed("ann/1_7", progress, int64(10_000-i), int64(10+i))
		again.Session = "s2"
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{again}, ReturnRecords: true})
		if err != nil || !resp.GetRecords()[0].GetIncomplete() {
			t.Errorf("%s: got %v, %v; want an incomplete record", when, resp, err)
		}
		if i == 1 {
			stop() // nobody warms up while the caches are exchanged
			cache.Cache = empty.db.Cache()
			stop = running(t, s)
			if err := s.Reclaim(t.Context()); err != nil {
				t.Fatal(err)
			}
			all(t, s, "ann/0", 9)
			archives(t, empty)
		}
	}
}

// outrun has something happen before its next load.
type outrun struct {
	stores.Cache
	first func()
}

func (c *outrun) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if first := c.first; first != nil {
		c.first = nil
		first()
	}
	return c.Cache.Load(ctx, keys)
}

// TestReclaimOfADeleteThatCameMeanwhile has a record deleted, and the cache come back as it was
// before, between a report's look at what is held and its load: the delete is not forgotten.
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

// TestReclaimLosesNothing finds everything as it was: nothing is written.
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

// counting counts writes, and may be down.
type counting struct {
	stores.Cache
	writes int
	down   bool
}

func (c *counting) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	c.writes += len(writes)
	return c.Cache.Apply(ctx, writes)
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

// TestReclaimInOutage fails, holds everything all the same, and works when it is
// called again.
func TestReclaimInOutage(t *testing.T) {
	h := newHouse(t)
	cache := &counting{Cache: h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) { c.Cache = cache })
	apply(t, s, beat("u/a", historyv1.Kind_KIND_PROGRESS, 0, 10))
	point(t, s, "u", "none") // waits until the user is warm, so that nobody reads meanwhile
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

// TestFirstEpoch: what was stored before the cache could name its epoch is compared once it can.
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
	cache.Cache, epoch, fails = h.older(t).Cache(), "b", false // one master was restarted without its end
	if err := s.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it := point(t, s, "u", "lost"); it.GetPositionMs() != 10_000 {
		t.Errorf("got %v, want the 10 s that were acknowledged and are held", it)
	}
}

// TestFirstEpochOfADecision: so is what a user decided, without any record that is held.
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

// A user has switched recording off and on many times, and the cache comes back without it:
// one Confirm brings back the last switch, and what is held of others.
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
	point(t, s, "u", "none") // waits until the users are warm, so that nobody reads meanwhile
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

// TestReclaimBesideABatch has the cache come back older while a batch is stored, of which one record was written before
// that and the other one has lost a race: what the first epoch had acknowledged is in the second one, under a mark. So it is
// with the first batch of a service, which had not asked for the name of the first epoch.
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
		point(t, s, "u", "none") // waits until the user is warm, so that nobody reads meanwhile
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

// rebornWithin is a cache in which the last record of the next batch loses a race, and that is another one from then on.
type rebornWithin struct {
	reborn
	within func()
}

func (c *rebornWithin) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	within := c.within
	if c.within = nil; within == nil {
		return c.reborn.Apply(ctx, writes)
	}
	last := len(writes) - 1
	out := c.reborn.Apply(ctx, writes[:last])
	out = append(out, history.Outcome{Status: history.Conflict, Current: c.Load(ctx, []history.Key{writes[last].Key})[0]})
	within()
	return out
}
