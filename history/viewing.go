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

// reports are what viewings report, oldest first. Of one viewing those stay that say
// more than every later one: one of them, unless a player counts backwards. All of
// these are kept for the sake of a late delete, as peaks are.
type report interface{ watch() Watch }

func unite[R report](a, b []R) []R {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 || slices.EqualFunc(a, b, func(x, y R) bool { return x.watch() == y.watch() }) {
		return a
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b R) int { // one viewing together, its latest report first
		x, y := a.watch(), b.watch()
		return cmp.Or(cmp.Compare(x.Viewing, y.Viewing), cmp.Compare(y.At, x.At), cmp.Compare(y.Watched, x.Watched))
	})
	kept := all[:1]
	for _, r := range all[1:] {
		top, w := kept[len(kept)-1].watch(), r.watch()
		if w.Viewing != top.Viewing || w.Watched > top.Watched {
			kept = append(kept, r)
		}
	}
	slices.SortFunc(kept, func(a, b R) int {
		x, y := a.watch(), b.watch()
		return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.Viewing, y.Viewing), cmp.Compare(y.Watched, x.Watched))
	})
	return kept
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
