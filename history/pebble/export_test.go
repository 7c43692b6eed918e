package pebble

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	dto "github.com/prometheus/client_model/go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/segment"
)

// On returns c with the files on fs.
func (c Config) On(fs vfs.FS) Config {
	c.fs = fs
	return c
}

// Colliding returns c with four hash values for all keys.
func (c Config) Colliding() Config {
	c.hash = func(key []byte) uint64 { return uint64(key[len(key)-1] % 4) }
	return c
}

// Quiet returns c with the given interval between checks for a quiet store.
func (c Config) Quiet(every time.Duration) Config {
	c.quietAfter = every
	return c
}

// Compacting returns c with compaction of all but the newest records of a user, at most step at a time.
func (c Config) Compacting(step int) Config {
	c.CompactAbove, c.CompactAfter, c.compactStep = 3, 1, step
	return c
}

// Blind returns c without the filter of known keys.
func (c Config) Blind() Config {
	c.blind = true
	return c
}

// Lacking returns a stored key that the store takes for absent, or nil. It waits until the store has learned
// its keys.
func (d *DB) Lacking() (lacking []byte) {
	if d.config.blind || d.fault.Err() != nil || d.enter(context.Background()) != nil {
		return nil
	}
	d.leave()
	<-d.learned
	for _, s := range []*keyspace{&d.Cache().keyspace, &d.Archive().keyspace} {
		var err error
		for key := range d.each([]byte{s.space}, []byte{s.space + 1}, &err) {
			if own, row := s.memory.presence.hashes(key); s.lacks(own) || s.lacks(row) {
				lacking = bytes.Clone(key)
			}
		}
		if err != nil {
			return nil
		}
	}
	return lacking
}

func (s *keyspace) lacks(hash uint64) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.memory.presence.lacks(hash)
}

// LearnAgain rescans all keys as after many additions. It returns the number of known hashes of the cache
// before and after.
func (d *DB) LearnAgain() (before, after int) {
	<-d.learned
	p := &d.memory.presence
	d.cache.Lock()
	before = p.keys.Len()
	p.scanned = -fewKeys
	d.cache.Unlock()
	d.learnKeys()
	d.cache.Lock()
	defer d.cache.Unlock()
	return before, p.keys.Len()
}

// Absent reports whether the cache knows, without a read, that a key has no record.
func (c *Cache) Absent(k history.Key) bool {
	<-c.db.learned
	return c.lacks(c.memory.hash(appendKey(nil, c.space, k)))
}

// Checkpoint returns after a checkpoint that began after the call: the third request is accepted once the first
// is done.
func (d *DB) Checkpoint() {
	for range 3 {
		select {
		case d.due <- struct{}{}:
		case <-d.fault.Failed():
			return
		}
	}
}

// CheckpointWhile makes a checkpoint, excluding others, and calls meanwhile three times. The calls come before the
// records move to Pebble, after it, and when they are on disk but the journal still exists.
func (d *DB) CheckpointWhile(meanwhile func()) error {
	close(d.stop)
	<-d.done
	d.stop, d.done = make(chan struct{}), make(chan struct{})
	defer func() { go d.checkpoints() }()
	flushing, err := d.rotate(false)
	meanwhile()
	if err == nil {
		err = d.moveToPebble(flushing)
	}
	meanwhile()
	if err == nil {
		err = d.persist(d.journal.Number())
	}
	meanwhile()
	if err == nil {
		err = d.journal.Forget(true)
	}
	return err
}

// Flush writes Pebble's memory to tables. Writes waiting for a checkpoint stay in memory.
func (d *DB) Flush() {
	if err := d.pebble.Flush(); err != nil {
		panic(err)
	}
}

// Journaled returns the size of the journal's last file in bytes.
func (d *DB) Journaled() int64 { return d.journal.Size() }

// Syncs returns the number of fsyncs of the journal.
func (d *DB) Syncs() uint64 {
	var m dto.Metric
	if err := d.syncs.Write(&m); err != nil {
		panic(err)
	}
	return m.GetHistogram().GetSampleCount()
}

// The codecs, for tests.
var (
	AppendKey   = appendKey
	ParseKey    = parseKey
	AppendDirty = appendDirty
	ParseDirty  = parseDirty
)

