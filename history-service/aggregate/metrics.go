package aggregate

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	announced, dropped, failures prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, a *Aggregator) *metrics {
	m := &metrics{
		announced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "playhead_aggregate_announced_keys_total", Help: "Keys that the queue took.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "playhead_aggregate_dropped_keys_total", Help: "Keys dropped from memory and left to the sweep.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "playhead_aggregate_failed_publishes_total", Help: "Publishes that failed in whole or in part.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.announced, m.dropped, m.failures, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "playhead_aggregate_held_keys", Help: "Keys held in memory.",
		}, func() float64 { return float64(a.Held()) }))
	}
	return m
}
