package hbase

import (
	"context"
	"fmt"
	"slices"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Put implements [history.Archive]. Cells travel in batches of 500 to a region server,
// several at a time. A cell that is not legal or has no record is refused for good.
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
	_ = parallel(sent, func(lane *lane, some []outgoing) error {
		select {
		case lane.puts <- struct{}{}:
			defer func() { <-lane.puts }()
		case <-ctx.Done(): // the batch will say so
		}
		a.send(ctx, lane, some)
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
		case twice && cellTime(cells[j].Record) > cellTime(c.Record):
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

// cellTime returns the time of a record's cell. It is not before the event, however the
// record came about: the delete that goes with a clear must not cover it.
func cellTime(r *history.Record) int64 { return max(r.CellTime, r.Version.Time()) }

// usualSize is what most records fit into, in bytes.
const usualSize = 192

// outgoing is a cell on its way.
type outgoing struct {
	key   history.Key
	value []byte
	at    uint64
	lane  *lane
	call  hrpc.Call
	err   *error
}

func (o outgoing) way() *lane  { return o.lane }
func (o outgoing) weight() int { return len(o.value) }

func (o outgoing) column() map[string][]byte {
	return map[string][]byte{o.key.Object.String(): o.value}
}

func (o outgoing) failed(err error) {
	if err != nil {
		*o.err = fmt.Errorf("put %s: %w", o.key, classify(err))
	}
}

func (a *Archive) outgoing(ctx context.Context, c history.Cell, err *error) outgoing {
	o := outgoing{key: c.Key, value: wire.AppendRecord(make([]byte, 0, usualSize), c.Record), at: uint64(cellTime(c.Record)), err: err}
	o.call = a.put(ctx, o.key.UID, o.column(), o.at)
	o.lane = a.lanes.of(o.call.Key())
	return o
}

// send puts cells in one batch. For one oversize cell HBase refuses all cells of a
// request that are in its region; halves of them find out which one it was.
func (a *Archive) send(ctx context.Context, lane *lane, cells []outgoing) {
	if len(cells) == 0 {
		return
	}
	calls := make([]hrpc.Call, len(cells))
	for i, c := range cells {
		calls[i] = c.call
	}
	var refused []outgoing
	for i, r := range a.batch(ctx, lane, calls) {
		if shared(r.Error) {
			refused = append(refused, cells[i])
		} else {
			cells[i].failed(r.Error)
		}
	}
	if len(cells) == 1 && len(refused) == 1 {
		a.alone(ctx, refused[0])
		return
	}
	half := (len(refused) + 1) / 2
	a.send(ctx, lane, refused[:half])
	a.send(ctx, lane, refused[half:])
}

// alone puts one cell in a request of its own. The client sends batches of several
// callers together, so that a cell may be refused for one that it has never met.
func (a *Archive) alone(ctx context.Context, o outgoing) {
	call := a.put(ctx, o.key.UID, o.column(), o.at)
	err := hrpc.SkipBatch()(call)
	if err == nil {
		_, err = a.client.Put(call)
	}
	o.failed(err)
}
