package hbase

import (
	"context"
	"fmt"
	"slices"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Put implements [history.Archive]. Cells travel in batches of 500, several at a
// time. A cell that is not legal or has no record is refused for good.
func (a *Archive) Put(ctx context.Context, cells []history.Cell) []error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	errs, chosen := choose(cells)
	sent := make([]outgoing, 0, len(cells))
	for i, c := range cells {
		if errs[i] == nil && chosen[i] == i {
			sent = append(sent, a.outgoing(ctx, c, &errs[i]))
		}
	}
	_ = parallel(len(sent), func(i int) int { return sent[i].size }, func(from, to int) error {
		select {
		case a.puts <- struct{}{}:
			defer func() { <-a.puts }()
		case <-ctx.Done(): // the batch will say so
		}
		a.send(ctx, sent[from:to])
		return nil
	})
	for i, j := range chosen {
		for j != chosen[j] {
			j = chosen[j]
		}
		if errs[i] == nil {
			errs[i] = errs[j]
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

// choose refuses cells that are not legal and picks, of several cells of one key,
// the one that would remain: batches overtake each other. The others share its fate:
// for each cell it says which one stands for it, itself or one that may in turn have
// given way to another.
func choose(cells []history.Cell) (errs []error, chosen []int) {
	errs, chosen = make([]error, len(cells)), make([]int, len(cells))
	last := make(map[history.Key]int, len(cells))
	for i, c := range cells {
		chosen[i] = i
		if err := check(c); err != nil {
			errs[i] = fmt.Errorf("put %s: %w: %w", c.Key, history.ErrPermanent, err)
			continue
		}
		j, twice := last[c.Key]
		switch {
		case twice && cells[j].Record.Version.Time() > c.Record.Version.Time():
			chosen[i] = j
			continue
		case twice:
			chosen[j] = i
		}
		last[c.Key] = i
	}
	return errs, chosen
}

func check(c history.Cell) error {
	if c.Record == nil || c.Record.Version.Time() <= 0 {
		return history.Invalid("record", "want one with an event time")
	}
	if err := history.ValidateUID(c.Key.UID); err != nil {
		return err
	}
	return c.Key.Object.Validate()
}

// usualSize is what most records fit into, in bytes.
const usualSize = 192

// outgoing is a cell on its way.
type outgoing struct {
	key  history.Key
	call hrpc.Call
	size int // bytes of the value
	err  *error
}

func (a *Archive) outgoing(ctx context.Context, c history.Cell, err *error) outgoing {
	value := wire.AppendRecord(make([]byte, 0, usualSize), c.Record)
	column := map[string][]byte{c.Key.Object.String(): value}
	return outgoing{c.Key, a.put(ctx, c.Key.UID, column, uint64(c.Record.Version.Time())), len(value), err}
}

// send puts cells in one batch. For one oversize cell HBase refuses all cells of
// the batch that are in its region; halves of them find out which one it was.
func (a *Archive) send(ctx context.Context, cells []outgoing) {
	if len(cells) == 0 {
		return
	}
	calls := make([]hrpc.Call, len(cells))
	for i, c := range cells {
		calls[i] = c.call
	}
	var refused []outgoing
	for i, r := range a.batch(ctx, calls) {
		if shared(r.Error) && len(cells) > 1 {
			refused = append(refused, cells[i])
		} else if r.Error != nil {
			*cells[i].err = fmt.Errorf("put %s: %w", cells[i].key, classify(r.Error))
		}
	}
	half := (len(refused) + 1) / 2
	a.send(ctx, refused[:half])
	a.send(ctx, refused[half:])
}
