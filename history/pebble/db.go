// Package pebble keeps the cache and the archive of one machine in one directory, on one Pebble store.
//
// The all-in-one binary uses it. An acknowledged write is on disk, kill -9 loses nothing, and one process owns the
// directory.
//
// A journal makes every change durable. Cached records stay in memory until a checkpoint writes their latest
// version to Pebble. Other changes go to Pebble at once. A start replays the journal from the last checkpoint.
// DESIGN.md proves that no acknowledged write is lost.
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
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/background"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/segment"
)

// Config tunes a store. The zero value works.
type Config struct {
	// Keep is the number of records per user that Trim leaves in the cache. 0 means 1,000.
	Keep int
	// CompactAbove is the number of live records above which a user is compacted. The newest half, and records
	// younger than CompactAfter, stay live. Older ones move to segments: compressed chunks, of which a page reads
	// one or two.
	//
	// 0 disables compaction; existing segments are still read. A version without segment support refuses such
	// users.
	CompactAbove int
	// CompactAfter is the minimum age of a compacted record. 0 means a day.
	CompactAfter time.Duration
	// Summary is the retention of [history.Summary]. 0 keeps the stored setting, or keeps no summaries.
	Summary time.Duration
	// TTL is how long the cache keeps a clean record after its event. A dirty record is kept for the archive's
	// TTL. 0 means the archive's TTL.
	TTL time.Duration
	// Rules set completion in summaries, the cached records per class, and the retention, which must be the store's.
	// nil means the standard rules and the retention of the store.
	Rules *history.Rulebook
	// Change replaces the store's retention by that of the rules, instead of refusing another one. It gets both, and
	// may fail. Only an operator's command sets it.
	Change func(was, next history.Retention) error
	// Counting names the types whose records are counted. Its zero value is none.
	Counting Counting
	// Alone means that no other archive has data of these users. A user without an archive row is then warm and
	// complete without a warm-up.
	Alone bool
	// Memory is the memory limit of the process in bytes. In-memory structures are sized by it. 0 means at least 2
	// GiB.
	Memory int64
	// Files limits open files. 0 means 1,000, the maximum.
	Files int
	// SweepEvery is the interval at which [DB.Run] removes expired records. 0 means an hour.
	SweepEvery time.Duration
	// Now is the clock. nil means [time.Now]. Horizon is the time for expiry, never later than Now. nil means Now.
	Now, Horizon func() time.Time
	// Logger receives state changes and failures. nil discards them.
	Logger *slog.Logger
	// Registry receives the metrics. nil exports none.
	Registry prometheus.Registerer
	// VirtualTime is for tests that simulate hours. Pebble then checks for compactions only after writing a file,
	// not ten times a second.
	VirtualTime bool

	// For tests.
	fs          vfs.FS
	hash        func(key []byte) uint64
	blind       bool // does not scan the keys
	quietAfter  time.Duration
	compactStep int
}

