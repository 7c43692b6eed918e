package pebble

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

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
			d.rolling.change(key)
		}
	}
}

// learnKeys goes through the keys of the cache and of the archive.
func (d *DB) learnKeys() {
	for _, s := range []*keyspace{&d.Cache().keyspace, &d.Archive().keyspace} {
		if s.beginKeys() {
			s.endKeys(s.goThroughKeys())
		}
	}
}

// beginKeys begins a new filter, unless the one that there is has not grown much since it was
// made. It has keys that are gone, and grows until then.
func (s *keyspace) beginKeys() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	p := &s.memory.presence
	if p.next != nil || p.keys != nil && p.keys.n < 2*p.keys.made+firstKeys {
		return false
	}
	p.next = new(filter)
	return true
}

// endKeys has the new filter take the place of the other one, unless reading failed: whoever
// needs what cannot be read says so.
func (s *keyspace) endKeys(err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	p := &s.memory.presence
	if err == nil {
		p.keys = p.next
		p.keys.made = p.keys.n
	}
	p.next = nil
}

const keysStep = 4096 // keys under one lock

func (s *keyspace) goThroughKeys() error {
	for from := []byte{s.space}; from != nil; {
		var hashes []uint64
		var err error
		if hashes, from, err = s.keysFrom(from); err != nil {
			return err
		}
		s.lock.Lock()
		for _, h := range hashes {
			s.memory.presence.next.add(h)
		}
		s.lock.Unlock()
	}
	return nil
}

// keysFrom returns the hashes of the next keys in Pebble and the key to go on from, nil at the
// end.
func (s *keyspace) keysFrom(from []byte) (hashes []uint64, next []byte, err error) {
	s.db.gate.RLock()
	defer s.db.leave()
	if s.db.closed {
		return nil, nil, pebble.ErrClosed
	}
	hashes = make([]uint64, 0, 2*keysStep)
	for key := range s.db.each(from, []byte{s.space + 1}, &err) {
		if len(hashes) == cap(hashes) {
			return hashes, bytes.Clone(key), err
		}
		own, row := s.memory.presence.hashes(key)
		hashes = append(hashes, own, row)
	}
	return hashes, nil, err
}
