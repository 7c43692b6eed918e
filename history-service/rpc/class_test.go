package rpc_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const previews = "previews: types=7,8 keep=14d list=20 least=2s"

func rulesOf(t testing.TB, texts ...string) *history.Rulebook {
	t.Helper()
	book, err := history.ParseRules("", texts)
	if err != nil {
		t.Fatal(err)
	}
	return book
}

// classHouse is a house with rules in its store and services.
func classHouse(t testing.TB, keep int, texts ...string) (*house, func(*rpc.Config)) {
	book := rulesOf(t, texts...)
	return houseOf(t, pebble.Config{Keep: keep, Rules: book, Alone: true}), func(c *rpc.Config) { c.Rules, c.Keep = book, keep }
}

// typed is a heartbeat on "user/id_type" in a session that started ten seconds earlier.
func typed(key string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat {
	hb, k := beat(key, kind, ago, seconds), keyOf(key)
	hb.ObjectId, hb.ObjectType, hb.StartedAtMs = k.Object.ID, k.Object.Type, hb.EventTimeMs-10_000
	return hb
}

// keyOf parses "user/id_type".
func keyOf(text string) history.Key {
	k, err := history.ParseKey(text)
	if err != nil {
		panic(err)
	}
	return k
}

// archives does the job's work: it puts dirty records, marks them clean and trims.
func archives(t testing.TB, h *house) {
	t.Helper()
	ctx := t.Context()
	keys, err := h.db.Cache().Overdue(ctx, history.AllBuckets(), 0, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	uids := make(map[string]bool)
	var clean []history.Content
	for i, e := range h.db.Cache().Load(ctx, keys) {
		k := keys[i]
		uids[k.UID] = true
		if k.IsUser() {
			if err := h.db.Archive().PutUser(ctx, k.UID, e.User); err != nil {
				t.Fatal(err)
			}
			clean = append(clean, history.Content{Key: k, Revision: e.User.Revision})
			continue
		}
		if e.Record == nil {
			clean = append(clean, history.Content{Key: k})
			continue
		}
		r := e.Record
		if r.Partial { // the complete record must be newer than the archived one
			old, err := h.db.Archive().Get(ctx, []history.Key{k})
			if err != nil {
				t.Fatal(err)
			}
			u := e.User
			u.CutTime = max(u.CutTime, old[0].User.CutTime)
			r = history.Merge(r, u.Cut(old[0].Record, k.Object.Type)).Successor(&u)
			r.Partial = false
			if out := h.db.Cache().Write(ctx, []history.Write{history.WriteOn(e.Record, k, r, &u)}); out[0].Status != history.Applied {
				continue // concurrent update; still dirty
			}
		}
		if errs := h.db.Archive().Put(ctx, []history.Cell{{Key: k, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
		clean = append(clean, history.Content{Key: k, Revision: r.Revision})
	}
	if err := h.db.Cache().MarkClean(ctx, clean); err != nil {
		t.Fatal(err)
	}
	if err := h.db.Cache().Trim(ctx, slices.Collect(maps.Keys(uids))); err != nil {
		t.Fatal(err)
	}
}

// all reads all pages of "user/type", 0 for all types, and returns "id_type" in order.
func all(t testing.TB, s *rpc.Server, list string, limit uint32) (names []string) {
	t.Helper()
	uid, text, _ := strings.Cut(list, "/")
	typ, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	req := &historyv1.ListRequest{Uid: uid, Type: uint32(typ), Limit: limit}
	for {
		resp, err := s.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range resp.GetItems() {
			names = append(names, name(it.GetObject()))
		}
		if req.Cursor = resp.GetCursor(); !resp.GetHasMore() {
			return names
		}
		if len(resp.GetItems()) == 0 {
			t.Fatal("an empty page that says there is more")
		}
	}
}

func wantNames(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// countingArchive counts pages and gets.
type countingArchive struct {
	history.Archive
	pages, gets atomic.Int64
}

func (a *countingArchive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	a.pages.Add(1)
	return a.Archive.Page(ctx, uid, q)
}

func (a *countingArchive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	a.gets.Add(1)
	return a.Archive.Get(ctx, keys)
}

// namespaceCache fails in one namespace, and records the listed namespaces.
type namespaceCache struct {
	history.Cache
	down  atomic.Pointer[string] // namespace with failing clears and pauses
	lists atomic.Pointer[[]string]
}

func (c *namespaceCache) fails(uid string) bool { d := c.down.Load(); return d != nil && *d == uid }

func (c *namespaceCache) Clear(ctx context.Context, uid string, w history.Clear) (int64, error) {
	if c.fails(uid) {
		return 0, errDown
	}
	return c.Cache.Clear(ctx, uid, w)
}

func (c *namespaceCache) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	if c.fails(uid) {
		return errDown
	}
	return c.Cache.Pause(ctx, uid, from, to)
}

func (c *namespaceCache) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if l := c.lists.Load(); l != nil {
		both := append(slices.Clone(*l), uid)
		c.lists.Store(&both)
	}
	return c.Cache.List(ctx, uid, q)
}

// TestClassFilm: previews do not push a film out of the cache. Its point, its type's page and "continue watching"
// need no archive read, and pages of previews do not read films.
func TestClassFilm(t *testing.T) {
	h, rules := classHouse(t, 10, previews)
	archive, cache := &countingArchive{Archive: h.db.Archive()}, &namespaceCache{Cache: h.db.Cache()}
	s := h.service(t, rules, func(c *rpc.Config) { c.Archive, c.Cache = archive, cache })
	film := typed("ann/film_1", stop, 9_000_000, 4000)
	film.DurationMs = 7_200_000
	apply(t, s, film)
	const many = 3000
	for i := range many {
		apply(t, s, typed(fmt.Sprintf("ann/%d_7", i), stop, 8_000_000-int64(i), 5))
		if i%500 == 499 {
			archives(t, h)
		}
	}
	archives(t, h)
	pages, gets := archive.pages.Load(), archive.gets.Load()
	if p := point(t, s, "ann", "film"); p.GetPositionMs() != 4_000_000 || p.GetIncomplete() {
		t.Errorf("point of the film: got %v", p)
	}
	cont, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "ann"})
	if err != nil || len(cont.GetItems()) != 1 || cont.GetItems()[0].GetObject().GetId() != "film" {
		t.Errorf("continue: got %v, %v, want the film", cont, err)
	}
	wantNames(t, "films", all(t, s, "ann/1", 20), "film_1")
	if p, g := archive.pages.Load()-pages, archive.gets.Load()-gets; p+g != 0 {
		t.Errorf("the archive was asked for %d pages and %d times for records, want nothing", p, g)
	}
	cache.lists.Store(new([]string))
	got := all(t, s, "ann/7", 100)
	if len(got) != many || got[0] != strconv.Itoa(many-1)+"_7" || got[many-1] != "0_7" {
		t.Errorf("previews: got %d, from %v to %v", len(got), got[0], got[len(got)-1])
	}
	for _, uid := range *cache.lists.Load() {
		if uid != history.NamespaceUID("ann", "previews") {
			t.Errorf("a page of previews has listed %q", uid)
		}
	}
	if got := all(t, s, "ann/0", 100); len(got) != many+1 || got[many] != "film_1" {
		t.Errorf("all: got %d, want %d, the film last", len(got), many+1)
	}
}

// TestClassBrief: viewings that are too short leave no record, longer ones do.
func TestClassBrief(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	s := h.service(t, rules)
	short := typed("ann/1_7", stop, 0, 1)
	short.StartedAtMs = start - 1999
	seen := typed("ann/2_7", stop, 0, 60)
	seen.WatchedMs = 1999
	unknown, begun := typed("ann/3_7", progress, 0, 1), typed("ann/4_7", historyv1.Kind_KIND_START, 0, 60)
	unknown.StartedAtMs, begun.StartedAtMs = 0, 0
	film := typed("ann/1_1", stop, 0, 1)
	film.StartedAtMs = start - 1999
	long := typed("ann/5_8", stop, 0, 1)
	long.StartedAtMs = start - 2000
	const brief = historyv1.Status_STATUS_BRIEF
	wantStatuses(t, "short", apply(t, s, short, seen, unknown, begun), brief, brief, brief, brief)
	wantStatuses(t, "others", apply(t, s, film, long), historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_STORED)
	wantNames(t, "history", all(t, s, "ann/0", 20), "5_8", "1_1")
	resp, err := s.Mark(t.Context(), &historyv1.MarkRequest{Uid: "ann", Objects: toMark(&historyv1.Object{Id: "6", Type: 7}), Mark: historyv1.Mark_MARK_WATCHED})
	if err != nil || resp.GetStatuses()[0] != historyv1.Status_STATUS_STORED {
		t.Errorf("a mark: got %v, %v", resp, err)
	}
}

// TestClassChangesOnly stores a report only if it has new information, or after half of the record's TTL.
func TestClassChangesOnly(t *testing.T) {
	h, rules := classHouse(t, 0, "preferences: types=9 keep=10d changes=only")
	cache := &countedCache{Cache: h.db.Cache()}
	s := h.service(t, rules, func(c *rpc.Config) { c.Cache = cache })
	say := func(language string, ago int64, session string) *historyv1.Heartbeat {
		hb := typed("ann/subtitles_9", stop, ago, 0)
		hb.Session, hb.Meta = session, map[string]string{"language": language}
		return hb
	}
	const stored, unchanged = historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED
	wantStatuses(t, "the first", apply(t, s, say("de", 9000, "a")), stored)
	for _, archived := range []bool{false, true} {
		if archived {
			archives(t, h)
		}
		before := cache.writes.Load()
		wantStatuses(t, "again", apply(t, s, say("de", 8000, "b")), unchanged)
		wantStatuses(t, "again", apply(t, s, say("de", 7000, "c")), unchanged)
		if n := cache.writes.Load() - before; n != 0 {
			t.Errorf("archived %v: %d writes of what is known, want none", archived, n)
		}
	}
	wantStatuses(t, "something else", apply(t, s, say("en", 6000, "b")), stored)
	wantStatuses(t, "older", apply(t, s, say("de", 6500, "b")), historyv1.Status_STATUS_STALE)
	h.clock.Add(5 * 24 * 3600 * 1000)
	wantStatuses(t, "after half of its life", apply(t, s, say("en", -5*24*3600*1000, "b")), stored)
}

// countedCache counts writes.
type countedCache struct {
	history.Cache
	writes atomic.Int64
}

func (c *countedCache) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	c.writes.Add(int64(len(writes)))
	return c.Cache.Write(ctx, writes)
}

// TestClassKeep: records older than their class's TTL are refused, hidden and swept.
func TestClassKeep(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	s := h.service(t, rules)
	const day = 24 * 3600 * 1000
	wantStatuses(t, "old", apply(t, s, typed("ann/1_7", stop, 14*day, 9), typed("ann/1_1", stop, 14*day, 9)), historyv1.Status_STATUS_EXPIRED, historyv1.Status_STATUS_STORED)
	wantStatuses(t, "young", apply(t, s, typed("ann/2_7", stop, 14*day-1, 9), typed("ann/3_8", stop, 1, 9)), historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_STORED)
	resp, err := s.Mark(t.Context(), &historyv1.MarkRequest{
		Uid: "ann", Objects: toMark(&historyv1.Object{Id: "4", Type: 7}, &historyv1.Object{Id: "4", Type: 2}), Mark: historyv1.Mark_MARK_WATCHED, AtMs: start - 20*day,
	})
	if err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "marks", resp.GetStatuses(), historyv1.Status_STATUS_EXPIRED, historyv1.Status_STATUS_STORED)
	wantNames(t, "before", all(t, s, "ann/0", 1), "3_8", "2_7", "1_1", "4_2")
	archives(t, h)
	h.clock.Add(1)
	wantNames(t, "after", all(t, s, "ann/0", 1), "3_8", "1_1", "4_2")
	wantNames(t, "after, of the type", all(t, s, "ann/7", 1))
	points, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "2", Type: 7}, {Id: "3", Type: 8}}})
	if err != nil || points.GetItems()[0].GetObject() != nil || points.GetItems()[1].GetObject() == nil {
		t.Errorf("points: got %v, %v", points, err)
	}
	h.clock.Add(1000)
	if n, err := h.db.Sweep(t.Context()); err != nil || n == 0 { // memory is swept only after a flush to a file
		t.Errorf("swept %d, %v; want that of the archive", n, err)
	}
}

