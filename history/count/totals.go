package count

import (
	"slices"

	"github.com/playhead/playhead/history"
)

// Sum is a total of an object.
type Sum struct {
	Plays, Viewers int64
	Watched        int64 // milliseconds
}

// Plus returns the sum of both.
func (s Sum) Plus(o Sum) Sum {
	return Sum{s.Plays + o.Plays, s.Viewers + o.Viewers, s.Watched + o.Watched}
}

// Negative reports whether a total is below 0, which is a fault.
func (s Sum) Negative() bool { return s.Plays < 0 || s.Viewers < 0 || s.Watched < 0 }

// DaySum is a total of a UTC day. A viewer counts once a day.
type DaySum struct {
	Day history.Day
	Sum
}

// Totals are the totals of an object.
type Totals struct {
	All Sum // a viewer counts once
	// Days are in order, for as long as records live.
	Days []DaySum
	// Through is the time up to which everything archived is counted, Unix milliseconds; 0 if unknown.
	Through int64
}

// add adds a sum to a day, and to all without the viewers.
func (t *Totals) add(d history.Day, s Sum) {
	t.All.Plays += s.Plays
	t.All.Watched += s.Watched
	t.addDay(d, s)
}

func (t *Totals) addDay(d history.Day, s Sum) {
	i, ok := slices.BinarySearchFunc(t.Days, d, func(e DaySum, d history.Day) int { return int(e.Day - d) })
	if !ok {
		t.Days = slices.Insert(t.Days, i, DaySum{Day: d})
	}
	t.Days[i].Sum = t.Days[i].Plus(s)
}

// trim removes days without anything.
func (t *Totals) trim() {
	t.Days = slices.DeleteFunc(t.Days, func(e DaySum) bool { return e.Sum == Sum{} })
}

// Add adds the totals of another part of the users, in place.
func (t *Totals) Add(o Totals) {
	t.All = t.All.Plus(o.All)
	for _, e := range o.Days {
		t.addDay(e.Day, e.Sum)
	}
	t.trim()
}

// Close drops the days up to one.
func (t *Totals) Close(closed history.Day) {
	t.Days = slices.DeleteFunc(t.Days, func(e DaySum) bool { return e.Day <= closed })
}

// Negative reports whether any total is below 0.
func (t *Totals) Negative() bool {
	return t.All.Negative() || slices.ContainsFunc(t.Days, func(e DaySum) bool { return e.Negative() })
}
