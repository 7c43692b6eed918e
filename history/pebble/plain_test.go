package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/background"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/lru"
)

// Plain is the write path of a store without a journal: every change is one batch in Pebble's own log. Keys,
// values and comparisons are those of [DB]; clears, pauses and damage are omitted. Benchmarks compare the two:
// see docs/adr/0006.
type Plain struct {
	db             *pebble.DB
	cache, archive sync.Mutex // each makes compare-and-set atomic
	seed           maphash.Seed
	// recent caches recent records to avoid reads of Pebble; guarded by the cache lock.
	recent *lru.Map[uint64, wal.Item]
	last   history.Mark
}

// recentPlain is half the number of cached values: about as much memory as waiting writes take in a [DB].
const recentPlain = 1 << 16

// OpenPlain opens a store with the options that made this path cheapest.
func OpenPlain(dir string, files vfs.FS) (*Plain, error) {
	o := (&DB{fs: files, fault: background.New(slog.New(slog.DiscardHandler))}).options()
	o.DisableWAL, o.WALBytesPerSync = false, 1<<20
	o.CacheSize = 128 << 20
	for i := range o.Levels {
		o.Levels[i].IndexBlockSize = 256 << 10
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	db, err := pebble.Open(dir, o)
	return &Plain{db: db, seed: maphash.MakeSeed(), recent: lru.New[uint64, wal.Item](recentPlain, nil)}, err
}

// Close closes the store.
func (p *Plain) Close() error { return p.db.Close() }

// Load is like [Cache.Load].
func (p *Plain) Load(_ context.Context, keys []history.Key) []history.Entry {
	recent, snapshot := p.moment(keys)
	defer snapshot.Close()
	entries := make([]history.Entry, len(keys))
	for i, k := range keys {
		decode := func(v []byte) (err error) {
			if v != nil {
				entries[i].Record, err = wire.Record(v[markSize:])
			}
			return err
		}
		if recent[i] != nil {
			entries[i].Err = decode(recent[i])
			continue
		}
		entries[i].Err = get(snapshot, appendKey(nil, spaceCache, k), decode)
		_ = get(snapshot, appendUser(nil, spaceCache, k.UID), func([]byte) error { return nil })
	}
	return entries
}

func (p *Plain) moment(keys []history.Key) ([][]byte, *pebble.Snapshot) {
	recent := make([][]byte, len(keys))
	p.cache.Lock()
	defer p.cache.Unlock()
	for i, k := range keys {
		recent[i] = p.known(appendKey(nil, spaceCache, k))
	}
	return recent, p.db.NewSnapshot()
}

// known returns the cached value of a key, or nil.
func (p *Plain) known(key []byte) []byte {
	if x, ok := p.recent.Get(maphash.Bytes(p.seed, key)); ok && bytes.Equal(x.Key, key) {
		return x.Value
	}
	return nil
}

func (p *Plain) put(b *pebble.Batch, key, value []byte) error {
	p.recent.Put(maphash.Bytes(p.seed, key), wal.Item{Key: key, Value: value})
	return set(b, key, value)
}

// Write is like [Cache.Write], but conflicts are not allowed.
func (p *Plain) Write(_ context.Context, writes []history.Write) []history.Outcome {
	outcomes := make([]history.Outcome, len(writes))
	err := p.commit(&p.cache, func(b *pebble.Batch) error {
		var moves []move
		for i := range writes {
			m, err := p.apply(b, &writes[i])
			if err != nil {
				return err
			}
			if m.to != m.from {
				moves = append(moves, m)
			}
			outcomes[i].Status = history.Applied
		}
		return remark(b, moves)
	})
	if err != nil {
		for i := range outcomes {
			outcomes[i] = history.Outcome{Err: err}
		}
	}
	return outcomes
}

func (p *Plain) apply(b *pebble.Batch, w *history.Write) (move, error) {
	key := appendKey(nil, spaceCache, w.Key)
	was := stampOf(p.known(key))
	if was.revision == 0 {
		err := get(p.db, key, func(v []byte) error { was = stampOf(v); return nil })
		if err != nil {
			return move{}, err
		}
	}
	if was.revision != w.Base {
		return move{}, history.ErrUnavailable
	}
	mark := was.mark
	if w.BeginsHold || mark == 0 {
		p.last = max(history.Mark(time.Now().UnixMicro()), p.last+1)
		mark = p.last
	}
	value := binary.BigEndian.AppendUint64(make([]byte, 0, recordSize), uint64(mark))
	return move{key, was.mark, mark}, p.put(b, key, wire.AppendRecord(value, w.Record))
}

// MarkClean is like [Cache.MarkClean], but every content must be in the store.
func (p *Plain) MarkClean(_ context.Context, contents []history.Content) error {
	p.cache.Lock()
	defer p.cache.Unlock()
	b := p.db.NewBatch()
	defer b.Close()
	for _, x := range contents {
		key := appendKey(nil, spaceCache, x.Key)
		markClean := func(v []byte) error {
			if err := remark(b, []move{{key: key, from: stampOf(v).mark}}); err != nil {
				return err
			}
			return p.put(b, key, clean(v))
		}
		var err error
		if v := p.known(key); v != nil {
			err = markClean(v)
		} else {
			err = get(p.db, key, markClean)
		}
		if err != nil {
			return err
		}
	}
	return p.db.Apply(b, pebble.NoSync)
}

// Get is like [Archive.Get].
func (p *Plain) Get(_ context.Context, keys []history.Key) ([]history.Entry, error) {
	entries := make([]history.Entry, len(keys))
	for i, k := range keys {
		err := get(p.db, appendKey(nil, spaceArchive, k), func(v []byte) (err error) {
			entries[i].Record, err = wire.Record(v)
			return err
		})
		if err != nil {
			return nil, err
		}
		_ = get(p.db, appendUser(nil, spaceArchive, k.UID), func([]byte) error { return nil })
	}
	return entries, nil
}

// Put is like [Archive.Put].
func (p *Plain) Put(_ context.Context, cells []history.Cell) []error {
	err := p.commit(&p.archive, func(b *pebble.Batch) error {
		for _, cell := range cells {
			key, value := appendKey(nil, spaceArchive, cell.Key), wire.AppendRecord(nil, cell.Record)
			err := get(p.db, key, func(stands []byte) error {
				if value = newer(stands, value); value == nil {
					return nil
				}
				return set(b, key, value)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return []error{err}
	}
	return nil
}

// commit applies change under the lock and waits for the disk outside of it, so callers share an fsync.
func (p *Plain) commit(lock *sync.Mutex, change func(b *pebble.Batch) error) error {
	b := p.db.NewBatch()
	apply := func() error {
		lock.Lock()
		defer lock.Unlock()
		if err := change(b); err != nil {
			return err
		}
		return p.db.ApplyNoSyncWait(b, pebble.Sync)
	}
	if err := apply(); err != nil {
		return err
	}
	return errors.Join(b.SyncWait(), b.Close())
}