// TestClassClear clears all types, then one type, across namespaces. An interrupted clear applies to all readers at
// once, and the next one completes it. Late reports from before it are refused.
func TestClassClear(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	cache := &namespaceCache{Cache: h.db.Cache()}
	s := h.service(t, rules, func(c *rpc.Config) { c.Cache = cache })
	namespace := history.NamespaceUID("ann", "previews")
	fill := func() {
		apply(t, s, typed("ann/1_1", stop, 4000, 9), typed("ann/2_7", stop, 3000, 9), typed("ann/3_8", stop, 2000, 9))
	}
	fill()
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: 7, UntilMs: start - 3000}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, "without a type", all(t, s, "ann/0", 1), "3_8", "1_1")
	cache.down.Store(&namespace)
	_, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 1000})
	wantCode(t, "a clear that one namespace does not answer", err, codes.Unavailable)
	wantNames(t, "broken off", all(t, s, "ann/0", 1))
	wantNames(t, "broken off, of the type", all(t, s, "ann/8", 1))
	if got := cache.Load(t.Context(), []history.Key{{UID: namespace, Object: history.Object{ID: "3", Type: 8}}}); got[0].Record == nil {
		t.Error("the namespace was cleared after all: the test shows nothing")
	}
	other := h.service(t, rules) // without held keys
	wantStatuses(t, "late, of before", apply(t, other, typed("ann/4_8", stop, 1500, 9)), historyv1.Status_STATUS_CLEARED)
	cache.down.Store(nil)
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 1000}); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "late, of before", apply(t, s, typed("ann/3_8", stop, 2000, 9)), historyv1.Status_STATUS_CLEARED)
	wantStatuses(t, "of after", apply(t, s, typed("ann/5_7", stop, 500, 9)), historyv1.Status_STATUS_STORED)
	archives(t, h)
	wantNames(t, "at last", all(t, s, "ann/0", 1), "5_7")
}

