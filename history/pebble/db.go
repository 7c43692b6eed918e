// Package pebble keeps the cache and the archive in one directory on one machine,
// over one Pebble store.
//
// It is the store of the all-in-one binary: an acknowledged write has reached the
// disk, kill -9 loses nothing, and a directory belongs to one process.
//
// A journal makes every change durable. Records of the cache stay in memory until a
// checkpoint moves the last of each to Pebble; all else goes to Pebble at once. A start
// replays the journal since the last checkpoint. DESIGN.md argues why nothing that was
// acknowledged is lost.
package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// Config tunes a store. The zero value works.
type Config struct {
	// Keep is how many records per user Trim leaves in the cache. 0 means 1,000.
	Keep int
	// CompactAbove is how many records of a user the archive keeps as they are put. With more, what is
	// older than CompactAfter, beyond the newest half of that, goes into segments: compressed chunks, of
	// which a page reads one or two however many there are. 0 means that nothing does; what is in
	// segments is read all the same. A version that cannot read segments refuses to read such a user.
	CompactAbove int
	// CompactAfter is the age that is old. 0 means a day.
	CompactAfter time.Duration
	// Summary is for how long what remains of records is kept in summaries: see [history.Summary]. 0 is for as long
	// as was said before, or not at all.
	Summary time.Duration
	// TTL is how long the cache keeps a record after its event, once it is clean: before,
	// it is kept for as long as the archive would. 0 means that of the archive.
	TTL time.Duration
	// Rules say what is finished in summaries, how many records of classes the cache keeps, and for how long both keep
	// them (default the standard ones).
	Rules *history.Rulebook
	// Alone says that all that users have is in this store. Then a user of whom the archive has no
	// row is warm and complete without a warm-up: what the cache has is all there is.
	Alone bool
	// Memory is how many bytes the whole process may take, by which the store sizes what it keeps in memory. 0 means
	// 2 GiB or more.
	Memory int64
	// Files is how many files the store may have open at once. 0 means 1,000, which is the most.
	Files int
	// SweepEvery is how often [DB.Run] removes what has expired. 0 means an hour.
	SweepEvery time.Duration
	// Now is the clock. nil means [time.Now]. Horizon is the time by which records expire, never later than Now; nil means Now.
	Now, Horizon func() time.Time
	// Logger gets changes of state and failures. nil discards them.
	Logger *slog.Logger
	// Registry takes the metrics. nil means they are not exported.
	Registry prometheus.Registerer
	// VirtualTime is for tests in which hours pass at once. Pebble then begins compactions only when it has written a file;
	// that it also looks for them ten times a second is most of what such an hour costs.
	VirtualTime bool

	// Of the tests.
	fs          vfs.FS
	hash        func(key []byte) uint64
	blind       bool // does not learn which keys there are
	quietAfter  time.Duration
	compactStep int
}

