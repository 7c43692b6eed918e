package bench

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Figures are what one turn of a variant measured, by name: "rate" in heartbeats a
// second, "acked" and "archived" in microseconds of processor time a heartbeat, of all
// processes or, as in "acked.driver", of one.
type Figures map[string]float64

// Spread is the median of several measurements, and the lowest and the highest.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// SpreadOf returns the spread of at least one value.
func SpreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[0], High: sorted[n-1]}
}

// Turns are the figures of each variant, by name, a round after the other: nil where it
// failed.
type Turns map[string][]Figures

// names returns the variants that have figures, sorted.
func (t Turns) names() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if t.failures(name) < len(t[name]) {
			names = append(names, name)
		}
	}
	return names
}

// failures returns how many turns of a variant have no figures.
func (t Turns) failures(variant string) (n int) {
	for _, f := range t[variant] {
		if f == nil {
			n++
		}
	}
	return n
}

// Of returns the spread of a figure of a variant, and false where it was not measured.
func (t Turns) Of(variant, figure string) (Spread, bool) {
	var values []float64
	for _, f := range t[variant] {
		if v, ok := f[figure]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Ratio divides a figure of one variant by one of another round by round, since the speed
// of a machine drifts, and returns the spread of the quotients.
func (t Turns) Ratio(a, figureA, b, figureB string) (Spread, bool) {
	var values []float64
	for i := range min(len(t[a]), len(t[b])) {
		x, okX := t[a][i][figureA]
		y, okY := t[b][i][figureB]
		if okX && okY && y > 0 {
			values = append(values, x/y)
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Percentile returns the value that a share p of sorted latencies does not exceed.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// latencies adds the percentiles of acknowledgements, in milliseconds.
func (f Figures) latencies(took []time.Duration) {
	slices.Sort(took)
	for name, p := range map[string]float64{"p50": 0.5, "p99": 0.99, "p99.9": 0.999} {
		f[name] = float64(Percentile(took, p)) / 1e6
	}
}
