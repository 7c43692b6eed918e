package lru_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/internal/lru"
)

// TestMap: a value stays while it and all later values fit into one generation, unless it is replaced or
// removed. The total never exceeds two full generations, or one value in each.
func TestMap(t *testing.T) {
	for name, weight := range map[string]func(int) int{"each weighs 1": nil, "by weight": func(v int) int { return v % 8 }} {
		t.Run(name, func(t *testing.T) {
			of := func(v int) int {
				if weight == nil {
					return 1
				}
				return weight(v)
			}
			rapid.Check(t, func(t *rapid.T) {
				full := rapid.IntRange(1, 20).Draw(t, "full")
				m := lru.New[int](full, weight)
				total, last := 0, map[int]struct{ value, before int }{} // before: weight of all earlier puts
				for range rapid.IntRange(0, 80).Draw(t, "steps") {
					k, v := rapid.IntRange(0, 9).Draw(t, "key"), rapid.IntRange(0, 99).Draw(t, "value")
					if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
						m.Forget(k)
						delete(last, k)
					} else {
						m.Put(k, v)
						last[k] = struct{ value, before int }{v, total}
						total += of(v)
					}
					kept := 0
					for k := range 10 {
						got, ok := m.Get(k)
						want, known := last[k]
						if ok && (!known || got != want.value) {
							t.Fatalf("key %d: got %d, want %d, %v", k, got, want.value, known)
						}
						if since := total - want.before; known && since <= full && !ok {
							t.Fatalf("key %d is gone, after a weight of %d in halves of %d", k, since, full)
						}
						if ok {
							kept += of(got)
						}
					}
					if kept > 2*max(full, 7) {
						t.Fatalf("a weight of %d is kept, with %d for a half", kept, full)
					}
				}
			})
		})
	}
}
