// Package paired compares variants of a benchmark that run in turns.
package paired

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// Variant is a contender of [Run].
type Variant struct {
	Name  string
	Of    string // an earlier variant as the baseline; empty for a baseline
	Times int    // runs per turn
	Do    func()
}

// Run measures variants in turns, every second round in reverse, one round per benchmark loop. It reports
// each variant's median time in ms and KiB allocated. It also reports the median ratios of its median and 99th
// percentile to its baseline's in the same round.
func Run(b *testing.B, variants []Variant) {
	figures := make(map[string][]float64)
	for rounds := 0; b.Loop(); rounds++ {
		turns := slices.Clone(variants)
		if rounds%2 == 1 {
			slices.Reverse(turns)
		}
		round := make(map[string]figure)
		for _, v := range turns {
			round[v.Name] = v.turn()
		}
		for _, v := range variants {
			f := round[v.Name]
			figures[v.Name+"-ms"] = append(figures[v.Name+"-ms"], f.p50.Seconds()*1000)
			figures[v.Name+"-KiB"] = append(figures[v.Name+"-KiB"], f.bytes/1024)
			if of, ok := round[v.Of]; ok {
				figures[v.Name+"-p50-ratio"] = append(figures[v.Name+"-p50-ratio"], float64(f.p50)/float64(of.p50))
				figures[v.Name+"-p99-ratio"] = append(figures[v.Name+"-p99-ratio"], float64(f.p99)/float64(of.p99))
			}
		}
	}
	for name, values := range figures {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], name)
	}
}

// figure is the measurement of a turn.
type figure struct {
	p50, p99 time.Duration
	bytes    float64
}

func (v *Variant) turn() figure {
	var before, after runtime.MemStats
	runtime.GC() // the previous turn's garbage
	runtime.ReadMemStats(&before)
	times := make([]time.Duration, v.Times)
	for i := range times {
		began := time.Now()
		v.Do()
		times[i] = time.Since(began)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	return figure{times[len(times)/2], times[len(times)*99/100], float64(after.TotalAlloc-before.TotalAlloc) / float64(v.Times)}
}
