package history_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// TestSentAgain delivers reports in any order, late and repeated, while recording is paused and resumed and the
// object is deleted. A repeat of an accepted report changes nothing, whatever pauses came since. A refused
// report stays refused while the pause is remembered.
func TestSentAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r *history.Record
		var p history.Pause
		var taken, refused []history.Event
		now, pauses, started := epoch, 0, make(map[string]int64)
		deliver := func(e history.Event) bool {
			if p.Covers(e.At) {
				return false
			}
			e.BoundWatched(p, r)
			r = history.Merge(r, e.Record())
			return true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{1, 3, 40, 1000}).Draw(t, "passes")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3:
				if p.On() {
					p = p.Switched(true, now, 0)
				} else {
					p = p.Switched(false, now, 0)
					pauses++
				}
			case 4:
				r = history.Merge(r, (&history.Event{Kind: history.KindDelete, At: now}).Record())
			default:
				e := history.Event{
					Kind: history.KindProgress, At: now - rapid.SampledFrom([]int64{0, 0, 1, 50, 2000}).Draw(t, "late"), Position: 60_000,
					Session: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "session"), Device: "tv",
				}
				e.Speed = map[string]int64{"a": 0, "b": 25, "c": 200}[e.Session]
				if _, begun := started[e.Session]; !begun {
					started[e.Session] = rapid.Int64Range(epoch-3000, e.At).Draw(t, "started")
				}
				e.StartedAt = started[e.Session]
				e.Watched = rapid.SampledFrom([]int64{0, 1, 500, 1 << 30}).Draw(t, "watched")
				if e.Clamp(); deliver(e) {
					taken = append(taken, e)
				} else {
					refused = append(refused, e)
				}
			}
			for range rapid.IntRange(0, 2).Draw(t, "again") {
				before := r
				if len(taken) > 0 {
					if e := rapid.SampledFrom(taken).Draw(t, "taken"); deliver(e) && !history.Same(r, before) && viewOf(r) != viewOf(before) {
						t.Fatalf("%+v again, recording off in %+v:\ngot  %+v\nwant %+v", e, p, r, before)
					}
				}
				if len(refused) > 0 && pauses <= history.MaxPauses+1 {
					if e := rapid.SampledFrom(refused).Draw(t, "refused"); deliver(e) {
						t.Fatalf("%+v was refused, and is taken, recording off in %+v", e, p)
					}
				}
			}
		}
	})
}
