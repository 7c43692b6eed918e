package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

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
		case <-d.fault.Failed():
			return d.fault.Err()
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
func (d *DB) Sweep(ctx context.Context) (swept int, err error) {
	cache, archive, days, counters := d.Cache(), d.Archive(), d.Days(), d.Counters()
	if swept, err = cache.sweep(ctx, cache.dropExpired()); err != nil {
		return swept, fmt.Errorf("sweep cache: %w", err)
	}
	sweepArchive := archive.sweepSummaries
	if d.summaryTTL == 0 {
		sweepArchive = func(ctx context.Context) (int, error) {
			return archive.sweep(ctx, archive.noteLongRows(archive.dropExpired()))
		}
	}
	n, err := sweepArchive(ctx)
	if swept += n; err != nil {
		return swept, fmt.Errorf("sweep archive: %w", err)
	}
	logs := &keyspace{db: d, space: spaceLogHead, lock: &d.cache, memory: d.memory, unsynced: &d.cacheUnsynced}
	for _, x := range []struct {
		what string
		of   *keyspace
		drop dropper
	}{
		{"days", &days.keyspace, dropDaysBefore(history.DayOf(d.config.Horizon().UTC()) - keptDays)},
		{"logs of changes", logs, dropUnasked},
		{"counters", &counters.keyspace, counters.dropMarks()},
	} {
		if _, err := x.of.sweep(ctx, x.drop); err != nil {
			return swept, fmt.Errorf("sweep %s: %w", x.what, err)
		}
	}
	if err := archive.noteSegments(); err != nil {
		return swept, fmt.Errorf("sweep segments: %w", err)
	}
	return swept, nil
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

// Held counts a user's stored items by place.
func (d *DB) Held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.leave()
	h, places := holding{d, uid, until}, map[string]int{"stream of plays": 0}
	var errs [6]error
	places["cache: records"], places["cache: dirty marks"], errs[0] = h.count(&d.Cache().keyspace)
	places["cache: changes"], places["cache: days"], errs[1] = h.logged()
	places["archive: live records"], _, errs[2] = h.count(&d.Archive().keyspace)
	places["archive: records in segments"], places["archive: chunks"], errs[3] = h.inChunks(spaceSegments)
	places["archive: summaries"], places["archive: chunks of summaries"], errs[4] = h.inChunks(spaceSummaries)
	errs[5] = d.Plays().ofUser(uid, until, func([]byte, []byte) error { places["stream of plays"]++; return nil })
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("count what there is of %s: %w", history.Pseudonym(uid), err)
	}
	return places, nil
}

type holding struct {
	db    *DB
	uid   string
	until int64
}

func (h *holding) counts(version history.Version) bool {
	return h.until == 0 || version.Time() <= h.until
}

// count counts a row at one point in time. It holds no lock meanwhile.
func (h *holding) count(s *keyspace) (records, marks int, err error) {
	s.lock.Lock()
	row, err := s.rowOf(h.uid)
	s.lock.Unlock()
	if err != nil {
		return 0, 0, err
	}
	for text, v := range row.all(&err) {
		mark, b := s.split(v)
		if len(text) == 0 || !h.counts(wire.Peek(b).Version) {
			continue
		}
		if records++; mark != 0 {
			marks++
		}
	}
	return records, marks, err
}

// logged counts data without a time, so only for an erasure of all times.
func (h *holding) logged() (entries, days int, err error) {
	if h.until != 0 {
		return 0, 0, nil
	}
	prefix := appendUser(nil, spaceLog, h.uid)
	for range h.db.each(prefix, after(prefix), &err) {
		entries++
	}
	seen, daysErr := seenDays(h.db.pebble, appendUser(nil, spaceSeen, h.uid))
	if seen != 0 {
		days = 1
	}
	return entries, days, errors.Join(err, daysErr)
}

// inChunks also counts chunks that the metadata lacks, as with damaged metadata. The metadata come first.
func (h *holding) inChunks(space byte) (records, chunks int, err error) {
	prefix := appendUser(nil, space, h.uid)
	listed := make(map[string]segment.Info)
	for key, v := range h.db.each(prefix, after(prefix), &err) {
		name := string(key[len(prefix):])
		if name == "" {
			if m, bad := segment.ParseMetadata(bytes.Clone(v)); bad == nil {
				for _, i := range m.Chunks {
					listed[i.Name] = i
				}
			}
		} else if i, ok := listed[name]; !ok {
			chunks++
		} else if h.counts(i.Oldest) {
			records, chunks = records+i.Count, chunks+1
		}
	}
	return records, chunks, err
}

