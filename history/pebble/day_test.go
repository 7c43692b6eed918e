package pebble_test

import (
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
)

func TestDays(t *testing.T) {
	historytest.Days(t, func(t *testing.T) history.Days { return open(t, t.TempDir(), pebble.Config{}).Days() })
}

// TestDaysSurvive opens the store again, and lets days pass until nobody asks for them.
func TestDaysSurvive(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	today := history.DayOf(now)
	for days, first := range []bool{true, false, false, false, true} {
		db := open(t, dir, pebble.Config{Now: func() time.Time { return now.AddDate(0, 0, days) }})
		if _, err := db.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := db.Days().See(t.Context(), []history.Sighting{{UID: "ann", Day: today}})[0]
		if seen.Err != nil || seen.First != first {
			t.Errorf("%d days later: got %+v, want first %t", days, seen, first)
		}
		owed, err := db.Days().PendingFirsts(t.Context(), []history.Bucket{history.BucketOf("ann")}, time.Hour, 10)
		if err != nil || len(owed) != min(days, 1) {
			t.Errorf("owed for an hour, %d days later: got %+v, %v", days, owed, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
