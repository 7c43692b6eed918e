package hbase_test

import (
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// TestNamespaces: a class's cells expire by its own TTL in both families, other cells do not. An erasure finds all
// namespaces of a user, and none of a user with the same prefix.
func TestNamespaces(t *testing.T) {
	rules, err := history.ParseRules("", []string{"a: types=7 keep=2d"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_790_000_000_000)
	clock := func() time.Time { return now }
	a := hbase.Over(newStore(clock), hbase.Config{Rules: rules, Now: clock})
	var cells []history.Cell
	var keys []history.Key
	for i, namespace := range []string{"ann", "ann\x01a", "ann\x01gone", "anna\x01a"} {
		k := history.Key{UID: namespace, Object: history.Object{ID: "1", Type: 7}}
		e := history.Event{Key: k, Kind: history.KindStop, At: now.UnixMilli() - int64(i), Position: 1}
		keys, cells = append(keys, k), append(cells, history.Cell{Key: k, Record: e.Record().Successor(nil)})
	}
	if errs := a.Put(t.Context(), cells); errs != nil {
		t.Fatal(errs)
	}
	for after, want := range map[time.Duration][]bool{0: {true, true, true, true}, 48*time.Hour + 1: {true, false, true, false}} {
		was := now
		now = now.Add(after)
		entries, err := a.Get(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			if (e.Record != nil) != want[i] {
				t.Errorf("after %s %q is there: %v", after, keys[i].UID, e.Record != nil)
			}
		}
		now = was
	}
	found, err := a.Namespaces(t.Context(), "ann")
	if err != nil || !slices.Equal(found, []string{"ann\x01a", "ann\x01gone"}) {
		t.Errorf("namespaces: got %q, %v", found, err)
	}
}

// TestNamespaceSummaries: a class with a shorter TTL has no summaries. Existing ones are removed.
func TestNamespaceSummaries(t *testing.T) {
	store, clock, a := summarizing(t)
	rules, err := history.ParseRules("", []string{"a: types=7 keep=14d"})
	if err != nil {
		t.Fatal(err)
	}
	short := hbase.Over(store, hbase.Config{Rules: rules, Now: clock.now})
	namespace := "ann\x01a"
	k := history.Key{UID: namespace, Object: history.Object{ID: "1", Type: 7}}
	for _, c := range []struct {
		by   *hbase.Archive
		want int
	}{{short, 0}, {a, 1}, {short, 0}} {
		r := summedRecord(0, clock.now().Add(-84*24*time.Hour))
		if errs := a.Put(t.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
		if err := c.by.Summarize(t.Context(), namespace, false); err != nil {
			t.Fatal(err)
		}
		if held, err := a.Held(t.Context(), namespace, 0); err != nil || held["archive: summaries"] != c.want {
			t.Errorf("held %v, %v, want %d summaries", held, err, c.want)
		}
	}
}