func (c Config) withDefaults() Config {
	if c.Keep <= 0 {
		c.Keep = 1000
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
	if c.Rules == nil {
		c.Rules = new(history.Rulebook)
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

// DB is an open store. Its methods are safe for concurrent use.
type DB struct {
	config  Config
	sizes   sizes
	fs      vfs.FS
	dir     string
	lock    *pebble.Lock
	pebble  *pebble.DB
	journal *wal.Log
	syncs   prometheus.Histogram // of the journal, in seconds
	fault   *background.Watch
	damage  *damage

	// gate is read-locked by every call and write-locked by Close: a closed Pebble panics on use.
	gate   sync.RWMutex
	closed bool

	// cache and archive make compare-and-set atomic in their keyspaces, counting that of the counters. A call that needs
	// several locks counting first, then cache, then archive. order serializes the journal and Pebble, and is the innermost
	// lock. No call holds a lock during its fsync.
	cache, archive, counting, order sync.Mutex

	// Guarded by cache.
	marks  clock
	memory *memory

	archiveMemory  *memory      // only users and keys; guarded by archive
	orders         *index.Cache // guarded by archive
	compacting     compacting   // guarded by archive
	anySegments    bool         // some user has or had segments; guarded by archive
	compactions    sync.Mutex
	listed         uint64 // latest version of any segment metadata, guarded by compactions
	notes          segment.Notes
	segments       *segment.Cache
	segmentMetrics *segment.Metrics

	summaryTTL int64           // ms, 0 for none
	removals   segment.Notes   // users with deletes or clears
	old        segment.Notes   // users with late old records
	counted    atomic.Int64    // earlier records are expired and summarized
	uncounted  map[string]bool // failed users; sweep only

	// Changes not yet on disk, guarded by their keyspace's lock (daysUnsynced by cache).
	cacheUnsynced, archiveUnsynced, daysUnsynced, countUnsynced unsynced

	archivePuts [history.Buckets]uint64 // keys put so far, by bucket, guarded by archive
	countMemory *memory                 // only keys, guarded by counting

	plays    sync.Mutex    // of the stream of plays
	playRun  uint64        // names this run of the store
	playsEnd atomic.Uint64 // number of the newest play on disk
	maxPlays uint64

	due, stop, done chan struct{} // of checkpoints
	lean            chan leanRequest
	learned         chan struct{} // closed after the initial key scan
}

// Ready returns why the store rejects writes now, nil if it accepts them. A full disk is a reason while it lasts.
func (d *DB) Ready(ctx context.Context) error {
	err := d.enterWriting(ctx)
	if err == nil {
		d.leave()
	}
	return err
}

// enter starts a reading call. After success the caller calls leave.
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

// writable fails if a write cannot succeed. Call it before any change.
func (d *DB) writable() error {
	if err := d.fault.Err(); err != nil {
		return err
	}
	if d.journal.Size() > maxBacklog*d.sizes.journal {
		return unavailable(errors.New("the disk is too slow"))
	}
	u, err := d.fs.GetDiskUsage(d.dir) // takes a microsecond, once per call
	if err == nil && u.AvailBytes < min(reserve, u.TotalBytes/reserveShare) {
		return unavailable(fmt.Errorf("only %d MiB are free on the disk", u.AvailBytes>>20))
	}
	return nil
}

// maxBacklog limits the journal waiting for a late checkpoint, in full files.
const maxBacklog = 4

// reserve is the disk space left to Pebble, in bytes or as a share of a small disk. Pebble needs space to free
// space. A full disk stops all writes until a restart; a nearly full one only until space is freed.
const (
	reserve      = 256 << 20
	reserveShare = 16
)

func (d *DB) leave() { d.gate.RUnlock() }

// now is the current time, except for dirty marks and sightings.
func (d *DB) now() int64 { return d.config.Horizon().UnixMilli() }

// commit writes an edit to the journal and makes it visible, in one order. The journal gets all of it, Pebble only its
// batch: cached records stay in memory until the next checkpoint.
//
// Callers wait for the disk after releasing their locks, so they share an fsync. After an error the change may still
// take effect.
func (d *DB) commit(e *edit, all *pebble.Batch, t *wal.Waiter) error {
	if all.Empty() {
		return nil
	}
	d.order.Lock()
	defer d.order.Unlock()
	if err := d.fault.Err(); err != nil {
		return err
	}
	if err := d.journal.Append(all.Repr(), t); err != nil {
		return d.fault.Fail(err)
	}
	if d.journal.Size() > d.sizes.journal {
		d.checkpointSoon()
	}
	if err := e.updateMemory(t); err != nil {
		return d.fault.Fail(err)
	}
	if e.batch.Empty() {
		return nil
	}
	if err := d.addKeys(e.batch); err != nil {
		return d.fault.Fail(err)
	}
	if err := d.pebble.Apply(e.batch, pebble.NoSync); err != nil {
		return d.fault.Fail(err)
	}
	return d.fault.Err() // Pebble logs a fatal error and returns nil
}

// addKeys records the keys that a batch adds to Pebble. The keyspace lock is held.
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
		case key[0] == spaceCounted:
			d.countMemory.presence.add(key)
		case key[0] == spaceArchive:
			d.archiveMemory.presence.add(key)
			d.archivePuts[bucketOf(key)]++
			uid, text, _ := bytes.Cut(key[keyPrefix:], []byte{endOfUID})
			d.orders.Change(uid, text)
			d.compacting.change(uid, text)
		}
	}
}

// wait waits until a change and all earlier ones are on disk. It is free if they already are.
func (d *DB) wait(t *wal.Waiter) error {
	if t == nil {
		return nil
	}
	if err := t.Wait(); err != nil {
		return d.fault.Fail(err)
	}
	return nil
}

// Room fails unless a file system has room for a number of bytes, and the reserve that a store needs.
func (d *DB) Room(dir string, bytes int64) error {
	u, err := d.fs.GetDiskUsage(dir)
	if err != nil {
		return err
	}
	if need := uint64(bytes) + min(reserve, u.TotalBytes/reserveShare); u.AvailBytes < need { //nolint:gosec // not negative
		return fmt.Errorf("%d MiB are free in %s, want %d", u.AvailBytes>>20, dir, need>>20+1)
	}
	return nil
}

