//go:build e2e

package hbase_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/wire"
)

const (
	benchCallers = 4
	benchCells   = 500
	benchBatches = 20 // of each caller and turn
)

// BenchmarkPut puts the same load through the archive and through the bare client,
// in turns, and reports the cells per second of both and their ratio.
func BenchmarkPut(b *testing.B) {
	c := hbase.Config{Table: tableOf(b)}
	a := open(b, c)
	raw := gohbase.NewClient(zooKeeper(b))
	defer raw.Close()
	bare := func(ctx context.Context, cells []history.Cell) error { return sendBatch(ctx, raw, c.Table, cells) }
	ours := func(ctx context.Context, cells []history.Cell) error {
		for _, err := range a.Put(ctx, cells) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	turn(b, ours) // a new table and a cold server
	turn(b, bare)
	var spent, bareSpent time.Duration
	turns := 0
	for b.Loop() {
		bareSpent += turn(b, bare)
		spent += turn(b, ours)
		turns++
	}
	cells := float64(turns * benchCallers * benchCells * benchBatches)
	b.ReportMetric(cells/spent.Seconds(), "cells/s")
	b.ReportMetric(cells/bareSpent.Seconds(), "bare-cells/s")
	b.ReportMetric(bareSpent.Seconds()/spent.Seconds(), "ratio")
}

// turn has every caller put its batches and returns how long all of them took.
func turn(b *testing.B, put func(context.Context, []history.Cell) error) time.Duration {
	b.Helper()
	load := make([][]history.Cell, benchCallers*benchBatches)
	for i := range load {
		load[i] = benchLoad()
	}
	start := time.Now()
	var wg sync.WaitGroup
	for caller := range benchCallers {
		wg.Go(func() {
			for _, cells := range load[caller*benchBatches:][:benchBatches] {
				if err := put(b.Context(), cells); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// benchLoad returns cells of as many users, of about 200 bytes each.
func benchLoad() []history.Cell {
	cells, now := make([]history.Cell, benchCells), time.Now().UnixMilli()
	for i := range cells {
		cells[i] = history.Cell{
			Key: history.Key{UID: rand.Text(), Object: history.Object{ID: fmt.Sprint(i), Type: 1}},
			Record: &history.Record{
				Revision: uint64(i + 1), Version: history.VersionOf(now, history.RankProgress), State: history.StatePlaying,
				Position: 61_000, Session: rand.Text(), Device: "a television", Duration: 120_000,
				DurationVersion: history.VersionOf(now, history.RankProgress),
				Meta:            history.NewMeta(map[string]string{"title": "A title of ordinary length", "series": "and its series, which is longer"}),
				MetaVersion:     history.VersionOf(now, history.RankProgress),
			},
		}
	}
	return cells
}

// sendBatch is what a program without this package would do.
func sendBatch(ctx context.Context, client gohbase.Client, table string, cells []history.Cell) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	calls := make([]hrpc.Call, len(cells))
	for i, c := range cells {
		values := map[string]map[string][]byte{"info": {c.Key.Object.String(): wire.AppendRecord(nil, c.Record)}}
		call, err := hrpc.NewPutStr(ctx, table, history.RowKey(c.Key.UID), values, hrpc.TimestampUint64(uint64(c.Record.Version.Time())))
		if err != nil {
			return err
		}
		calls[i] = call
	}
	results, _ := client.SendBatch(ctx, calls)
	for _, r := range results {
		if r.Error != nil {
			return r.Error
		}
	}
	return nil
}
