package history

import (
	"cmp"
	"slices"
)

// Completion is a viewing that reached the end, and when it last reported so.
type Completion struct {
	At      int64
	Viewing uint64
}

// Watch is how much of an object a viewing has played, in milliseconds, and when it last
// reported that much or less.
type Watch struct {
	At      int64
	Viewing uint64
	Watched int64
}

func (c Completion) watch() Watch { return Watch{At: c.At, Viewing: c.Viewing} }

func (w Watch) watch() Watch { return w }

// report is what a viewing tells of itself.
type report interface{ watch() Watch }

// unite returns the reports of both, oldest first. Of one viewing those stay that say
// more than every later one: a single one, unless a player counts backwards. All of
// these are kept for the sake of a late delete, as peaks are.
func unite[R report](a, b []R) []R {
	if len(a) < len(b) {
		a, b = b, a
	}
	own := false
	for _, r := range b {
		w := r.watch()
		if slices.ContainsFunc(a, func(r R) bool { return w.within(r.watch()) }) {
			continue
		}
		if !own { // records are shared
			a, own = append(make([]R, 0, len(a)+len(b)), a...), true
		}
		a = slices.DeleteFunc(a, func(r R) bool { return r.watch().within(w) })
		i, _ := slices.BinarySearchFunc(a, w, func(r R, w Watch) int {
			o := r.watch()
			return cmp.Or(cmp.Compare(o.At, w.At), cmp.Compare(o.Viewing, w.Viewing))
		})
		a = slices.Insert(a, i, r)
	}
	return a
}

// within reports whether a report says nothing beyond another one.
func (w Watch) within(o Watch) bool {
	return w.Viewing == o.Viewing && w.At <= o.At && w.Watched <= o.Watched
}

// after drops those at or before a time.
func after[R report](rs []R, at int64) []R {
	i := 0
	for i < len(rs) && rs[i].watch().At <= at {
		i++
	}
	return orNil(rs[i:])
}

// beyond returns how many of the oldest are too many, with all of the newest time among
// them: what is of one time could not be told apart later.
func beyond[R report](rs []R, most int) int {
	n := len(rs) - most
	if n <= 0 {
		return 0
	}
	for n < len(rs) && rs[n].watch().At == rs[n-1].watch().At {
		n++
	}
	return n
}

// sum returns how much all viewings together have played: of each the most.
func sum(ws []Watch) (total int64) {
	for i, w := range ws {
		if !slices.ContainsFunc(ws[:i], func(o Watch) bool { return o.Viewing == w.Viewing }) { // the oldest says most
			total += w.Watched
		}
	}
	return total
}

// mergeCompletions unites the completed viewings, each at its latest time, and
// counts those that are beyond the bound.
func (r *Record) mergeCompletions(o *Record) {
	if o.PlaysBeforeAt > r.PlaysBeforeAt || o.PlaysBeforeAt == r.PlaysBeforeAt && o.PlaysBefore > r.PlaysBefore {
		r.PlaysBefore, r.PlaysBeforeAt = o.PlaysBefore, o.PlaysBeforeAt
	}
	r.Completions = after(unite(r.Completions, o.Completions), r.PlaysBeforeAt)
	if n := beyond(r.Completions, MaxCompletions); n > 0 {
		r.PlaysBefore, r.PlaysBeforeAt = r.PlaysBefore+uint64(n), r.Completions[n-1].At
		r.Completions = orNil(r.Completions[n:])
	}
}

// mergeWatches does the same for what the viewings have played.
func (r *Record) mergeWatches(o *Record) {
	if o.WatchedBeforeAt > r.WatchedBeforeAt || o.WatchedBeforeAt == r.WatchedBeforeAt && o.WatchedBefore > r.WatchedBefore {
		r.WatchedBefore, r.WatchedBeforeAt = o.WatchedBefore, o.WatchedBeforeAt
	}
	r.Watches = after(unite(r.Watches, o.Watches), r.WatchedBeforeAt)
	if n := beyond(r.Watches, MaxWatches); n > 0 {
		r.WatchedBefore, r.WatchedBeforeAt = r.WatchedBefore+sum(r.Watches[:n]), r.Watches[n-1].At
		r.Watches = orNil(r.Watches[n:])
	}
}
