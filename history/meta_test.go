package history_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// TestMeta: metadata round-trips in key order, for any keys and values.
func TestMeta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		long := rapid.Map(rapid.IntRange(0, 40_000), func(n int) string { return strings.Repeat("x", n) })
		want := rapid.MapOfN(rapid.String(), rapid.OneOf(rapid.String(), long), 0, 20).Draw(t, "entries")
		removed := rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "removed")
		m := history.NewMeta(want, removed...)
		for e := range m.Entries() {
			if _, ok := want[e.Key]; e.Removed == ok || e.Removed != slices.Contains(removed, e.Key) && !ok {
				t.Fatalf("%+v: with values %v, and %q removed", e, want, removed)
			}
		}
		if got := m.Map(); !maps.Equal(got, want) || (got == nil) != (len(want) == 0) {
			t.Fatalf("got %v, want %v", got, want)
		}
		var keys []string
		for k, v := range m.All() {
			keys = append(keys, k)
			if v != want[k] || m.Get(k) != want[k] {
				t.Fatalf("%q: got %q and %q, want %q", k, v, m.Get(k), want[k])
			}
		}
		if !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("keys %q are not in order", keys)
		}
		if got := m.Get("not there"); got != want["not there"] {
			t.Fatalf("a key that is not there has %q", got)
		}
		for range m.All() {
			break
		}
	})
}

func described(at int64, kind history.Kind, m history.Meta) *history.Record {
	e := history.Event{Kind: kind, At: epoch + at, Meta: m}
	return e.Record()
}