// Damage replaces the cell of a key in the archive with raw bytes, under another object text if one is given.
func (a *Archive) Damage(k history.Key, object string, value []byte) {
	key := appendKey(nil, a.space, k)
	if object != "" {
		key = append(appendUser(nil, a.space, k.UID), object...)
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	a.memory.presence.add(key)
	if err := a.db.pebble.Set(key, value, pebble.NoSync); err != nil {
		panic(err)
	}
}

// Damage replaces the record of a key in the cache with raw bytes and keeps its mark.
func (c *Cache) Damage(k history.Key, record []byte) {
	if err := c.db.checkpoint(false); err != nil {
		panic(err)
	}
	key := appendKey(nil, c.space, k)
	c.lock.Lock()
	defer c.lock.Unlock()
	var value []byte
	err := get(c.db.pebble, key, func(v []byte) error {
		value = append(append(value, v[:markSize]...), record...)
		return nil
	})
	if err == nil {
		err = c.db.pebble.Set(key, value, pebble.NoSync)
	}
	if err != nil {
		panic(err)
	}
	c.memory.drop(wal.Item{Key: key, User: k.UID, Hash: c.memory.hash(key)})
}

// Learned is closed once the store knows its keys.
func (d *DB) Learned() <-chan struct{} { return d.learned }

// CompactWhile compacts a user. It calls wasRead after reading the user and written after writing the segments,
// before the live segment changes. With stop it returns then and drops nothing.
func (a *Archive) CompactWhile(uid string, wasRead, written func(), stop bool) error {
	a.db.compactions.Lock()
	defer a.db.compactions.Unlock()
	r := a.beginCompact(uid)
	defer a.endCompact(r)
	if err := r.read(); err != nil {
		return err
	}
	wasRead()
	if r.user.Segments == 0 && len(r.leaving) == 0 {
		return nil
	}
	if err := r.write(); err != nil {
		return err
	}
	written()
	if stop {
		return nil
	}
	_, err := r.drop(context.Background())
	return err
}

// Forms returns the number of a user's live records and of those in segments.
func (a *Archive) Forms(uid string) (live, inSegments int) {
	r := a.beginCompact(uid)
	defer a.endCompact(r)
	cells, err := r.live()
	if err == nil && r.user.Segments > 0 {
		var p *segment.Reader
		if p, err = a.db.segmentsOf(r.snapshot, uid, r.user.Segments); err == nil {
			for _, c := range p.Chunks {
				inSegments += c.Count - len(c.Superseded)
			}
		}
	}
	if err != nil {
		panic(err)
	}
	return len(cells), inSegments
}

// SegmentBytes returns the list of chunks of a user and the devices of the records in them.
func (d *DB) SegmentBytes(uid string) (all []byte) {
	var err error
	prefix := appendUser(nil, spaceSegments, uid)
	for key, v := range d.each(prefix, after(prefix), &err) {
		if len(key) == len(prefix) {
			all = append(all, v...)
			continue
		}
		c, failed := segment.Open(v)
		if failed != nil {
			panic(failed)
		}
		for it, failed := range c.Items(nil) {
			if failed != nil {
				panic(failed)
			}
			all = append(all, it.Record.Device...)
		}
	}
	if err != nil {
		panic(err)
	}
	return all
}

// SpoilChunk changes the bytes of a user's chunk; a nil result deletes it.
func (d *DB) SpoilChunk(uid string, n int, spoil func(b []byte) []byte) {
	u, _, err := d.Archive().stored(uid)
	if err != nil {
		panic(err)
	}
	p, err := d.segmentsOf(d.pebble, uid, u.Segments)
	if err != nil {
		panic(err)
	}
	key := append(appendUser(nil, spaceSegments, uid), p.Chunks[n].Name...)
	err = get(d.pebble, key, func(v []byte) error {
		if b := spoil(bytes.Clone(v)); b != nil {
			return d.pebble.Set(key, b, pebble.NoSync)
		}
		return d.pebble.Delete(key, pebble.NoSync)
	})
	if err != nil {
		panic(err)
	}
}

// WrittenSegments returns the bytes of chunks written.
func (a *Archive) WrittenSegments() float64 {
	var m dto.Metric
	if err := a.db.segmentMetrics.Written.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// StoredMarks returns the number of dirty marks in Pebble.
func (d *DB) StoredMarks() (n int) {
	var err error
	for range d.each([]byte{spaceDirty}, []byte{spaceDirty + 1}, &err) {
		n++
	}
	if err != nil {
		panic(err)
	}
	return n
}

// SpoilList changes the bytes of a user's list of chunks.
func (d *DB) SpoilList(uid string, spoil func(b []byte) []byte) {
	key := appendUser(nil, spaceSegments, uid)
	err := get(d.pebble, key, func(v []byte) error { return d.pebble.Set(key, spoil(bytes.Clone(v)), pebble.NoSync) })
	if err != nil {
		panic(err)
	}
}

// SpoilSummaries damages the list of a user's summaries.
func (d *DB) SpoilSummaries(uid string) {
	err := d.Archive().change(nil, func(e *edit) error {
		return set(e.batch, appendUser(nil, spaceSummaries, uid), []byte("spoilt, and long enough"))
	})
	if err != nil {
		panic(err)
	}
}

// SpoilTotals replaces an object's totals by bytes that cannot be decoded.
func (d *DB) SpoilTotals(t testing.TB, o history.Object) {
	t.Helper()
	err := d.Counters().update(t.Context(), durable, func(e *edit) error { return set(e.batch, totalsKey(o), []byte{0xff}) })
	if err != nil {
		t.Fatal(err)
	}
}

// KeepPlays sets the number of messages that the stream of plays keeps.
func (d *DB) KeepPlays(n uint64) { d.maxPlays = n }
