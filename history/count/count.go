// Package count derives totals of objects from archived records: completed plays, viewers and watched time, in all
// and per UTC day.
//
// A record says what a user has played of an object in all; see [Statement]. What was counted of it is a [Mark].
// The difference of the two is added to the object's [Totals], in one step with the new mark. So a statement may be
// repeated, late or overtaken, and counts once. DESIGN.md has the argument.
package count

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/playhead/playhead/history"
)

// Statement is what a record says of a user's plays of an object since its latest removal.
type Statement struct {
	UID      string // the user, or a namespace of the user
	Object   history.Object
	CellTime int64 // of the record, Unix milliseconds
	// RemovedAt is the time of the latest delete or clear, Unix milliseconds.
	RemovedAt int64
	Played    []history.Played // after RemovedAt, in order of time
}

// Of returns the statement of a record after clear marks. It is false for a record without plays and watched time, now
// or earlier.
func Of(k history.Key, r *history.Record) (s Statement, ok bool) {
	if r.NeverPlayed() {
		return s, false
	}
	return Statement{UID: k.UID, Object: k.Object, CellTime: r.CellTime, RemovedAt: r.RemovedAt, Played: r.Played()}, true
}

// Key returns the record's key.
func (s *Statement) Key() history.Key { return history.Key{UID: s.UID, Object: s.Object} }

// Mark is what was counted of a user and an object. The zero Mark is nothing.
type Mark struct {
	CellTime, RemovedAt int64            // of the counted statement
	Played              []history.Played // after RemovedAt and after a closed day, in order of time
	// Before are days on which the user completed the object up to RemovedAt or a closed day, ascending.
	Before []history.Day
}

// MaxBefore bounds [Mark.Before]. Of more days the newest are kept.
const MaxBefore = 400

// Has reports whether a statement was counted, or a later one. A record after a removal is later than any before it.
func (m *Mark) Has(s *Statement) bool {
	return cmp.Or(cmp.Compare(s.RemovedAt, m.RemovedAt), cmp.Compare(s.CellTime, m.CellTime)) <= 0
}

// Count returns the mark with a statement counted, and what to add to the object's totals. What was counted up to the
// statement's removal, or up to the closed day, stays. Call it only if the mark lacks s.
func (m *Mark) Count(s *Statement, closed history.Day) (next Mark, change Totals) {
	next = Mark{CellTime: s.CellTime, RemovedAt: s.RemovedAt, Before: m.Before}
	for _, p := range s.Played {
		if p.Day() > closed {
			next.Played = append(next.Played, p)
			change.add(p.Day(), Sum{Plays: int64(p.Plays), Watched: p.Watched}) //nolint:gosec // some thousands
		}
	}
	kept := Mark{Before: m.Before}
	for _, p := range m.Played {
		if p.Day() <= closed || p.At <= s.RemovedAt {
			kept.Played = append(kept.Played, p)
			continue
		}
		change.add(p.Day(), Sum{Plays: -int64(p.Plays), Watched: -p.Watched}) //nolint:gosec // some thousands
	}
	next.Before = kept.completed()
	before, after := m.completed(), next.completed()
	for _, d := range after {
		if _, ok := slices.BinarySearch(before, d); !ok {
			change.addDay(d, Sum{Viewers: 1})
		}
	}
	for _, d := range before {
		if _, ok := slices.BinarySearch(after, d); !ok {
			change.addDay(d, Sum{Viewers: -1})
		}
	}
	change.All.Viewers = viewer(after) - viewer(before)
	change.trim()
	next.Before = next.Before[max(len(next.Before)-MaxBefore, 0):]
	return next, change
}

// completed returns the days on which the user completed the object, ascending.
func (m *Mark) completed() []history.Day {
	days := slices.Clone(m.Before)
	for _, p := range m.Played {
		if p.Plays > 0 {
			days = append(days, p.Day())
		}
	}
	slices.Sort(days)
	return slices.Compact(days)
}

// viewer is 1 for a user who completed the object.
func viewer(days []history.Day) int64 { return int64(min(len(days), 1)) }

// Types are the object types whose records are counted. The zero value is none.
type Types struct {
	all   bool
	types map[uint32]bool
}

// ParseTypes parses numbers of types, or all.
func ParseTypes(texts []string) (t Types, err error) {
	for _, text := range texts {
		if text == "all" {
			t.all = true
			continue
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n == 0 {
			return Types{}, fmt.Errorf("want numbers of types, or all, got %q", text)
		}
		if t.types == nil {
			t.types = make(map[uint32]bool)
		}
		t.types[uint32(n)] = true
	}
	return t, nil
}

// Has reports whether records of a type are counted.
func (t Types) Has(typ uint32) bool { return t.all || t.types[typ] }

// Any reports whether records of any type are counted.
func (t Types) Any() bool { return t.all || len(t.types) > 0 }

// Closed returns the last closed day, whose totals are final, at a time in Unix milliseconds. Records with plays up to
// then only have expired, or are about to.
func Closed(o history.Object, b *history.Rulebook, now int64) history.Day {
	return history.Day(b.Expired(o.Type, now) / (24 * 3600 * 1000))
}

// Ignores reports whether a statement changes nothing: its record has expired, its user was erased up to a time, or it
// was counted.
func (m *Mark) Ignores(s *Statement, b *history.Rulebook, now, erasedUntil int64) bool {
	return s.CellTime <= max(erasedUntil, b.Expired(s.Object.Type, now)) || m.CellTime != 0 && m.Has(s)
}

// Margin is how much longer marks are kept than their records, in milliseconds: more than the clocks of two counters
// may differ. Without its mark, an older statement of a record could count again.
const Margin = 24 * 3600 * 1000
