package run_test

import (
	"slices"
	"testing"

	"github.com/playhead/playhead/internal/run"
)

// TestChanged: settings have the names that operators know.
func TestChanged(t *testing.T) {
	type common struct {
		LogUIDs bool `name:"log-uids"`
	}
	type settings struct {
		Listen, LogLevel string
		Peer             struct{ CA string } `embed:"" prefix:"service-"`
		Rules            []string            `name:"rule"`
		Secret           *string
		Regions          int `kong:"-"`

		common
	}
	before := settings{Listen: "a", Rules: []string{"1"}, Regions: 3}
	after := settings{Listen: "b", LogLevel: "debug", Rules: []string{"1", "2"}}
	after.Peer.CA, after.LogUIDs = "c", true
	got, err := run.Changed(before, after, "log-level")
	if want := []string{"--listen", "--service-ca", "--rule", "--log-uids"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := run.Changed(before, before); err != nil || got != nil {
		t.Errorf("nothing changed: got %q, %v", got, err)
	}
}
