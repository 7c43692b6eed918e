package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Overdue implements [history.Ledger]. Marks are in order of age, so a call for all buckets reads only its result.
func (c *Cache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	var asked [history.Buckets]bool
	for _, b := range buckets {
		asked[b] = true
	}
	before := history.Mark(math.MaxInt64)
	if age > 0 {
		before = history.Mark(c.db.config.Now().Add(-age).UnixMicro() + 1)
	}
	var overdue []history.Key
	var err error
	for key := range c.dirty(before, &err) {
		if len(overdue) >= limit {
			break
		}
		k, _, bad := parseDirty(key)
		if bad != nil {
			c.db.damage.cell("dirty marks", history.Pseudonym(string(key)), bad)
		} else if asked[history.BucketOf(k.UID)] {
			overdue = append(overdue, k)
		}
	}
	if err != nil {
		return nil, err
	}
	return overdue, nil
}

const markCleanStep = 100 // contents under one lock

// MarkClean implements [history.Ledger]. It needs no fsync. The sweep repeats a lost mark clean, and a durable one
// follows the archived record in the same log.
func (c *Cache) MarkClean(ctx context.Context, contents []history.Content) (err error) {
	ctx, span := trace.Store(ctx, "pebble", "mark_clean", len(contents))
	defer func() { span.End(err) }()
	if err := c.db.enterWriting(ctx); err != nil {
		return err
	}
	defer c.db.leave()
	for some := range slices.Chunk(contents, markCleanStep) {
		if err := c.markClean(some); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) markClean(contents []history.Content) error {
	return c.change(nil, func(e *edit) error {
		e.marksClean = make([]wal.Item, 0, len(contents))
		for _, x := range contents {
			markClean := e.markCleanRecord
			if x.Key.IsUser() {
				markClean = e.markCleanUser
			}
			if err := markClean(x); err != nil {
				return err
			}
		}
		return nil
	})
}

// markCleanRecord sets the clean bit of an archived record and removes its mark. A missing record has no mark. An
// expired record is dropped with its mark.
func (e *edit) markCleanRecord(x history.Content) error {
	key := appendKey(nil, e.space, x.Key)
	return e.get(key, func(v []byte) error {
		mark, record := e.split(v)
		switch {
		case mark == 0:
			return nil
		case x.Revision == 0 && e.expired(record, e.oldest(x.Key.UID)):
			return e.drop(x.Key, v)
		case x.Revision == 0 || !history.SameContent(wire.Revision(record), x.Revision):
			return nil
		}
		e.markClean(x.Key, key, clean(v))
		e.unmark(key, mark)
		return nil
	})
}

// clean returns a clean copy of a record's value, without a mark.
func clean(value []byte) []byte {
	value = bytes.Clone(value)
	binary.BigEndian.PutUint64(value, 0)
	value[markSize+wire.RevisionEnd-1] |= byte(history.CleanBit >> 56)
	return value
}

func (e *edit) markCleanUser(x history.Content) error {
	u, mark, err := e.stored(x.Key.UID)
	if err != nil || mark == 0 || u.Revision != x.Revision {
		return err
	}
	e.unmark(appendUser(nil, e.space, x.Key.UID), mark)
	return e.store(x.Key.UID, u, 0)
}

// Backlog implements [history.Ledger]. It reads every mark, about a million per second.
func (c *Cache) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	var all [history.Buckets]history.Backlog
	var err error
	for key := range c.dirty(math.MaxInt64, &err) {
		k, mark, bad := parseDirty(key)
		if bad != nil {
			continue // the sweep reports it
		}
		b := &all[history.BucketOf(k.UID)]
		if b.Marks++; b.Marks == 1 { // marks are in order of age
			b.Oldest = mark
		}
	}
	if err != nil {
		return nil, err
	}
	found := make([]history.Backlog, len(buckets))
	for i, b := range buckets {
		found[i] = all[b]
	}
	return found, nil
}

// dirty yields the dirty-mark keys below a bound, from one point in time: first those in Pebble, then the later
// ones in memory. A key is valid until the next step.
func (c *Cache) dirty(bound history.Mark, failed *error) iter.Seq[[]byte] {
	return func(yield func(dirty []byte) bool) {
		stored, waiting, err := c.dirtyNow(bound)
		if err != nil {
			*failed = unavailable(err)
			return
		}
		for key := range steps(stored, failed) {
			if !yield(key) {
				return
			}
		}
		var key []byte
		for _, d := range waiting {
			if key = appendDirty(key[:0], d.Key, d.Mark); *failed != nil || !yield(key) {
				return
			}
		}
	}
}

// dirtyNow returns the marks below a bound in Pebble and in memory. Pebble is read only up to the first mark in
// memory, so a mark being flushed is not seen twice.
func (c *Cache) dirtyNow(bound history.Mark) (stored *pebble.Iterator, waiting []wal.Dirty, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	waiting, first := c.memory.tables.Marks(bound)
	upper := []byte{spaceDirty + 1}
	if first < math.MaxInt64 {
		upper = appendMark(nil, first)
	}
	stored, err = c.db.pebble.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceDirty}, UpperBound: upper})
	return stored, waiting, err
}

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
		r := wire.Peek(record)
		d := dropping{o, r.Version, wire.Revision(record)&history.CleanBit != 0}
		if r.State == history.StateDeleted {
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
