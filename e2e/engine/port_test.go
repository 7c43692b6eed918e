package engine_test

import (
	"net"
	"slices"
	"testing"

	"github.com/playhead/playhead/e2e/engine"
)

func TestWantPorts(t *testing.T) {
	for name, c := range map[string]struct {
		base          int
		last, offsets []int
		want          []int
	}{
		"first start":          {0, nil, []int{20, 21}, []int{17020, 17021}},
		"recorded":             {0, []int{5, 6}, []int{20, 21}, []int{5, 6}},
		"explicit base wins":   {18000, []int{5, 6}, []int{20, 21}, []int{18020, 18021}},
		"recorded by another":  {0, []int{5}, []int{20, 21}, []int{17020, 17021}},
		"explicit, never held": {18000, nil, []int{0}, []int{18000}},
	} {
		if got := engine.WantPorts(c.base, c.last, c.offsets); !slices.Equal(got, c.want) {
			t.Errorf("%s: WantPorts(%d, %v, %v) = %v, want %v", name, c.base, c.last, c.offsets, got, c.want)
		}
	}
}

func TestPlaceMovesHeldPort(t *testing.T) {
	held := listen(t).Addr().(*net.TCPAddr).Port
	got, err := engine.Place(t.Context(), []int{held})
	if err != nil {
		t.Fatal(err)
	}
	if got[0] <= held || (got[0]-held)%100 != 0 {
		t.Errorf("Place(%d) = %d, want a later port a multiple of 100 away", held, got[0])
	}
}

func TestPlaceEndsAtLastPort(t *testing.T) {
	if got, err := engine.Place(t.Context(), []int{65536}); err == nil {
		t.Errorf("Place(65536) = %v, want an error", got)
	}
}

// Place promises that engines are never moved to the same port.
func TestPortsDifferModulo100(t *testing.T) {
	seen := map[int]bool{}
	for _, o := range engine.PortOffsets() {
		if o < 0 || o >= 100 || seen[o] {
			t.Errorf("port offset %d is taken twice or not within 100", o)
		}
		seen[o] = true
	}
}
