//go:build !race

package pebble_test

import (
	"testing"

	"github.com/playhead/playhead/sim/simtest"
)

// TestSame runs without the race detector, which shuffles what is to run at one moment.
func TestSame(t *testing.T) { simtest.Same(t, embedded) }
