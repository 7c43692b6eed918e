package backfill

import (
	"iter"

	"github.com/playhead/playhead/history"
)

// Beats yields the reports of a viewing: its start if known, a heartbeat every period (milliseconds, 0 for none), and its
// last report. Only that one has metadata.
func Beats(last *history.Event, period int64) iter.Seq[*history.Event] {
	return func(yield func(*history.Event) bool) {
		if last.StartedAt > 0 && last.StartedAt < last.At {
			e := *last
			e.Meta = ""
			length := last.At - last.StartedAt
			played := last.Watched
			if played == 0 {
				played = length
			}
			from := max(last.Position-played, 0)
			e.Kind, e.At, e.Position, e.Watched = history.KindStart, last.StartedAt, from, 0
			if !yield(&e) {
				return
			}
			e.Kind = history.KindProgress
			for t := period; period > 0 && t < length; t += period {
				done := int64(float64(played) * float64(t) / float64(length))
				e.At, e.Position, e.Watched = last.StartedAt+t, from+min(done, last.Position-from), done
				if last.Watched == 0 {
					e.Watched = 0
				}
				if !yield(&e) {
					return
				}
			}
		}
		yield(last)
	}
}
