package pebble

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/playhead/playhead/history"
)

// sweep forgets users who were not seen lately, and returns how many.
func (d *Days) sweep(ctx context.Context) (swept int, err error) {
	for from := []byte{spaceSeen}; from != nil && err == nil; {
		var n int
		n, from, err = d.sweepFrom(ctx, from)
		swept += n
	}
	return swept, err
}

// sweepFrom is like that of the records.
func (d *Days) sweepFrom(ctx context.Context, from []byte) (swept int, next []byte, err error) {
	if err := d.db.enterWriting(ctx); err != nil {
		return 0, nil, err
	}
	defer d.db.leave()
	d.db.cache.Lock()
	defer d.db.cache.Unlock()
	b := d.db.pebble.NewBatch()
	defer b.Close()
	seen, over := 0, history.DayOf(d.db.config.Now().UTC())-keptDays
	for key, value := range d.db.each(from, []byte{spaceSeen + 1}, &err) {
		if seen++; seen > sweepStep {
			next = bytes.Clone(key)
			break
		}
		if len(value) == markSize && history.SeenDays(binary.BigEndian.Uint64(value)).Newest() >= over { //nolint:gosec // as it was written
			continue
		}
		if err := b.Delete(key, nil); err != nil {
			return 0, nil, unavailable(err)
		}
		swept++
	}
	if err != nil {
		return 0, nil, err
	}
	return swept, next, d.db.commit(change{all: b, part: b})
}

// keptDays is for how long a day is remembered that may be today nowhere any more.
const keptDays = 3
