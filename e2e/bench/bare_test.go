//go:build e2e

package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

const (
	bareCallers = 4
	bareCells   = 500 // of a batch
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

// cell is what a put needs, encoded beforehand.
type cell struct {
	row, column string
	at          uint64
	value       []byte
}

// encode returns the cells of writes.
func encode(all audience) []cell {
	cells := make([]cell, len(all))
	for i, w := range all {
		cells[i] = cell{
			row: history.RowKey(w.Key.UID), column: w.Key.Object.String(),
			at: uint64(w.Record.Version.Time()), value: wire.AppendRecord(nil, w.Record),
		}
	}
	return cells
}

func (s *bare) round(cells []cell) figures {
	return s.meter.measure(s.b, len(cells), func() time.Duration {
		began := time.Now()
		var g errgroup.Group
		g.SetLimit(bareCallers)
		for from := 0; from < len(cells); from += bareCells {
			g.Go(func() error { return s.put(cells[from:min(from+bareCells, len(cells))]) })
		}
		if err := g.Wait(); err != nil {
			s.b.Fatal(err)
		}
		return time.Since(began)
	})
}

// put sends one batch.
func (s *bare) put(cells []cell) error {
	ctx, cancel := context.WithTimeout(s.b.Context(), 10*time.Second)
	defer cancel()
	calls := make([]hrpc.Call, len(cells))
	for i, c := range cells {
		var err error
		calls[i], err = hrpc.NewPutStr(ctx, s.table, c.row, map[string]map[string][]byte{"info": {c.column: c.value}}, hrpc.TimestampUint64(c.at))
		if err != nil {
			return err
		}
	}
	results, _ := s.client.SendBatch(ctx, calls)
	for _, r := range results {
		if r.Error != nil {
			return fmt.Errorf("put: %w", r.Error)
		}
	}
	return nil
}
