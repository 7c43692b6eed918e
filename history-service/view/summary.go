package view

import (
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Summary returns a summary as readers see it.
func Summary(s history.Summary) *historyv1.Summary {
	s = s.Total()
	return &historyv1.Summary{
		Object:  &historyv1.Object{Id: s.Object.ID, Type: s.Object.Type},
		FirstMs: s.First, LastMs: s.Last, Plays: s.Plays, WatchedMs: s.Watched, FurthestMs: s.Furthest, DurationMs: s.Duration, Completed: s.Finished,
	}
}
