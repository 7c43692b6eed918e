package pebble

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
)

// Days records the days of users' activity in the cache's store, under its lock.
type Days struct{ keyspace }

// Days returns the store of the days on which users were seen.
func (d *DB) Days() *Days {
	return &Days{keyspace{db: d, space: spaceSeen, lock: &d.cache, unsynced: &d.daysUnsynced}}
}

// See records sightings. It is durable when it returns.
func (d *Days) See(ctx context.Context, sightings []history.Sighting) []history.Seen {
	seen := make([]history.Seen, len(sightings))
	if err := d.see(ctx, sightings, seen); err != nil {
		for i := range seen {
			seen[i] = history.Seen{Err: err}
		}
	}
	return seen
}

func (d *Days) see(ctx context.Context, sightings []history.Sighting, seen []history.Seen) error {
	var relied *wal.Waiter
	err := d.update(ctx, durable, func(e *edit) (err error) {
		relied, err = d.record(e, sightings, seen)
		return err
	})
	if err != nil {
		return err
	}
	return d.db.wait(relied)
}

// record adds the first sightings and returns the waiter of the other answers.
func (d *Days) record(e *edit, sightings []history.Sighting, seen []history.Seen) (relied *wal.Waiter, err error) {
	at := d.db.config.Now()
	own := make(map[string]history.SeenDays) // a user may appear twice
	for i, s := range sightings {
		key := appendUser(nil, spaceSeen, s.UID)
		days, ok := own[s.UID]
		if !ok {
			if days, err = seenDays(d.db.pebble, key); err != nil {
				return nil, err
			}
		}
		days, seen[i].First = days.With(s.Day)
		if seen[i].At = at.UnixMilli(); !seen[i].First {
			relied = wal.Later(relied, d.unsynced.of(key))
			continue
		}
		own[s.UID] = days
		if err := set(e.batch, key, binary.BigEndian.AppendUint64(nil, uint64(days))); err != nil { //nolint:gosec // never negative
			return nil, err
		}
		if err := set(e.batch, appendPending(nil, history.First{Sighting: s, At: at.UnixMilli()}), nil); err != nil {
			return nil, err
		}
		e.awaited = append(e.awaited, bucketOf(key))
	}
	return relied, nil
}

// seenDays reads a user's days. An invalid value counts as none.
func seenDays(r pebble.Reader, key []byte) (days history.SeenDays, err error) {
	err = get(r, key, func(v []byte) error {
		if len(v) == markSize {
			days = history.SeenDays(binary.BigEndian.Uint64(v)) //nolint:gosec // as it was written
		}
		return nil
	})
	return days, err
}

// PendingFirsts returns unannounced first sightings, oldest first. A call for all buckets reads only its result.
func (d *Days) PendingFirsts(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) (firsts []history.First, err error) {
	if err := d.db.enter(ctx); err != nil {
		return nil, err
	}
	defer d.db.leave()
	var asked [history.Buckets]bool
	for _, b := range buckets {
		asked[b] = true
	}
	before := d.db.config.Now().Add(-age).UnixMilli()
	for key := range d.db.each([]byte{spacePendingFirsts}, appendPendingTime(nil, before), &err) {
		if len(firsts) >= limit {
			break
		}
		if f, ok := parsePending(key); ok && asked[history.BucketOf(f.UID)] {
			firsts = append(firsts, f)
		}
	}
	return firsts, err
}

// Announced removes first sightings from the pending ones. It is not synced: first sightings that a crash restores are announced
// again.
func (d *Days) Announced(ctx context.Context, firsts []history.First) error {
	return d.update(ctx, lazily, func(e *edit) error {
		for _, f := range firsts {
			if err := del(e.batch, appendPending(nil, f)); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendPending appends the key of a pending first sighting.
func appendPending(dst []byte, f history.First) []byte {
	dst = binary.BigEndian.AppendUint32(appendPendingTime(dst, f.At), f.Day.Number())
	return append(dst, f.UID...)
}

// appendPendingTime appends the key that follows all older ones.
func appendPendingTime(dst []byte, at int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, spacePendingFirsts), uint64(max(at, 0)))
}

// pendingPrefix is the number of bytes before the uid.
const pendingPrefix = 1 + 8 + 4

func parsePending(key []byte) (history.First, bool) {
	if len(key) <= pendingPrefix {
		return history.First{}, false
	}
	day, ok := history.NumberedDay(binary.BigEndian.Uint32(key[9:]))
	at := int64(binary.BigEndian.Uint64(key[1:])) //nolint:gosec // as it was written
	return history.First{Sighting: history.Sighting{UID: string(key[pendingPrefix:]), Day: day}, At: at}, ok
}
