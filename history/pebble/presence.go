package pebble

import (
	"github.com/playhead/playhead/internal/bloom"
)

// presence says of most keys that Pebble does not have that it does not, and never so of one
// that it has. Most keys that are asked for are new, and Pebble would look for each in all its
// memtables and in the last level, where it uses no filters.
//
// It knows nothing until it has gone through all keys once, beside the first calls. The lock of
// the keyspace guards it: each caller reads Pebble as it is at that moment, or later.
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

// filter is a Bloom filter that grows. A segment is four times as large as the one before, so that
// there are few.
type filter struct {
	segments []bloom.Filter
	room     int // in the last part, in keys
	n, made  int // keys by now, and when it was made
}

const firstKeys = 1 << 18 // of the first part

func (f *filter) has(hash uint64) bool {
	for _, segment := range f.segments {
		if segment.Has(hash) {
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
		f.room = firstKeys << (2 * len(f.segments))
		f.segments = append(f.segments, bloom.New(f.room))
	}
	f.segments[len(f.segments)-1].Add(hash)
	f.room--
	f.n++
}

const keysStep = 4096 // keys under one lock
