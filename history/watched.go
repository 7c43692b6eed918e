package history

import (
	"cmp"
	"slices"
)

// watches are those of r as far as they count: of a viewing that began before the object was deleted
// or cleared, no more than there was time for since then.
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

// played returns how much all viewings together have played: of each the most, and of those of one
// device that overlap no more than there was time for, at the speed of the fastest of them. More
// viewings, longer ones and those that have played more never make it less.
func played(ws []WatchedTime) (total int64) {
	if apart(ws) {
		for _, w := range ws {
			total += w.Watched
		}
		return total
	}
	ws = spans(ws)
	for len(ws) > 0 {
		n, end := 1, ws[0].At
		for n < len(ws) && ws[n].Device == ws[0].Device && ws[n].Began < end {
			end = max(end, ws[n].At)
			n++
		}
		total += together(ws[:n], end)
		ws = ws[n:]
	}
	return total
}

// apart reports whether nothing overlaps, as mostly.
func apart(ws []WatchedTime) bool {
	for i, w := range ws { // oldest first
		if i > 0 && w.Began < ws[i-1].At || slices.ContainsFunc(ws[:i], func(o WatchedTime) bool { return o.Viewing == w.Viewing }) {
			return false
		}
	}
	return true
}

// spans returns each viewing once, from its first begin to its last report, those of a device
// together and in the order of their begins.
func spans(ws []WatchedTime) []WatchedTime {
	all := make([]WatchedTime, 0, len(ws))
	for _, w := range ws { // oldest first
		i := slices.IndexFunc(all, func(o WatchedTime) bool { return o.Viewing == w.Viewing })
		if i < 0 {
			all = append(all, w)
			continue
		}
		o := &all[i]
		o.At, o.Device = w.At, w.Device
		o.Watched, o.Began, o.Speed = max(o.Watched, w.Watched), min(o.Began, w.Began), max(tempo(o.Speed), tempo(w.Speed))
	}
	slices.SortFunc(all, func(a, b WatchedTime) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Began, b.Began), cmp.Compare(a.Viewing, b.Viewing))
	})
	return all
}

// together returns how much viewings that overlap, up to a time, can have played on one device. In
// the order of their ends each takes what it needs of the time that is left to it, the earliest
// first; no other way leaves the others more.
func together(ws []WatchedTime, end int64) (total int64) {
	if len(ws) == 1 {
		return ws[0].Watched
	}
	var speed int64
	for _, w := range ws {
		speed = max(speed, tempo(w.Speed))
	}
	left := []stretch{{ws[0].Began * speed, end * speed}} // in hundredths of a millisecond of the object
	slices.SortStableFunc(ws, func(a, b WatchedTime) int { return cmp.Compare(a.At, b.At) })
	for _, w := range ws {
		var took int64
		left, took = take(left, stretch{w.Began * speed, w.At * speed}, w.Watched*100)
		total += took
	}
	return total / 100
}

// stretch is a part of the time.
type stretch struct{ from, to int64 }

// take takes as much as is needed of what is left within a stretch, and returns the rest.
func take(left []stretch, within stretch, need int64) (rest []stretch, took int64) {
	first, _ := slices.BinarySearchFunc(left, within.from, func(s stretch, at int64) int { return cmp.Compare(s.to, at+1) })
	var beside [2]stretch // before what is taken, and after it
	parts, i := beside[:0], first
	for ; i < len(left) && left[i].from < within.to && took < need; i++ {
		s := left[i]
		from := max(s.from, within.from)
		to := min(s.to, within.to, from+need-took)
		took += to - from
		if s.from < from {
			parts = append(parts, stretch{s.from, from})
		}
		if to < s.to {
			parts = append(parts, stretch{to, s.to})
		}
	}
	return slices.Replace(left, first, i, parts...), took
}
