package pebble

import (
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

// Peek returns the version and the state of an encoded record.
func Peek(record []byte) (history.Version, history.State) {
	s := peek(record)
	return s.version, s.state
}
