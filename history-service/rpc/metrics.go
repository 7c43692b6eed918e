package rpc

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type metrics struct {
	byStatus            []prometheus.Counter // by historyv1.Status
	conflicts           prometheus.Counter
	warmed, warmsFailed prometheus.Counter
	notQueued, based    prometheus.Counter
	folded, damaged     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	beats := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "playhead_rpc_heartbeats_total", Help: "Heartbeats answered, by what became of them.",
	}, []string{"status"})
	m := &metrics{
		conflicts:   counter("playhead_rpc_conflicts_total", "Writes tried again because another writer was first."),
		warmed:      counter("playhead_rpc_warmed_users_total", "Cold users filled from the archive."),
		notQueued:   counter("playhead_rpc_not_queued_records_total", "Records to be acknowledged as queued that the queue did not take."),
		based:       counter("playhead_rpc_archive_bases_total", "Records asked of the archive because an event was older than the user's floor."),
		folded:      counter("playhead_rpc_archive_folds_total", "Records asked of the archive because a reader's page or point lacked its part."),
		damaged:     counter("playhead_rpc_damaged_cells_total", "Cells of the archive that could not be read, each time that one was come across."),
		warmsFailed: counter("playhead_rpc_failed_warm_ups_total", "Warm-ups that a store did not answer."),
	}
	m.byStatus = make([]prometheus.Counter, len(historyv1.Status_name))
	for n, name := range historyv1.Status_name {
		m.byStatus[n] = beats.WithLabelValues(strings.ToLower(strings.TrimPrefix(name, "STATUS_")))
	}
	if reg != nil {
		reg.MustRegister(beats, m.conflicts, m.warmed, m.warmsFailed, m.notQueued, m.based, m.folded, m.damaged)
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// heartbeats counts a batch by status.
func (m *metrics) heartbeats(statuses []historyv1.Status) {
	n := make([]int, len(m.byStatus))
	for _, s := range statuses {
		n[s]++
	}
	for s, c := range n {
		if c > 0 {
			m.byStatus[s].Add(float64(c))
		}
	}
}
