package history_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

func TestStates(t *testing.T) {
	want := []string{"unknown", "playing", "paused", "stopped", "finished", "deleted", "unknown"}
	for s, text := range want {
		if got := history.State(s).String(); got != text {
			t.Errorf("state %d: got %s, want %s", s, got, text)
		}
	}
}

func TestVisible(t *testing.T) {
	video := history.Object{ID: "100", Type: 1}
	seen := history.Event{Kind: history.KindProgress, At: epoch, Position: 7}
	gone := history.Event{Kind: history.KindDelete, At: epoch}
	tests := []struct {
		name    string
		record  *history.Record
		cleared map[uint32]int64
		want    bool
	}{
		{"nothing", nil, nil, false},
		{"nothing, cleared", nil, map[uint32]int64{0: epoch}, false},
		{"a record", seen.Record(), nil, true},
		{"a tombstone", gone.Record(), nil, false},
		{"cleared before it", seen.Record(), map[uint32]int64{0: epoch - 1}, true},
		{"cleared at its time", seen.Record(), map[uint32]int64{0: epoch}, false},
		{"its type cleared", seen.Record(), map[uint32]int64{1: epoch}, false},
		{"another type cleared", seen.Record(), map[uint32]int64{2: epoch}, true},
		{"its type cleared later than all", seen.Record(), map[uint32]int64{0: epoch - 9, 1: epoch + 9}, false},
		{"all cleared later than its type", seen.Record(), map[uint32]int64{0: epoch + 9, 1: epoch - 9}, false},
	}
	for _, test := range tests {
		if got := test.record.Visible(video, &history.User{Cleared: test.cleared}) != nil; got != test.want {
			t.Errorf("%s: got visible %v, want %v", test.name, got, test.want)
		}
	}
	if r := seen.Record(); r.Visible(video, nil) != r {
		t.Error("without a user nothing is cleared")
	}
}

func TestComplete(t *testing.T) {
	for _, test := range []struct {
		user history.User
		want bool
	}{
		{history.User{}, false},
		{history.User{Warm: true}, true},
		{history.User{Warm: true, LowWatermark: 1}, false},
		{history.User{LowWatermark: 1}, false},
	} {
		if got := test.user.Complete(); got != test.want {
			t.Errorf("%+v: got %v, want %v", test.user, got, test.want)
		}
	}
}

func items() *rapid.Generator[history.Item] {
	return rapid.Custom(func(t *rapid.T) history.Item {
		return history.Item{
			Object: history.Object{ID: rapid.SampledFrom([]string{"1", "10", "2", "a", "a:"}).Draw(t, "id"), Type: rapid.Uint32Range(1, 3).Draw(t, "type")},
			Record: &history.Record{Version: history.VersionOf(epoch+rapid.Int64Range(0, 4).Draw(t, "at"), rapid.IntRange(0, 1).Draw(t, "rank"))},
		}
	})
}

// TestPages: pages cut at any item have, together, each item once and in order.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(items(), 1, 15, func(it history.Item) history.Object { return it.Object }).Draw(t, "list")
		slices.SortFunc(list, history.NewestFirst)
		at := rapid.IntRange(0, len(list)-1).Draw(t, "last of the page")
		q := history.Query{After: history.Cursor{Version: list[at].Record.Version, Object: list[at].Object}}
		for i, it := range list {
			if got, want := q.Wants(it.Place()), i > at; got != want {
				t.Fatalf("item %d of %v after item %d: got %v, want %v", i, list, at, got, want)
			}
			if i > 0 && list[i-1].Record.Version < it.Record.Version {
				t.Fatalf("item %d of %v is newer than the one before", i, list)
			}
		}
	})
}

func TestWants(t *testing.T) {
	object, r := history.Object{ID: "100", Type: 1}, &history.Record{Version: history.VersionOf(epoch, history.RankStop)}
	for _, test := range []struct {
		query history.Query
		want  bool
	}{
		{history.Query{}, true},
		{history.Query{Type: 1}, true},
		{history.Query{Type: 2}, false},
		{history.Query{Since: epoch}, true},
		{history.Query{Since: epoch + 1}, false},
		{history.Query{Until: epoch}, true},
		{history.Query{Until: epoch - 1}, false},
		{history.Query{Type: 1, Since: epoch, Until: epoch}, true},
		{history.Query{After: history.Cursor{Version: r.Version, Object: object}}, false},
		{history.Query{After: history.Cursor{Version: r.Version, Object: history.Object{ID: "100", Type: 2}}}, true},
		{history.Query{After: history.Cursor{Version: history.MaxVersion}}, true},
	} {
		if got := test.query.Wants(history.Item{Object: object, Record: r}.Place()); got != test.want {
			t.Errorf("%+v: got %v, want %v", test.query, got, test.want)
		}
	}
}

