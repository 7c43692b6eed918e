package backfill_test

import (
	"context"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/playhead/backfill"
)

func store(t *testing.T) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

type noQueue struct{}

func (noQueue) Publish(context.Context, []history.Announcement) ([]history.Announcement, error) {
	return nil, nil
}

// target is an archive target with the cache of the same store.
func target(db *pebble.DB) *backfill.Archive {
	r := replay.Redriver{Cache: db.Cache(), Queue: noQueue{}}
	return &backfill.Archive{Store: db.Archive(), Cache: db.Cache(), Through: func(ctx context.Context, k history.Key, record *history.Record) error {
		return r.Drive(ctx, history.Dead{Key: k, Record: record})
	}}
}

const hour = 3600_000

// ago returns the time some hours ago, the same one for the whole test run.
func ago(hours int64) int64 { return began - hours*hour }

var began = time.Now().UnixMilli()

func key(uid, id string) history.Key {
	return history.Key{UID: uid, Object: history.Object{ID: id, Type: 1}}
}

// viewing is a row of a file: a viewing of ten minutes that ended some hours ago.
func viewing(k history.Key, hours int64) backfill.Item {
	at := ago(hours)
	return backfill.Item{Key: k, Event: &history.Event{
		Key: k, Kind: history.KindStop, At: at, StartedAt: at - 600_000, Watched: 600_000, Position: 600_000, Duration: 1_200_000, Session: time.UnixMilli(at).String(),
	}}
}

func deleted(k history.Key, hours int64) *history.Record {
	e := history.Event{Key: k, Kind: history.KindDelete, At: ago(hours)}
	return e.Record()
}

func fold(t *testing.T, a backfill.Target, items ...backfill.Item) (outcomes []backfill.Outcome) {
	t.Helper()
	results, err := a.Fold(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
	}
	return outcomes
}

// TestArchiveTarget: what the archive has newer stays, what was removed stays removed, and outcomes differ.
func TestArchiveTarget(t *testing.T) {
	db := store(t)
	a := target(db)
	put := func(k history.Key, r *history.Record) {
		t.Helper()
		r = r.Successor(nil)
		r.Partial = false
		if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
	}
	put(key("gone", "a"), deleted(key("gone", "a"), 5))
	for uid, u := range map[string]history.User{
		"cleared": {Cleared: map[uint32]int64{1: ago(5)}}, "paused": {Pause: history.Pause{Since: ago(8), Until: ago(4)}},
	} {
		if err := db.Archive().PutUser(t.Context(), uid, u); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		item backfill.Item
		want backfill.Outcome
	}{
		{"first", viewing(key("u", "a"), 5), backfill.New},
		{"again", viewing(key("u", "a"), 5), backfill.Equal},
		{"newer", viewing(key("u", "a"), 2), backfill.New},
		{"in between, the same length", viewing(key("u", "a"), 3), backfill.New}, // it was watched
		{"in between again", viewing(key("u", "a"), 3), backfill.Older},
		{"before a delete", viewing(key("gone", "a"), 6), backfill.Deleted},
		{"after a delete", viewing(key("gone", "a"), 4), backfill.New},
		{"before a clear", viewing(key("cleared", "a"), 6), backfill.Deleted},
		{"after a clear", viewing(key("cleared", "a"), 4), backfill.New},
		{"while paused", viewing(key("paused", "a"), 6), backfill.Paused},
		{"before the pause", viewing(key("paused", "a"), 9), backfill.New},
		{"too old", viewing(key("u", "b"), 91*24), backfill.Expired},
		{"a delete", backfill.Item{Key: key("u", "c"), Record: deleted(key("u", "c"), 3)}, backfill.New},
		{"before that delete", viewing(key("u", "c"), 4), backfill.Deleted},
		{"a clear", backfill.Item{Key: history.UserKey("v"), User: &history.User{Cleared: map[uint32]int64{0: ago(3)}}}, backfill.New},
		{"a clear again", backfill.Item{Key: history.UserKey("v"), User: &history.User{Cleared: map[uint32]int64{0: ago(3)}}}, backfill.Equal},
	} {
		if got := fold(t, a, tt.item); got[0] != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got[0], tt.want)
		}
	}
	e, err := db.Archive().Get(t.Context(), []history.Key{key("u", "a")})
	if err != nil || e[0].Record.Version.Time() != ago(2) || e[0].Record.Watched() != 3*600_000 || e[0].Record.Partial {
		t.Errorf("record %+v, %v, want the latest of three viewings", e[0].Record, err)
	}
}

