package run_test

import (
	"slices"
	"testing"

	"github.com/playhead/playhead/internal/run"
)

func TestChanged(t *testing.T) {
	type settings struct {
		Listen, LogLevel string
		Peer             struct{ CA string }
		Rules            []string
	}
	before := settings{Listen: "a", Rules: []string{"1"}}
	after := settings{Listen: "b", LogLevel: "debug", Rules: []string{"1"}}
	after.Peer.CA = "c"
	if got, want := run.Changed(before, after, "LogLevel"), []string{"Listen", "Peer"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