func TestInvalid(t *testing.T) {
	err := history.Invalid("uid", "want one")
	if got := err.Error(); got != "uid: want one" || !errors.Is(err, history.ErrInvalid) || errors.Is(err, history.ErrUnavailable) {
		t.Errorf("got %q, want an ErrInvalid that says uid: want one", got)
	}
}

// TestVersions: versions and their scores sort alike, by time and then by rank, and a version decodes to both.
func TestVersions(t *testing.T) {
	times := rapid.OneOf(rapid.Int64Range(1, 1<<43), rapid.Int64Range(epoch, epoch+2))
	ranks := rapid.IntRange(history.RankProgress, history.RankDelete)
	rapid.Check(t, func(t *rapid.T) {
		ms, ms2 := times.Draw(t, "ms"), times.Draw(t, "other ms")
		rank, rank2 := ranks.Draw(t, "rank"), ranks.Draw(t, "other rank")
		v, v2 := history.VersionOf(ms, rank), history.VersionOf(ms2, rank2)
		if earlier := ms < ms2 || ms == ms2 && rank < rank2; (v < v2) != earlier || (v.Score() < v2.Score()) != earlier {
			t.Fatalf("(%d, %d) before (%d, %d): versions say %v, scores %v, want %v", ms, rank, ms2, rank2, v < v2, v.Score() < v2.Score(), earlier)
		}
		if v.Time() != ms || v.Score() != float64(ms)+float64(rank)/4 || history.Version(v.Score()*4) != v {
			t.Fatalf("(%d, %d): got time %d, score %v", ms, rank, v.Time(), v.Score())
		}
		if v >= history.MaxVersion {
			t.Fatalf("(%d, %d): version %d is not before the last", ms, rank, v)
		}
	})
}

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
		{history.Pause{Since: 100, Earlier: "50 60 20 30"}, 61, false},
		{history.Pause{Since: 100, Earlier: "50 60 20 30"}, 60, true},
		{history.Pause{Since: 100, Earlier: "50 60 20 30"}, 50, false},
		{history.Pause{Since: 100, Earlier: "50 60 20 30"}, 21, true},
		{history.Pause{Since: 100, Earlier: "50 60 20 30"}, 20, false},
	} {
		if got := tt.pause.Covers(tt.at); got != tt.covered {
			t.Errorf("%+v covers %d: got %t, want %t", tt.pause, tt.at, got, tt.covered)
		}
	}
}

func TestPauseWithin(t *testing.T) {
	for _, tt := range []struct {
		pause          history.Pause
		from, to, want int64
	}{
		{history.Pause{}, 0, 1000, 0},
		{history.Pause{Since: 100}, 0, 1000, 900},
		{history.Pause{Since: 100}, 200, 1000, 800},
		{history.Pause{Since: 100, Until: 50}, 0, 1000, 900},
		{history.Pause{Since: 100, Until: 300}, 0, 1000, 200},
		{history.Pause{Since: 100, Until: 300}, 200, 250, 50},
		{history.Pause{Since: 100, Until: 300}, 0, 100, 0},
		{history.Pause{Since: 100, Until: 300}, 300, 1000, 0},
		{history.Pause{Since: 100, Until: 300, Earlier: "50 60 20 30"}, 25, 55, 10},
		{history.Pause{Since: 100, Until: 300, Earlier: "50 60 20 30"}, 0, 1000, 220},
		{history.Pause{Since: 100, Earlier: "50 60 20 30"}, 55, 110, 15},
	} {
		if got := tt.pause.Within(tt.from, tt.to); got != tt.want {
			t.Errorf("%+v from %d to %d: got %d, want %d", tt.pause, tt.from, tt.to, got, tt.want)
		}
	}
}

// TestPausesOfOneMoment merges pauses in any order and grouping: the result is the same.
func TestPausesOfOneMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pause := rapid.Custom(func(t *rapid.T) history.Pause {
			return history.Pause{
				Since: rapid.Int64Range(0, 4).Draw(t, "since"), Until: rapid.Int64Range(0, 4).Draw(t, "until"),
				Earlier: history.Pauses(rapid.SampledFrom([]string{"", "1 2", "0 1", "3 4 1 2"}).Draw(t, "earlier")),
			}
		})
		p, q, r := pause.Draw(t, "p"), pause.Draw(t, "q"), pause.Draw(t, "r")
		if p.Newer(q) != q.Newer(p) || p.Newer(q).Newer(r) != p.Newer(q.Newer(r)) || p.Newer(p) != p {
			t.Fatalf("%+v, %+v, %+v: which one stays depends on the order", p, q, r)
		}
	})
}