// TestClassClearAndChanges: a viewing continues in a namespace that an interrupted clear did not reach. Its change
// has nothing from before the clear, as on pages.
func TestClassClearAndChanges(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	cache := &namespaceCache{Cache: h.db.Cache()}
	s := h.service(t, rules, func(c *rpc.Config) { c.Cache = cache })
	apply(t, s, typed("ann/1_7", finish, 4000, 9))
	namespace := history.NamespaceUID("ann", "previews")
	cache.down.Store(&namespace)
	_, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 3000})
	wantCode(t, "a clear that one namespace does not answer", err, codes.Unavailable)
	cache.down.Store(nil)
	resync, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	again := typed("ann/1_7", stop, 2000, 5)
	again.Session = "s2"
	apply(t, s, again)
	told, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: resync.GetToken()})
	if err != nil || len(told.GetItems()) != 1 {
		t.Fatalf("got %v, %v; want one item", told, err)
	}
	page, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := told.GetItems()[0], page.GetItems()[0]; got.GetPlays() != 0 || got.GetEtag() != want.GetEtag() {
		t.Errorf("got %v, want it as the page has it, %v", got, want)
	}
}

// TestClassPause turns recording off and on while one namespace is unavailable.
func TestClassPause(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	cache := &namespaceCache{Cache: h.db.Cache()}
	s := h.service(t, rules, func(c *rpc.Config) { c.Cache = cache })
	namespace := history.NamespaceUID("ann", "previews")
	put := func(on bool) error {
		h.clock.Add(10)
		_, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann", Recording: on})
		return err
	}
	cache.down.Store(&namespace)
	wantCode(t, "a switch that one namespace does not answer", put(false), codes.Unavailable)
	if got, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "ann"}); err != nil || got.GetSettings().GetRecording() {
		t.Errorf("settings: got %v, %v; want recording off", got, err)
	}
	h.clock.Add(1000)
	_, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{typed("ann/1_7", stop, -500, 9)}})
	wantCode(t, "a report of a namespace that cannot be told of the pause", err, codes.Unavailable)
	cache.down.Store(nil)
	wantStatuses(t, "while recording is off", apply(t, s, typed("ann/1_7", stop, -500, 9), typed("ann/1_1", stop, -500, 9)), historyv1.Status_STATUS_PAUSED, historyv1.Status_STATUS_PAUSED)
	if err := put(false); err != nil { // a retry
		t.Fatal(err)
	}
	if err := put(true); err != nil {
		t.Fatal(err)
	}
	h.clock.Add(1000)
	now := start - h.clock.Load()
	wantStatuses(t, "while it is on", apply(t, s, typed("ann/2_7", stop, now, 9)), historyv1.Status_STATUS_STORED)
	wantStatuses(t, "of while it was off", apply(t, s, typed("ann/1_7", stop, -500, 9)), historyv1.Status_STATUS_PAUSED)
}

