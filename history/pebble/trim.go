package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Trim implements [history.Ledger]. It is not synced: records that a crash restores are trimmed again.
func (c *Cache) Trim(ctx context.Context, uids []string) error {
	for _, uid := range uids {
		if err := c.trim(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) trim(ctx context.Context, uid string) error {
	return c.update(ctx, lazily, func(e *edit) error {
		if err := e.trimLog(uid); err != nil {
			return err
		}
		if n, ok := c.memory.lengths.Get(uid); ok && *n <= c.db.keep(uid) {
			return nil
		}
		below, err := c.beyond(uid)
		if err != nil || len(below) == 0 {
			return err
		}
		u, mark, err := c.stored(uid)
		if err != nil {
			return err
		}
		for _, d := range below {
			u.LowWatermark = max(u.LowWatermark, d.version+1) // also for a cold user, see Warm
			if err := e.dropAt(uid, appendKey(nil, c.space, history.Key{UID: uid, Object: d.object})); err != nil {
				return err
			}
		}
		return e.store(uid, u, mark)
	})
}

// keep returns the cache's record limit for a user, or for a namespace of a user.
func (d *DB) keep(uid string) int { return d.config.Rules.NamespaceList(uid, d.config.Keep) }

// dropping is a record that may be dropped.
type dropping struct {
	object  history.Object
	version history.Version
	clean   bool
}

// beyond returns the clean records beyond the cache's limit. Tombstones have the same limit of their own. It caches
// the record count.
func (c *Cache) beyond(uid string) (below []dropping, err error) {
	var live, deleted []dropping
	for o, v := range c.records(uid, &err) {
		_, record := c.split(v)
		r := peek(record)
		d := dropping{o, r.version, wire.Revision(record)&history.CleanBit != 0}
		if r.state == history.StateDeleted {
			deleted = append(deleted, d)
		} else {
			live = append(live, d)
		}
	}
	if err != nil {
		return nil, err
	}
	n := len(live) + len(deleted)
	c.memory.lengths.Put(uid, &n)
	keep := c.db.keep(uid)
	return append(beyondNewest(live, keep), beyondNewest(deleted, keep)...), nil
}

// beyondNewest returns the clean records after the newest keep ones. Records of the boundary version stay, because
// a low watermark cannot separate them.
func beyondNewest(all []dropping, keep int) []dropping {
	if len(all) <= keep {
		return nil
	}
	slices.SortFunc(all, func(a, b dropping) int { return cmp.Compare(b.version, a.version) })
	bound := all[keep-1].version
	return slices.DeleteFunc(all[keep:], func(d dropping) bool { return d.version == bound || !d.clean })
}

// Run sweeps, summarizes and compacts until ctx is done, then returns nil. It returns an error if the store can no
// longer write. The process should then restart, which loses no acknowledged write.
func (d *DB) Run(ctx context.Context) error {
	t := time.NewTicker(d.config.SweepEvery)
	defer t.Stop()
	compact := time.NewTimer(compactEvery)
	defer compact.Stop()
	if d.config.CompactAbove == 0 {
		compact.Stop()
	}
	var remove <-chan time.Time
	if d.summaryTTL > 0 {
		r := time.NewTicker(compactEvery)
		defer r.Stop()
		remove = r.C
		d.sweep(ctx) // records that have aged since the last sweep are not summarized yet
	}
	for {
		select {
		case <-t.C:
			d.sweep(ctx)
			d.learnKeys()
		case <-remove:
			d.summarizeNext(ctx)
		case <-compact.C:
			began := time.Now()
			d.compactNext(ctx)
			compact.Reset(max(compactEvery, compactPauses*time.Since(began)))
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

// Sweep deletes expired records of the cache and the archive, days of users not seen lately, unused change
// logs, and marks of counted records. It returns the number of deleted records.
//
// It scans every record, a thousand under one lock, so it delays a writer by at most a millisecond.
func (d *DB) Sweep(ctx context.Context) (int, error) {
	cache, archive, days := d.Cache(), d.Archive(), d.Days()
	inCache, err := cache.sweep(ctx, cache.dropExpired())
	if err != nil {
		return inCache, fmt.Errorf("sweep cache: %w", err)
	}
	sweepArchive := func(ctx context.Context) (int, error) {
		return archive.sweep(ctx, archive.noteLongRows(archive.dropExpired()))
	}
	if d.summaryTTL > 0 {
		sweepArchive = archive.sweepSummaries
	}
	inArchive, err := sweepArchive(ctx)
	if err != nil {
		return inCache + inArchive, fmt.Errorf("sweep archive: %w", err)
	}
	if _, err := days.sweep(ctx, dropDaysBefore(history.DayOf(d.config.Horizon().UTC())-keptDays)); err != nil {
		return inCache + inArchive, fmt.Errorf("sweep days: %w", err)
	}
	logs := &keyspace{db: d, space: spaceLogHead, lock: &d.cache, memory: d.memory, unsynced: &d.cacheUnsynced}
	if _, err := logs.sweep(ctx, dropUnasked); err != nil {
		return inCache + inArchive, fmt.Errorf("sweep logs of changes: %w", err)
	}
	counters := d.Counters()
	if _, err := counters.sweep(ctx, counters.dropMarks()); err != nil {
		return inCache + inArchive, fmt.Errorf("sweep counters: %w", err)
	}
	if err := archive.noteSegments(); err != nil {
		return inCache + inArchive, fmt.Errorf("sweep segments: %w", err)
	}
	return inCache + inArchive, nil
}

// dropper deletes an expired key and reports whether it did.
type dropper func(e *edit, key, value []byte) (bool, error)

// dropExpired drops expired records but no user states, which have no age. It skips records with a newer version
// in memory.
func (s *keyspace) dropExpired() dropper {
	oldest := s.horizons()
	return func(e *edit, key, value []byte) (bool, error) {
		_, record := s.split(value)
		if key[len(key)-1] == endOfUID || !s.expired(record, oldest.ofKey(key)) || s.memory.tables.Get(s.memory.hash(key), key) != nil {
			return false, nil
		}
		k, err := parseKey(key)
		if err != nil {
			return false, err
		}
		return true, e.drop(k, value)
	}
}

// keptDays is how long a day is kept after it has ended in every time zone.
const keptDays = 3

func dropDaysBefore(day history.Day) dropper {
	return func(e *edit, key, value []byte) (bool, error) {
		if len(value) == markSize && history.SeenDays(binary.BigEndian.Uint64(value)).Newest() >= day { //nolint:gosec // as it was written
			return false, nil
		}
		return true, del(e.batch, key)
	}
}

const sweepStep = 1000 // keys

func (s *keyspace) sweep(ctx context.Context, drop dropper) (swept int, err error) {
	for from := []byte{s.space}; from != nil && err == nil; {
		var n int
		n, from, err = s.sweepFrom(ctx, from, drop)
		swept += n
	}
	return swept, err
}

// sweepFrom sweeps the next keys and returns the key to continue from, nil at the end. It is not synced: restored
// keys are swept again.
func (s *keyspace) sweepFrom(ctx context.Context, from []byte, drop dropper) (swept int, next []byte, err error) {
	err = s.update(ctx, lazily, func(e *edit) error {
		var failed error
		seen := 0
		for key, value := range s.db.each(from, []byte{s.space + 1}, &failed) {
			if seen++; seen > sweepStep {
				next = bytes.Clone(key)
				break
			}
			dropped, err := drop(e, key, value)
			if err != nil {
				return err
			}
			if dropped {
				swept++
			}
		}
		return failed
	})
	if err != nil {
		return 0, nil, err
	}
	return swept, next, nil
}

// noteLongRows notes users with long live segments. It counts consecutive keys.
func (a *Archive) noteLongRows(drop dropper) dropper {
	var row []byte
	records := 0
	return func(e *edit, key, value []byte) (bool, error) {
		end := objectAt(key)
		if !bytes.Equal(row, key[:end]) {
			row, records = append(row[:0], key[:end]...), 0
		}
		if records++; records == a.db.config.CompactAbove+2 { // the state is one of them
			a.noteLong(uidOf(key), records)
		}
		return drop(e, key, value)
	}
}
