package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
)

// TestSessionsThatOverlap: what sessions of one device say of one stretch of time is no more than
// the stretch, at the speed of the fastest. Those of other devices, or at other times, are added up.
func TestSessionsThatOverlap(t *testing.T) {
	const hour = int64(3_600_000)
	type session struct {
		device                        string
		began, ended, watched, speedy int64
	}
	ten := func(device func(i int) string) (all []session) {
		for i := range 10 {
			all = append(all, session{device: device(i), ended: hour, watched: hour})
		}
		return all
	}
	one := func(int) string { return "tv" }
	for _, test := range []struct {
		name     string
		sessions []session
		want     int64
	}{
		{"ten of one device", ten(one), hour},
		{"ten of nobody knows which device", ten(func(int) string { return "" }), hour},
		{"ten devices", ten(func(i int) string { return fmt.Sprint(i) }), 10 * hour},
		{"ten, one of them at twice the speed", append(ten(one), session{"tv", 0, hour, 2 * hour, 200}), 2 * hour},
		{"ten, and a page that was left open for ten hours", append(ten(one), session{"tv", 0, 10 * hour, 600_000, 0}), hour + 600_000},
		{"a page that was left open, played in before the others", append(ten(one), session{"tv", -hour, hour, hour, 0}), 2 * hour},
		{"one after the other", []session{{"tv", 0, hour, hour, 0}, {"tv", hour, 2 * hour, hour, 0}}, 2 * hour},
		{"one within the other, each with pauses", []session{{"tv", 0, 3 * hour, hour, 0}, {"tv", hour, 2 * hour, hour / 2, 0}}, hour * 3 / 2},
		{"a chain of three", []session{{"tv", 0, 10, 10, 0}, {"tv", 9, 20, 11, 0}, {"tv", 19, 30, 11, 0}}, 30},
		{"two at half the speed", []session{{"tv", 0, 100, 50, 50}, {"tv", 0, 100, 50, 50}}, 50},
	} {
		var events []history.Event
		for i, s := range test.sessions {
			events = append(events, history.Event{
				Kind: history.KindProgress, At: epoch + s.ended, Session: fmt.Sprint(i), Device: s.device,
				StartedAt: epoch + s.began, Watched: s.watched, Speed: s.speedy,
			})
		}
		for range 2 {
			if got := fold(events).Watched(); got != test.want {
				t.Errorf("%s: got %d, want %d", test.name, got, test.want)
			}
			slices.Reverse(events)
		}
	}
}

