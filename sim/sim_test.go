package sim_test

import (
	"testing"

	"github.com/playhead/playhead/sim/simtest"
)

func TestSim(t *testing.T) { simtest.Sim(t, nil) }