// Namespaces returns a user's namespaces with possible data. It makes a checkpoint, because a namespace may exist only in memory.
// That includes namespaces of classes that the current rules no longer have.
func (d *DB) Namespaces(ctx context.Context, uid string) (all []string, err error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.leave()
	err = d.checkpointNow(ctx)
	for _, space := range []byte{spaceArchive, spaceCache, spaceLogHead, spaceSegments, spaceSummaries} {
		if err != nil {
			break
		}
		prefix := append(appendBucket(nil, space, history.BucketOf(uid)), history.NamespacePrefix(uid)...)
		for namespace := range d.users(prefix, after(prefix), &err) {
			if !slices.Contains(all, namespace) {
				all = append(all, namespace)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("namespaces of %s: %w", history.Pseudonym(uid), err)
	}
	return all, nil
}

// Erase removes a user's data up to a time. It rewrites the files with data of the user.
func (d *DB) Erase(ctx context.Context, uid string, until int64) error {
	err := d.Archive().erase(ctx, uid, until)
	if err == nil {
		err = d.Days().erase(ctx, uid)
	}
	if err == nil {
		err = d.Plays().erase(ctx, uid, until)
	}
	if err == nil {
		err = d.rewrite(ctx, uid)
	}
	if err != nil {
		return fmt.Errorf("erase %s: %w", history.Pseudonym(uid), err)
	}
	return nil
}

// erase removes live records, segments and summaries. The clear mark changes the user's state, so a concurrent
// compaction gives up.
func (a *Archive) erase(ctx context.Context, uid string, until int64) error {
	if err := a.dropDamaged(ctx, uid, until); err != nil {
		return err
	}
	if err := a.PutUser(ctx, uid, history.User{Cleared: map[uint32]int64{0: until}}); err != nil {
		return err
	}
	if err := a.db.enterWriting(ctx); err != nil {
		return err
	}
	defer a.db.leave()
	a.db.compactions.Lock()
	defer a.db.compactions.Unlock()
	for {
		err := a.eraseSegments(uid)
		if err == nil {
			err = a.eraseSummaries(uid)
		}
		if !errors.Is(err, history.ErrConflict) || ctx.Err() != nil { // the user was paused or cleared meanwhile
			return err
		}
	}
}

// eraseSegments rewrites the segments without cleared records.
func (a *Archive) eraseSegments(uid string) error {
	r := a.beginCompact(uid)
	defer a.endCompact(r)
	if _, err := r.live(); err != nil || r.user.Segments == 0 {
		return err
	}
	r.cutTime = r.user.CutTime
	return r.write()
}

// dropDamaged removes segments with unreadable metadata.
func (a *Archive) dropDamaged(ctx context.Context, uid string, until int64) error {
	prefix := appendUser(nil, spaceSegments, uid)
	return a.update(ctx, durable, func(e *edit) error {
		u, _, err := a.stored(uid)
		if err != nil || u.Segments == 0 {
			return err
		}
		if _, _, err = readMetadata(a.db.pebble, prefix, u.Segments); !errors.Is(err, segment.ErrCorrupt) {
			return err
		}
		u.Segments, u.CutTime = 0, max(u.CutTime, until)
		if err := delRow(e.batch, prefix); err != nil {
			return err
		}
		return e.store(uid, u, 0)
	})
}

// erase forgets the days on which a user was seen.
func (d *Days) erase(ctx context.Context, uid string) error {
	return d.update(ctx, durable, func(e *edit) error { return del(e.batch, appendUser(nil, spaceSeen, uid)) })
}

// rewrite rewrites all files with keys of a user: a checkpoint for the journal, compactions for Pebble.
func (d *DB) rewrite(ctx context.Context, uid string) error {
	if err := d.enterWriting(ctx); err != nil {
		return err
	}
	defer d.leave()
	if err := d.checkpointNow(ctx); err != nil {
		return err
	}
	for _, space := range []byte{spaceArchive, spaceCache, spaceLogHead, spaceLog, spaceSegments, spaceSeen, spaceSummaries} {
		prefix := appendUser(nil, space, uid)
		if err := d.compact(ctx, prefix, after(prefix)); err != nil {
			return err
		}
	}
	for _, space := range []byte{spacePlays, spaceDirty} { // ordered by time
		if err := d.compact(ctx, []byte{space}, []byte{space + 1}); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) compact(ctx context.Context, from, to []byte) error {
	if err := d.pebble.Compact(ctx, from, to, false); err != nil {
		return unavailable(err)
	}
	return d.fault.Err()
}

// Remains says where erased bytes stay.
func (d *DB) Remains(context.Context) []string {
	return []string{"copies of the data directory have what was there when they were made"}
}
