package history_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// TestMeta has metadata as it was given, in the order of the keys, whatever they are.
func TestMeta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		long := rapid.Map(rapid.IntRange(0, 40_000), func(n int) string { return strings.Repeat("x", n) })
		want := rapid.MapOfN(rapid.String(), rapid.OneOf(rapid.String(), long), 0, 20).Draw(t, "entries")
		m := history.NewMeta(want)
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