// TestArchiveTargetOneCall folds several items of a key in one call.
func TestArchiveTargetOneCall(t *testing.T) {
	db := store(t)
	k := key("u", "a")
	got := fold(t, target(db), viewing(k, 3), viewing(k, 5), viewing(k, 3))
	if want := []backfill.Outcome{backfill.New, backfill.New, backfill.Equal}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestArchiveTargetThroughTheCache: a key of a warm user goes into the cache, dirty, and no newer put of the job loses
// it.
func TestArchiveTargetThroughTheCache(t *testing.T) {
	db := store(t)
	cache := db.Cache()
	if err := cache.Warm(t.Context(), "warm", history.WarmSet{}); err != nil {
		t.Fatal(err)
	}
	cached := viewing(key("cold", "a"), 2).Event.Record().Successor(nil)
	if out := cache.Write(t.Context(), []history.Write{history.WriteOn(nil, key("cold", "a"), cached, &history.User{})}); out[0].Status != history.Applied {
		t.Fatal(out)
	}
	fold(t, target(db), viewing(key("warm", "a"), 5), viewing(key("cold", "a"), 5), viewing(key("cold", "b"), 5))
	for k, want := range map[history.Key]int64{key("warm", "a"): ago(5), key("cold", "a"): ago(2), key("cold", "b"): 0} {
		e := cache.Load(t.Context(), []history.Key{k})[0]
		switch {
		case want == 0 && e.Record != nil:
			t.Errorf("%s is in the cache, want it in the archive only", k)
		case want != 0 && (e.Record == nil || e.Record.Clean() || e.Record.Version.Time() != want):
			t.Errorf("%s: %+v in the cache, want it dirty, of %d", k, e.Record, want)
		}
	}
}

// copied copies everything and returns the report.
func copied(t *testing.T, from backfill.Source, to backfill.Target) backfill.Report {
	t.Helper()
	c := &backfill.Copy{Source: from, Target: to, MaxRejects: 0}
	r, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// contents returns the items of a source without their places.
func contents(t *testing.T, s backfill.Source) (records map[history.Key]*history.Record, users map[string]history.User) {
	t.Helper()
	records, users = make(map[history.Key]*history.Record), make(map[string]history.User)
	for i, err := range s.Items(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if i.User != nil {
			users[i.Key.UID] = *i.User
		} else {
			r := *i.Record
			r.Partial = false
			records[i.Key] = &r
		}
	}
	return records, users
}

// TestMove copies an archive into another one, and through a file of lines into a third one. All have the same: records,
// deletes, clear marks and pauses.
func TestMove(t *testing.T) {
	db := store(t)
	a := target(db)
	for i := range 50 {
		uid := string(rune('a'+i%10)) + "/ü"
		fold(t, a, viewing(key(uid, string(rune('A'+i))), int64(i+5)), viewing(key(uid, string(rune('A'+i))), int64(2*i+60)))
	}
	fold(t, a, backfill.Item{Key: history.UserKey("a/ü"), User: &history.User{Cleared: map[uint32]int64{1: ago(1000), 0: ago(1500)}}},
		backfill.Item{Key: history.UserKey("b/ü"), User: &history.User{Pause: history.Pause{Since: ago(3)}}},
		backfill.Item{Key: key("c/ü", "gone"), Record: deleted(key("c/ü", "gone"), 1)})
	from := &backfill.FromArchive{Name: "one", Store: db.Archive()}
	wantRecords, wantUsers := contents(t, from)
	second, third := store(t), store(t)
	copied(t, from, target(second))
	path := filepath.Join(t.TempDir(), "lines.ndjson")
	file, err := backfill.Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	copied(t, from, file)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if !backfill.IsLines(path) {
		t.Error("the file is not recognised")
	}
	if r := copied(t, &backfill.FromLines{Path: path}, target(third)); r.Rows != r.Outcomes["new"] {
		t.Errorf("report %+v, want all new", r)
	}
	for name, db := range map[string]*pebble.DB{"archive": second, "lines": third} {
		records, users := contents(t, &backfill.FromArchive{Store: db.Archive()})
		if len(records) != len(wantRecords) || len(users) != len(wantUsers) {
			t.Errorf("%s: %d records, %d users, want %d and %d", name, len(records), len(users), len(wantRecords), len(wantUsers))
		}
		for k, want := range wantRecords {
			if !history.Same(records[k], want) {
				t.Errorf("%s: %s is\n%+v, want\n%+v", name, k, records[k], want)
			}
		}
		for uid, want := range wantUsers {
			if got := users[uid]; got.Pause.Changed() != want.Pause.Changed() || got.ClearedAt(1) != want.ClearedAt(1) || got.ClearedAt(2) != want.ClearedAt(2) {
				t.Errorf("%s: %s is %+v, want %+v", name, uid, got, want)
			}
		}
	}
}

// TestChainGoesOn: a chain goes on in the source of the mark.
func TestChainGoesOn(t *testing.T) {
	c := backfill.Chain{few("a", "b"), few("c", "d")}
	for after, want := range map[string]string{"": "abcd", "0:a": "bcd", "0:b": "cd", "1:c": "d", "1:d": ""} {
		got := ""
		for i, err := range c.Items(t.Context(), after) {
			if err != nil {
				t.Fatal(err)
			}
			got += i.Key.UID
		}
		if got != want {
			t.Errorf("after %q: %q, want %q", after, got, want)
		}
	}
}

// items is a source of users, whose marks are their uids.
type items []string

func few(uids ...string) items { return uids }

func (s items) Identity() (string, error) { return "items", nil }

func (s items) Items(_ context.Context, after string) iter.Seq2[backfill.Item, error] {
	return func(yield func(backfill.Item, error) bool) {
		for _, uid := range s[slices.Index(s, after)+1:] {
			if !yield(backfill.Item{Key: history.UserKey(uid), User: &history.User{}, Mark: uid}, nil) {
				return
			}
		}
	}
}

// TestMoveTypes copies an archive under other rules: each record goes where these want it.
func TestMoveTypes(t *testing.T) {
	from, to := store(t), store(t)
	typed := func(typ uint32) backfill.Item {
		return viewing(history.Key{UID: "u", Object: history.Object{ID: "a", Type: typ}}, 1)
	}
	fold(t, target(from), typed(1), typed(7), backfill.Item{Key: history.UserKey("u"), User: &history.User{Cleared: map[uint32]int64{0: ago(3)}}})
	rules, err := history.ParseRules("", []string{"previews: types=7,8 keep=14d"})
	if err != nil {
		t.Fatal(err)
	}
	moving := target(to)
	moving.Rules = rules
	source := &backfill.FromArchive{Store: from.Archive()}
	copied(t, source, moving)
	records, users := contents(t, &backfill.FromArchive{Store: to.Archive()})
	class := history.NamespaceUID("u", "previews")
	if len(records) != 2 || records[history.Key{UID: "u", Object: history.Object{ID: "a", Type: 1}}] == nil || records[history.Key{UID: class, Object: history.Object{ID: "a", Type: 7}}] == nil {
		t.Errorf("records %v, want one in the class and one outside of it", records)
	}
	if users[class].Cleared[0] != ago(3) || users["u"].Cleared[0] != ago(3) {
		t.Errorf("users %+v, want the clear mark in both namespaces", users)
	}
	v := &backfill.Verifier{Reader: to.Archive(), Rules: rules}
	if r := copied(t, source, v); r.Outcomes["equal"] != r.Rows {
		t.Errorf("verify: %+v, want all equal", r)
	}
}

// TestTwoRegions copies two archives into each other. Then they are equal.
func TestTwoRegions(t *testing.T) {
	west, east := store(t), store(t)
	fold(t, target(west), viewing(key("u", "a"), 5), viewing(key("u", "b"), 4), viewing(key("v", "a"), 9))
	fold(t, target(east), viewing(key("u", "a"), 6), viewing(key("u", "c"), 4), backfill.Item{Key: key("v", "a"), Record: deleted(key("v", "a"), 8)})
	of := func(db *pebble.DB) backfill.Source { return &backfill.FromArchive{Store: db.Archive()} }
	copied(t, of(west), target(east))
	copied(t, of(east), target(west))
	a, _ := contents(t, of(west))
	b, _ := contents(t, of(east))
	if len(a) != 4 || len(b) != 4 || !a[key("v", "a")].Deleted() {
		t.Errorf("%d and %d records, want 4 and one of them deleted", len(a), len(b))
	}
	for k, want := range a {
		if !history.Same(b[k], want) {
			t.Errorf("%s is %+v in the west and %+v in the east", k, want, b[k])
		}
	}
}

// TestRebuildFromTheCache fills an empty archive from a cache: records, deletes and users' states.
func TestRebuildFromTheCache(t *testing.T) {
	from, to := store(t), store(t)
	cache := from.Cache()
	for i, id := range []string{"a", "b", "gone"} {
		r := viewing(key("u", id), int64(i+3)).Event.Record()
		if id == "gone" {
			r = deleted(key("u", id), 2)
		}
		if out := cache.Write(t.Context(), []history.Write{history.WriteOn(nil, key("u", id), r.Successor(nil), &history.User{})}); out[0].Status != history.Applied {
			t.Fatal(out)
		}
	}
	if _, err := cache.Clear(t.Context(), "v", history.Clear{Until: ago(1)}); err != nil {
		t.Fatal(err)
	}
	copied(t, &backfill.FromCache{Store: cache}, target(to))
	records, users := contents(t, &backfill.FromArchive{Store: to.Archive()})
	if len(records) != 3 || !records[key("u", "gone")].Deleted() || users["v"].Cleared[0] != ago(1) {
		t.Errorf("records %v, users %v", records, users)
	}
	if r := copied(t, &backfill.FromCache{Store: cache, Dirty: true}, &backfill.Verifier{Reader: to.Archive()}); r.Outcomes["equal"] != 4 {
		t.Errorf("verify: %+v, want all four equal", r)
	}
}

// TestVerifyTellsWhatMoved: an item that arrives while it waits is moved.
func TestVerifyTellsWhatMoved(t *testing.T) {
	db := store(t)
	looks := 0
	v := &backfill.Verifier{Reader: late{db.Archive(), func() {
		if looks++; looks == 2 {
			fold(t, target(db), viewing(key("u", "a"), 5))
		}
	}}}
	if got := fold(t, v, viewing(key("u", "a"), 5), viewing(key("u", "b"), 5)); !slices.Equal(got, []backfill.Outcome{backfill.Moved, backfill.Missing}) {
		t.Errorf("got %v, want moved and missing", got)
	}
	if got := fold(t, v, viewing(key("u", "a"), 2)); !slices.Equal(got, []backfill.Outcome{backfill.Different}) {
		t.Errorf("got %v, want different", got)
	}
}

// late calls before each read of records.
type late struct {
	backfill.Reader
	before func()
}

func (l late) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	l.before()
	return l.Reader.Get(ctx, keys)
}

// announcements is a queue.
type announcements []history.Announcement

func (q announcements) Between(ctx context.Context, _ []history.Bucket, _, _ time.Time, use func(context.Context, []history.Announcement) error) error { //nolint:revive // as kafka has it
	for _, a := range q {
		if err := use(ctx, []history.Announcement{a}); err != nil {
			return err
		}
	}
	return nil
}

// TestFromQueue copies the records that a queue carried. Keys without a record are skipped.
func TestFromQueue(t *testing.T) {
	db := store(t)
	k := key("u", "a")
	q := announcements{{Key: k, Record: viewing(k, 5).Event.Record()}, {Key: key("u", "b")}, {Key: k, Record: viewing(k, 3).Event.Record()}}
	r := copied(t, &backfill.FromQueue{Queue: q}, target(db))
	records, _ := contents(t, &backfill.FromArchive{Store: db.Archive()})
	if r.Rows != 3 || r.Outcomes["new"] != 2 || r.Outcomes["skipped"] != 1 || len(records) != 1 || records[k].Version.Time() != ago(3) {
		t.Errorf("report %+v, records %v", r, records)
	}
	for _, err := range (&backfill.FromQueue{Queue: q}).Items(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
		break // ends the reading too
	}
}
