package pebble

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// damage tells of cells that can never be read again, of each once.
type damage struct {
	log   *slog.Logger
	cells prometheus.Counter
	mu    sync.Mutex
	told  map[string]bool
}

const maxTold = 10_000

func newDamage(log *slog.Logger, reg prometheus.Registerer) *damage {
	d := &damage{log: log, told: map[string]bool{}, cells: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "playhead_store_damaged_cells_total",
		Help: "Cells of the embedded store that cannot be read and were left out, each counted once.",
	})}
	if reg != nil {
		reg.MustRegister(d.cells)
	}
	return d
}

// cell counts and logs a cell by its row and column.
func (d *damage) cell(row, column string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := row + "/" + column; !d.told[at] && len(d.told) < maxTold {
		d.told[at] = true
		d.cells.Inc()
		d.log.Error("cell is damaged and left out", "row", row, "column", column, "error", err)
	}
}
