package breaker

import "github.com/prometheus/client_golang/prometheus"

// Nodes is a collector of whether the servers of an engine are silent. Its metric is also that of package connect,
// which judges engines without breakers of their own.
type Nodes struct {
	desc *prometheus.Desc
	open func() map[string]bool
}

// NewNodes returns the collector of an engine. open returns by address whether a server's breaker is open.
func NewNodes(engine string, open func() map[string]bool) *Nodes {
	return &Nodes{prometheus.NewDesc("playhead_engine_node_degraded", "1 while a node of an engine fails calls, or refuses writes.",
		[]string{"node"}, prometheus.Labels{"engine": engine}), open}
}

// Describe implements [prometheus.Collector].
func (n *Nodes) Describe(ch chan<- *prometheus.Desc) { ch <- n.desc }

// Collect implements [prometheus.Collector].
func (n *Nodes) Collect(ch chan<- prometheus.Metric) {
	for addr, open := range n.open() {
		silent := 0.0
		if open {
			silent = 1
		}
		ch <- prometheus.MustNewConstMetric(n.desc, prometheus.GaugeValue, silent, addr)
	}
}
