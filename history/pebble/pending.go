package pebble

import (
	"encoding/binary"
	"sync"

	"github.com/playhead/playhead/history"
)

// ticket is what a caller waits with for its change to be on disk, and whoever has
// seen the change.
type ticket struct {
	done  sync.WaitGroup
	err   error  // set before it is done
	place uint64 // in the journal
}

// later returns the ticket that is done last; nil is done.
func later(a, b *ticket) *ticket {
	if a == nil || b != nil && b.place > a.place {
		return b
	}
	return a
}

// wait returns when a change and all before it are on disk. It costs nothing when they
// are.
func (d *DB) wait(t *ticket) error {
	if t == nil {
		return nil
	}
	t.done.Wait()
	if t.err != nil {
		return d.fault.fail(t.err)
	}
	return nil
}

// pending has the last change of the users of each bucket that somebody waits for. A
// change is visible before it is on disk, so that calls share an fsync. An answer that
// relies on it waits for it too, or a crash would take back what was told.
//
// Changes without a ticket are not in here: each can be lost without anybody who has
// seen it being wrong. A settle, a trim, a warm-up and a sweep only say of what is in
// the archive already that it is, or that it has outlived its life.
//
// The lock of the half guards it.
type pending [history.Buckets]*ticket

// put says that a change of a user, given by any of the keys, is under way.
func (p *pending) put(key []byte, t *ticket) {
	if t != nil {
		p[bucketOf(key)] = t
	}
}

// of returns what whoever reads a key waits for, nil for nothing.
func (p *pending) of(key []byte) *ticket { return p[bucketOf(key)] }

func bucketOf(key []byte) uint16 { return binary.BigEndian.Uint16(key[1:]) }