// clock issues dirty marks: microseconds that never repeat, even if the wall clock steps back or the store
// restarts.
//
// A mark is issued only below a durable bound, and a restart continues from that bound. Guarded by the cache lock.
type clock struct {
	last, bound history.Mark
	opened      history.Mark // first mark that this start may issue
}

// markLease is how far the bound runs ahead. After a quick restart, marks may be that far ahead of the wall clock.
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

// Opened returns the start time by the dirty-mark clock. Marks of earlier starts are older; later marks are not.
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

// each yields the keys in [lower, upper) of Pebble.
func (d *DB) each(lower, upper []byte, failed *error) iter.Seq2[[]byte, []byte] {
	return each(d.pebble, lower, upper, failed)
}

// users yields the users with keys in [lower, upper), with the value of each one's first key.
func (d *DB) users(lower, upper []byte, failed *error) iter.Seq2[string, []byte] {
	return func(yield func(uid string, value []byte) bool) {
		it, err := d.pebble.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			*failed = unavailable(err)
			return
		}
		for ok := it.First(); ok; {
			v, err := it.ValueAndErr()
			if err != nil || !yield(uidOf(it.Key()), v) {
				break
			}
			key := it.Key()
			ok = it.SeekGE(after(bytes.Clone(key[:objectAt(key)])))
		}
		if err := it.Close(); err != nil { // includes the error of any step
			*failed = unavailable(err)
		}
	}
}

// sizes bounds the memory and the open files of a store. They shrink with the memory of the process.
type sizes struct {
	// journal is the journal size in bytes at which a checkpoint is due. A start after a crash replays up to twice
	// that, and as much may be in memory.
	journal int64
	// cache is the size of Pebble's block cache, memtable that of each of its memtables. Both are outside the Go heap.
	cache    int64
	memtable uint64
	// Half the numbers of cached stamps (some 40 bytes each), users, and users with their newest records.
	stamps, users, heads int
	orders               int // bytes of all orders
	segments             int // half the bytes of cached segments
	files                int // open at once
}

const (
	memtables = 4 // at most: writers wait for the oldest
	// roomy is the process memory that needs no reduction. The store takes some 700 MiB of it.
	roomy = 2 << 30
	// maxFiles limits open files: tables, journals and the rest.
	maxFiles = 1000
)

func sizesFor(memory int64, files int) sizes {
	if memory <= 0 || memory > roomy {
		memory = roomy
	}
	share := func(most, least int64) int64 { return max(int64(float64(most)*float64(memory)/roomy), least) }
	s := sizes{
		journal: share(64<<20, 4<<20), cache: share(64<<20, 4<<20), memtable: uint64(share(32<<20, 2<<20)), //nolint:gosec // more than 0
		stamps: int(share(1<<19, 1<<12)), users: int(share(1<<15, 1<<10)), heads: int(share(512, 32)),
		orders: int(share(64<<20, 1<<20)), segments: int(share(16<<20, 1<<20)), files: maxFiles,
	}
	if files > 0 {
		s.files = min(files, maxFiles)
	}
	return s
}

func (s sizes) apply(o *pebble.Options) {
	o.MemTableSize, o.MaxOpenFiles, o.MemTableStopWritesThreshold = s.memtable, s.files, memtables
	o.CacheSize = s.cache + memtables*int64(s.memtable) // Pebble takes memtables out of the cache
}

func unavailable(err error) error {
	return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
}

// damage reports each permanently unreadable cell once.
type damage struct {
	log      *slog.Logger
	cells    prometheus.Counter
	mu       sync.Mutex
	reported map[string]bool
}

const maxReported = 10_000

func newDamage(log *slog.Logger, reg prometheus.Registerer) *damage {
	return &damage{log: log, reported: map[string]bool{}, cells: promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "playhead_pebble_damaged_cells_total",
		Help: "Cells of the embedded store that cannot be read and were left out, each counted once.",
	})}
}

// cell counts and logs a cell by its row and column.
func (d *damage) cell(row, column string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := row + "/" + column; !d.reported[at] && len(d.reported) < maxReported {
		d.reported[at] = true
		d.cells.Inc()
		d.log.Error("damaged cell skipped", "row", row, "column", column, "error", err)
	}
}
