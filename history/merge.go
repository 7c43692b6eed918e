package history

import (
	"cmp"
	"slices"
)

// Merge returns the fold of all events in a and b. It is commutative, associative and idempotent within the
// bounds of [Record]; nil is the empty fold. The result has no revision unless the other record is nil.
func Merge(a, b *Record) *Record {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	m := new(Record)
	MergeInto(m, a, b)
	return m
}

// MergeInto stores the result of [Merge] in m. No argument is nil, and m is neither a nor b.
func MergeInto(m, a, b *Record) {
	removed := max(a.RemovedAt, b.RemovedAt)
	latest, other := a.since(removed), b.since(removed) // first, so that removed content does not count against a bound
	if compareLatest(a, b) < 0 {
		latest, other = other, latest
	}
	same, goesOn := latest.goesOn(other)
	var lows []Stay
	var starts []Start
	if !goesOn {
		lows, starts = uniteStays(latest.lows(), other.lows(), lowGap), slices.Concat(latest.starts(), other.starts())
	}
	*m = *latest
	m.Revision, m.CellTime = 0, max(a.CellTime, b.CellTime)
	m.Partial = a.Partial && b.Partial
	m.Restored = latest.Restored || other.Restored
	m.Dismissed = max(latest.Dismissed, other.Dismissed)
	m.Told = max(latest.Told, other.Told) // its time is first
	m.mergeDuration(other)
	m.mergeMeta(other)
	m.mergePeaks(other)
	m.mergeCompletions(other)
	m.mergeWatches(other)
	m.mergeResumePoint(other)
	m.mergeViewings(other)
	m.mergeUnknown(other)
	if goesOn {
		m.Lows, m.Starts = same, longer(latest.Starts, other.Starts)
	} else {
		m.setStarts(starts)
		m.setLows(lows)
	}
	m.boundPlays()
}

// longer returns a, or b if a is empty. The lists are equal unless one is empty.
func longer[T any](a, b []T) []T {
	if len(a) == 0 {
		return b
	}
	return a
}

// After returns r without everything at or before the given time, nil if nothing remains. A nil record stays
// nil.
func (r *Record) After(at int64) *Record {
	if r == nil || r.Version.Time() <= at {
		return nil
	}
	return r.since(at)
}

// since returns r without everything at or before a removal, except its latest event.
func (r *Record) since(removed int64) *Record {
	if removed <= r.RemovedAt {
		return r
	}
	return r.cut(removed)
}

// cut returns r without everything at or before a removal, also what was restored, except its latest event.
func (r *Record) cut(removed int64) *Record {
	lows, starts := r.lows(), r.starts()
	m := *r
	m.RemovedAt, m.Restored = removed, false
	m.forget()
	m.setStarts(starts)
	m.setLows(staysAfter(lows, removed, lowGap))
	return &m
}

// Visible returns r after the user's clear marks, as readers see it: nil if it is cleared, a tombstone, or
// absent.
func (r *Record) Visible(o Object, u *User) *Record {
	if r = r.After(u.ClearedAt(o.Type)); r == nil || r.Deleted() {
		return nil
	}
	return r
}

// Cut returns r after the clear marks. If they remove all of it, CutTime rises to its cell time, so a new
// content sorts after it.
func (u *User) Cut(r *Record, typ uint32) *Record {
	left := r.After(u.ClearedAt(typ))
	if r != nil && left == nil {
		u.CutTime = max(u.CutTime, r.CellTime)
	}
	return left
}

// mergeResumePoint keeps the latest event that is not early, if r is early.
func (r *Record) mergeResumePoint(o *Record) {
	if !r.Early {
		return // an event that is not early is its own resume point
	}
	if f := o.lastResumePoint(); f.Version > r.ResumePoint.Version || f.Version == r.ResumePoint.Version && f.Position > r.ResumePoint.Position {
		r.ResumePoint = f
	}
}

// lastResumePoint returns the latest event of r that was not early, zero if none is after the removal.
func (r *Record) lastResumePoint() ResumePoint {
	switch {
	case r.Early:
		return r.ResumePoint
	case r.Version.Time() <= r.RemovedAt:
		return ResumePoint{}
	}
	return ResumePoint{Version: r.own(), Position: r.Position}
}

func (r *Record) mergeDuration(o *Record) {
	if o.DurationVersion > r.DurationVersion || o.DurationVersion == r.DurationVersion && o.Duration > r.Duration {
		r.Duration, r.DurationVersion = o.Duration, o.DurationVersion
	}
}

func (r *Record) mergeUnknown(o *Record) {
	if o.UnknownVersion > r.UnknownVersion || o.UnknownVersion == r.UnknownVersion && o.Unknown > r.Unknown {
		r.Unknown, r.UnknownVersion = o.Unknown, o.UnknownVersion
	}
}

// mergePeaks keeps the positions that no later one reaches. A position at the end without a stop may be a
// scrub: it belongs to [Record.Completions].
func (r *Record) mergePeaks(o *Record) {
	if !r.weak() && o.Position <= r.Position && (len(o.Peaks) == 0 || slices.Equal(r.Peaks, o.Peaks)) {
		return
	}
	last := []Peak{{At: o.PlayedAt(), Position: o.Position}}
	if o.Version.Time() <= r.RemovedAt || o.weak() {
		last = nil
	}
	all := slices.Concat(r.Peaks, o.Peaks, last)
	slices.SortFunc(all, func(a, b Peak) int { // newest first
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.Position, a.Position))
	})
	top, kept := r.solid(), all[:0]
	for _, p := range all {
		if p.Position > top {
			top, kept = p.Position, append(kept, p)
		}
	}
	if n := len(kept); n > MaxPeaks { // keep the furthest and the newest
		kept = append(kept[:MaxPeaks-1], kept[n-1])
	}
	slices.Reverse(kept)
	r.Peaks = orNil(slices.Clip(kept))
}

