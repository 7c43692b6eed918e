package rpc_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// app is a client of ann that reads everything once, then follows the changes.
type app struct {
	*testing.T
	s       *rpc.Server
	token   string
	known   map[string]*historyv1.Item
	resyncs int
	told    int
}

// name returns the app's key of an object.
func name(o *historyv1.Object) string { return fmt.Sprintf("%s_%d", o.GetId(), o.GetType()) }

// sync reads all changes and calls meanwhile before each call.
func (a *app) sync(limit uint32, meanwhile func()) {
	a.Helper()
	for {
		meanwhile()
		resp, err := a.s.Changes(a.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: a.token, Limit: limit})
		if err != nil {
			a.Fatalf("changes since %q: %v", a.token, err)
		}
		a.token = resp.GetToken()
		if resp.GetResync() {
			a.resyncs++
			a.known = shows(a.T, a.s)
			continue
		}
		if n := len(resp.GetItems()) + len(resp.GetRemoved()); limit > 0 && n > int(limit) || n > 100 || resp.GetSettings() == nil {
			a.Fatalf("%d objects told, settings %v; want at most %d and settings", n, resp.GetSettings(), limit)
		}
		for _, it := range resp.GetItems() {
			a.known[name(it.GetObject())] = it
			a.told++
		}
		for _, o := range resp.GetRemoved() {
			delete(a.known, name(o))
			a.told++
		}
		if !resp.GetHasMore() {
			return
		}
	}
}

// shows reads the whole history of ann.
func shows(t *testing.T, s *rpc.Server) map[string]*historyv1.Item {
	t.Helper()
	all, req := make(map[string]*historyv1.Item), &historyv1.ListRequest{Uid: "ann", Limit: 100}
	for {
		resp, err := s.List(t.Context(), req)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		for _, it := range resp.GetItems() {
			all[name(it.GetObject())] = it
		}
		if req.Cursor = resp.GetCursor(); !resp.GetHasMore() {
			return all
		}
	}
}

// knows checks that the app's state equals the history.
func (a *app) knows(what string) {
	a.Helper()
	want := shows(a.T, a.s)
	for _, n := range slices.Sorted(maps.Keys(want)) {
		if !proto.Equal(a.known[n], want[n]) {
			a.Fatalf("%s, %s:\nknown   %v\nhistory %v", what, n, a.known[n], want[n])
		}
	}
	if len(a.known) != len(want) {
		a.Fatalf("%s: the app knows %d objects, the history has %d", what, len(a.known), len(want))
	}
}

// archiving archives some dirty keys like the job, then trims.
func archiving(t *testing.T, c *pebble.Cache, a history.Archive, some func() bool) {
	t.Helper()
	keys, err := c.Overdue(t.Context(), history.AllBuckets(), 0, math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	keys = slices.DeleteFunc(keys, func(history.Key) bool { return !some() })
	archiveKeys(t, c, a, keys)
	if err := c.Trim(t.Context(), []string{"ann"}); err != nil {
		t.Fatal(err)
	}
}

// archiveKeys loads, completes, puts and marks clean. A record changed by a concurrent update stays dirty.
func archiveKeys(t *testing.T, c *pebble.Cache, a history.Archive, keys []history.Key) {
	t.Helper()
	ctx := t.Context()
	kept, err := a.Get(ctx, keys)
	if err != nil {
		t.Fatal(err)
	}
	var writes []history.Write
	var cells []history.Cell
	var contents []history.Content
	for i, e := range c.Load(ctx, keys) {
		k := keys[i]
		cleared := max(e.User.ClearedAt(k.Object.Type), kept[i].User.ClearedAt(k.Object.Type))
		switch {
		case k.IsUser():
			if err := a.PutUser(ctx, k.UID, e.User); err != nil {
				t.Fatal(err)
			}
			contents = append(contents, history.Content{Key: k, Revision: e.User.Revision})
		case e.Record == nil:
			contents = append(contents, history.Content{Key: k})
		case !e.Record.Partial:
			cells, contents = append(cells, history.Cell{Key: k, Record: e.Record}), append(contents, history.Content{Key: k, Revision: e.Record.Revision})
		default:
			m := history.Merge(e.Record.After(cleared), kept[i].Record.After(cleared))
			if m == nil { // covered by the archive's clear
				contents = append(contents, history.Content{Key: k, Revision: e.Record.Revision})
				continue
			}
			r := m.Successor(&e.User)
			r.Partial = false
			writes = append(writes, history.WriteOn(e.Record, k, r, &e.User))
		}
	}
	for i, out := range c.Write(ctx, writes) {
		if w := writes[i]; out.Status == history.Applied {
			cells, contents = append(cells, history.Cell{Key: w.Key, Record: w.Record}), append(contents, history.Content{Key: w.Key, Revision: w.Record.Revision})
		}
	}
	for _, err := range a.Put(ctx, cells) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.MarkClean(ctx, contents); err != nil {
		t.Fatal(err)
	}
}

// TestChanges covers the usual cases of an app.
func TestChanges(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	a := &app{T: t, s: s}
	apply(t, s, beat("ann/1", stop, 9000, 10))
	a.sync(0, func() {})
	if a.knows("after the first call"); a.resyncs != 1 {
		t.Errorf("%d resyncs, want the first", a.resyncs)
	}
	apply(t, s, beat("ann/2", stop, 8000, 10), beat("ann/3", stop, 7000, 10), beat("ann/4", stop, 6000, 10))
	archiving(t, h.db.Cache(), h.db.Archive(), func() bool { return true })
	a.sync(2, func() {})
	a.knows("after more")
	a.told = 0
	if a.sync(0, func() {}); a.told != 0 {
		t.Errorf("%d objects told where nothing has changed, want none", a.told)
	}
	apply(t, s, beat("ann/1", stop, 9500, 90)) // late: changes the furthest position, not the resume point
	deleteIDs(t, s, "2")
	a.sync(1, func() {})
	if a.knows("after a late report and a delete"); a.told != 2 {
		t.Errorf("%d objects told, want two", a.told)
	}
	if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	resp, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: a.token})
	if err != nil || resp.GetSettings().GetRecording() {
		t.Errorf("settings %v, error %v; want recording off", resp.GetSettings(), err)
	}
	if a.resyncs != 1 {
		t.Errorf("%d resyncs, want no other", a.resyncs)
	}
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: 7}); err != nil {
		t.Fatal(err)
	}
	if a.sync(0, func() {}); a.resyncs != 2 {
		t.Errorf("%d resyncs after a clear, want another", a.resyncs)
	}
	a.knows("after a clear")
}

