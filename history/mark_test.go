package history_test

import (
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
)

// seen is the part of a record that a mark changes.
type seen struct {
	completed               bool
	resume, furthest, plays int64
	completedAt             int64 // minutes after the epoch
	state                   history.State
}

// TestMarks: the effect of a mark does not depend on the order of arrival.
func TestMarks(t *testing.T) {
	const minute = 60_000
	report := func(at int64, k history.Kind, minutes int64, session string) history.Event {
		return history.Event{Kind: k, At: epoch + at*minute, Position: minutes * minute, Duration: 60 * minute, Session: session, StartedAt: epoch}
	}
	mark := func(at int64, k history.Kind) history.Event { return history.Event{Kind: k, At: epoch + at*minute} }
	middle, end := report(1, history.KindStop, 20, "a"), report(2, history.KindFinish, 60, "b")
	glance := report(9, history.KindProgress, 0, "g")
	glance.StartedAt = glance.At - 3000
	credits := glance
	credits.Position = 58 * minute
	for _, test := range []struct {
		name   string
		events []history.Event
		want   seen
	}{
		{"never played, watched", []history.Event{mark(3, history.KindWatched)}, seen{true, 0, 0, 1, 3, history.StateFinished}},
		{"begun, watched", []history.Event{middle, mark(3, history.KindWatched)}, seen{true, 0, 20, 1, 3, history.StateFinished}},
		{"watched twice", []history.Event{middle, mark(3, history.KindWatched), mark(4, history.KindWatched)}, seen{true, 0, 20, 1, 4, history.StateFinished}},
		{"finished, watched", []history.Event{end, mark(3, history.KindWatched)}, seen{true, 0, 60, 2, 3, history.StateFinished}},
		{"watched, a start by mistake", []history.Event{middle, mark(3, history.KindWatched), glance}, seen{true, 0, 20, 1, 3, history.StatePlaying}},
		{"watched, the credits by mistake", []history.Event{middle, mark(3, history.KindWatched), credits}, seen{true, 0, 58, 2, 9, history.StatePlaying}},
		{"watched, and then played", []history.Event{mark(3, history.KindWatched), report(5, history.KindStop, 20, "c")}, seen{false, 20, 20, 1, 3, history.StateStopped}},
		{"finished, unwatched", []history.Event{middle, end, mark(3, history.KindUnwatched)}, seen{false, 0, 60, 0, 0, history.StateStopped}},
		{"watched, unwatched", []history.Event{mark(3, history.KindWatched), mark(4, history.KindUnwatched)}, seen{false, 0, 0, 0, 0, history.StateStopped}},
		{"unwatched, watched", []history.Event{end, mark(3, history.KindUnwatched), mark(4, history.KindWatched)}, seen{true, 0, 60, 1, 4, history.StateFinished}},
		{"unwatched, and then finished", []history.Event{end, mark(3, history.KindUnwatched), report(5, history.KindFinish, 60, "c")}, seen{true, 0, 60, 1, 5, history.StateFinished}},
		{"begun, reset", []history.Event{middle, mark(3, history.KindReset)}, seen{false, 0, 20, 0, 0, history.StateStopped}},
		{"finished, reset", []history.Event{middle, end, mark(3, history.KindReset)}, seen{false, 0, 60, 1, 2, history.StateStopped}},
		{"reset, a start by mistake", []history.Event{middle, mark(3, history.KindReset), glance}, seen{false, 0, 20, 0, 0, history.StatePlaying}},
		{"watched before it was played", []history.Event{mark(0, history.KindWatched), middle}, seen{false, 20, 20, 1, 0, history.StateStopped}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range test.events { // every rotation, forwards and backwards
				test.events = append(test.events[1:], test.events[0])
				backwards := slices.Clone(test.events)
				slices.Reverse(backwards)
				for _, events := range [][]history.Event{test.events, backwards} {
					r, rules := fold(events), new(history.Rulebook).Of(1)
					got := seen{rules.Completed(r), rules.Resume(r) / minute, r.Furthest() / minute, int64(r.Plays()), 0, r.State}
					if at := r.CompletedAt(); at > 0 {
						got.completedAt = (at - epoch) / minute
					}
					if got != test.want {
						t.Errorf("got %+v, want %+v: %+v", got, test.want, r)
					}
				}
			}
		})
	}
}

// TestMarked: Marked knows a mark only while it is the latest event. An unwatched mark also counts as a reset.
func TestMarked(t *testing.T) {
	marks := []history.Kind{history.KindWatched, history.KindUnwatched, history.KindReset}
	played := (&history.Event{Kind: history.KindFinish, At: epoch, Position: 9, Session: "s"}).Record()
	for _, k := range marks {
		r := history.Merge(played, (&history.Event{Kind: k, At: epoch + 10}).Record())
		for _, other := range marks {
			if want := k == other || k == history.KindUnwatched && other == history.KindReset; r.Marked(other) != want {
				t.Errorf("%d is marked as %d: %v", k, other, !want)
			}
		}
		later := history.Merge(r, (&history.Event{Kind: history.KindProgress, At: epoch + 20, Position: 9, Session: "t"}).Record())
		if played.Marked(k) || later.Marked(k) {
			t.Errorf("%d: a record that was played since, or never marked, is marked", k)
		}
	}
}
