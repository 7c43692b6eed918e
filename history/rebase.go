package history

import (
	"maps"
	"slices"
)

// Rebase moves the times of r after now, in Unix milliseconds, for a record from a clock that was ahead. The
// latest becomes now, and the other future times keep their distance to it. Earlier times move by milliseconds
// if needed to stay before those. A record without future times is returned unchanged. [Merge] with an earlier
// copy brings the future times back.
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
		w.At, w.Began = at, w.Began-(w.At-at) // keeps its length
	}
	for i := range m.Viewings {
		v := &m.Viewings[i]
		v.Version, v.Start.At = times.version(v.Version), times.at(v.Start.At)
	}
	return &m
}

// moved maps the times that [Record.Rebase] moves to their new values.
type moved map[int64]int64

func (m moved) at(t int64) int64 {
	if to, ok := m[t]; ok {
		return to
	}
	return t
}

func (m moved) version(v Version) Version { return VersionOf(m.at(v.Time()), int(v&3)) }

// timesUpTo maps the times of r to values up to now that stay distinct. Nil moves nothing.
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
			break // earlier times stay too
		}
		m[t], before = to, to
	}
	return m
}
