package pebble

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// Run sweeps from time to time, until ctx is done; then it returns nil. It returns
// an error when the store can no longer write: then the process should end and
// start again, which loses nothing that was acknowledged.
func (d *DB) Run(ctx context.Context) error {
	t := time.NewTicker(d.config.SweepEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.sweep(ctx)
		case <-d.fault.failed:
			return d.fault.err()
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *DB) sweep(ctx context.Context) {
	start := time.Now()
	n, err := d.Sweep(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		d.config.Logger.Error("sweep failed", "error", err)
	case n > 0:
		d.config.Logger.Info("swept expired records", "records", n, "seconds", time.Since(start).Seconds())
	}
}

// Sweep deletes what has outlived its life in both halves, which readers do not see
// anyway, and returns how many records it were. It looks at every record, a
// thousand under one lock, so that a writer waits for a millisecond at most.
func (d *DB) Sweep(ctx context.Context) (int, error) {
	inCache, err := d.Cache().sweep(ctx)
	if err != nil {
		return inCache, fmt.Errorf("sweep cache: %w", err)
	}
	inArchive, err := d.Archive().sweep(ctx)
	if err != nil {
		return inCache + inArchive, fmt.Errorf("sweep archive: %w", err)
	}
	if _, err := d.Days().sweep(ctx); err != nil {
		return inCache + inArchive, fmt.Errorf("sweep days: %w", err)
	}
	return inCache + inArchive, nil
}

const sweepStep = 1000 // records

func (h *half) sweep(ctx context.Context) (swept int, err error) {
	for from := []byte{h.space}; from != nil && err == nil; {
		var n int
		n, from, err = h.sweepFrom(ctx, from)
		swept += n
	}
	return swept, err
}

// sweepFrom deletes the expired of the next records and returns the key to go on
// from, nil at the end. It is not synced: what comes back is swept again.
func (h *half) sweepFrom(ctx context.Context, from []byte) (swept int, next []byte, err error) {
	if err := h.db.enterWriting(ctx); err != nil {
		return 0, nil, err
	}
	defer h.db.leave()
	h.lock.Lock()
	defer h.lock.Unlock()
	e := h.edit()
	defer e.close()
	seen, oldest := 0, h.oldest()
	for key, value := range h.db.each(from, []byte{h.space + 1}, &err) {
		if seen++; seen > sweepStep {
			next = bytes.Clone(key)
			break
		}
		if !h.expired(key, value, oldest) {
			continue
		}
		if err := e.expire(key, value); err != nil {
			return 0, nil, err
		}
		swept++
	}
	if err != nil {
		return 0, nil, err
	}
	return swept, next, e.commit(nil)
}

// expired is true of records only: a user's state tells nothing of its age. Where a
// newer record waits, the one in Pebble is on its way out.
func (h *half) expired(key, value []byte, oldest int64) bool {
	_, record := h.split(value)
	return key[len(key)-1] != endOfUID && h.outlived(record, oldest) && h.memory.get(key) == nil
}

func (e *edit) expire(key, value []byte) error {
	k, err := parseKey(key)
	if err != nil {
		return err
	}
	return e.drop(k, value)
}
