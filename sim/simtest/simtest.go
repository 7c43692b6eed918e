// Package simtest runs the simulator as a test. Its flags choose the seeds.
package simtest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/sim"
)

var (
	seed        = flag.Uint64("sim.seed", 1, "the first seed")
	seeds       = flag.Int("sim.seeds", 4, "how many seeds")
	steps       = flag.Int("sim.steps", 5_000, "steps of each seed")
	runs        = flag.Int("sim.shrink", 300, "runs to shrink a failure")
	total       = flag.Int("sim.total", 0, "steps of all seeds together; 0 for no bound")
	keep        = flag.Int("sim.keep", 0, "records of a user that the cache keeps")
	compactions = flag.Bool("sim.rolls", false, "only seeds with parts in the archive")
	trace       = flag.Bool("sim.trace", false, "print what happens")
)

// Sim searches for violations. embed makes each world's archive; nil leaves the choice to the seed.
func Sim(t *testing.T, embed func() sim.Embedded) {
	began, done := time.Now(), 0
	for s := *seed; s < *seed+uint64(*seeds) && (*total == 0 || done < *total); s++ {
		cfg := config(s, embed)
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

// Same checks that a seed reproduces its run, to the last word of the trace. With -short it takes a quarter of
// the steps.
func Same(t *testing.T, embed func() sim.Embedded) {
	for s := *seed; s < *seed+uint64(*seeds); s++ {
		cfg := config(s, embed)
		if testing.Short() {
			cfg.Steps /= 4
		}
		if first, again := traced(t, cfg), traced(t, cfg); first != again {
			t.Errorf("seed %d: two runs differ%s", s, difference(first, again))
		}
	}
}

func config(s uint64, embed func() sim.Embedded) sim.Config {
	return sim.Config{Seed: s, Steps: *steps, Keep: *keep, Compactions: *compactions, Embed: embed}
}

func run(t *testing.T, cfg sim.Config) (r sim.Result) {
	synctest.Test(t, func(*testing.T) { r = sim.Run(cfg) })
	return r
}

// explain prints the shortest failing run it can find.
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

func traced(t *testing.T, cfg sim.Config) string {
	var text strings.Builder
	cfg.Trace = &text
	run(t, cfg)
	return text.String()
}

func difference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	n := 0
	for n < min(len(as), len(bs)) && as[n] == bs[n] {
		n++
	}
	from := max(0, n-10)
	return fmt.Sprintf(" from line %d on:\n%s\n--- one goes on\n%s\n--- the other\n%s", n+1, strings.Join(as[from:n], "\n"),
		strings.Join(as[n:min(n+5, len(as))], "\n"), strings.Join(bs[n:min(n+5, len(bs))], "\n"))
}
