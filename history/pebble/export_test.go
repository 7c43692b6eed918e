package pebble

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	dto "github.com/prometheus/client_model/go"

	"github.com/playhead/playhead/history"
)

// On returns c with the files on fs.
func (c Config) On(fs vfs.FS) Config {
	c.fs = fs
	return c
}

// Colliding returns c with only a few hashes for all keys.
func (c Config) Colliding() Config {
	c.hash = func(key []byte) uint64 { return uint64(key[len(key)-1] % 4) }
	return c
}

// Checkpoint returns when a checkpoint that began after the call is over: the third
// request is taken when the first one has been dealt with.
func (d *DB) Checkpoint() {
	for range 3 {
		select {
		case d.due <- struct{}{}:
		case <-d.fault.failed:
			return
		}
	}
}

// CheckpointWhile makes a checkpoint, and calls meanwhile when records are on their way to
// Pebble, when they are there, and when all of it is on disk but the journal still whole.
// No other one is made at that time.
func (d *DB) CheckpointWhile(meanwhile func()) error {
	close(d.stop)
	<-d.done
	d.stop, d.done = make(chan struct{}), make(chan struct{})
	defer func() { go d.checkpoints() }()
	flushing, err := d.rotate()
	meanwhile()
	if err == nil {
		err = d.moveToPebble(flushing)
	}
	meanwhile()
	if err == nil {
		err = d.persist(d.journal.number)
	}
	meanwhile()
	if err == nil {
		err = d.journal.forget(d.journal.number, true)
	}
	return err
}

// Flush writes what Pebble has in memory to tables, as it does by itself when that is
// much. What waits stays in memory.
func (d *DB) Flush() {
	if err := d.pebble.Flush(); err != nil {
		panic(err)
	}
}

// Syncs returns how many fsyncs the journal has made.
func (d *DB) Syncs() uint64 {
	var m dto.Metric
	if err := d.syncs.Write(&m); err != nil {
		panic(err)
	}
	return m.GetHistogram().GetSampleCount()
}

// What the codecs are.
var (
	AppendKey   = appendKey
	ParseKey    = parseKey
	AppendDirty = appendDirty
	ParseDirty  = parseDirty
	AppendState = appendState
	ParseState  = parseState
)

// Peek returns the version, the state and the cell time of an encoded record.
func Peek(record []byte) (history.Version, history.State, int64) {
	s := peek(record)
	return s.version, s.state, s.cellTime
}

// Damage replaces the cell of a key in the archive by bytes, under another text of the
// object if one is given.
func (a *Archive) Damage(k history.Key, object string, value []byte) {
	key := appendKey(nil, a.space, k)
	if object != "" {
		key = append(appendUser(nil, a.space, k.UID), object...)
	}
	if err := a.db.pebble.Set(key, value, pebble.NoSync); err != nil {
		panic(err)
	}
}

// Damage replaces the record of a key in the cache by bytes, under the mark that it has.
func (c *Cache) Damage(k history.Key, record []byte) {
	if err := c.db.checkpoint(); err != nil {
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
	c.memory.drop(item{key: key, uid: k.UID, hash: c.memory.hash(key)})
}