// TestClassUnknown: settings and clears through a service without the class also apply in the class.
func TestClassUnknown(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	old := h.service(t)
	if _, err := old.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Clear(t.Context(), &historyv1.ClearRequest{Uid: "bob", UntilMs: start}); err != nil {
		t.Fatal(err)
	}
	h.clock.Add(1000)
	s := h.service(t, rules)
	wantStatuses(t, "paused before the class", apply(t, s, typed("ann/1_7", stop, -500, 9)), historyv1.Status_STATUS_PAUSED)
	wantStatuses(t, "cleared before the class", apply(t, s, typed("bob/1_7", stop, 500, 9)), historyv1.Status_STATUS_CLEARED)
	wantStatuses(t, "after it", apply(t, s, typed("bob/2_7", stop, -500, 9)), historyv1.Status_STATUS_STORED)
	wantNames(t, "without the class", all(t, old, "bob/0", 9))
	wantNames(t, "with it", all(t, s, "bob/0", 9), "2_7")
}

// pointOf reads the point of "user/id_type".
func pointOf(t testing.TB, s *rpc.Server, key string) *historyv1.Item {
	t.Helper()
	k := keyOf(key)
	resp, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: k.UID, Objects: []*historyv1.Object{{Id: k.Object.ID, Type: k.Object.Type}}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetItems()[0]
}

