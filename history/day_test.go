package history_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

func TestDayOf(t *testing.T) {
	at := time.Date(2026, 11, 21, 23, 30, 0, 0, time.UTC)
	for offset, want := range map[int]uint32{0: 20261121, 29 * 60: 20261121, 30 * 60: 20261122, -23*3600 - 31*60: 20261120} {
		if got := history.DayOf(at.In(time.FixedZone("", offset))).Number(); got != want {
			t.Errorf("%v with an offset of %d s: got %d, want %d", at, offset, got, want)
		}
	}
}

func TestNumberedDay(t *testing.T) {
	for _, n := range []uint32{19700101, 20240229, 20261231} {
		if d, ok := history.NumberedDay(n); !ok || d.Number() != n {
			t.Errorf("%d: got %d, %t", n, d.Number(), ok)
		}
	}
	for _, n := range []uint32{20230229, 20261301, 20261132, 20260001} {
		if d, ok := history.NumberedDay(n); ok {
			t.Errorf("%d: got %d, want no such day", n, d)
		}
	}
}

// TestSeenDays compares with a set, over days within two of the newest: the range of "today" across time zones.
func TestSeenDays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newest := history.Day(20_000)
		s, first := history.SeenDays(0).With(newest)
		seen := map[history.Day]bool{newest: first}
		for range 50 {
			d := newest + history.Day(rapid.IntRange(-2, 5).Draw(t, "day"))
			next, first := s.With(d)
			if first == seen[d] {
				t.Fatalf("day %d after %v, newest %d: got first %t", d, seen, newest, first)
			}
			seen[d], newest, s = true, max(newest, d), next
			if again, first := s.With(d); first || again != s || s.Newest() != newest {
				t.Fatalf("day %d again, newest %d: got %d, first %t", d, newest, again, first)
			}
		}
		if old, first := s.With(newest - 3); first || old != s {
			t.Fatalf("a day that is long over: got %d, first %t", old, first)
		}
	})
}
