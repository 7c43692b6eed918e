package sim_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/sim"
)

var (
	seed  = flag.Uint64("sim.seed", 1, "the first seed")
	seeds = flag.Int("sim.seeds", 4, "how many seeds")
	steps = flag.Int("sim.steps", 5_000, "steps of each seed")
	runs  = flag.Int("sim.shrink", 300, "runs to shrink a failure")
	total = flag.Int("sim.total", 0, "steps of all seeds together; 0 for no bound")
	keep  = flag.Int("sim.keep", 0, "records of a user that the cache keeps")
	trace = flag.Bool("sim.trace", false, "print what happens")
)

func run(t *testing.T, cfg sim.Config) (r sim.Result) {
	synctest.Test(t, func(*testing.T) { r = sim.Run(cfg) })
	return r
}

func TestSim(t *testing.T) {
	began, done := time.Now(), 0
	for s := *seed; s < *seed+uint64(*seeds) && (*total == 0 || done < *total); s++ {
		cfg := sim.Config{Seed: s, Steps: *steps, Keep: *keep}
		if *trace {
			cfg.Trace = os.Stdout
		}
		r := run(t, cfg)
		if done += r.Steps; r.Failure != "" {
			t.Errorf("seed %d, step %d of %d: %s", s, r.Steps, done, r.Failure)
			explain(t, cfg)
			return
		}
	}
	t.Logf("%d steps, %.0f a second", done, float64(done)/time.Since(began).Seconds())
}

// explain prints the shortest run that fails as well, as far as one is found.
func explain(t *testing.T, cfg sim.Config) {
	t.Helper()
	if *runs == 0 || *trace {
		return
	}
	cfg, r := sim.Shrink(cfg, func(cfg sim.Config) sim.Result { return run(t, cfg) }, *runs)
	var text strings.Builder
	cfg.Trace = &text
	again := run(t, cfg)
	t.Logf("%d decisions are enough, in %d steps: %s\n%s", r.Decisions(), r.Steps, again.Failure, &text)
}

// TestSame has the same seed make the same run.
func TestSame(t *testing.T) {
	for s := *seed; s < *seed+uint64(*seeds); s++ {
		cfg := sim.Config{Seed: s, Steps: *steps, Keep: *keep}
		if a, b := run(t, cfg), run(t, cfg); a.Hash != b.Hash || a.Steps != b.Steps {
			t.Errorf("seed %d: got %x in %d steps, then %x in %d", s, a.Hash, a.Steps, b.Hash, b.Steps)
		}
	}
}