// TestClassErase erases a user's records of all classes, including a removed class.
func TestClassErase(t *testing.T) {
	h, rules := classHouse(t, 0, previews, "gone: types=9")
	all := h.service(t, rules)
	apply(t, all, typed("ann/1_1", stop, 3000, 9), typed("ann/2_7", stop, 2000, 9), typed("ann/3_9", stop, 1000, 9), typed("anna/3_9", stop, 1000, 9))
	archives(t, h)
	s := h.service(t, erasers(h.db), func(c *rpc.Config) { c.Rules = rulesOf(t, previews) })
	resp, err := s.Erase(t.Context(), &historyv1.EraseRequest{Uid: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, p := range resp.GetPlaces() {
		if found[p.GetName()] = p.GetFound(); p.GetLeft() > 0 {
			t.Errorf("%v is left", p)
		}
	}
	if found["cache: records"] != 3 || found["archive: live records"] != 3 {
		t.Errorf("found %v, want three records in each store", found)
	}
	wantStatuses(t, "late, of the class that there is no more", apply(t, all, typed("ann/4_9", stop, 1000, 9)), historyv1.Status_STATUS_CLEARED)
	if e := h.db.Cache().Load(t.Context(), []history.Key{{UID: history.NamespaceUID("anna", "gone"), Object: history.Object{ID: "3", Type: 9}}}); e[0].Record == nil {
		t.Error("another user, whose id begins like this one, was erased")
	}
}

// TestClassImport exports and imports a history with classes.
func TestClassImport(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	s := h.service(t, rules)
	apply(t, s, typed("ann/1_1", stop, 3000, 9), typed("ann/2_7", stop, 2000, 9), typed("ann/3_8", stop, 1000, 9))
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Records: true})
	if err != nil {
		t.Fatal(err)
	}
	req := &historyv1.ImportRequest{Uid: "bob"}
	for i, r := range resp.GetRecords() {
		req.Records = append(req.Records, &historyv1.ImportedRecord{Object: resp.GetItems()[i].GetObject(), Record: r})
	}
	if _, err := s.Import(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	wantNames(t, "imported", all(t, s, "bob/0", 2), "3_8", "2_7", "1_1")
	wantNames(t, "imported, of a type", all(t, s, "bob/7", 2), "2_7")
}

// TestClassChangesAfterDeletes: an app that follows the changes matches the history across classes. A later report
// brings a deleted object back.
func TestClassChangesAfterDeletes(t *testing.T) {
	for _, texts := range [][]string{{"a: types=2,3 keep=30d", "b: types=4"}, {"a: types=2,3", "b: types=4"}} {
		h, rules := classHouse(t, 100, texts...)
		a := &app{T: t, s: h.service(t, rules)}
		act := func() {
			id, typ := strconv.Itoa(rand.IntN(3)), 1+rand.Uint32N(4) //nolint:gosec // no secret
			switch h.clock.Add(1000); rand.IntN(8) {                 //nolint:gosec // no secret
			case 0, 1:
				if _, err := a.s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: id, Type: typ}}}); err != nil {
					t.Fatal(err)
				}
			case 2:
				archives(t, h)
			default:
				apply(t, a.s, typed(fmt.Sprintf("ann/%s_%d", id, typ), stop, start-h.clock.Load(), 9))
			}
		}
		for range 60 {
			for range rand.IntN(8) { //nolint:gosec // no secret
				act()
			}
			a.sync(rand.Uint32N(5), func() { //nolint:gosec // no secret
				if rand.IntN(3) == 0 { //nolint:gosec // no secret
					act()
				}
			})
			a.sync(0, func() {})
			a.knows("at rest")
		}
		if a.resyncs != 1 {
			t.Errorf("%v: %d resyncs, want the first", texts, a.resyncs)
		}
	}
}

