package backfill_test

import (
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/playhead/backfill"
)

// rebooked returns a store of a directory under a retention, with summaries of ten years.
func rebooked(t *testing.T, dir, retention string) (*pebble.DB, *backfill.Archive) {
	t.Helper()
	rules, err := history.ParseRules(retention, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := pebble.Config{Rules: rules, Summary: 3650 * 24 * time.Hour, Change: func(_, _ history.Retention) error { return nil }}
	db, err := pebble.Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	a := target(db)
	a.Rules = rules
	return db, a
}

func titled(it backfill.Item, title string) backfill.Item {
	it.Event.Meta = history.NewMeta(map[string]string{"title": title})
	return it
}

// TestOlderDeletesUnknown: expired viewings go into summaries once, with their titles, and only if confirmed.
func TestOlderDeletesUnknown(t *testing.T) {
	db, a := rebooked(t, t.TempDir(), "90d")
	defer db.Close()
	for uid, u := range map[string]history.User{
		"cleared": {Cleared: map[uint32]int64{1: ago(200 * 24)}}, "paused": {Pause: history.Pause{Since: ago(400 * 24), Until: ago(200 * 24)}},
	} {
		if err := db.Archive().PutUser(t.Context(), uid, u); err != nil {
			t.Fatal(err)
		}
	}
	whole := viewing(key("u", "whole"), 300*24)
	whole = backfill.Item{Key: whole.Key, Record: whole.Event.Record()}
	items := []backfill.Item{
		titled(viewing(key("u", "a"), 300*24), "Low Tide"), titled(viewing(key("u", "a"), 500*24), "Low Tide"), viewing(key("cleared", "a"), 300*24),
		viewing(key("paused", "a"), 300*24), viewing(key("u", "ancient"), 3651*24), whole, viewing(key("u", "young"), 5),
		{Key: key("u", "c"), Record: deleted(key("u", "c"), 300*24)},
	}
	const expired, done = backfill.Expired, backfill.Summarised
	want := []backfill.Outcome{expired, expired, expired, expired, expired, expired, backfill.New, expired}
	if got := fold(t, a, items...); !slices.Equal(got, want) {
		t.Errorf("not confirmed: got %v, want %v", got, want)
	}
	a.OlderDeletesUnknown = true
	want = []backfill.Outcome{done, done, backfill.Deleted, backfill.Paused, expired, expired, backfill.Equal, expired}
	for range 3 {
		if got := fold(t, a, items...); !slices.Equal(got, want) {
			t.Errorf("confirmed: got %v, want %v", got, want)
		}
		slices.Reverse(items[:2])
	}
	page, err := db.Archive().Summaries(t.Context(), "u", history.Query{Limit: 10})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("got %+v, %v, want one summary", page.Items, err)
	}
	s := page.Items[0]
	if total := s.Total(); s.Imported.Title() != "Low Tide" || total.Watched != 2*600_000 || total.First != ago(500*24)-600_000 || total.Last != ago(300*24) {
		t.Errorf("got %q %+v, want both viewings", s.Imported.Title(), total)
	}
}

// TestBeforeLongerRetention: what had expired when the retention became longer comes in only if confirmed. It is a
// record then, which keeps its time, is found by readers, and lasts.
func TestBeforeLongerRetention(t *testing.T) {
	dir := t.TempDir()
	db, a := rebooked(t, dir, "90d")
	alive := []backfill.Item{viewing(key("u", "alive"), 89*24)}
	fold(t, a, alive...)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, a = rebooked(t, dir, "1000d")
	defer db.Close()
	items := []backfill.Item{
		viewing(key("u", "a"), 300*24), viewing(key("u", "a"), 200*24), viewing(key("u", "b"), 100*24), viewing(key("u", "alive"), 100*24), viewing(key("u", "gone"), 100*24),
	}
	if got := fold(t, a, items...); slices.ContainsFunc(got, func(o backfill.Outcome) bool { return o != backfill.Expired }) {
		t.Errorf("not confirmed: got %v", got)
	}
	fold(t, a, backfill.Item{Key: key("u", "gone"), Record: deleted(key("u", "gone"), 50*24)})
	a.OlderDeletesUnknown = true
	for round := range 3 {
		got := fold(t, a, items...)
		if got[4] != backfill.Deleted || (round == 0) != (got[0] == backfill.New) || got[3] == backfill.Expired || round > 0 && slices.Contains(got, backfill.New) {
			t.Errorf("confirmed, round %d: got %v", round, got)
		}
		slices.Reverse(items[:2])
	}
	if _, err := db.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := db.Archive().Page(t.Context(), "u", history.Query{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, it := range page.Items {
		if !it.Record.Deleted() {
			got[it.Object.ID] = it.Record.PlayedAt()
		}
		if it.Object.ID == "a" && it.Record.Watched() != 2*600_000 {
			t.Errorf("a was watched %d ms, want both viewings", it.Record.Watched())
		}
	}
	if got["a"] != ago(200*24) || got["b"] != ago(100*24) || got["alive"] != ago(89*24) || len(got) != 3 {
		t.Errorf("got %v, want a, b and alive at their times", got)
	}
}
