package history

import "slices"

// watches returns the effective watched times. A session from before a removal counts at most what fits in the
// time since.
func (r *Record) watches() []WatchedTime {
	if r.Restored || !slices.ContainsFunc(r.Watches, func(w WatchedTime) bool { return w.Began < r.RemovedAt }) {
		return r.Watches
	}
	ws := slices.Clone(r.Watches)
	for i := range ws {
		w := &ws[i]
		w.Began = max(w.Began, r.RemovedAt)
		w.Watched = min(w.Watched, playable(w.At-w.Began, w.Speed))
	}
	return ws
}

// played sums up the sessions. A session listed several times counts with its maximum.
func played(ws []WatchedTime) (total int64) {
	for i, w := range ws {
		counted := int64(0)
		for _, o := range ws[:i] {
			if o.Viewing == w.Viewing {
				counted = max(counted, o.Watched)
			}
		}
		total += max(w.Watched-counted, 0)
	}
	return total
}