// TestClassPages is a model of pages across classes, with any limit, equal times, and concurrent writes and
// archiving. An unchanged record is on exactly one page, in order; one removed before the first page is on none.
// Changed records may appear again after the oldest.
func TestClassPages(t *testing.T) {
	texts := []string{"a: types=2,3 list=3 keep=30d", "b: types=4 list=2"}
	types := []uint32{1, 2, 3, 4}
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		h, rules := classHouse(t, 4, texts...)
		s := h.service(t, rules)
		uid := "u" + strconv.Itoa(runs)
		shown := map[string]int64{} // time by name
		at := func() int64 { return start - 20 + rapid.Int64Range(0, 19).Draw(rt, "at") }
		changed := map[string]bool{}
		act := func() {
			typ := rapid.SampledFrom(types).Draw(rt, "type")
			id := strconv.Itoa(rapid.IntRange(1, 12).Draw(rt, "id"))
			n := id + "_" + strconv.Itoa(int(typ))
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: uid, Objects: []*historyv1.Object{{Id: id, Type: typ}}}); err != nil {
					rt.Fatal(err)
				}
				delete(shown, n)
				changed[n] = true
			case 1:
				archives(t, h)
			case 2:
				if rapid.IntRange(0, 3).Draw(rt, "all") > 0 {
					typ = 0
				}
				until := at()
				if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: uid, Type: typ, UntilMs: until}); err != nil {
					rt.Fatal(err)
				}
				for n, when := range shown {
					if when <= until && (typ == 0 || strings.HasSuffix(n, "_"+strconv.Itoa(int(typ)))) {
						delete(shown, n)
						changed[n] = true
					}
				}
			default:
				when := at()
				hb := typed(uid+"/"+n, stop, start-when, 9)
				if st := apply(t, s, hb)[0]; st == historyv1.Status_STATUS_STORED || st == historyv1.Status_STATUS_STALE || st == historyv1.Status_STATUS_UNCHANGED {
					if st == historyv1.Status_STATUS_STORED && shown[n] < when {
						changed[n] = shown[n] != when || changed[n]
						shown[n] = when
					}
				}
			}
		}
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			act()
		}
		typ := rapid.SampledFrom([]uint32{0, 0, 1, 2, 4}).Draw(rt, "of")
		before := maps.Clone(shown)
		clear(changed)
		moves := rapid.Bool().Draw(rt, "moves")
		req := &historyv1.ListRequest{Uid: uid, Type: typ, Limit: uint32(rapid.IntRange(1, 9).Draw(rt, "limit"))}
		var got []string
		var times []int64
		for more := true; more; {
			resp, err := s.List(t.Context(), req)
			if err != nil {
				rt.Fatal(err)
			}
			for _, it := range resp.GetItems() {
				got, times = append(got, name(it.GetObject())), append(times, it.GetEventTimeMs())
			}
			if len(resp.GetItems()) > int(req.GetLimit()) || resp.GetHasMore() && len(resp.GetItems()) == 0 {
				rt.Fatalf("a page of %d with more %v", len(resp.GetItems()), resp.GetHasMore())
			}
			req.Cursor, more = resp.GetCursor(), resp.GetHasMore()
			if moves && rapid.Bool().Draw(rt, "now") {
				act()
			}
		}
		for i, n := range got { // a further pass lists the millisecond in which the walk began again
			if len(changed) > 0 && times[i] == times[0] {
				changed[n] = true
			}
		}
		count, oldest := map[string]int{}, int64(math.MaxInt64)
		for i, n := range got {
			if count[n]++; count[n] > 1 && !changed[n] {
				rt.Errorf("%s is there twice: %v", n, got)
			}
			if !changed[n] { // changed records may follow the oldest
				if times[i] > oldest {
					rt.Errorf("not in order: %v, %v", got, times)
				}
				oldest = times[i]
			}
			if _, ok := before[n]; !ok && !changed[n] {
				rt.Errorf("%s is not to be seen: %v", n, got)
			}
		}
		for n := range before {
			of := typ == 0 || strings.HasSuffix(n, fmt.Sprintf("_%d", typ))
			if of && !changed[n] && count[n] != 1 {
				rt.Errorf("%s is there %d times: %v of %v", n, count[n], got, before)
			}
		}
	})
}

