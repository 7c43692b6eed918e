package backfill_test

import (
	"context"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/playhead/backfill"
)

// TestFromDead copies letters of each kind into an archive: a record, a cell, a queued message and a user's state. What
// cannot be decoded is rejected.
func TestFromDead(t *testing.T) {
	now := time.Now().UnixMilli()
	record := func(id string) (history.Key, *history.Record) {
		e := history.Event{Key: history.Key{UID: "ann", Object: history.Object{ID: id, Type: 1}}, Kind: history.KindStop, At: now, Position: 7}
		return e.Key, e.Record()
	}
	one, first := record("1")
	two, second := record("2")
	three, third := record("3")
	old := history.Event{Key: history.Key{UID: "ann", Object: history.Object{ID: "4", Type: 1}}, Kind: history.KindStop, At: now - 10_000, Position: 7}
	letters := []history.Dead{
		{Key: history.UserKey("ann"), User: history.User{Cleared: map[uint32]int64{0: now - 5000}}},
		{Key: one, Record: first},
		{Key: two, Cell: wire.AppendRecord(nil, second)},
		{Payload: wire.AppendBatch(nil, []history.Announcement{{Key: three, Record: third}, {Key: one}})},
		{Key: old.Key, Record: old.Record()},
		{Key: two, Cell: []byte{0xff}},
		{Key: two, Reason: "lost"},
		{Payload: []byte{0xff}, Origin: "partition 0 offset 1"},
	}
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	source := &backfill.FromDead{All: func(_ context.Context, use func(history.Dead) error) error {
		for _, d := range letters {
			if err := use(d); err != nil {
				return err
			}
		}
		return nil
	}}
	c := &backfill.Copy{Source: source, Target: &backfill.Archive{Store: db.Archive()}, MaxRejects: -1}
	r, err := c.Run(t.Context())
	if err != nil || r.Outcomes["new"] != 4 || r.Outcomes["skipped"] != 1 || r.Outcomes["deleted"] != 1 || r.Outcomes["rejected"] != 3 {
		t.Errorf("got %+v, %v, want 4 new, 1 skipped, 1 deleted, 3 rejected", r.Outcomes, err)
	}
	entries, err := db.Archive().Get(t.Context(), []history.Key{one, two, three})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if e.Record == nil || e.Record.Position != 7 {
			t.Errorf("record %d: got %+v", i+1, e)
		}
	}
}
