package pebble_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestCollisionWhileFlushing: while a record is being flushed, a key with its hash is written, then the record
// again. The last acknowledged content stays.
func TestCollisionWhileFlushing(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(vfs.NewMem()).Colliding())
	cache := db.Cache()
	key := func(id string) history.Key {
		return history.Key{UID: "ann", Object: history.Object{ID: id, Type: 1}}
	}
	apply := func(k history.Key, base *history.Record, position int64) *history.Record {
		t.Helper()
		e := history.Event{Key: k, Kind: history.KindProgress, At: now(), Position: position}
		w := history.Write{Key: k, Record: e.Record().Successor(nil)}
		if base != nil {
			w.Base = base.Revision
		}
		if out := cache.Write(t.Context(), []history.Write{w})[0]; out.Status != history.Applied {
			t.Fatalf("write of %v: %+v", k, out)
		}
		return w.Record
	}
	first := apply(key("b"), nil, 1000)
	step := 0
	err := db.CheckpointWhile(func() {
		if step++; step != 1 {
			return
		}
		apply(key("a"), nil, 5000)
		second := apply(key("b"), first, 2000)
		if e := cache.Load(t.Context(), []history.Key{key("b")})[0]; e.Record == nil || e.Record.Revision != second.Revision {
			t.Errorf("written again, and read at once: got position %d of revision %x, want 2000 of %x", e.Record.Position, e.Record.Revision, second.Revision)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := cache.Load(t.Context(), []history.Key{key("b")})[0]; e.Record == nil || e.Record.Position != 2000 {
		t.Errorf("after the checkpoint: got %+v, want position 2000", e.Record)
	}
}