// TestPauseSwitched switches with arbitrary clocks: each switch takes effect, each change is newer in any order
// of comparison, and recorded events stay outside the pause.
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
			case !recording && newest <= at+history.ClockError && (history.Pause{Since: next.Since}).Covers(newest):
				t.Fatalf("%+v covers %d, which was recorded", next, newest)
			case !next.Earlier.Valid():
				t.Fatalf("%+v: the earlier ones cannot be read", next)
			}
			p = next
		}
	})
}

// TestPauseRefuses: nothing uncertain is stored while recording is off, and a wrong clock never blocks
// recording afterwards.
func TestPauseRefuses(t *testing.T) {
	const s, hour = 1000, 3_600_000
	off, over := history.Pause{Since: 100 * hour}, history.Pause{Since: 100 * hour, Until: 101 * hour}
	for _, tt := range []struct {
		name          string
		pause         history.Pause
		at, late, now int64
		refused       bool
	}{
		{"never off", history.Pause{}, 5, 0, 5, false},
		{"after the switch", off, 100*hour + 1, 0, 100*hour + 10*s, true},
		{"before the switch", off, 100*hour - 1, 0, 100*hour + 10*s, false},
		{"on its way over the switch, or of a clock that is behind", off, 100*hour - 5*s, 6 * s, 100*hour + 10*s, true},
		{"on its way, and there before the switch", off, 100*hour - 5*s, 4 * s, 100*hour + 10*s, false},
		{"another service's clock is a little behind", off, 100*hour - 5*s, 0, 100*hour - s, false},
		{"the clock stepped back a minute", off, 100*hour - 60*s, 0, 100*hour - 60*s, true},
		{"the clock stepped back, and the report is old", off, 50 * hour, 0, 100*hour - 60*s, true},
		{"in the pause, late", over, 100*hour + 1, 0, 102 * hour, true},
		{"after the pause", over, 101*hour + 1, 0, 102 * hour, false},
		{"the clock is back in the pause", over, 100*hour + 10*s, 0, 100*hour + 11*s, true},
		{"the clock is back in the pause, and the report is late", over, 100*hour + 10*s, 0, 100*hour + 200*s, true},
		{"the clock is back before the pause", over, 99 * hour, 0, 99 * hour, false},
	} {
		if got := tt.pause.Refuses(tt.at, tt.late, tt.now); got != tt.refused {
			t.Errorf("%s: refused %t, want %t", tt.name, got, tt.refused)
		}
	}
	if got, want := (history.Pause{}).Switched(false, 100, 100+hour), (history.Pause{Since: 100}); got != want {
		t.Errorf("with a record an hour ahead: %+v, want %+v", got, want)
	}
}

// TestPausesAreRemembered compares with a list of all pauses. The newest sixteen before the current one are
// known exactly, however old.
func TestPausesAreRemembered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type interval struct{ since, until int64 }
		var all []interval
		var p history.Pause
		now := int64(1_000)
		pass := func(what string) int64 {
			now += rapid.SampledFrom([]int64{1, 2, 50, 30 * 24 * 3_600_000}).Draw(t, what)
			return now
		}
		for range rapid.IntRange(0, 20).Draw(t, "pauses") {
			p = p.Switched(false, pass("off"), 0)
			p = p.Switched(true, pass("on"), 0)
			all = append(all, interval{p.Since, p.Until})
		}
		if on := rapid.Bool().Draw(t, "off again"); on {
			p = p.Switched(false, pass("off again"), 0)
			all = append(all, interval{p.Since, 1 << 60})
		}
		known := all[max(0, len(all)-1-history.MaxPauses):]
		for range 20 {
			from, to := rapid.Int64Range(now-100, now+100).Draw(t, "from"), rapid.Int64Range(now-100, now+100).Draw(t, "to")
			if len(known) > 0 && rapid.Bool().Draw(t, "at a switch") {
				s := rapid.SampledFrom(known).Draw(t, "pause")
				from, to = s.since+rapid.Int64Range(-1, 1).Draw(t, "beside"), min(s.until+rapid.Int64Range(-1, 1).Draw(t, "beside"), now+1_000)
			}
			covered, within := false, int64(0)
			for _, s := range known {
				covered = covered || from > s.since && from <= s.until
				within += max(min(to, s.until)-max(from, s.since), 0)
			}
			if p.Covers(from) != covered || p.Within(from, to) != within {
				t.Fatalf("%+v: covers %d: %t, %d within up to %d; want %t and %d", p, from, p.Covers(from), p.Within(from, to), to, covered, within)
			}
		}
	})
}
