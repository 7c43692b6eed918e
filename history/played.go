package history

import (
	"cmp"
	"slices"
)

// Played is what a user played of an object up to a time.
type Played struct {
	At      int64 // last report of the plays and sessions, Unix milliseconds
	Plays   uint64
	Watched int64 // milliseconds
}

const dayMS = daySeconds * 1000

// Day returns the UTC day.
func (p Played) Day() Day { return Day(p.At / dayMS) }

// Played returns what the record has since its latest removal, in order of time. A play has the time of its last report
// at the end, and a session's watched time that of its last report. What no longer fits into the record has the
// last time that it may be of. Restored content was played before the removal, and is left out.
func (r *Record) Played() []Played {
	if r.Restored {
		r = r.cut(r.RemovedAt)
	}
	var all []Played
	add := func(at int64, plays uint64, watched int64) {
		if plays == 0 && watched == 0 {
			return
		}
		i, ok := slices.BinarySearchFunc(all, at, func(p Played, at int64) int { return cmp.Compare(p.At, at) })
		if !ok {
			all = slices.Insert(all, i, Played{At: at})
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