// TestMetaMergesByKey: an omitted key stays, null removes it, and the order of arrival does not matter.
func TestMetaMergesByKey(t *testing.T) {
	values := func(kv ...string) map[string]string {
		m := make(map[string]string)
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	all := history.NewMeta(values("title", "Low Tide", "series", "Harbour", "season", "1", "episode", "2"))
	title, gone := history.NewMeta(values("title", "Ebb")), history.NewMeta(nil, "series")
	tests := []struct {
		name    string
		reports []*history.Record
		want    map[string]string
	}{
		{"a title alone", []*history.Record{described(1, history.KindStop, all), described(2, history.KindStop, title)}, values("title", "Ebb", "series", "Harbour", "season", "1", "episode", "2")},
		{"an older title", []*history.Record{described(2, history.KindStop, all), described(1, history.KindStop, title)}, values("title", "Low Tide", "series", "Harbour", "season", "1", "episode", "2")},
		{"a removed key", []*history.Record{described(1, history.KindStop, all), described(2, history.KindStop, gone)}, values("title", "Low Tide", "season", "1", "episode", "2")},
		{"an older removal", []*history.Record{described(2, history.KindStop, all), described(1, history.KindStop, gone)}, values("title", "Low Tide", "series", "Harbour", "season", "1", "episode", "2")},
		{"a removal alone", []*history.Record{described(2, history.KindStop, gone)}, nil},
		{"a removal and a value of one version", []*history.Record{described(1, history.KindStop, all), described(1, history.KindStop, gone)}, values("title", "Low Tide", "series", "Harbour", "season", "1", "episode", "2")},
		{"two values of one version", []*history.Record{described(1, history.KindStop, all), described(1, history.KindStop, title)}, values("title", "Low Tide", "series", "Harbour", "season", "1", "episode", "2")},
		{"a stop and progress of one time", []*history.Record{described(1, history.KindProgress, all), described(1, history.KindStop, title)}, values("title", "Ebb", "series", "Harbour", "season", "1", "episode", "2")},
		{"without any", []*history.Record{described(1, history.KindStop, title), described(2, history.KindStop, "")}, values("title", "Ebb")},
		{"a delete between", []*history.Record{described(1, history.KindStop, all), described(2, history.KindDelete, ""), described(3, history.KindStop, title)}, values("title", "Ebb")},
		{"a delete after", []*history.Record{described(1, history.KindStop, all), described(3, history.KindDelete, "")}, nil},
		{"deleted, and back", []*history.Record{history.Merge(described(1, history.KindStop, all), described(3, history.KindStop, title)).Restore(epoch + 2), described(2, history.KindDelete, "")}, values("title", "Ebb", "series", "Harbour", "season", "1", "episode", "2")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, order := range permutations(tt.reports) {
				var r *history.Record
				for _, one := range order {
					r = history.Merge(r, one)
				}
				if got := r.Meta.Map(); !maps.Equal(got, tt.want) {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func permutations[T any](all []T) [][]T {
	if len(all) == 0 {
		return [][]T{nil}
	}
	var out [][]T
	for i := range all {
		for _, rest := range permutations(slices.Concat(all[:i:i], all[i+1:])) {
			out = append(out, append([]T{all[i]}, rest...))
		}
	}
	return out
}

// TestMetaIsAFold merges reports in every order and grouping: the record keeps the newest keys, however many
// and however long.
func TestMetaIsAFold(t *testing.T) {
	long := strings.Repeat("x", 2*history.MaxMetaBytes) // longer than the API accepts
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SampledFrom([]int{2, 20, 40}).Draw(t, "keys")
		report := rapid.Custom(func(t *rapid.T) history.Event {
			values, removed := make(map[string]string), []string(nil)
			for range rapid.IntRange(1, 12).Draw(t, "named") {
				key := fmt.Sprintf("%02d", rapid.IntRange(0, keys-1).Draw(t, "key"))
				if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
					removed = append(removed, key)
				} else {
					values[key] = rapid.SampledFrom([]string{"", "a", "b", long}).Draw(t, "value")
				}
			}
			kind := rapid.SampledFrom([]history.Kind{history.KindProgress, history.KindStop, history.KindStop, history.KindDelete}).Draw(t, "kind")
			return history.Event{Kind: kind, At: epoch + rapid.Int64Range(1, 6).Draw(t, "at"), Meta: history.NewMeta(values, removed...)}
		})
		events := rapid.SliceOfN(report, 1, 5).Draw(t, "events")
		want := fold(events)
		for _, order := range permutations(events) {
			wantSame(t, "in another order", fold(order), want)
		}
		shuffled := rapid.Permutation(slices.Concat(events, events[:1])).Draw(t, "shuffled")
		r := grouped(t, shuffled)
		wantSame(t, "in random groups", r, want)
		if got, want := fmt.Sprint(r.Meta.Map()), model(events).Meta; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		if n := len(r.MetaEntries()); n > history.MaxMetaKeys {
			t.Fatalf("%d keys", n)
		}
		again, newest := history.MetaOf(r.MetaEntries())
		if again != r.Meta || newest != r.MetaVersion {
			t.Fatalf("%q of %d is not what its entries make: %q of %d", r.Meta, r.MetaVersion, again, newest)
		}
		at := epoch + rapid.Int64Range(0, 7).Draw(t, "cut")
		var left *history.Record
		for i := range events {
			left = history.Merge(left, events[i].Record().After(at))
		}
		wantSame(t, "after a clear", r.After(at), left)
		cut := max(at, r.RemovedAt)
		if back := r.Restore(cut); !r.Deleted() && back.Meta != r.Meta {
			t.Fatalf("restored: got %q, want %q", back.Meta, r.Meta)
		}
	})
}

// TestMetaTakesNoRoomForVersions: keys of one report take no room for versions. Each key left over from an
// older report takes eight bytes more.
func TestMetaTakesNoRoomForVersions(t *testing.T) {
	all := history.NewMeta(map[string]string{"title": "Low Tide", "series": "Harbour"})
	r := described(1, history.KindStop, all)
	if r = history.Merge(r, described(2, history.KindStop, all)); r.Meta != all {
		t.Errorf("got %q, want %q", r.Meta, all)
	}
	r = history.Merge(r, described(3, history.KindStop, history.NewMeta(map[string]string{"title": "Low Tide"})))
	if got, want := len(r.Meta), len(all)+8; got != want {
		t.Errorf("a title alone: %d bytes, want %d", got, want)
	}
}
