package historytest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/playhead/playhead/history"
)

// past is a viewing of an object that ended some days ago.
func (s *summaries) past(object string, days float64, played bool) *history.PastViewing {
	last := s.now() - int64(days*day)
	return &history.PastViewing{
		Object: keyOf(s.uid, object).Object, Began: last - 1000, Last: last, Watched: 900, Furthest: 1000, Duration: 100_000, Played: played, Title: "Low Tide",
	}
}

// bring brings past viewings, and returns how many are kept.
func (s *summaries) bring(all ...*history.PastViewing) (kept int) {
	s.Helper()
	if err := s.SummarizePast(s.Context(), s.uid, all); err != nil {
		s.Fatal(err)
	}
	for _, v := range all {
		if v.Kept {
			kept++
		}
	}
	return kept
}

// totals are the objects' summaries as readers see them, in short.
func (s *summaries) totals(what string, want map[string]string) {
	s.Helper()
	got := make(map[string]string)
	for _, sum := range s.all(history.Query{Limit: 2}) {
		title, at := sum.Imported.Title(), sum.Place().Version.Time()
		sum = sum.Total()
		got[sum.Object.ID] = fmt.Sprintf("%s %d plays, %d ms, furthest %d, days %d to %d", title, sum.Plays, sum.Watched, sum.Furthest, (s.now()-sum.First)/day, (s.now()-sum.Last)/day)
		if at != sum.Last {
			s.Errorf("%s: %s is listed at %d, last played at %d", what, sum.Object, at, sum.Last)
		}
	}
	if !maps.Equal(got, want) {
		s.Errorf("%s:\ngot  %v\nwant %v", what, got, want)
	}
}

// pastViewings come several times, in any order and in parts: each counts once.
func pastViewings(s *summaries) {
	all := []*history.PastViewing{s.past("1_1", 500, true), s.past("1_1", 400, true), s.past("1_1", 450, false), s.past("2_1", 300, true), s.past("3_1", 91, false)}
	want := map[string]string{
		"1": "Low Tide 2 plays, 2700 ms, furthest 1000, days 500 to 400", "2": "Low Tide 1 plays, 900 ms, furthest 1000, days 300 to 300",
		"3": "Low Tide 0 plays, 900 ms, furthest 1000, days 91 to 91",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		for some := range slices.Chunk(all, 2) {
			if n := s.bring(some...); n != len(some) {
				s.Errorf("%d of %d kept", n, len(some))
			}
		}
		s.summarize(false)
		s.totals("again", want)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
}

// pastRemoved brings viewings from before deletes and clears.
func pastRemoved(s *summaries) {
	s.put(deletedAt(keyOf(s.uid, "1_1"), s.now()-20*day))
	s.clear(map[uint32]int64{2: s.now() - 350*day})
	all := []*history.PastViewing{s.past("1_1", 400, true), s.past("2_2", 400, true), s.past("2_2", 300, true), s.past("3_1", 400, true)}
	if n := s.bring(all...); n != 2 {
		s.Errorf("%d kept, want those of 2 after the clear, and 3", n)
	}
	two, three := "Low Tide 1 plays, 900 ms, furthest 1000, days 300 to 300", "Low Tide 1 plays, 900 ms, furthest 1000, days 400 to 400"
	s.totals("removed before", map[string]string{"2": two, "3": three})
	s.put(deletedAt(keyOf(s.uid, "3_1"), s.now()))
	s.summarize(true)
	s.totals("deleted after", map[string]string{"2": two})
	s.clear(map[uint32]int64{0: s.now()})
	s.totals("cleared", nil)
	s.summarize(true)
	if n := s.bring(all...); n != 0 {
		s.Errorf("%d kept after a clear", n)
	}
	s.totals("cleared, and brought again", nil)
}

// pastAndRecords brings viewings of objects with records and summaries, which may have them.
func pastAndRecords(s *summaries) {
	old, young := s.aged("1_1", 85, 5000, true), s.aged("2_1", 10, 5000, true)
	s.put(old, young)
	same := &history.PastViewing{Object: old.Key.Object, Began: old.Record.PlayedAt() - 5000, Last: old.Record.PlayedAt(), Watched: 5000, Played: true}
	all := []*history.PastViewing{same, s.past("1_1", 200, true), s.past("2_1", 200, true)}
	for range 2 {
		if n := s.bring(all...); n != len(all) {
			s.Errorf("%d kept", n)
		}
		s.totals("beside records", map[string]string{
			"1": "Low Tide 2 plays, 5900 ms, furthest 5000, days 200 to 85", "2": "Low Tide 1 plays, 900 ms, furthest 1000, days 200 to 200",
		})
	}
	s.fold(s.aged("2_1", 84, 5000, true)) // the young record has an older viewing, too
	s.summarize(false)
	s.fold(s.aged("3_1", 84, 5000, true))
	s.summarize(false)
	s.bring(s.past("3_1", 200, true))
	s.totals("a record first", map[string]string{
		"1": "Low Tide 2 plays, 5900 ms, furthest 5000, days 200 to 85", "2": "Low Tide 1 plays, 900 ms, furthest 1000, days 200 to 200",
		"3": "Low Tide 2 plays, 5900 ms, furthest 5000, days 200 to 84",
	})
}

// pastConcurrently brings viewings from several callers while records are summarized.
func pastConcurrently(s *summaries) {
	s.put(s.aged("1_1", 85, 5000, true))
	var calls sync.WaitGroup
	for n := range 4 {
		calls.Go(func() {
			for i := range 3 {
				v := s.past("1_1", float64(100+10*n+i), true)
				if err := s.SummarizePast(s.Context(), s.uid, []*history.PastViewing{v}); err != nil || !v.Kept {
					s.Errorf("kept %v, %v", v.Kept, err)
				}
			}
		})
	}
	calls.Wait()
	s.totals("together", map[string]string{"1": "Low Tide 13 plays, 15800 ms, furthest 5000, days 132 to 85"})
}
