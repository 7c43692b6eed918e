package history

import (
	"maps"
	"slices"
)

// Rebase returns r without times after now, in Unix milliseconds: the latest of them becomes now, and the others stay as long before it.
// A time up to now that would not be before them any more is a millisecond before. It is for a record of a clock that was ahead. Nothing
// else changes, and a record without such times is returned as it is. [Merge] with a copy from before brings the later times back.
func (r *Record) Rebase(now int64) *Record {
	times := r.timesUpTo(now)
	if times == nil {
		return r
	}
	m := *r
	for _, v := range []*Version{&m.Version, &m.Original, &m.ResumePoint.Version, &m.DurationVersion, &m.MetaVersion, &m.UnknownVersion, &m.Dismissed} {
		*v = times.version(*v)
	}
	for _, at := range []*int64{&m.RemovedAt, &m.Start.At, &m.PlaysBeforeAt, &m.WatchedBeforeAt} {
		*at = times.at(*at)
	}
	meta := r.MetaEntries()
	for i := range meta {
		meta[i].Version = times.version(meta[i].Version)
	}
	if len(meta) > 0 {
		m.Meta, m.MetaVersion = versioned(meta, r.Meta)
	}
	m.Peaks, m.Completions, m.Watches, m.Viewings = slices.Clone(r.Peaks), slices.Clone(r.Completions), slices.Clone(r.Watches), slices.Clone(r.Viewings)
	for i := range m.Peaks {
		m.Peaks[i].At = times.at(m.Peaks[i].At)
	}
	m.Lows, m.Starts = slices.Clone(r.Lows), slices.Clone(r.Starts)
	for i := range m.Completions {
		c := &m.Completions[i]
		at := times.at(c.At)
		c.At, c.Length, c.Began = at, at-times.at(c.At-c.Length), times.at(c.Began)
	}
	for i := range m.Lows {
		l := &m.Lows[i]
		at := times.at(l.At)
		l.At, l.Length = at, at-times.at(l.At-l.Length)
	}
	for i := range m.Starts {
		m.Starts[i].At = times.at(m.Starts[i].At)
	}
	for i := range m.Watches {
		w := &m.Watches[i]
		at := times.at(w.At)
		w.At, w.Began = at, w.Began-(w.At-at) // as long as it was
	}
	for i := range m.Viewings {
		v := &m.Viewings[i]
		v.Version, v.Start.At = times.version(v.Version), times.at(v.Start.At)
	}
	return &m
}

// moved are the times of a record that [Record.Rebase] moves, and where to.
type moved map[int64]int64

func (m moved) at(t int64) int64 {
	if to, ok := m[t]; ok {
		return to
	}
	return t
}

func (m moved) version(v Version) Version { return VersionOf(m.at(v.Time()), int(v&3)) }

// timesUpTo returns what becomes of the times of r so that none is after now, and two that differ still do. Nil is nothing.
func (r *Record) timesUpTo(now int64) moved {
	all := map[int64]bool{r.RemovedAt: true, r.Start.At: true, r.PlaysBeforeAt: true, r.WatchedBeforeAt: true}
	for _, v := range []Version{r.Version, r.Original, r.ResumePoint.Version, r.DurationVersion, r.UnknownVersion, r.Dismissed} {
		all[v.Time()] = true
	}
	for _, e := range r.MetaEntries() {
		all[e.Version.Time()] = true
	}
	for _, p := range r.Peaks {
		all[p.At] = true
	}
	for _, c := range r.Completions {
		all[c.At], all[c.At-c.Length], all[c.Began] = true, true, true
	}
	for _, l := range r.Lows {
		all[l.At], all[l.At-l.Length] = true, true
	}
	for _, s := range r.Starts {
		all[s.At] = true
	}
	for _, w := range r.Watches {
		all[w.At] = true
	}
	for _, v := range r.Viewings {
		all[v.Version.Time()], all[v.Start.At] = true, true
	}
	var m moved
	present, shift, before := now, int64(0), now+1
	for _, t := range slices.Backward(slices.Sorted(maps.Keys(all))) {
		to := t
		if t > present {
			if m == nil {
				m, shift = make(moved), t-present
			}
			to -= shift
		}
		to = min(to, before-1)
		if t == 0 || to == t {
			break // and so are those before it
		}
		m[t], before = to, to
	}
	return m
}
