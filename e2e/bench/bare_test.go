//go:build e2e

package bench_test

import (
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/bench"
)

const (
	bareCallers = 4
	bareCells   = 500 // per batch
)

// bare puts into HBase with the client alone.
type bare struct {
	b      *testing.B
	meter  meter
	client gohbase.Client
	table  string
}

func openBare(b *testing.B, zk string) gohbase.Client {
	c := gohbase.NewClient(zk)
	b.Cleanup(c.Close)
	return c
}

// encode returns the cells of writes.
func encode(all audience) []bench.Cell {
	cells := make([]bench.Cell, len(all))
	for i, w := range all {
		cells[i] = bench.CellOf(w.Key, w.Record)
	}
	return cells
}

func (s *bare) round(cells []bench.Cell) figures {
	return s.meter.measure(s.b, len(cells), func() time.Duration {
		began := time.Now()
		var g errgroup.Group
		g.SetLimit(bareCallers)
		for from := 0; from < len(cells); from += bareCells {
			g.Go(func() error {
				return bench.Put(s.b.Context(), s.client, s.table, cells[from:min(from+bareCells, len(cells))])
			})
		}
		if err := g.Wait(); err != nil {
			s.b.Fatal(err)
		}
		return time.Since(began)
	})
}
