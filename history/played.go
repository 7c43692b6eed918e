package history

import "slices"

// Played is what a user played of an object on one UTC day.
type Played struct {
	Day     Day
	Plays   uint64
	Watched int64 // milliseconds
}

const dayMS = daySeconds * 1000

// Played returns what the record has for each UTC day since its latest removal, in order of the days. A play counts
// on the day of its last report at the end, and a session's watched time on the day of its last report. What no
// longer fits into the record counts on the last day that it may be of. Restored content was played before the
// removal, and is left out.
func (r *Record) Played() []Played {
	if r.Restored {
		r = r.cut(r.RemovedAt)
	}
	var all []Played
	add := func(at int64, plays uint64, watched int64) {
		if plays == 0 && watched == 0 {
			return
		}
		day := Day(at / dayMS)
		i, ok := slices.BinarySearchFunc(all, day, func(p Played, d Day) int { return int(p.Day - d) })
		if !ok {
			all = slices.Insert(all, i, Played{Day: day})
		}
		all[i].Plays += plays
		all[i].Watched += watched
	}
	add(r.PlaysBeforeAt, r.PlaysBefore, 0)
	for _, p := range r.plays() {
		add(p.At, 1, 0)
	}
	add(r.WatchedBeforeAt, 0, r.WatchedBefore)
	ws := r.watches()
	for i := range ws {
		add(ws[i].At, 0, played(ws[:i+1])-played(ws[:i]))
	}
	return all
}

// NeverPlayed reports whether no content of the record since its latest removal can ever have had a play or a watched
// time. It may be false for one that had none.
func (r *Record) NeverPlayed() bool {
	return !r.Deleted() && len(r.Completions) == 0 && r.PlaysBeforeAt == 0 && len(r.Watches) == 0 && r.WatchedBeforeAt == 0 && len(r.Viewings) < MaxViewings
}
