package pebble

import (
	"github.com/playhead/playhead/internal/bloom"
)

// presence rules out most keys that Pebble does not have, and never a key that it has. Most requested keys are
// new. Pebble would search all memtables and the last level, which has no filter, for each.
//
// It is empty until the first scan of the keys completes. The keyspace lock guards it. Callers read Pebble at the
// same time or later.
type presence struct {
	hash func(key []byte) uint64
	keys *filter // nil until complete
	next *filter // replaces keys once complete; usually nil
}

// lacks reports whether a key with this hash is certainly absent.
func (p *presence) lacks(hash uint64) bool { return p.keys != nil && !p.keys.has(hash) }

// lacksRow reports whether the user with this key prefix certainly has no keys.
func (p *presence) lacksRow(prefix []byte) bool { return p.lacks(p.hash(prefix) ^ ofRow) }

// ofRow turns the hash of a user's own key into that of the row.
const ofRow = 0x9e3779b97f4a7c15

// hashes returns the hashes of a key and of its row.
func (p *presence) hashes(key []byte) (own, row uint64) {
	return p.hash(key), p.hash(key[:objectAt(key)]) ^ ofRow
}

// add must be called before Pebble has the key.
func (p *presence) add(key []byte) {
	own, row := p.hashes(key)
	for _, f := range []*filter{p.keys, p.next} {
		if f != nil {
			f.add(own)
			f.add(row)
		}
	}
}

// filter is a Bloom filter that grows. Each segment is four times as large as the previous one, so there are few.
type filter struct {
	segments []bloom.Filter
	room     int // free keys in the last segment
	n, made  int // keys now, and when it was installed
}

const firstKeys = 1 << 18 // capacity of the first segment

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