func (c Config) withDefaults() Config {
	if c.Keep <= 0 {
		c.Keep = 1000
	}
	if c.TTL <= 0 {
		c.TTL = archiveTTL
	}
	if c.SweepEvery <= 0 {
		c.SweepEvery = time.Hour
	}
	if c.CompactAfter == 0 {
		c.CompactAfter = 24 * time.Hour
	}
	if c.compactStep == 0 {
		c.compactStep = compactStep
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Horizon == nil {
		c.Horizon = c.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.fs == nil {
		c.fs = vfs.Default
	}
	if c.quietAfter == 0 {
		c.quietAfter = quietAfter
	}
	if c.hash == nil {
		seed := maphash.MakeSeed()
		c.hash = func(key []byte) uint64 { return maphash.Bytes(seed, key) }
	}
	return c
}

const archiveTTL = history.ArchiveTTL * time.Millisecond

// DB is an open store. Its methods may be called from many goroutines.
type DB struct {
	config  Config
	sizes   sizes
	fs      vfs.FS
	dir     string
	lock    *pebble.Lock
	pebble  *pebble.DB
	journal *journal
	syncs   prometheus.Histogram // of the journal, in seconds
	fault   *fault
	damage  *damage

	// gate is held for reading by every call and for writing by Close, so that no
	// call meets a closed Pebble, which would panic.
	gate   sync.RWMutex
	closed bool

	// cache makes compare and set of the cache one step, archive that of the
	// archive. A call that needs both takes that of the cache first. order is that of the journal and
	// of Pebble, the innermost lock. None of them is held over the fsync of a call.
	cache, archive, order sync.Mutex

	// Under the lock of the cache.
	marks  clock
	memory *memory

	archiveMemory  *memory    // users and keys alone, under the lock of the archive
	orders         orders     // under the lock of the archive
	compacting     compacting // under the lock of the archive
	anySegments    bool       // there are or were some, under the lock of the archive
	compactions    sync.Mutex
	listed         uint64 // the latest version of a list of segments, under compacts
	notes          segment.Notes
	segments       *segment.Cache
	segmentMetrics *segment.Metrics

	summaryTTL int64           // in milliseconds, 0 for none
	removals   segment.Notes   // users of whom something is to be removed from summaries
	old        segment.Notes   // users of whom something old was put
	counted    atomic.Int64    // the time of which all that is older has expired and is in summaries
	uncounted  map[string]bool // users whose records could not be counted; of the sweep alone

	// Changes that are not on disk yet, each under the lock of its keyspace; the days
	// have that of the cache.
	cacheUnsynced, archiveUnsynced, daysUnsynced unsynced

	due, stop, done chan struct{}      // of checkpoints
	lean            chan chan struct{} // takes what is closed after a lean one
	learned         chan struct{}      // closed once the keys were gone through
}

// compacting notes what changes of a user while a compaction is under way.
type compacting struct {
	uid     string
	all     bool // the user's own state
	changed map[string]bool
}

// change is called before Pebble has a key.
func (r *compacting) change(key []byte) {
	if r.changed == nil {
		return
	}
	uid, text, _ := bytes.Cut(key[keyPrefix:], []byte{endOfUID})
	switch {
	case string(uid) != r.uid:
	case len(text) == 0:
		r.all = true
	default:
		r.changed[string(text)] = true
	}
}

// Ready reports why the store takes no writes at this moment, nil when it does. A full
// disk is a reason for as long as there is no room.
func (d *DB) Ready(ctx context.Context) error {
	err := d.enterWriting(ctx)
	if err == nil {
		d.leave()
	}
	return err
}

// enter starts a call that reads; a call that was let in ends with leave.
func (d *DB) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	d.gate.RLock()
	if d.closed {
		d.gate.RUnlock()
		return unavailable(history.ErrClosed)
	}
	return nil
}

// enterWriting starts a call that writes.
func (d *DB) enterWriting(ctx context.Context) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	if err := d.writable(); err != nil {
		d.leave()
		return err
	}
	return nil
}

// writable fails while writing is of no use. It comes before anything changes.
func (d *DB) writable() error {
	if err := d.fault.err(); err != nil {
		return err
	}
	if d.journal.size.Load() > maxBacklog*d.sizes.journal {
		return unavailable(errors.New("the disk is too slow"))
	}
	u, err := d.fs.GetDiskUsage(d.dir) // a microsecond, once for all writes of a call
	if err == nil && u.AvailBytes < min(reserve, u.TotalBytes/reserveShare) {
		return unavailable(fmt.Errorf("only %d MiB are free on the disk", u.AvailBytes>>20))
	}
	return nil
}

// maxBacklog is how much journal may wait for a checkpoint that is late, in full files.
const maxBacklog = 4

// reserve is how many bytes of disk, or which share of it if that is less, are left
// to Pebble, which needs room to make room. A full disk would end all writing until
// the next start; one that is nearly full only until something else is deleted.
const (
	reserve      = 256 << 20
	reserveShare = 16
)

func (d *DB) leave() { d.gate.RUnlock() }

// now is the present for everything but dirty marks and sightings.
func (d *DB) now() int64 { return d.config.Horizon().UnixMilli() }

// storeChange is what a call changes. The journal gets all of it, Pebble at once only a
// segment: records of the cache stay in memory until the next checkpoint.
type storeChange struct {
	all, segment *pebble.Batch
	waiter       *syncWaiter // nil for a change that need not be durable by itself
	// updateMemory brings memory up to the change once the journal has it, and may add
	// to the segment. It is nil where memory has nothing of it.
	updateMemory func() error
}