// TestSessionThatGoesOnAfterADelete: what it had played before is gone with the rest, until that is
// brought back.
func TestSessionThatGoesOnAfterADelete(t *testing.T) {
	const minute = int64(60_000)
	session := func(device string, at, began, watched int64) *history.Record {
		e := history.Event{Kind: history.KindProgress, At: at, Session: device, Device: device, StartedAt: began, Watched: watched}
		return e.Record()
	}
	begun := epoch - 10*minute
	before := session("tv", epoch, begun, 10*minute)
	wants := func(what string, r *history.Record, want int64) {
		t.Helper()
		if got := r.Watched(); got != want {
			t.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	gone := history.Merge(before, (&history.Event{Kind: history.KindDelete, At: epoch}).Record())
	left := history.Merge(gone, session("tv", epoch+minute, begun, 11*minute))
	wants("a minute later", left, minute)
	wants("with a session of that minute on another device", history.Merge(left, session("phone", epoch+minute, epoch, minute)), 2*minute)
	wants("a clear that came late", history.Merge(before, session("tv", epoch+minute, begun, 11*minute)).After(epoch), minute)
	if sessions := left.Sessions(); sessions[0].Watched != minute {
		t.Errorf("the session: got %d, want %d", sessions[0].Watched, minute)
	}
	wants("brought back", history.Merge(left, before.Restore(epoch)), 11*minute)
	cleared := (&history.Event{Kind: history.KindDelete, At: epoch + 2*minute}).Record()
	back := history.Merge(cleared, left.Restore(epoch+2*minute))
	wants("brought back from a backup of after the delete", back, minute)
	later := history.Event{Kind: history.KindProgress, At: epoch + 3*minute, Session: "tv", Device: "tv", StartedAt: begun, Watched: 13 * minute}
	later.BoundWatched(history.Pause{}, back, 0)
	wants("and two minutes of it after that backup", history.Merge(back, later.Record()), 3*minute)
	slow := history.Merge(left, session("tv", epoch+minute+1, epoch, minute)) // two reports of which neither holds the other, until what was deleted is taken off
	if err := slow.Restore(epoch + 2*minute).Validate(epoch + 60*minute); err != nil {
		t.Errorf("brought back from a backup with two reports of the session: %v", err)
	}
}

// TestSessionsBackToBack: where clocks that jitter make sessions overlap, no more is lost than that overlap.
func TestSessionsBackToBack(t *testing.T) {
	const length, jitter, sessions, rounds = 10_000, 150, 20, 50
	random := rand.New(rand.NewPCG(1, 1))
	lost := int64(0)
	for range rounds {
		var events []history.Event
		overlaps, last := int64(0), int64(-jitter)
		for i := range int64(sessions) {
			off := random.Int64N(2*jitter+1) - jitter
			overlaps, last = overlaps+max(0, last-off), off
			events = append(events, history.Event{
				Kind: history.KindProgress, At: epoch + (i+1)*length + off, StartedAt: epoch + i*length + off, Watched: length, Session: fmt.Sprint(i),
			})
		}
		n := sessions*length - fold(events).Watched()
		if n > overlaps {
			t.Errorf("lost %d ms where %d ms overlap", n, overlaps)
		}
		lost += n
	}
	if each := lost / rounds / sessions; each > jitter/3 {
		t.Errorf("lost %d ms a session, want a third of the jitter of %d ms at most", each, jitter)
	}
}

// TestSpeedsOfOneMoment: of two reports of a session that differ in the speed alone the faster one stays, where none is said too, and
// whichever comes first. After a delete it decides how much there was time for.
func TestSpeedsOfOneMoment(t *testing.T) {
	said := func(speed int64) *history.Record {
		e := history.Event{Kind: history.KindProgress, At: epoch + 2, Session: "s", StartedAt: epoch - 3, Watched: 2, Speed: speed}
		return e.Record()
	}
	gone := (&history.Event{Kind: history.KindDelete, At: epoch}).Record()
	for _, test := range []struct{ a, b, want int64 }{{0, 50, 2}, {100, 50, 2}, {0, 100, 2}, {50, 200, 2}, {50, 50, 1}} {
		r := history.Merge(said(test.a), said(test.b))
		if other := history.Merge(said(test.b), said(test.a)); !history.Same(r, other) {
			t.Errorf("%d and %d: got %+v in one order, %+v in the other", test.a, test.b, r.Watches, other.Watches)
		}
		if got := history.Merge(r, gone).Watched(); got != test.want {
			t.Errorf("%d and %d, after a delete: got %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

// TestTakenOffAtOneMoment: of two reports of a session that count the same at the same time the one stays of which a pause took more, or it
// would count in full when it comes again.
func TestTakenOffAtOneMoment(t *testing.T) {
	said := func(speed, unrecorded int64) *history.Record {
		e := history.Event{Kind: history.KindProgress, At: epoch, Session: "s", StartedAt: epoch - 3000, Watched: 1, Speed: speed}
		r := e.Record()
		r.Watches[0].Unrecorded = unrecorded
		return r
	}
	for _, test := range []struct{ a, b *history.Record }{{said(0, 0), said(25, 499)}, {said(25, 499), said(0, 0)}, {said(0, 499), said(25, 0)}} {
		if r := history.Merge(test.a, test.b); len(r.Watches) != 1 || r.Watches[0].Unrecorded != 499 {
			t.Errorf("%+v and %+v: got %+v", test.a.Watches, test.b.Watches, r.Watches)
		}
	}
}

// BenchmarkWatched is what readers of a record with some sessions pay for it.
func BenchmarkWatched(b *testing.B) {
	for _, n := range []int{1, 4, 16, 128} {
		for _, beside := range []int64{1, 3} {
			var events []history.Event
			for i := range int64(n) {
				events = append(events, history.Event{
					Kind: history.KindProgress, At: epoch + (i+beside)*1000, Session: fmt.Sprint(i), StartedAt: epoch + i*1000, Watched: 900,
				})
			}
			r := fold(events)
			b.Run(fmt.Sprintf("%d sessions, %d at once", n, beside), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r.Watched()
				}
			})
		}
	}
}
