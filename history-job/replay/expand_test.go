package replay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

const noon = 1_650_812_700_000 // Unix milliseconds

// tell writes a plan down: "a/1_1 start 0@+0, a/1_1 stop 5@+5", times from noon.
func tell(p *replay.Plan) string {
	kinds := map[history.Kind]string{history.KindStart: "start", history.KindProgress: "at", history.KindStop: "stop"}
	var all []string
	for i := range p.Len() {
		e := p.Event(i)
		all = append(all, fmt.Sprintf("%s %s %d@%+d", e.Key, kinds[e.Kind], e.Position, e.At-noon))
	}
	return strings.Join(all, ", ")
}

func TestExpand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		vs    []replay.Viewing
		limit int
		want  string
	}{
		{"nothing", nil, 0, ""},
		{"never played", []replay.Viewing{viewing("a/1", noon, 0, 9)}, 0, ""},
		{"a millisecond", []replay.Viewing{viewing("a/1", noon, 1, 9)}, 0, "a/1_1 start 0@+0, a/1_1 stop 1@+1"},
		{"just below the period", []replay.Viewing{viewing("a/1", noon, 14999, 0)}, 0, "a/1_1 start 0@+0, a/1_1 stop 14999@+14999"},
		{
			"the period",
			[]replay.Viewing{viewing("a/1", noon, 15000, 0)},
			0,
			"a/1_1 start 0@+0, a/1_1 at 15000@+15000, a/1_1 stop 15000@+15000",
		},
		{
			"two at once, in the order of time",
			[]replay.Viewing{viewing("b/2", noon+5000, 20000, 0), viewing("a/1", noon, 16000, 0)},
			0,
			"a/1_1 start 0@+0, b/2_1 start 0@+5000, a/1_1 at 15000@+15000, a/1_1 stop 16000@+16000, b/2_1 at 15000@+20000, b/2_1 stop 20000@+25000",
		},
		{"limit of none", []replay.Viewing{viewing("a/1", noon, 1, 9)}, 1, ""},
		{
			"limit in the middle of a viewing",
			[]replay.Viewing{viewing("a/1", noon, 1, 9), viewing("b/1", noon+9, 40000, 0), viewing("c/1", noon+10, 1, 9)},
			5,
			"a/1_1 start 0@+0, a/1_1 stop 1@+1",
		},
		{
			"limit at the end of a viewing",
			[]replay.Viewing{viewing("a/1", noon, 15000, 0), viewing("b/1", noon+1, 1, 9)},
			3,
			"a/1_1 start 0@+0, a/1_1 at 15000@+15000, a/1_1 stop 15000@+15000",
		},
		{"those never played take no room", []replay.Viewing{viewing("z/1", noon, 0, 9), viewing("a/1", noon, 1, 9)}, 2, "a/1_1 start 0@+0, a/1_1 stop 1@+1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tell(replay.Expand(tt.vs, tt.limit)); got != tt.want {
				t.Errorf("expand to at most %d:\ngot  %s\nwant %s", tt.limit, got, tt.want)
			}
		})
	}
}

// TestExpandLong has positions that do not fit into 31 bits.
func TestExpandLong(t *testing.T) {
	p := replay.Expand([]replay.Viewing{viewing("a/1", noon, history.MaxPosition, history.MaxPosition)}, 0)
	for i := range p.Len() {
		e := p.Event(i)
		if err := e.Validate(); err != nil || e.Position != e.At-noon {
			t.Fatalf("heartbeat %d of %d: position %d at %+d, %v", i, p.Len(), e.Position, e.At-noon, err)
		}
	}
	if last := p.Event(p.Len() - 1); last.Kind != history.KindStop || last.Position != history.MaxPosition {
		t.Errorf("the last heartbeat is %+v, want a stop after thirty days", last)
	}
}

func TestEndAt(t *testing.T) {
	p := replay.Expand([]replay.Viewing{viewing("b/2", noon+9, 1, 9), viewing("a/1", noon, 15000, 9)}, 0)
	was := make([]history.Event, p.Len())
	for i := range was {
		was[i] = p.Event(i)
	}
	for _, end := range []int64{noon + 1_000_000, noon - 1_000_000} { // moved twice, it ends where it was moved to last
		p.EndAt(end)
		for i := range was {
			want := was[i]
			want.At += end - (noon + 15000)
			if got := p.Event(i); got.At != want.At || got.Session != want.Session {
				t.Errorf("heartbeat %d: got %+v, want %+v", i, got, want)
			}
		}
	}
	empty := replay.Expand(nil, 0)
	empty.EndAt(noon)
	if empty.Len() != 0 || empty.Shift != 0 {
		t.Errorf("an empty plan was moved by %d", empty.Shift)
	}
}

func TestReported(t *testing.T) {
	p := replay.Expand([]replay.Viewing{viewing("a/1", noon, 0, 9), viewing("a/1", noon, 40000, 9), viewing("b/1", noon, 5, 9), viewing("c/1", noon, 50000, 9)}, 6)
	if got := p.Reported(); got != 2 {
		t.Errorf("%d viewings, want the two that were played and planned", got)
	}
}

// TestSession names the same viewing the same, and no other.
func TestSession(t *testing.T) {
	v, again, other := viewing("a/1", noon, 1, 9), viewing("a/1", noon, 2, 9), viewing("a/1", noon+1, 1, 9)
	if replay.Session(&v) != replay.Session(&again) || replay.Session(&v) == replay.Session(&other) {
		t.Errorf("sessions %s, %s, %s: want the first two equal", replay.Session(&v), replay.Session(&again), replay.Session(&other))
	}
}
