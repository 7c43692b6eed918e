package pebble

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// registerSizes adds gauges of the store's sizes. A closed store has none.
func (d *DB) registerSizes(reg prometheus.Registerer) {
	gauge := func(name, help string, read func(*pebble.Metrics) float64) {
		promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: "playhead_pebble_" + name, Help: help}, func() float64 {
			d.gate.RLock()
			defer d.gate.RUnlock()
			if d.closed {
				return 0
			}
			return read(d.pebble.Metrics())
		})
	}
	gauge("disk_bytes", "Disk space of the embedded store without its journal.", func(m *pebble.Metrics) float64 { return float64(m.DiskSpaceUsage()) })
	gauge("journal_bytes", "Disk space of the journal.", func(*pebble.Metrics) float64 { return float64(d.journal.Size()) })
	gauge("memtable_bytes", "Memory of the store's tables that are not on disk yet.", func(m *pebble.Metrics) float64 { return float64(m.MemTable.Size) })
	gauge("compaction_debt_bytes", "Bytes that the store has yet to rewrite until its files are in order.", func(m *pebble.Metrics) float64 { return float64(m.Compact.EstimatedDebt) })
	gauge("read_amplification", "Files that a read may have to look into.", func(m *pebble.Metrics) float64 { return float64(m.ReadAmp()) })
}
