package faults

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type fault struct {
	resurrected bool // shows deleted content; otherwise content is missing or invented
	why         string
}

func lost(format string, args ...any) *fault { return &fault{why: fmt.Sprintf(format, args...)} }

func risen(format string, args ...any) *fault {
	return &fault{resurrected: true, why: fmt.Sprintf(format, args...)}
}

// view is what a store or a reader shows of a key.
type view struct {
	at              int64
	state           history.State
	session, device string
	resume          int64 // resume point
	furthest        int64
	watched         int64
	plays           int
	meta            map[string]string
}

func viewOf(r *history.Record) view {
	return view{
		at: r.Version.Time(), state: r.State, session: r.Session, device: r.Device, resume: r.Resume(),
		furthest: r.Furthest(), watched: r.Watched(), plays: int(r.Plays()), meta: r.Meta.Map(), //nolint:gosec // few
	}
}

func viewOfItem(it *historyv1.Item) view {
	return view{
		at: it.GetEventTimeMs(), state: history.State(it.GetState()), session: it.GetSession(), device: it.GetDevice(), resume: it.GetPositionMs(), //nolint:gosec // an enum
		furthest: it.GetFurthestMs(), watched: it.GetWatchedMs(), plays: int(it.GetPlays()), meta: it.GetMeta(), //nolint:gosec // few
	}
}

func (v view) equal(o view) bool {
	same := maps.Equal(v.meta, o.meta)
	v.meta, o.meta = nil, nil
	return same && reflect.DeepEqual(v, o)
}

// judge compares a store's record of a key with the story, for a user cleared at the given time. The record's
// RemovedAt tells which unacknowledged deletes were stored; the rest must agree with it.
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
	case r.RemovedAt > cleared && !s.has(func(e *event) bool { return e.Kind == history.KindDelete && e.At == r.RemovedAt }):
		return lost("a delete at %d that nobody sent", r.RemovedAt)
	case r.RemovedAt < removed:
		return risen("does not know of the delete at %d", removed)
	}
	floor := max(r.RemovedAt, cleared)
	all, sure := s.after(floor)
	if r.State == history.StateDeleted {
		if want := latest(sure); r.Version.Time() != r.RemovedAt || want != nil {
			return lost("a tombstone at %d, want %s", r.Version.Time(), want)
		}
		return nil
	}
	v := viewOf(r)
	got, f := s.shown(v, floor, latest(sure))
	if f != nil {
		return f
	}
	if !s.has(func(e *event) bool { return e.shows(v) && e.Position == r.Position }) {
		return lost("shows a position of %d, which nobody sent", r.Position)
	}
	return cmp.Or(v.sums(least(all, sure, floor), most(all, floor), floor), v.details(got, all, sure), viewings(r, all, sure, floor))
}

func (s *story) has(match func(*event) bool) bool { return slices.ContainsFunc(s.events, match) }

// shown returns the event that a view shows as the latest. It must be later than floor, and no older than want,
// if any.
func (s *story) shown(v view, floor int64, want *event) (got *event, f *fault) {
	for _, e := range s.events {
		if e.shows(v) && (got == nil || compare(e, got) > 0) {
			got = e
		}
	}
	switch {
	case got == nil:
		return nil, lost("shows what nobody sent: %+v, want at least %s", v, want)
	case got.At <= floor:
		return nil, risen("shows %s, deleted at %d", got, floor)
	case want != nil && compare(got, want) < 0:
		return nil, lost("shows %s, want %s", got, want)
	}
	return got, nil
}

// shows reports whether e may be the latest event of a view.
func (e *event) shows(v view) bool {
	return e.At == v.at && e.state() == v.state && e.Session == v.session && e.Device == v.device
}

// sums checks the furthest position, the plays and the watched time. They must include everything certain, and
// nothing beyond the events since the floor.
func (v view) sums(low, high sum, floor int64) *fault {
	switch {
	case v.furthest < low.furthest:
		return lost("furthest is %d, want %d", v.furthest, low.furthest)
	case v.furthest > high.furthest:
		return risen("furthest is %d, want at most %d", v.furthest, high.furthest)
	case v.plays < low.plays:
		return lost("%d completed plays, want %d", v.plays, low.plays)
	case v.plays > high.plays:
		return risen("%d completed plays after %d, want at most %d", v.plays, floor, high.plays)
	case v.watched < low.watched:
		return lost("%d ms watched, want %d", v.watched, low.watched)
	case v.watched > high.watched:
		return risen("%d ms watched after %d, want at most %d", v.watched, floor, high.watched)
	}
	return nil
}

// sum is the totals of the events after a floor.
type sum struct {
	furthest, watched int64 // milliseconds
	plays             int
}

// least returns what the sure events prove. A session that touched the end and went back may have been a scrub,
// which is no play, and no furthest position. Of several reports at the end of a session the latest counts.
func least(all, sure []*event, floor int64) sum {
	s := sum{watched: watched(sure, floor), plays: len(viewingsOf(only(sure, func(e *event) bool { return e.stayed(all) })))}
	for _, e := range sure {
		if !e.completes() || e.stayed(all) && !e.precedes(all, (*event).completes) {
			s.furthest = max(s.furthest, e.Position)
		}
	}
	return s
}

