package history_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// TestPastIsAUnion: whatever the order and number of times, the same viewings make the same summary, which a sum over
// the distinct ones confirms. What is removed is gone.
func TestPastIsAUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) history.PastViewing {
			began := rapid.Int64Range(1, 50).Draw(t, "began") * 1000
			return history.PastViewing{
				Object: history.Object{ID: "1", Type: 1}, Began: began, Last: began + 500, Watched: 100, Furthest: began, Duration: 60_000, Played: began%2000 == 0, Title: "Low Tide",
			}
		}), 1, 20).Draw(t, "viewings")
		var want history.Summary
		plays, distinct := uint64(0), make(map[int64]bool)
		for _, v := range all {
			if !distinct[v.Began] && v.Played {
				plays++
			}
			distinct[v.Began] = true
			want, _ = want.WithPast(v)
		}
		if total := want.Total(); total.Plays != plays || total.Watched != int64(100*len(distinct)) || total.Place().Version.Time() != total.Last {
			t.Fatalf("got %+v, want %d plays, %d viewings", total, plays, len(distinct))
		}
		var got history.Summary
		r := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "order")))
		for range 3 {
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, v := range all {
				got, _ = got.WithPast(v)
			}
		}
		if got != want || !got.Imported.Valid() || got.Imported.Title() != "Low Tide" {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		at := rapid.Int64Range(0, 60_000).Draw(t, "removed")
		left, there := got.After(at)
		if there != (got.Total().Last > at) || there && left.Total().First <= at {
			t.Fatalf("after %d: %+v, %v", at, left.Total(), there)
		}
	})
}

// TestPastBetweenRecords: a viewing after a record that has expired, and before the next one.
func TestPastBetweenRecords(t *testing.T) {
	o, rules := history.Object{ID: "1", Type: 1}, (*history.Rulebook)(nil)
	viewed := func(at int64) *history.Record {
		e := history.Event{Key: history.Key{UID: "u", Object: o}, Kind: history.KindFinish, At: at, Position: 900, Duration: 1000, StartedAt: at - 1000, Watched: 900, Session: "s"}
		return e.Record()
	}
	const year = 365 * 24 * 3600_000
	s, _ := history.Summary{}.With(o, viewed(year), rules)
	past := history.PastViewing{Object: o, Began: 2*year - 500, Last: 2 * year, Watched: 500, Furthest: 1000, Played: true}
	for range 2 {
		s, _ = s.WithPast(past)
		s, _ = s.With(o, viewed(year), rules) // still there, and counted
		if total := s.Total(); total.Plays != 2 || total.Watched != 1400 || total.First != year-1000 || total.Last != 2*year || total.Duration != 1000 || !total.Finished {
			t.Fatalf("got %+v, want both", total)
		}
	}
	for range 2 {
		s, _ = s.With(o, viewed(3*year), rules)
		s, _ = s.WithPast(past)
		if total := s.Total(); total.Plays != 3 || total.Watched != 2300 || total.Last != 3*year || s.Version.Time() != 3*year {
			t.Fatalf("got %+v, want three", total)
		}
	}
	if left, _ := s.After(2 * year); left.Total().Plays != 1 || left.Imported != "" {
		t.Errorf("after the second: %+v", left)
	}
}

// TestMostPast: an object has room for so many viewings, and says when it is full. Those it has stay known.
func TestMostPast(t *testing.T) {
	var s history.Summary
	for n := range int64(history.MaxPast + 1) {
		v := history.PastViewing{Object: history.Object{ID: "1", Type: 1}, Began: 1000 + n*10, Last: 1005 + n*10, Played: true}
		kept := false
		if s, kept = s.WithPast(v); kept != (n < history.MaxPast) {
			t.Fatalf("viewing %d: kept %v", n, kept)
		}
	}
	if _, kept := s.WithPast(history.PastViewing{Began: 1000, Last: 1005}); !kept || s.Total().Plays != history.MaxPast || !s.Imported.Valid() {
		t.Errorf("the first one again: kept %v, %d plays", kept, s.Total().Plays)
	}
}

// TestDamagedImported: nothing but what an import makes is valid.
func TestDamagedImported(t *testing.T) {
	s, _ := history.Summary{}.WithPast(history.PastViewing{Began: 1000, Last: 5000, Title: "Low Tide", Watched: 300})
	whole := string(s.Imported)
	for n := range whole {
		if cut := history.Imported(whole[:n]); n > 0 && cut.Valid() {
			t.Errorf("%q is valid", cut)
		}
	}
	for _, damaged := range []string{"\xff", "\x05a", whole + "\x00", "\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00"} {
		if history.Imported(damaged).Valid() {
			t.Errorf("%q is valid", damaged)
		}
	}
}