// TestClassChanges: an app that follows the changes across classes, with any limit, matches the history. Changed
// rules cause a resync.
func TestClassChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h, rules := classHouse(t, 5, "a: types=2,3 list=3", "b: types=4 list=50")
		s := h.service(t, rules)
		a := &app{T: t, s: s, known: map[string]*historyv1.Item{}}
		last := start - 1000
		act := func() {
			typ, id := rapid.Uint32Range(1, 4).Draw(rt, "type"), strconv.Itoa(rapid.IntRange(1, 6).Draw(rt, "id"))
			last += rapid.Int64Range(0, 2).Draw(rt, "later")
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: id, Type: typ}}}); err != nil {
					rt.Fatal(err)
				}
			case 1, 2:
				archives(t, h)
			case 3:
				if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: typ * rapid.Uint32Range(0, 1).Draw(rt, "typed"), UntilMs: last - 5}); err != nil {
					rt.Fatal(err)
				}
			default:
				apply(t, s, typed(fmt.Sprintf("ann/%s_%d", id, typ), stop, start-last, 9))
			}
		}
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 12).Draw(rt, "steps") {
				act()
			}
			a.sync(rapid.Uint32Range(1, 5).Draw(rt, "limit"), func() {})
			a.knows("after a round")
		}
	})
}

// TestClassChangesOfManyPreviews: many previews, few of them cached, cause no resync.
func TestClassChangesOfManyPreviews(t *testing.T) {
	h, rules := classHouse(t, 100, previews)
	s := h.service(t, rules)
	apply(t, s, typed("ann/film_1", stop, 60_000, 4000))
	archives(t, h)
	first, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(90) {
		apply(t, s, typed(fmt.Sprintf("ann/%d_7", n), stop, 50_000-n, 5))
		archives(t, h)
	}
	resp, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: first.GetToken()})
	if err != nil || resp.GetResync() || len(resp.GetItems()) != 90 {
		t.Errorf("after 90 previews, of which 20 are listed: told of %d, resync %v (%v); want all of them", len(resp.GetItems()), resp.GetResync(), err)
	}
}

// TestClassTokens: a token of other classes causes a resync; an invalid one is refused.
func TestClassTokens(t *testing.T) {
	h, rules := classHouse(t, 0, previews)
	with, without := h.service(t, rules), h.service(t)
	token := func(s *rpc.Server, since string, resync bool) string {
		t.Helper()
		resp, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: since})
		if err != nil || resp.GetResync() != resync || resp.GetSettings() == nil {
			t.Fatalf("changes since %q: got %v, %v; want resync %v", since, resp, err, resync)
		}
		return resp.GetToken()
	}
	of, none := token(with, "", true), token(without, "", true)
	token(with, token(with, of, false), false)
	token(with, none, true)
	token(without, of, true)
	token(without, none, false)
	for _, bad := range []string{"c2", "c2~", "c2~~", of + "~", of + "~x", strings.Replace(of, "c1", "c3", 1), "~" + of} {
		_, err := with.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: bad})
		wantCode(t, "a token "+bad, err, codes.InvalidArgument)
	}
	token(with, strings.Replace(of, "previews", "others", 1), true)
}

