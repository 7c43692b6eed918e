package sim

// Shrink looks for fewer decisions with which a run fails as well, in at most so many runs
// more. It takes away decisions by halves, quarters and so on, as long as something is still
// wrong, whatever that is.
func Shrink(cfg Config, run func(Config) Result, runs int) (Config, Result) {
	best := run(cfg)
	cfg.Steps = best.turns + 1
	for part := (len(best.taken) + 1) / 2; part > 0 && best.Failure != "" && runs > 0; part /= 2 {
		for from := 0; from < len(best.taken) && runs > 0; runs-- {
			less := cfg
			less.Only = allBut(best.taken, from, from+part)
			r := run(less)
			if r.Failure == "" || len(r.taken) >= len(best.taken) {
				from += part
				continue
			}
			cfg, best = less, r
		}
	}
	return cfg, best
}

// allBut returns the decisions but for some.
func allBut(all []decision, from, to int) map[decision]bool {
	left := make(map[decision]bool, len(all))
	for i, d := range all {
		if i < from || i >= to {
			left[d] = true
		}
	}
	return left
}

// Decisions returns how many there were.
func (r Result) Decisions() int { return len(r.taken) }
