package pebble

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// change is what a call changes. The journal gets all of it, Pebble at once only a
// part: records of the cache wait in memory for the next checkpoint.
type change struct {
	all, part *pebble.Batch
	ticket    *ticket // nil for a change that need not be durable by itself
	// follow brings memory up to the change once the journal has it, and may add to
	// the part. It is nil where memory has nothing of it.
	follow func() error
}

// maxBacklog is how many bytes of journal may wait for a checkpoint that is late.
const maxBacklog = 4 * journalSize

// reserve is how many bytes of disk, or which share of it if that is less, are left
// to Pebble, which needs room to make room. A full disk would end all writing until
// the next start; one that is nearly full only until something else is deleted.
const (
	reserve      = 256 << 20
	reserveShare = 16
)

// writable fails while writing is of no use. It comes before anything changes.
func (d *DB) writable() error {
	if err := d.fault.err(); err != nil {
		return err
	}
	if d.journal.size.Load() > maxBacklog {
		return unavailable(errors.New("the disk is too slow"))
	}
	u, err := d.fs.GetDiskUsage(d.dir) // a microsecond, once for all writes of a call
	if err == nil && u.AvailBytes < min(reserve, u.TotalBytes/reserveShare) {
		return unavailable(fmt.Errorf("only %d MiB are free on the disk", u.AvailBytes>>20))
	}
	return nil
}

// commit makes a change visible and puts it in the journal, in one order for both.
// The caller then waits for the ticket outside of its locks, so that callers share
// an fsync. After an error the change may be made all the same.
func (d *DB) commit(c change) error {
	if c.all.Empty() {
		return nil
	}
	d.order.Lock()
	defer d.order.Unlock()
	if err := d.fault.err(); err != nil {
		return err
	}
	if err := d.journal.append(c.all.Repr(), c.ticket); err != nil {
		return d.fault.fail(err)
	}
	if d.journal.size.Load() > journalSize {
		d.checkpointSoon()
	}
	if c.follow != nil {
		if err := c.follow(); err != nil {
			return d.fault.fail(err)
		}
	}
	if c.part.Empty() {
		return nil
	}
	if err := d.pebble.Apply(c.part, pebble.NoSync); err != nil {
		return d.fault.fail(err)
	}
	return d.fault.err() // Pebble logs a fatal error and returns nil
}