// forget drops everything at or before the removal.
func (r *Record) forget() {
	if r.DurationVersion.Time() <= r.RemovedAt {
		r.Duration, r.DurationVersion = 0, 0
	}
	r.forgetMeta()
	if r.UnknownVersion.Time() <= r.RemovedAt {
		r.Unknown, r.UnknownVersion = "", 0
	}
	if r.Dismissed.Time() <= r.RemovedAt {
		r.Dismissed = 0
	}
	if toldAt(r.Told) <= r.RemovedAt {
		r.Told = ""
	}
	if r.PlaysBeforeAt <= r.RemovedAt {
		r.PlaysBefore, r.PlaysBeforeAt = 0, 0
	}
	for len(r.Peaks) > 0 && r.Peaks[0].At <= r.RemovedAt { // furthest first is oldest first
		r.Peaks = r.Peaks[1:]
	}
	r.Peaks = orNil(r.Peaks)
	if r.WatchedBeforeAt <= r.RemovedAt {
		r.WatchedBefore, r.WatchedBeforeAt = 0, 0
	}
	if r.ResumePoint.Version.Time() <= r.RemovedAt {
		r.ResumePoint = ResumePoint{}
	}
	r.Completions = staysAfter(r.Completions, max(r.RemovedAt, r.PlaysBeforeAt), endGap)
	r.Watches = after(r.Watches, r.RemovedAt)
	r.forgetViewings()
}

// unite returns the reports of both, oldest first. Per viewing it keeps reports above every later one: a single
// one unless a player counts backwards. A late delete needs them all, as with peaks.
func unite(a, b []WatchedTime) []WatchedTime {
	if len(a) < len(b) {
		a, b = b, a
	}
	own := false
	for _, w := range b {
		if slices.ContainsFunc(a, w.within) {
			continue
		}
		if !own { // records are shared
			a, own = append(make([]WatchedTime, 0, len(a)+len(b)), a...), true
		}
		a = slices.DeleteFunc(a, func(o WatchedTime) bool { return o.within(w) })
		i, _ := slices.BinarySearchFunc(a, w, func(o, w WatchedTime) int {
			return cmp.Or(cmp.Compare(o.At, w.At), cmp.Compare(o.Viewing, w.Viewing))
		})
		a = slices.Insert(a, i, w)
	}
	return a
}

// within reports whether o includes w. Of several reports with one time and amount exactly one includes the others.
func (w WatchedTime) within(o WatchedTime) bool {
	if w.Viewing != o.Viewing || w.At > o.At || w.Watched > o.Watched {
		return false
	}
	return w.At < o.At || w.Watched < o.Watched ||
		cmp.Or(cmp.Compare(o.Began, w.Began), cmp.Compare(tempo(w.Speed), tempo(o.Speed)), cmp.Compare(w.Speed, o.Speed)) <= 0
}

// after drops the reports up to a time.
func after(rs []WatchedTime, at int64) []WatchedTime {
	i := 0
	for i < len(rs) && rs[i].At <= at {
		i++
	}
	return orNil(rs[i:])
}

// beyond returns the number of oldest entries to drop, including all of the newest dropped time: entries of one
// time cannot be separated later.
func beyond[R any](rs []R, most int, at func(R) int64) int {
	n := len(rs) - most
	if n <= 0 {
		return 0
	}
	for n < len(rs) && at(rs[n]) == at(rs[n-1]) {
		n++
	}
	return n
}

func (r *Record) mergeCompletions(o *Record) {
	if o.PlaysBeforeAt > r.PlaysBeforeAt || o.PlaysBeforeAt == r.PlaysBeforeAt && o.PlaysBefore > r.PlaysBefore {
		r.PlaysBefore, r.PlaysBeforeAt = o.PlaysBefore, o.PlaysBeforeAt
	}
	r.Completions = staysAfter(uniteStays(r.Completions, o.Completions, endGap), r.PlaysBeforeAt, endGap)
}

// boundPlays moves the plays of stays beyond the bound into PlaysBefore.
func (r *Record) boundPlays() {
	n := beyond(r.Completions, MaxCompletions, func(s Stay) int64 { return s.At })
	if n == 0 {
		return
	}
	plays, at := r.Plays(), r.Completions[n-1].At
	r.Completions = staysAfter(r.Completions, at, endGap)
	r.PlaysBefore, r.PlaysBeforeAt = plays-min(plays, uint64(len(r.plays()))), at
}

// mergeWatches unites the watched times and moves those beyond the bound into WatchedBefore.
func (r *Record) mergeWatches(o *Record) {
	if o.WatchedBeforeAt > r.WatchedBeforeAt || o.WatchedBeforeAt == r.WatchedBeforeAt && o.WatchedBefore > r.WatchedBefore {
		r.WatchedBefore, r.WatchedBeforeAt = o.WatchedBefore, o.WatchedBeforeAt
	}
	r.Watches = after(unite(r.Watches, o.Watches), r.WatchedBeforeAt)
	if n := beyond(r.Watches, MaxWatches, func(w WatchedTime) int64 { return w.At }); n > 0 {
		ws := r.watches()
		r.WatchedBefore, r.WatchedBeforeAt = r.WatchedBefore+played(ws)-played(ws[n:]), ws[n-1].At
		r.Watches = orNil(r.Watches[n:])
	}
}
