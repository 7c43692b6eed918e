package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Merge returns the fold of everything that a and b are folds of. It is
// commutative, associative and idempotent within the bounds of [Record]; nil is
// the fold of nothing. The result has no revision unless the other was nil.
func Merge(a, b *Record) *Record {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	reset := max(a.Reset, b.Reset)
	latest, other := a.since(reset), b.since(reset) // at first, so that nothing forgotten counts against a bound
	if compareLatest(a, b) < 0 {
		latest, other = other, latest
	}
	m := *latest
	m.Revision, m.CellTime = 0, max(a.CellTime, b.CellTime)
	m.Partial = a.Partial && b.Partial
	m.mergeDuration(other)
	m.mergeMeta(other)
	m.mergePeaks(other)
	m.mergeCompletions(other)
	m.mergeWatches(other)
	m.mergeNonEarly(other)
	m.mergeUnknown(other)
	return &m
}

// Same reports whether two records have the same content, whatever their
// revisions and cell times.
func Same(a, b *Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	return compareLatest(a, b) == 0 && a.Partial == b.Partial && a.Reset == b.Reset &&
		a.Duration == b.Duration && a.DurationVersion == b.DurationVersion &&
		a.MetaVersion == b.MetaVersion && maps.Equal(a.Meta, b.Meta) &&
		a.PlaysBefore == b.PlaysBefore && a.PlaysBeforeAt == b.PlaysBeforeAt &&
		slices.Equal(a.Peaks, b.Peaks) && slices.Equal(a.Completions, b.Completions) && a.NonEarly == b.NonEarly &&
		a.WatchedBefore == b.WatchedBefore && a.WatchedBeforeAt == b.WatchedBeforeAt && slices.Equal(a.Watches, b.Watches) &&
		a.UnknownVersion == b.UnknownVersion && a.Unknown == b.Unknown
}

// compareLatest orders latest events by version. Two different events of one
// version are ordered by content, so that every order of arrival picks the same.
func compareLatest(a, b *Record) int {
	if c := cmp.Compare(a.Version, b.Version); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(a.Position, b.Position),
		cmp.Compare(a.State, b.State),
		strings.Compare(a.Session, b.Session),
		strings.Compare(a.Device, b.Device),
		compareEarly(a.Early, b.Early),
	)
}

func compareEarly(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// mergeNonEarly keeps the latest event of both that is not early, beside an early one.
func (r *Record) mergeNonEarly(o *Record) {
	if !r.Early {
		return // and has none
	}
	if f := o.lastNonEarly(); f.Version > r.NonEarly.Version || f.Version == r.NonEarly.Version && f.Position > r.NonEarly.Position {
		r.NonEarly = f
	}
}

// lastNonEarly returns the latest event of r that was not early, the zero one when there is none
// after the reset.
func (r *Record) lastNonEarly() NonEarly {
	switch {
	case r.Early:
		return r.NonEarly
	case r.Version.Time() <= r.Reset:
		return NonEarly{}
	}
	return NonEarly{Version: r.Version, Position: r.Position}
}

func (r *Record) mergeDuration(o *Record) {
	if o.DurationVersion > r.DurationVersion || o.DurationVersion == r.DurationVersion && o.Duration > r.Duration {
		r.Duration, r.DurationVersion = o.Duration, o.DurationVersion
	}
}

func (r *Record) mergeMeta(o *Record) {
	if o.MetaVersion > r.MetaVersion || o.MetaVersion == r.MetaVersion && compareMeta(o.Meta, r.Meta) > 0 {
		r.Meta, r.MetaVersion = o.Meta, o.MetaVersion
	}
}

func (r *Record) mergeUnknown(o *Record) {
	if o.UnknownVersion > r.UnknownVersion || o.UnknownVersion == r.UnknownVersion && o.Unknown > r.Unknown {
		r.Unknown, r.UnknownVersion = o.Unknown, o.UnknownVersion
	}
}

// compareMeta is any total order: it only has to pick the same of two everywhere.
func compareMeta(a, b map[string]string) int {
	if c := cmp.Compare(len(a), len(b)); c != 0 || maps.Equal(a, b) {
		return c
	}
	return slices.Compare(flat(a), flat(b))
}

func flat(m map[string]string) []string {
	keys := slices.Sorted(maps.Keys(m))
	for _, k := range keys {
		keys = append(keys, m[k])
	}
	return keys
}

// mergePeaks keeps, of all positions of both, those that no later one reached.
func (r *Record) mergePeaks(o *Record) {
	if o.Position <= r.Position && (len(o.Peaks) == 0 || slices.Equal(r.Peaks, o.Peaks)) {
		return
	}
	all := slices.Concat(r.Peaks, o.Peaks, []Peak{{At: o.Version.Time(), Position: o.Position}})
	slices.SortFunc(all, func(a, b Peak) int { // newest first
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.Position, a.Position))
	})
	top, kept := r.Position, all[:0]
	for _, p := range all {
		if p.At > r.Reset && p.Position > top {
			top, kept = p.Position, append(kept, p)
		}
	}
	if n := len(kept); n > MaxPeaks { // the furthest and the newest stay
		kept = append(kept[:MaxPeaks-1], kept[n-1])
	}
	slices.Reverse(kept)
	r.Peaks = orNil(slices.Clip(kept))
}

// orNil makes sure that equal contents are equal to the last field.
func orNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// since returns r without what happened at or before a reset, but for its latest
// event.
func (r *Record) since(reset int64) *Record {
	if reset <= r.Reset {
		return r
	}
	m := *r
	m.Reset = reset
	m.forget()
	return &m
}

// forget drops what happened at or before the reset.
func (r *Record) forget() {
	if r.DurationVersion.Time() <= r.Reset {
		r.Duration, r.DurationVersion = 0, 0
	}
	if r.MetaVersion.Time() <= r.Reset {
		r.Meta, r.MetaVersion = nil, 0
	}
	if r.UnknownVersion.Time() <= r.Reset {
		r.Unknown, r.UnknownVersion = "", 0
	}
	if r.PlaysBeforeAt <= r.Reset {
		r.PlaysBefore, r.PlaysBeforeAt = 0, 0
	}
	for len(r.Peaks) > 0 && r.Peaks[0].At <= r.Reset { // furthest first is oldest first
		r.Peaks = r.Peaks[1:]
	}
	r.Peaks = orNil(r.Peaks)
	if r.WatchedBeforeAt <= r.Reset {
		r.WatchedBefore, r.WatchedBeforeAt = 0, 0
	}
	if r.NonEarly.Version.Time() <= r.Reset {
		r.NonEarly = NonEarly{}
	}
	r.Completions = after(r.Completions, r.Reset)
	r.Watches = after(r.Watches, r.Reset)
}
