package replay

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/playhead/playhead/history"
)

// Period is the time between two heartbeats of a running viewing, in milliseconds.
const Period = 15_000

// Plan is the heartbeats of a trace in the order of their times.
type Plan struct {
	Viewings []Viewing
	// Shift is added to every time of the trace, in milliseconds.
	Shift int64
	beats []beat
}

// beat is one heartbeat: small, because a plan holds all of them.
type beat struct {
	at      int64
	viewing int32
	played  uint32 // milliseconds: thirty days do not fit into an int32
	kind    history.Kind
}

// Expand turns each viewing into a start, a heartbeat every 15 s, and a stop. A
// viewing of 0 ms was never reported. With a limit, only the first viewings are
// planned, whole ones, as long as their heartbeats are no more; 0 is no limit.
func Expand(vs []Viewing, limit int) *Plan {
	p := &Plan{Viewings: vs}
	for i, v := range vs {
		if v.Played == 0 {
			continue
		}
		if limit > 0 && len(p.beats)+beatsOf(v) > limit {
			break
		}
		p.add(i, 0, history.KindStart)
		for t := int64(Period); t <= v.Played; t += Period {
			p.add(i, t, history.KindProgress)
		}
		p.add(i, v.Played, history.KindStop)
	}
	slices.SortStableFunc(p.beats, func(a, b beat) int { return cmp.Compare(a.at, b.at) })
	return p
}

func beatsOf(v Viewing) int { return 2 + int(v.Played/Period) }

func (p *Plan) add(viewing int, played int64, kind history.Kind) {
	p.beats = append(p.beats, beat{
		at:      p.Viewings[viewing].At + played,
		viewing: int32(viewing), played: uint32(played), kind: kind, //nolint:gosec // a trace has fewer rows, a viewing fewer days
	})
}

// EndAt moves the plan so that its last heartbeat is at the given Unix millisecond.
func (p *Plan) EndAt(ms int64) {
	if n := len(p.beats); n > 0 {
		p.Shift = ms - p.beats[n-1].at
	}
}

// Len returns the number of heartbeats.
func (p *Plan) Len() int { return len(p.beats) }

// Reported returns how many viewings the plan's heartbeats belong to.
func (p *Plan) Reported() int {
	seen := make([]bool, len(p.Viewings))
	n := 0
	for _, b := range p.beats {
		if !seen[b.viewing] {
			seen[b.viewing] = true
			n++
		}
	}
	return n
}

// Event returns heartbeat i.
func (p *Plan) Event(i int) history.Event {
	b := &p.beats[i]
	v := &p.Viewings[b.viewing]
	return history.Event{
		Key: history.Key{UID: v.UID, Object: v.Object}, Kind: b.kind, At: b.at + p.Shift,
		Position: int64(b.played), Duration: v.Duration, Session: Session(v), Device: "replay",
	}
}

// Session names a viewing by its original start, so that a row that is repeated, or
// a trace that is replayed again with another shift, is the same viewing.
func Session(v *Viewing) string { return strconv.FormatInt(v.At, 36) }