// stayed reports whether e completes a play: its session was not below the end after it, or finished.
func (e *event) stayed(all []*event) bool {
	return e.completes() && (e.Kind == history.KindFinish || !e.precedes(all, func(o *event) bool { return !o.completes() }))
}

// precedes reports whether a later report of the session, or one of the same time, matches.
func (e *event) precedes(all []*event, match func(*event) bool) bool {
	return slices.ContainsFunc(all, func(o *event) bool {
		return o != e && o.Session == e.Session && o.At >= e.At && o.Kind != history.KindDelete && match(o)
	})
}

// most returns what the events can prove: each report at the end may be a play of its own.
func most(all []*event, floor int64) sum {
	s := sum{watched: watched(all, floor), plays: len(only(all, (*event).completes))}
	for _, e := range all {
		s.furthest = max(s.furthest, e.Position)
	}
	return s
}

// watched sums up the time watched in each session.
func watched(events []*event, floor int64) (ms int64) {
	played := make(map[string]int64)
	for _, e := range only(events, func(e *event) bool { return e.Kind != history.KindDelete }) {
		played[e.Session] = max(played[e.Session], min(e.Watched, max(e.At-floor, 0)))
	}
	for _, n := range played {
		ms += n
	}
	return ms
}

func viewingsOf(events []*event) map[uint64]bool {
	in := make(map[uint64]bool)
	for _, e := range events {
		in[history.ViewingOf(e.Session)] = true
	}
	return in
}

// details checks the resume point and the metadata.
func (v view) details(got *event, all, sure []*event) *fault {
	if f := v.point(got, all, sure); f != nil {
		return f
	}
	named := func(e *event) bool { return len(e.Meta) > 0 }
	want := latest(only(sure, named))
	if want == nil && v.meta == nil {
		return nil
	}
	if !slices.ContainsFunc(only(all, named), func(e *event) bool {
		return maps.Equal(e.Meta.Map(), v.meta) && (want == nil || compareVersion(e, want) >= 0)
	}) {
		return lost("has metadata %v, want %+v", v.meta, want)
	}
	return nil
}

// point checks the resume point: the latest event, or the latest one that is not early.
func (v view) point(got *event, all, sure []*event) *fault {
	nonEarly := func(e *event) bool { return !e.early() && e.Kind != history.KindDelete }
	want := latest(only(sure, nonEarly))
	if slices.ContainsFunc(all, func(e *event) bool {
		return e.Position == v.resume && compareVersion(e, got) <= 0 &&
			(nonEarly(e) && (want == nil || compareVersion(e, want) >= 0) || want == nil && compareVersion(e, got) == 0)
	}) {
		return nil
	}
	return lost("goes on at %d, want %s, or %s as long as it is early", v.resume, got, want)
}

// viewings checks which viewings are completed.
func viewings(r *history.Record, all, sure []*event, floor int64) *fault {
	may := viewingsOf(only(all, (*event).completes))
	must := viewingsOf(only(sure, func(e *event) bool { return e.stayed(all) }))
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

func only(events []*event, match func(*event) bool) (some []*event) {
	for _, e := range events {
		if match(e) {
			some = append(some, e)
		}
	}
	return some
}

// String formats an event in one line.
func (e *event) String() string {
	if e == nil {
		return "nothing"
	}
	return fmt.Sprintf("{%s at %d, position %d, session %s}", e.state(), e.At, e.Position, e.Session)
}

// judgeRead compares a reader's item with the acknowledgements before the read; since is their number. Later or
// unacknowledged events may be visible. An incomplete item may lack a part.
func (b *book) judgeRead(k history.Key, it *historyv1.Item, since int) *fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stories[k]
	floor, maybe := b.floors(k, s, since)
	all, _ := s.after(floor)
	sure := only(all, func(e *event) bool { return e.acked && e.turn <= since && e.Kind != history.KindDelete })
	want := latest(sure)
	if it.GetObject() == nil {
		if want == nil || maybe >= want.At {
			return nil
		}
		return lost("nothing is shown, %s was acknowledged before", want)
	}
	v := viewOfItem(it)
	got, f := s.shown(v, floor, want)
	if f != nil || it.GetIncomplete() {
		return f
	}
	if maybe > floor { // what else is hidden is unknown
		sure = only(sure, func(e *event) bool { return e.At > maybe || e == got })
	}
	if f := v.sums(least(all, sure, max(floor, maybe)), most(all, floor), floor); f != nil {
		return f
	}
	return v.details(got, all, sure)
}

// floors returns the time up to which a key was certainly deleted or cleared when the read began. It also returns
// the time up to which it may have been since.
func (b *book) floors(k history.Key, s *story, since int) (floor, maybe int64) {
	note := func(at int64, acked bool, turn int) {
		maybe = max(maybe, at)
		if acked && turn <= since {
			floor = max(floor, at)
		}
	}
	for _, e := range s.events {
		if e.Kind == history.KindDelete {
			note(e.At, e.acked, e.turn)
		}
	}
	for _, c := range b.clears[k.UID] {
		if c.covers(k.Object.Type) {
			note(c.until, c.acked, c.turn)
		}
	}
	return floor, maybe
}
