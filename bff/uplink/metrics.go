package uplink

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	batches, events, retries, hedges, refused prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, c *Client) *metrics {
	m := &metrics{
		batches: counter("playhead_uplink_batches_total", "Batches of heartbeats sent over streams."),
		events:  counter("playhead_uplink_batched_heartbeats_total", "Heartbeats sent in them."),
		retries: counter("playhead_uplink_retries_total", "Calls made to another instance, or again."),
		hedges:  counter("playhead_uplink_hedges_total", "Calls made to a second instance because the first one answered nothing."),
		refused: counter("playhead_uplink_refused_calls_total", "Calls refused because too many heartbeats waited, or for too long."),
	}
	if reg != nil {
		reg.MustRegister(m.batches, m.events, m.retries, m.hedges, m.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "playhead_uplink_instances", Help: "Instances of history-service that are up.",
		}, func() float64 { return float64(len(c.table.Load().up)) }))
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (m *metrics) batch(b *batch) {
	m.batches.Inc()
	m.events.Add(float64(b.events))
}
