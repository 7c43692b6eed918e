package historytest

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// Variant is something to be measured in turns with others.
type Variant struct {
	Name  string
	Of    string // the variant whose times are the measure, one before this one; empty for a measure
	Times int    // that it is done in a turn
	Do    func()
}

// Turns measures variants in turns, each second round backwards, a round for each loop of the benchmark. It reports the
// medians over the rounds: of each variant the median time in ms and how many KiB it allocates, and the ratios of its median
// and of its 99th percentile to those of its measure in the same round.
func Turns(b *testing.B, variants []Variant) {
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

// figure is what a turn was like.
type figure struct {
	p50, p99 time.Duration
	bytes    float64
}

func (v *Variant) turn() figure {
	var before, after runtime.MemStats
	runtime.GC() // of what the turn before has left
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
