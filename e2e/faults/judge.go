package faults

import (
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
)

// fault is what is wrong with a record.
type fault struct {
	resurrected bool // shows what was deleted; otherwise something is missing or invented
	why         string
}

func lost(format string, args ...any) *fault { return &fault{why: fmt.Sprintf(format, args...)} }

func risen(format string, args ...any) *fault {
	return &fault{resurrected: true, why: fmt.Sprintf(format, args...)}
}

// judge compares what a store holds of a key, of a user cleared at the given time,
// with the story. The record's own reset tells which of the unacknowledged deletes
// were stored; everything else must agree with it.
func (s *story) judge(r *history.Record, cleared int64) *fault {
	_, acked := s.after(cleared)
	if r == nil {
		if len(acked) > 0 {
			return lost("nothing is there, want at least %s", latest(acked))
		}
		return nil
	}
	removed := deleted(acked)
	switch {
	case r.Reset > cleared && !s.has(func(e *event) bool { return e.Kind == history.KindDelete && e.At == r.Reset }):
		return lost("a delete at %d that nobody sent", r.Reset)
	case r.Reset < removed:
		return risen("does not know of the delete at %d", removed)
	}
	if f := s.latest(r, max(r.Reset, cleared)); f != nil {
		return f
	}
	return s.sums(r, max(r.Reset, cleared))
}

func (s *story) has(match func(*event) bool) bool { return slices.ContainsFunc(s.events, match) }

// latest judges the part of a record that is its latest event; nothing at or before
// floor may be it.
func (s *story) latest(r *history.Record, floor int64) *fault {
	_, acked := s.after(floor)
	want := latest(acked)
	if r.State == history.StateDeleted {
		if r.Version.Time() != r.Reset || want != nil {
			return lost("a tombstone at %d, want %s", r.Version.Time(), want)
		}
		return nil
	}
	var got *event
	for _, e := range s.events {
		if e.shows(r) {
			got = e
		}
	}
	switch {
	case got == nil:
		return lost("shows what nobody sent: %+v, want at least %s", *r, want)
	case got.At <= floor:
		return risen("shows %s, deleted at %d", got, floor)
	case want != nil && compare(got, want) < 0:
		return lost("shows %s, want %s", got, want)
	}
	return nil
}

// shows reports whether the latest event of a record is e.
func (e *event) shows(r *history.Record) bool {
	return e.At == r.Version.Time() && e.state() == r.State && e.Position == r.Position &&
		e.Session == r.Session && e.Device == r.Device
}

// sums judges the furthest position and the completed viewings.
func (s *story) sums(r *history.Record, floor int64) *fault {
	all, acked := s.after(floor)
	low, must := sums(acked)
	high, may := sums(all)
	switch got := r.Furthest(); {
	case got < low:
		return lost("furthest is %d, want %d", got, low)
	case got > high:
		return risen("furthest is %d, want at most %d", got, high)
	}
	for _, c := range r.Completions {
		if !may[c.Viewing] {
			return risen("counts a viewing completed before %d", floor)
		}
		delete(must, c.Viewing)
	}
	if len(must) > 0 {
		return lost("%d completed plays, %d are missing", r.Plays(), len(must))
	}
	return nil
}

func sums(events []*event) (furthest int64, viewings map[uint64]bool) {
	viewings = make(map[uint64]bool)
	for _, e := range events {
		if e.Kind == history.KindDelete {
			continue
		}
		furthest = max(furthest, e.Position)
		if e.completes() {
			viewings[history.ViewingOf(e.Session)] = true
		}
	}
	return furthest, viewings
}

// String tells of an event in one line.
func (e *event) String() string {
	if e == nil {
		return "nothing"
	}
	return fmt.Sprintf("{%s at %d, position %d, session %s}", e.state(), e.At, e.Position, e.Session)
}
