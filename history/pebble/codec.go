package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// The keyspaces. A user's records are in order of the object texts. The user's own state, with an empty object,
// precedes them, so one scan sees both at one time.
//
//	a bucket uid 0 object   archive: record; without object: clear marks
//	c bucket uid 0 object   cache: mark and record; without object: mark and state
//	d mark uid 0 object     dirty mark, no value
//	j                       first needed journal file
//	k bucket uid 0          head of a change log: name, last dropped place, day of last use
//	l bucket uid 0 place    change log entry: object
//	m                       upper bound of all marks
//	n bucket uid 0 object   what was counted of a record; without object: the time up to which the user was erased
//	o time number uid       unannounced first sighting, no value
//	p bucket uid 0 name     chunk of a user's segments; without name: their metadata
//	r                       retention, as JSON
//	s bucket uid 0          days on which a user was seen
//	t object                totals of an object
//	u                       TTL of summaries, and the time before which all expired records are summarized
//	u bucket uid 0 name     chunk of a user's summaries; without name: their metadata
const (
	spaceArchive       = 'a'
	spaceCache         = 'c'
	spaceDirty         = 'd'
	spaceJournal       = 'j'
	spaceLogHead       = 'k'
	spaceLog           = 'l'
	spaceMarks         = 'm'
	spaceCounted       = 'n'
	spacePendingFirsts = 'o'
	spaceSegments      = 'p'
	spacePlays         = 'q'
	spaceRetention     = 'r'
	spaceSeen          = 's'
	spaceTotals        = 't'
	spaceSummaries     = 'u'
)

// endOfUID terminates a uid and sorts before every legal byte.
const endOfUID = 0

func appendKey(dst []byte, space byte, k history.Key) []byte {
	dst = appendUser(dst, space, k.UID)
	if k.IsUser() {
		return dst
	}
	return appendObject(dst, k.Object)
}

func appendUser(dst []byte, space byte, uid string) []byte {
	dst = appendBucket(dst, space, history.BucketOf(uid))
	dst = append(dst, uid...)
	return append(dst, endOfUID)
}

func appendBucket(dst []byte, space byte, b history.Bucket) []byte {
	return binary.BigEndian.AppendUint16(append(dst, space), uint16(b))
}

func appendObject(dst []byte, o history.Object) []byte {
	dst = append(append(dst, o.ID...), '_')
	return strconv.AppendUint(dst, uint64(o.Type), 10)
}

// parseKey is the inverse of appendKey for records.
func parseKey(key []byte) (history.Key, error) {
	uid, object, _ := bytes.Cut(key[keyPrefix:], []byte{endOfUID})
	o, err := parseObject(object)
	return history.Key{UID: string(uid), Object: o}, err
}

// appendDirty appends the key of a cache key's dirty mark. Marks are in order of time, not by bucket, because a
// store writes fastest at the end of a keyspace.
func appendDirty(dst []byte, key []byte, m history.Mark) []byte {
	return append(appendMark(dst, m), key[keyPrefix:]...)
}

// objectAt returns the start of the object text in a record's or user's key.
func objectAt(key []byte) int { return keyPrefix + bytes.IndexByte(key[keyPrefix:], endOfUID) + 1 }

// appendMark appends the key that follows all older marks.
func appendMark(dst []byte, m history.Mark) []byte {
	return binary.BigEndian.AppendUint64(append(dst, spaceDirty), uint64(max(m, 0)))
}

// Bytes before the uid.
const (
	keyPrefix   = 1 + 2
	dirtyPrefix = 1 + 8
)

func parseDirty(key []byte) (history.Key, history.Mark, error) {
	if len(key) < dirtyPrefix {
		return history.Key{}, 0, fmt.Errorf("dirty mark of %d bytes: %w", len(key), wire.ErrCorrupt)
	}
	k, mark := history.Key{}, history.Mark(binary.BigEndian.Uint64(key[1:]))
	uid, object, ok := bytes.Cut(key[dirtyPrefix:], []byte{endOfUID})
	k.UID = string(uid)
	err := history.ValidateNamespace(k.UID)
	if err == nil && !ok {
		err = fmt.Errorf("dirty mark of %s: %w", history.Pseudonym(string(uid)), wire.ErrCorrupt)
	}
	if err == nil && len(object) > 0 {
		k.Object, err = history.ParseObject(string(object))
	}
	return k, mark, err
}

// after returns the first key after all keys with the prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; ; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
}

// rangeOf returns the range of the keys with a prefix.
func rangeOf(prefix []byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}
}

// parseObject fails with [history.ErrUnavailable]: an invalid object means a damaged store.
func parseObject(text []byte) (history.Object, error) {
	o, err := history.ParseObject(string(text))
	if err != nil {
		return o, unavailable(err)
	}
	return o, nil
}

// get calls use with the value of a key, nil if absent. The value is valid until use returns.
func get(r pebble.Reader, key []byte, use func(value []byte) error) error {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return use(nil)
	}
	if err != nil {
		return unavailable(err)
	}
	if v == nil { // an empty value is present
		v = []byte{}
	}
	err = use(v)
	if closing := closer.Close(); err == nil && closing != nil {
		err = unavailable(closing)
	}
	return err
}

// seeker is [get] through one iterator, which costs less for keys that are close to each other. Close it.
type seeker struct{ *pebble.Iterator }

func (s seeker) get(key []byte, use func(value []byte) error) error {
	// The limit spares the way past deleted keys, such as those of compacted records.
	if s.SeekGEWithLimit(key, append(key, 0)) != pebble.IterValid || !bytes.Equal(s.Key(), key) {
		if err := s.Error(); err != nil {
			return unavailable(err)
		}
		return use(nil)
	}
	v, err := s.ValueAndErr()
	if err != nil {
		return unavailable(err)
	}
	if v == nil { // as in get
		v = []byte{}
	}
	return use(v)
}

func set(b *pebble.Batch, key, value []byte) error {
	if err := b.Set(key, value, nil); err != nil {
		return unavailable(err)
	}
	return nil
}

func del(b *pebble.Batch, key []byte) error {
	if err := b.Delete(key, nil); err != nil {
		return unavailable(err)
	}
	return nil
}

// delRow deletes all keys with a prefix.
func delRow(b *pebble.Batch, prefix []byte) error {
	if err := b.DeleteRange(prefix, after(prefix), nil); err != nil {
		return unavailable(err)
	}
	return nil
}

// each yields the keys in [lower, upper) with their values, in order and from one point in time. They are valid
// until the next step. On a read error the sequence ends and sets *failed.
func each(r pebble.Reader, lower, upper []byte, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			*failed = unavailable(err)
			return
		}
		steps(it, failed)(yield)
	}
}

// uidOf returns the user of a key.
func uidOf(key []byte) string { return string(key[keyPrefix : objectAt(key)-1]) }

// steps iterates and closes an iterator, nil for an empty one.
func steps(it *pebble.Iterator, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if it == nil {
			return
		}
		for ok := it.First(); ok; ok = it.Next() {
			v, err := it.ValueAndErr()
			if err != nil || !yield(it.Key(), v) {
				break
			}
		}
		if err := it.Close(); err != nil { // includes the error of any step
			*failed = unavailable(err)
		}
	}
}

const markSize = 8

// recordSize is the estimated size of most records.
const recordSize = 256
