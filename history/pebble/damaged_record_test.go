package pebble

import (
	"errors"
	"testing"
	"time"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// TestDamagedCacheRecord: a damaged record of the cache counts as empty and partial. It fails neither the
// user's list nor the job, and the next write replaces it.
func TestDamagedCacheRecord(t *testing.T) {
	db, err := Open(t.TempDir(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, k := db.Cache(), history.Key{UID: "u", Object: history.Object{ID: "1", Type: 1}}
	e := history.Event{Key: k, Kind: history.KindProgress, At: time.Now().UnixMilli(), Position: 1}
	r := e.Record().Successor(nil)
	if out := c.Write(t.Context(), []history.Write{{Key: k, Record: r}})[0]; out.Status != history.Applied {
		t.Fatal(out.Err)
	}
	if err := db.checkpoint(false); err != nil {
		t.Fatal(err)
	}
	key := appendKey(nil, c.space, k)
	var value []byte
	if err := get(db.pebble, key, func(v []byte) error { value = append(value, v...); return nil }); err != nil {
		t.Fatal(err)
	}
	value = value[:markSize+wire.RevisionEnd+9] // torn within a field
	if err := db.pebble.Set(key, value, cockroach.NoSync); err != nil {
		t.Fatal(err)
	}
	if got := c.Load(t.Context(), []history.Key{k})[0]; got.Err != nil {
		t.Errorf("Load: %v; want an empty, partial record that the archive completes", got.Err)
	}
	if _, err := c.List(t.Context(), k.UID, history.Query{Limit: 10}); err != nil {
		t.Errorf("List: %v; want the others", err)
	}
	next := history.Merge(r, e.Record()).Successor(nil)
	if out := c.Write(t.Context(), []history.Write{{Key: k, Record: next}})[0]; errors.Is(out.Err, history.ErrUnavailable) {
		t.Errorf("a write without a base: %v; want it to take its place, or a conflict with what can be a base", out.Err)
	}
}
