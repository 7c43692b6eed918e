package hbase

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/clock"
)

// clockRow follows the two digits in the row key of a server's clock cell. No uid contains NUL.
const clockRow = "\x00clock"

// ClockAhead returns the largest difference between a region server's clock and this process's; positive if the
// server is ahead. It puts a cell without a time, with a TTL of one minute, and reads back the assigned time. HBase
// expires cells by that clock.
func (a *Archive) ClockAhead(ctx context.Context) (furthest time.Duration, err error) {
	if err := a.config.ClockErr(); err != nil {
		return 0, err
	}
	if !a.prepared.Load() {
		return 0, fmt.Errorf("%w: hbase has not answered yet", history.ErrUnavailable)
	}
	for _, row := range a.servers.oneOfEach() {
		ahead, err := a.clockAhead(ctx, row)
		if err != nil {
			return 0, fmt.Errorf("clock of hbase: %w", classify(err))
		}
		if ahead.Abs() > furthest.Abs() {
			furthest = ahead
		}
	}
	return furthest, nil
}

func (a *Archive) clockAhead(ctx context.Context, row []byte) (time.Duration, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	column := "clock." + rand.Text() // a fresh column: after a clock step back, an older cell would hide the new one
	put, err := hrpc.NewPut(ctx, a.table, row, map[string]map[string][]byte{family: {column: nil}}, hrpc.TTL(time.Minute), hrpc.SkipBatch())
	if err != nil {
		return 0, err
	}
	get, err := hrpc.NewGet(ctx, a.table, row, hrpc.Families(map[string][]string{family: {column}}), hrpc.SkipBatch())
	if err != nil {
		return 0, err
	}
	began := a.config.Now()
	if _, err := a.client.Put(put); err != nil {
		return 0, err
	}
	ended := a.config.Now()
	r, err := a.client.Get(get)
	if err != nil {
		return 0, err
	}
	if len(r.Cells) != 1 {
		return 0, fmt.Errorf("%w: the cell of the clock is not read back", history.ErrUnavailable)
	}
	at := time.UnixMilli(int64(*r.Cells[0].Timestamp)) //nolint:gosec // a time
	return clock.Outside(at, began, ended), nil
}

// oneOfEach returns one clock row per known server, and one for all rows without a known server.
func (l *servers) oneOfEach() (rows [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[string]bool)
	for d, addr := range l.addrs {
		if !seen[addr] {
			seen[addr] = true
			rows = append(rows, fmt.Appendf(nil, "%02x%s", d, clockRow))
		}
	}
	return rows
}
