package sim_test

import (
	"testing"

	"github.com/playhead/playhead/sim/simtest"
)

func TestSim(t *testing.T) { simtest.Sim(t, nil) }

func TestSame(t *testing.T) { simtest.Same(t, nil) }
