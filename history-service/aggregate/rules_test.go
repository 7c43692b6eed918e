package aggregate_test

import (
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
)

// TestPutOfWhatWasDropped: a key is dropped between a request's Get and Put. The written record is held all the
// same, to restore it if the cache loses it.
func TestPutOfWhatWasDropped(t *testing.T) {
	inBubble(t, aggregate.Config{Max: 64}, func(t *testing.T, w *world) {
		k := w.write(key("ann", 1), false)
		held, _, ok := w.Get(k)
		w.write(key("ann", 2), false) // each shard has room for one
		if _, _, still := w.Get(k); !ok || still {
			t.Fatalf("held %v, and then %v; want it dropped", ok, still)
		}
		w.Put(k, held.Next(w.record(), &history.User{}, false), false)
		if _, _, ok := w.Get(k); !ok || !slices.Contains(w.Keys(), k) {
			t.Errorf("what was written is not held: %v of %v", ok, w.Keys())
		}
	})
}
