package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// The keyspaces. A user's records stand together, in the order of the objects'
// text, and the user's own state, whose object is empty, stands before them: one
// scan sees both at one moment.
//
//	a bucket uid 0 object   archive: record; without object: clear marks
//	c bucket uid 0 object   cache: mark and record; without object: mark and state
//	d mark uid/member       dirty mark, no value
//	j                       the first file of the journal that is needed
//	m                       the bound below which every mark lies
//	o time number uid       a first sighting that is not announced, no value
//	s bucket uid 0          the days on which a user was seen
const (
	spaceArchive = 'a'
	spaceCache   = 'c'
	spaceDirty   = 'd'
	spaceJournal = 'j'
	spaceMarks   = 'm'
	spaceOwed    = 'o'
	spaceSeen    = 's'
)

// The end of a uid, which sorts before every legal byte.
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

// appendDirty appends the key of a dirty mark. They stand in order of time, not by
// bucket, because a store writes fastest at the end of a keyspace.
func appendDirty(dst []byte, k history.Key, m history.Mark) []byte {
	dst = appendMark(dst, m)
	dst = append(append(dst, k.UID...), '/')
	if k.IsUser() {
		return append(dst, '*')
	}
	return appendObject(dst, k.Object)
}

// appendMark appends the key before which all older marks are.
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
	k, err := history.ParseKey(string(key[dirtyPrefix:]))
	return k, history.Mark(binary.BigEndian.Uint64(key[1:])), err
}

// after returns the first key that does not have the given prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; ; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
}
