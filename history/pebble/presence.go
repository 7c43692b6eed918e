package pebble

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/internal/bloom"
)

// presence says of most keys that Pebble does not have that it does not, and never so of one
// that it has. Most keys that are asked for are new, and Pebble would look for each in all its
// memtables and in the last level, where it uses no filters.
//
// It knows nothing until it has gone through all keys once, beside the first calls. The lock of
// the keyspace guards it: whoever asks reads Pebble as it is at that moment, or later.
type presence struct {
	hash func(key []byte) uint64
	keys *filter // nil until all of them are in it
	next *filter // takes its place once all are in it; nil mostly
}

// lacks reports whether a key of this hash is surely absent.
func (p *presence) lacks(hash uint64) bool { return p.keys != nil && !p.keys.has(hash) }

// lacksRow reports whether a user surely has no key at all, who is given by the prefix of
// their keys.
func (p *presence) lacksRow(prefix []byte) bool { return p.lacks(p.hash(prefix) ^ ofRow) }

// ofRow makes of the hash of a user's own key the one of all the user's keys.
const ofRow = 0x9e3779b97f4a7c15

// hashes are those by which a key is found: its own, and that of its row.
func (p *presence) hashes(key []byte) (own, row uint64) {
	return p.hash(key), p.hash(key[:objectAt(key)]) ^ ofRow
}

// add is called before Pebble has a key.
func (p *presence) add(key []byte) {
	own, row := p.hashes(key)
	for _, f := range []*filter{p.keys, p.next} {
		if f != nil {
			f.add(own)
			f.add(row)
		}
	}
}

// filter is a Bloom filter that grows. A part is four times as large as the one before, so that
// there are few.
type filter struct {
	parts   []bloom.Filter
	room    int // in the last part, in keys
	n, made int // keys by now, and when it was made
}

const firstKeys = 1 << 18 // of the first part

func (f *filter) has(hash uint64) bool {
	for _, part := range f.parts {
		if part.Has(hash) {
			return true
		}
	}
	return false
}

func (f *filter) add(hash uint64) {
	if f.has(hash) {
		return
	}
	if f.room == 0 {
		f.room = firstKeys << (2 * len(f.parts))
		f.parts = append(f.parts, bloom.New(f.room))
	}
	f.parts[len(f.parts)-1].Add(hash)
	f.room--
	f.n++
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
