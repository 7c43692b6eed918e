package history_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// sessionsOf derives [history.Record.Sessions] from the plain list of events.
func sessionsOf(events []history.Event) (all []history.Session) {
	deleted := int64(0)
	for _, e := range events {
		if e.Kind == history.KindDelete {
			deleted = max(deleted, e.At)
		}
	}
	viewings := make(map[[2]string][]history.Event)
	live := slices.DeleteFunc(inOrder(events), func(e history.Event) bool { return e.At <= deleted })
	plays, duration := playsOf(live, deleted), longest(live, model(events).Duration)
	live = slices.DeleteFunc(live, marks)
	for _, e := range live {
		if slices.ContainsFunc(live, func(o history.Event) bool { return saysMore(o, e) }) {
			e.Watched = 0
		}
		viewings[viewingOf(e)] = append(viewings[viewingOf(e)], e)
	}
	known := make(map[uint64]history.Session) // keyed by hash: two names may share one
	for name, v := range viewings {
		completed := int64(0)
		for key, at := range plays {
			if key.viewing == name {
				completed = max(completed, at)
			}
		}
		if s, ok := sessionOf(v, deleted, completed, duration); ok {
			known[v[0].Viewing()] = s
		}
	}
	ids := slices.SortedFunc(maps.Keys(known), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(known[b].End, known[a].End), cmp.Compare(b, a))
	})
	for _, id := range ids {
		all = append(all, known[id])
	}
	return all
}

// sessionOf derives one session from its events in order.
func sessionOf(events []history.Event, deleted, completed, duration int64) (s history.Session, ok bool) {
	bound := func(position int64) int64 {
		if duration > 0 {
			return min(position, duration)
		}
		return position
	}
	s.CompletedAt = completed
	for _, e := range events {
		s.Watched = max(s.Watched, since(e, deleted).Watched)
		if e.Session == "" && e.Device == "" && e.Position == 0 && (e.Kind == history.KindStop || e.Kind == history.KindFinish) {
			continue // says no more than a mark
		}
		s.Known, s.End, s.To, s.State, s.Device = true, e.At, bound(e.Position), stateOf(e.Kind), e.Device
		if e.Kind == history.KindStart && !ends(e) && (e.At > s.Begin || e.Position >= s.From) {
			s.Begin, s.From = e.At, bound(e.Position)
		}
	}
	for _, e := range events { // watched time and completion extend a session
		if since(e, deleted).Watched > 0 || e.At == s.CompletedAt {
			s.End = max(s.End, e.At)
		}
	}
	return s, s.End > 0
}

// TestSessions begins a film, continues it elsewhere, and watches it again.
func TestSessions(t *testing.T) {
	at := func(ms int64, k history.Kind, position int64, session string) history.Event {
		return history.Event{
			Kind: k, At: epoch + ms, Position: position, Duration: 100_000, Session: session, Device: "device of " + session,
			StartedAt: epoch + ms - position, Watched: position / 2,
		}
	}
	r := fold([]history.Event{
		at(0, history.KindStart, 0, "one"), at(30_000, history.KindProgress, 30_000, "one"), at(40_000, history.KindStop, 40_000, "one"),
		at(90_000, history.KindStart, 38_000, "two"), at(150_000, history.KindFinish, 100_000, "two"),
		{Kind: history.KindWatched, At: epoch + 160_000},
		at(200_000, history.KindProgress, 7_000, "three"),
	})
	want := []history.Session{
		{End: epoch + 200_000, To: 7_000, Known: true, State: history.StatePlaying, Device: "device of three", Watched: 3500},
		{
			Begin: epoch + 90_000, From: 38_000, End: epoch + 150_000, To: 100_000, Known: true, State: history.StateFinished,
			Device: "device of two", Watched: 50_000, CompletedAt: epoch + 150_000,
		},
		{Begin: epoch, End: epoch + 40_000, To: 40_000, Known: true, State: history.StateStopped, Device: "device of one", Watched: 20_000},
	}
	if got := r.Sessions(); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestViewingsBeyondTheBound has more sessions than a record lists, in order. The newest are listed; older ones
// keep their end and watched time.
func TestViewingsBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r *history.Record
		n := rapid.IntRange(history.MaxViewings+2, 200).Draw(t, "sessions")
		oldest := n - history.MaxViewings - 1 // of the known sessions
		var older *history.Event
		for i := range n {
			at := epoch + int64(i)*1000
			for _, k := range []history.Kind{history.KindStart, history.KindProgress} {
				e := &history.Event{Kind: k, At: at + int64(k), Position: int64(i), StartedAt: at - 1000, Watched: 5, Session: fmt.Sprint(i)}
				r = history.Merge(r, e.Record())
				wantSame(t, "a repeat", history.Merge(r, e.Record()), r)
				if i == oldest && k == history.KindStart {
					older = e
				}
			}
		}
		listed := history.MaxViewings
		if rapid.Bool().Draw(t, "marked") { // a mark is no session
			mark := &history.Event{Kind: history.KindWatched, At: epoch + int64(n)*1000}
			r = history.Merge(r, mark.Record())
			wantSame(t, "an older report", history.Merge(r, older.Record()), r)
			listed++
		}
		all := r.Sessions()
		if len(r.Viewings) != listed || len(all) != min(n, history.MaxSessions) {
			t.Fatalf("of %d sessions %d are listed and %d shown", n, len(r.Viewings), len(all))
		}
		for i, s := range all {
			known := i <= history.MaxViewings
			if s.Known != known || s.Begin > 0 != known || s.Watched != 5 || s.End != epoch+int64(n-1-i)*1000+int64(history.KindProgress) {
				t.Fatalf("session %d from the newest: %+v", i, s)
			}
		}
	})
}
