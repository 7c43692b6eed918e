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

// clockRow follows the two digits of a row that has the time of a region server. NUL is in no uid.
const clockRow = "\x00clock"

// ClockAhead returns how far the clock of a region server is ahead of this process's, of all known ones the furthest off. It puts a cell
// without a time, which ends after a minute, and reads which time it got. HBase drops cells by that clock.
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
	column := "clock." + rand.Text() // a cell from before the clock was set back would hide the new one
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

// oneOfEach returns a row of no user on each server that is known.
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
