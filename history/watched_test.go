package history_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
)

// TestWatchedAddsUp: sessions add up, even overlapping ones of one device. Each counts at most its own time at
// its own speed.
func TestWatchedAddsUp(t *testing.T) {
	const hour = int64(3_600_000)
	type session struct{ began, ended, watched, speed int64 }
	for _, test := range []struct {
		name     string
		sessions []session
		want     int64
	}{
		{"one", []session{{0, hour, hour / 2, 0}}, hour / 2},
		{"ten at once", slices.Repeat([]session{{0, hour, hour, 0}}, 10), 10 * hour},
		{"another one at twice the speed", []session{{0, hour, hour, 0}, {0, hour, 2 * hour, 200}}, 3 * hour},
		{"one after the other", []session{{0, hour, hour, 0}, {hour, 2 * hour, hour, 0}}, 2 * hour},
		{"one within the other, with pauses", []session{{0, 3 * hour, hour, 0}, {hour, 2 * hour, hour / 2, 0}}, hour * 3 / 2},
		{"more than there was time for", []session{{0, hour, 5 * hour, 0}, {0, hour, 5 * hour, 50}}, hour * 3 / 2},
	} {
		var events []history.Event
		for i, s := range test.sessions {
			e := history.Event{
				Kind: history.KindProgress, At: epoch + s.ended, Session: fmt.Sprint(i), Device: "tv",
				StartedAt: epoch + s.began, Watched: s.watched, Speed: s.speed,
			}
			e.Clamp()
			events = append(events, e)
		}
		for range 2 {
			if got := fold(events).Watched(); got != test.want {
				t.Errorf("%s: got %d, want %d", test.name, got, test.want)
			}
			slices.Reverse(events)
		}
	}
}

// TestWatchedOverAPause: a session keeps the time reported before a pause, and so does a late report. Pauses
// beyond the remembered ones change nothing.
func TestWatchedOverAPause(t *testing.T) {
	const minute = int64(60_000)
	report := func(at, watched int64) history.Event {
		return history.Event{Kind: history.KindProgress, At: epoch + at, Session: "s", StartedAt: epoch, Watched: watched}
	}
	pause := history.Pause{Since: epoch + 10*minute, Until: epoch + 20*minute}
	many := pause
	for i := range int64(20) {
		many = many.Switched(false, epoch+(30+2*i)*minute, 0).Switched(true, epoch+(31+2*i)*minute, 0)
	}
	before, late, since := report(5*minute, 4*minute), report(8*minute, 7*minute), report(25*minute, 9*minute)
	for _, test := range []struct {
		name   string
		pause  history.Pause
		events []history.Event
		want   int64
	}{
		{"never off", history.Pause{}, []history.Event{before, since}, 9 * minute},
		{"off within it", pause, []history.Event{before, since}, 4 * minute},
		{"a late report of before", pause, []history.Event{since, before, late}, 7 * minute},
		{"nothing before", pause, []history.Event{since}, 0},
		{"the pause is not remembered any more", many, []history.Event{since}, 0},
	} {
		var r *history.Record
		for _, e := range test.events {
			e.BoundWatched(test.pause, r)
			r = history.Merge(r, e.Record())
		}
		if got := r.Watched(); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

// TestSessionThatGoesOnAfterADelete: a delete removes the earlier time of a running session, and a restore
// brings it back.
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
	later.BoundWatched(history.Pause{}, back)
	wants("and two minutes of it after that backup", history.Merge(back, later.Record()), 3*minute)
	slow := history.Merge(left, session("tv", epoch+minute+1, epoch, minute)) // neither report includes the other until the restore
	if err := slow.Restore(epoch + 2*minute).Validate(epoch + 60*minute); err != nil {
		t.Errorf("brought back from a backup with two reports of the session: %v", err)
	}
}

// TestSpeedsOfOneMoment: between reports of a session that differ only in speed, the faster wins, in any order.
// No speed counts as normal speed. The speed bounds the watched time after a delete.
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

// BenchmarkWatched is the cost of Watched by the number of sessions.
func BenchmarkWatched(b *testing.B) {
	for _, n := range []int{1, 4, 16, 128} {
		var events []history.Event
		for i := range int64(n) {
			events = append(events, history.Event{
				Kind: history.KindProgress, At: epoch + (i+1)*1000, Session: fmt.Sprint(i), StartedAt: epoch + i*1000, Watched: 900,
			})
		}
		r := fold(events)
		b.Run(fmt.Sprintf("%d sessions", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Watched()
			}
		})
	}
}