func deleteIDs(t *testing.T, s *rpc.Server, ids ...string) {
	t.Helper()
	if err := deleteAt(t, s, ids, 0); err != nil {
		t.Fatal(err)
	}
}

// TestChangesRefused covers invalid requests, other users' tokens and an unavailable archive.
func TestChangesRefused(t *testing.T) {
	h := smallHouse(t, 10)
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive, c.Keep = a, 10 })
	put(t, h, 30, 1000)
	mine := &app{T: t, s: s}
	mine.sync(0, func() {})
	parts := strings.Split(mine.token, ".")
	for what, since := range map[string]string{
		"no token": "x", "another form": "c2." + strings.Join(parts[1:], "."), "no number": strings.Join(parts[:3], ".") + ".-1",
		"no log": "c1.0.0.1", "a part more": mine.token + ".0.0", "before after the place": strings.Join(parts[:3], ".") + ".1.2", "too great": "c1.0.zzzzzzzzzzzzzzzzz.1",
	} {
		_, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: since})
		if wantCode(t, what, err, codes.InvalidArgument); field(err) != "since" {
			t.Errorf("%s: the field is %q, want since", what, field(err))
		}
	}
	_, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Limit: 101})
	wantCode(t, "a limit of 101", err, codes.InvalidArgument)
	_, err = s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "an\nn"})
	wantCode(t, "no user", err, codes.InvalidArgument)
	for what, since := range map[string]string{
		"of a life that has ended": strings.Replace(mine.token, "c1.0.", "c1.1.", 1), "from the time to come": strings.Join(parts[:3], ".") + ".9",
	} {
		resp, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: since})
		if err != nil || !resp.GetResync() || resp.GetToken() != mine.token {
			t.Errorf("a token %s: got %v, %v; want a resync and the newest token", what, resp, err)
		}
	}
	resp, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "bob", Since: mine.token})
	if err != nil || !resp.GetResync() {
		t.Errorf("another user's token: got %v, %v; want a resync", resp, err)
	}
	a.down.Store(true)
	if _, err = s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: mine.token}); err != nil {
		t.Errorf("without the archive, where nothing has changed: %v", err)
	}
	apply(t, s, beat("ann/new", stop, 0, 10)) // the archive may have a part of it below the low watermark
	_, err = s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: mine.token})
	wantCode(t, "without the archive, which may have a part", err, codes.Unavailable)
}