// commit makes a change visible and puts it in the journal, in one order for both.
// The caller then waits for the disk outside of its locks, so that callers share
// an fsync. After an error the change may be made all the same.
func (d *DB) commit(c storeChange) error {
	if c.all.Empty() {
		return nil
	}
	d.order.Lock()
	defer d.order.Unlock()
	if err := d.fault.err(); err != nil {
		return err
	}
	if err := d.journal.append(c.all.Repr(), c.waiter); err != nil {
		return d.fault.fail(err)
	}
	if d.journal.size.Load() > d.sizes.journal {
		d.checkpointSoon()
	}
	if c.updateMemory != nil {
		if err := c.updateMemory(); err != nil {
			return d.fault.fail(err)
		}
	}
	if c.segment.Empty() {
		return nil
	}
	if err := d.addKeys(c.segment); err != nil {
		return d.fault.fail(err)
	}
	if err := d.pebble.Apply(c.segment, pebble.NoSync); err != nil {
		return d.fault.fail(err)
	}
	return d.fault.err() // Pebble logs a fatal error and returns nil
}

// addKeys adds what a batch brings to Pebble. The lock of its keyspace is held.
func (d *DB) addKeys(b *pebble.Batch) error {
	for r := b.Reader(); ; {
		kind, key, _, ok, err := r.Next()
		if !ok || err != nil {
			return err
		}
		switch {
		case kind != pebble.InternalKeyKindSet:
		case key[0] == spaceCache:
			d.memory.presence.add(key)
		case key[0] == spaceArchive:
			d.archiveMemory.presence.add(key)
			d.orders.change(key)
			d.compacting.change(key)
		}
	}
}

// wait returns when a change and all before it are on disk. It costs nothing when they
// are.
func (d *DB) wait(t *syncWaiter) error {
	if t == nil {
		return nil
	}
	t.done.Wait()
	if t.err != nil {
		return d.fault.fail(t.err)
	}
	return nil
}

// clock gives out dirty marks: microseconds that never repeat, also when the wall
// clock goes back, also over a restart. For that a bound is on disk before any mark
// at or above the last bound is given out; a start goes on from the bound. It is
// guarded by the lock of the cache.
type clock struct {
	last, bound history.Mark
	opened      history.Mark // the first that may be given out since the start
}

// markLease is how far the bound runs ahead, and so how far the first marks after a
// quick restart may be ahead of the wall clock.
const markLease = history.Mark(time.Second / time.Microsecond)

func (d *DB) openMarks() error {
	err := get(d.pebble, []byte{spaceMarks}, func(v []byte) error {
		if v == nil {
			return nil
		}
		if len(v) != markSize {
			return fmt.Errorf("bound of the dirty marks has %d bytes, want %d", len(v), markSize)
		}
		d.marks.bound = history.Mark(binary.BigEndian.Uint64(v))
		return nil
	})
	d.marks.last = max(d.marks.bound, history.Mark(d.config.Now().UnixMicro())-1)
	d.marks.opened = d.marks.last + 1
	return err
}

// Opened returns the time of the start by the clock of the dirty marks: all that were
// given out before are older, all since are not.
func (d *DB) Opened() time.Time { return time.UnixMicro(int64(d.marks.opened)) }

// nextMark returns a mark that is durable no later than the batch.
func (d *DB) nextMark(b *pebble.Batch) (history.Mark, error) {
	c := &d.marks
	c.last = max(history.Mark(d.config.Now().UnixMicro()), c.last+1)
	if c.last < c.bound {
		return c.last, nil
	}
	bound := c.last + markLease
	if err := set(b, []byte{spaceMarks}, binary.BigEndian.AppendUint64(nil, uint64(bound))); err != nil {
		return 0, err
	}
	c.bound = bound
	return c.last, nil
}

// each returns the keys in Pebble from lower to below upper with their values, in
// order and all of one moment. Both are good until the next step. When reading
// fails the sequence ends and *failed says why.
func (d *DB) each(lower, upper []byte, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		it, err := d.pebble.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			*failed = unavailable(err)
			return
		}
		steps(it, failed)(yield)
	}
}

const (
	compactStep   = 8192 // records in one go, which are in memory
	dropStep      = 500  // records that leave the live segment under one lock
	removeAfter   = time.Minute
	compactEvery  = 200 * time.Millisecond // a user at a time, at most
	compactPauses = 19                     // times as long as a compaction took nothing is compacted: heartbeats need the processor
)

func (d *DB) checkpointSoon() {
	select {
	case d.due <- struct{}{}:
	default: // one is due already
	}
}
