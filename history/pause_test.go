package history_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

func TestPauseCovers(t *testing.T) {
	for _, tt := range []struct {
		pause   history.Pause
		at      int64
		covered bool
	}{
		{history.Pause{}, 0, false},
		{history.Pause{}, 100, false},
		{history.Pause{Since: 100}, 100, false},
		{history.Pause{Since: 100}, 101, true},
		{history.Pause{Since: 100, Until: 50}, 1 << 50, true},
		{history.Pause{Since: 100, Until: 200}, 100, false},
		{history.Pause{Since: 100, Until: 200}, 200, true},
		{history.Pause{Since: 100, Until: 200}, 201, false},
	} {
		if got := tt.pause.Covers(tt.at); got != tt.covered {
			t.Errorf("%+v covers %d: got %t, want %t", tt.pause, tt.at, got, tt.covered)
		}
	}
}

// TestPauseSwitched switches with clocks that go anywhere: the switch always does what
// it says, each change is the newer one, whatever the order in which it is compared, and
// what was recorded stays outside.
func TestPauseSwitched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p history.Pause
		for range 20 {
			recording, at := rapid.Bool().Draw(t, "recording"), rapid.Int64Range(1, 30).Draw(t, "at")
			newest := rapid.Int64Range(0, 30).Draw(t, "newest")
			next := p.Switched(recording, at, newest)
			switch {
			case next.On() == recording:
				t.Fatalf("%+v, recording %t: got %+v", p, recording, next)
			case p.On() == next.On():
				if next != p {
					t.Fatalf("%+v was %+v, and nothing had changed", next, p)
				}
			case next.Changed() <= p.Changed() || p.Newer(next) != next || next.Newer(p) != next:
				t.Fatalf("%+v is not newer than %+v", next, p)
			case !recording && next.Covers(newest):
				t.Fatalf("%+v covers %d, which was recorded", next, newest)
			}
			p = next
		}
	})
}