// TestClassSummaries: expired records of a class appear as summaries with the others, in one order. Records,
// deletes and clears of their objects hide them. A class with a shorter TTL has no summaries.
func TestClassSummaries(t *testing.T) {
	rules := rulesOf(t, "a: types=2,3", "short: types=4 keep=14d")
	h := houseOf(t, pebble.Config{Rules: rules, Summary: 43800 * time.Hour})
	s := h.service(t, func(c *rpc.Config) { c.Rules, c.Summaries = rules, h.db.Archive() })
	ended := func(class, id string, typ uint32, hours int64) {
		h.archivedOf(t, history.NamespaceUID("ann", class), history.Object{ID: id, Type: typ}, hours)
	}
	summarizes := func(all bool) {
		t.Helper()
		for _, namespace := range rules.Namespaces("ann") {
			if err := h.db.Archive().Summarize(t.Context(), namespace, all); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range int64(4) {
		ended("", fmt.Sprint("plain", i), 1, 85*24+3*i)
		ended("a", fmt.Sprint("a", i), 2+uint32(i%2), 85*24+1+3*i)
		ended("short", fmt.Sprint("short", i), 4, 85*24+2+3*i)
	}
	summarizes(false)
	h.clock.Add(10 * dayMs)
	want := func(what string, typ uint32, n int, names ...string) {
		t.Helper()
		for limit := uint32(1); limit < 12; limit++ {
			got, summaries := stitched(t, s, &historyv1.ListRequest{Uid: "ann", Type: typ, Limit: limit}, func() {})
			if !slices.Equal(got, names) || summaries != n {
				t.Errorf("%s, pages of %d: %v, %d of them summaries; want %v, %d", what, limit, got, summaries, names, n)
			}
		}
	}
	want("all have ended", 0, 8, "plain0", "a0", "plain1", "a1", "plain2", "a2", "plain3", "a3")
	want("one type", 2, 2, "a0", "a2")
	want("of a class that lives for less", 4, 0)
	now := start - h.clock.Load()
	again := typed("ann/a2_2", stop, now+5000, 50)
	wantStatuses(t, "watched again", apply(t, s, again), stored)
	want("watched again", 0, 7, "a2", "plain0", "a0", "plain1", "a1", "plain2", "plain3", "a3")
	deletes := &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "a1", Type: 3}, {Id: "plain1", Type: 1}}}
	if _, err := s.Delete(t.Context(), deletes); err != nil {
		t.Fatal(err)
	}
	want("deleted", 0, 5, "a2", "plain0", "a0", "plain2", "plain3", "a3")
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: 3}); err != nil {
		t.Fatal(err)
	}
	want("one type is cleared", 0, 4, "a2", "plain0", "a0", "plain2", "plain3")
	archives(t, h)
	summarizes(true)
	want("and removed", 0, 4, "a2", "plain0", "a0", "plain2", "plain3")
	if held := heldBy(t, h, history.NamespaceUID("ann", "a")); held != 2 { // including the one hidden by its record
		t.Errorf("the class has %d summaries, want 2", held)
	}
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	want("cleared", 0, 0)
	archives(t, h)
	summarizes(true)
	for _, namespace := range rules.Namespaces("ann") {
		if held := heldBy(t, h, namespace); held != 0 {
			t.Errorf("%q has %d summaries", namespace, held)
		}
	}
}

// heldBy returns the number of archived summaries of a namespace.
func heldBy(t *testing.T, h *house, namespace string) int {
	t.Helper()
	held, err := h.db.Held(t.Context(), namespace, 0)
	if err != nil {
		t.Fatal(err)
	}
	return held["archive: summaries"]
}

// TestClassSummariesErased erases the summaries of all classes, including a removed class with only summaries.
func TestClassSummariesErased(t *testing.T) {
	h := houseOf(t, pebble.Config{Rules: rulesOf(t, "a: types=2"), Summary: 43800 * time.Hour})
	namespaces := []string{"ann", history.NamespaceUID("ann", "a"), history.NamespaceUID("ann", "gone")}
	for _, namespace := range append(namespaces, history.NamespaceUID("anna", "gone")) {
		h.archived(t, namespace, "1", 85*24)
		if err := h.db.Archive().Summarize(t.Context(), namespace, false); err != nil {
			t.Fatal(err)
		}
	}
	h.clock.Add(10 * dayMs)
	for range 2 {
		if _, err := h.db.Sweep(t.Context()); err != nil { // leaves expired records only in summaries
			t.Fatal(err)
		}
	}
	s := h.service(t, erasers(h.db), func(c *rpc.Config) { c.Rules, c.Summaries = rulesOf(t, "a: types=2"), h.db.Archive() })
	resp, err := s.Erase(t.Context(), &historyv1.EraseRequest{Uid: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range resp.GetPlaces() {
		if p.GetName() == "archive: summaries" && (p.GetFound() != 3 || p.GetLeft() != 0) || p.GetName() == "archive: live records" && p.GetFound() != 0 {
			t.Errorf("got %v", p)
		}
	}
	if n := heldBy(t, h, history.NamespaceUID("anna", "gone")); n != 1 {
		t.Errorf("another user, whose id begins like this one, has %d summaries", n)
	}
}