// TestChangesOfAnImport: an app follows an import of more records than the cache keeps. Dirty records stay in the
// log, so the app needs no resync.
func TestChangesOfAnImport(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	a := &app{T: t, s: s}
	a.sync(0, func() {})
	size := 10_000
	if testing.Short() {
		size = 3000
	}
	e := history.Event{Kind: history.KindStop, Position: 5000, Duration: 100_000, Session: "s"}
	for from := 0; from < size; from += 500 {
		var writes []history.Write
		k := history.Key{UID: "ann", Object: history.Object{Type: 1}}
		u := h.db.Cache().Load(t.Context(), []history.Key{k})[0].User
		for n := range 500 {
			k.Object.ID = fmt.Sprint(from + n)
			e.Key, e.At = k, start-int64(from+n)*1000
			r := e.Record()
			r.Partial = true
			writes = append(writes, history.WriteOn(nil, k, r.Successor(&u), &u))
		}
		for _, out := range h.db.Cache().Write(t.Context(), writes) {
			if out.Status != history.Applied {
				t.Fatal(out)
			}
		}
	}
	if err := h.db.Cache().Trim(t.Context(), []string{"ann"}); err != nil {
		t.Fatal(err)
	}
	a.sync(0, func() {})
	if a.knows("after the import"); a.resyncs != 1 || a.told != size {
		t.Errorf("%d resyncs, %d told; want the first, and all of the import", a.resyncs, a.told)
	}
	archiving(t, h.db.Cache(), h.db.Archive(), func() bool { return true })
	a.sync(0, func() {})
	a.knows("once it is archived")
	resyncs := a.resyncs
	apply(t, s, beat("ann/1", stop, 0, 90))
	deleteIDs(t, s, "2", fmt.Sprint(size-1000))
	a.sync(0, func() {})
	if a.knows("and goes on"); a.resyncs != resyncs {
		t.Errorf("%d resyncs, want no other after %d", a.resyncs, resyncs)
	}
}

// changing is a history and a following app, under random operations.
type changing struct {
	*app
	random *rand.Rand
	dir    string
	cache  *pebble.DB // the cache, with its own epoch
	epochs int
	h      *house
	stop   context.CancelFunc
}

func (w *changing) open() {
	w.Helper()
	db, err := pebble.Open(w.dir, pebble.Config{Keep: 8, Now: w.h.now})
	if err != nil {
		w.Fatal(err)
	}
	w.cache = db
	w.s = w.h.idle(w.T, func(c *rpc.Config) {
		c.Cache, c.Keep = history.Cache(db.Cache()), 8
		c.Epoch = func(context.Context) (string, error) { return fmt.Sprint(w.epochs), nil }
	})
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.s.Run(ctx) }()
	w.stop = func() { cancel(); <-done; _ = db.Close() }
}

// restart reopens the store and the service, with an empty cache if lost.
func (w *changing) restart(lost bool) {
	if lost {
		archiving(w.T, w.cache.Cache(), w.h.db.Archive(), func() bool { return true })
	}
	if w.stop(); lost {
		w.dir = w.TempDir()
		w.epochs++
	}
	w.open()
}

func (w *changing) act() {
	w.Helper()
	id, ago := fmt.Sprint(w.random.IntN(20)), w.random.Int64N(60_000)
	w.h.clock.Add(w.random.Int64N(2000))
	past := start - w.h.clock.Load() + ago // of the events
	switch n := w.random.IntN(200); {
	case n < 90:
		apply(w.T, w.s, beat("ann/"+id, []historyv1.Kind{stop, progress}[n%2], past, w.random.Int64N(100)))
	case n < 110:
		apply(w.T, w.s, beat("ann/"+id, stop, past+10_000_000, w.random.Int64N(100)))
	case n < 125:
		deleteIDs(w.T, w.s, id)
	case n < 175:
		archiving(w.T, w.cache.Cache(), w.h.db.Archive(), func() bool { return w.random.IntN(3) > 0 })
	case n < 180:
		if _, err := w.s.PutSettings(w.Context(), &historyv1.PutSettingsRequest{Uid: "ann", Recording: n%2 == 0}); err != nil {
			w.Fatal(err)
		}
	case n < 184:
		req := &historyv1.ClearRequest{Uid: "ann", Type: uint32(n % 3)} //nolint:gosec // small
		if n == 180 {
			req.UntilMs = w.h.clock.Load() - 30_000
		}
		if _, err := w.s.Clear(w.Context(), req); err != nil {
			w.Fatal(err)
		}
	case n < 190:
		backup := export(w.T, w.s, "ann")
		req := backupOf("ann", backup...)
		if req.Restore = n == 184; n < 187 {
			deleteIDs(w.T, w.s, id)
		}
		if len(backup) > 0 {
			imports(w.T, w.s, req)
		}
	case n < 196:
		w.restart(false)
	case n < 198:
		w.restart(true)
	default: // many reports
		for i := range 40 {
			apply(w.T, w.s, beat(fmt.Sprintf("ann/m%d", i), stop, past+int64(i)*100, 5))
		}
	}
}

// TestChangesFollowed: an app that follows the changes always matches the history. The operations are reports, late
// reports, deletes, clears, settings, restored backups, archiving, trims, restarts and lost caches.
func TestChangesFollowed(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		w := &changing{app: &app{T: t}, random: rand.New(rand.NewPCG(rand.Uint64(), 1)), dir: t.TempDir(), h: newHouse(t)} //nolint:gosec // no secret
		w.open()
		for range 40 {
			for range w.random.IntN(8) {
				w.act()
			}
			w.sync(uint32(1+w.random.IntN(5)), func() { //nolint:gosec // small
				if w.random.IntN(3) == 0 {
					w.act()
				}
			})
			w.sync(uint32(w.random.IntN(9)), func() {}) //nolint:gosec // small
			w.knows("at rest")
		}
		w.stop()
	}
}
