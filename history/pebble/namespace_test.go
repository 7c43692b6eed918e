package pebble_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestNamespaces: a namespace has a list of its own, and the sweep applies its class's limits in cache and
// archive. Namespaces of unknown classes are found too, in memory and on disk.
func TestNamespaces(t *testing.T) {
	rules, err := history.ParseRules("", []string{"a: types=7 keep=2d list=1"})
	if err != nil {
		t.Fatal(err)
	}
	now, dir := time.UnixMilli(1_790_000_000_000), t.TempDir()
	config := pebble.Config{Keep: 2, Rules: rules, Now: func() time.Time { return now }}
	db, err := pebble.Open(dir, config)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := []string{"ann", "ann\x01a", "ann\x01gone", "anna\x01a"}
	for i, namespace := range namespaces {
		if _, err := db.Cache().Changes(t.Context(), namespace, 0, 9); err != nil { // begins a log
			t.Fatal(err)
		}
		for n := range 3 {
			k := history.Key{UID: namespace, Object: history.Object{ID: strconv.Itoa(n), Type: 7}}
			e := history.Event{Key: k, Kind: history.KindStop, At: now.UnixMilli() - int64(10*i+n), Position: 1}
			r := e.Record().Successor(nil)
			u := db.Cache().Load(t.Context(), []history.Key{k})[0].User
			if out := db.Cache().Write(t.Context(), []history.Write{history.WriteOn(nil, k, r, &u)}); out[0].Status != history.Applied {
				t.Fatal(out)
			}
			if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
				t.Fatal(errs)
			}
			if err := db.Cache().MarkClean(t.Context(), []history.Content{{Key: k, Revision: r.Revision}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Cache().Trim(t.Context(), namespaces); err != nil {
		t.Fatal(err)
	}
	wantNamespaces := func(db *pebble.DB) {
		t.Helper()
		if found, err := db.Namespaces(t.Context(), "ann"); err != nil || !slices.Equal(found, namespaces[1:3]) {
			t.Errorf("namespaces: got %q, %v", found, err)
		}
	}
	lists := func(db *pebble.DB, want ...int) {
		t.Helper()
		for i, n := range want {
			page, err := db.Cache().List(t.Context(), namespaces[i], history.Query{Limit: 9})
			if err != nil || len(page.Items) != n {
				t.Errorf("namespace %q: a list of %d, %v; want %d", namespaces[i], len(page.Items), err, n)
			}
		}
	}
	wantNamespaces(db)
	lists(db, 2, 1, 2, 1)
	for _, namespace := range namespaces {
		if log, err := db.Cache().Changes(t.Context(), namespace, 0, 9); err != nil || len(log.Entries) != 2 {
			t.Errorf("namespace %q: a log of %d, %v; want 2", namespace, len(log.Entries), err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = pebble.Open(dir, config); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	wantNamespaces(db)
	lists(db, 2, 1, 2, 1)
	now = now.Add(48*time.Hour + time.Second)
	if n, err := db.Sweep(t.Context()); err != nil || n != 8 {
		t.Errorf("swept %d, %v; want one of a list and three of the archive of each of two namespaces", n, err)
	}
	lists(db, 2, 0, 2, 0)
}

// TestNamespaceSummaries: a class with a shorter retention has no summaries. The sweep removes existing ones
// and drops expired records uncounted.
func TestNamespaceSummaries(t *testing.T) {
	now, dir := time.UnixMilli(1_790_000_000_000), t.TempDir()
	held := func(db *pebble.DB) int {
		t.Helper()
		found, err := db.Held(t.Context(), "ann\x01a", 0)
		if err != nil {
			t.Fatal(err)
		}
		return found["archive: summaries"]
	}
	for i, c := range []struct {
		rules       []string
		want, swept int
	}{{nil, 2, 0}, {[]string{"a: types=7 keep=14d"}, 0, 2}, {[]string{"a: types=7"}, 0, 0}} {
		rules, err := history.ParseRules("", c.rules)
		if err != nil {
			t.Fatal(err)
		}
		change := func(was, next history.Retention) error { return nil }
		db := open(t, dir, pebble.Config{Rules: rules, Change: change, Summary: 43800 * time.Hour, Now: func() time.Time { return now }})
		if i == 0 {
			oldOnes(t, db.Archive(), "ann\x01a", daysAgo(now, 84, 85))
			if err := db.Archive().Summarize(t.Context(), "ann\x01a", false); err != nil {
				t.Fatal(err)
			}
		}
		swept, err := db.Sweep(t.Context())
		if n := held(db); err != nil || swept != c.swept || n != c.want {
			t.Errorf("%v: swept %d, %v, and %d summaries; want %d and %d", c.rules, swept, err, n, c.swept, c.want)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamespaceCompactions: a compaction moves only the records that the class still keeps.
func TestNamespaceCompactions(t *testing.T) {
	rules, err := history.ParseRules("", []string{"a: types=7 keep=4d"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_790_000_000_000)
	db := open(t, t.TempDir(), pebble.Config{Rules: rules, CompactAbove: 2, Summary: 43800 * time.Hour, Now: func() time.Time { return now }})
	oldOnes(t, db.Archive(), "ann\x01a", daysAgo(now, 0, 1, 2, 3, 3, 5, 6, 85))
	if _, err := db.Archive().Compact(t.Context(), "ann\x01a"); err != nil {
		t.Fatal(err)
	}
	if found, err := db.Held(t.Context(), "ann\x01a", 0); err != nil || found["archive: records in segments"] != 3 {
		t.Errorf("held %v, %v, want three in parts", found, err)
	}
}
