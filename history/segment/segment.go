// Package segment has the form of what is old in a user's history: chunks of some thousand records
// each, newest first, and the metadata that lists them. A chunk is never changed.
//
// A chunk holds its records by columns, one field of all records behind the other, because
// the values of one field are alike. A record comes back exactly, but for its
// revision, which names a content of the cache: what leaves a chunk has none.
//
//	format  kind  count  time of the newest  symbols  texts  bits  checksum
//	1 byte  1     varint varint              namespace  namespace      8 bytes
//
// The symbols say how many bits each number has, and compress well, as the texts do; the bits
// are those numbers, and do not. A namespace is compressed with zstd where that makes it smaller.
// Every format of a chunk and of the metadata ends with the checksum, the xxHash64 of all before.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/playhead/playhead/history"
)

var (
	// ErrCorrupt means that bytes are not what this package writes.
	ErrCorrupt = errors.New("corrupt")
	// ErrNewer means that bytes are whole, and of a format that only a newer version of
	// Playhead can read.
	ErrNewer = errors.New("written by a newer version of Playhead")
)

const (
	format  = 1 // of chunks and of metadata
	sumSize = 8
)

// Kind is what a chunk holds.
type Kind uint8

// The kinds of chunks.
const (
	Records Kind = iota + 1
	Summaries
)

// seal appends the checksum.
func seal(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b)) }

// unseal returns what stands between the format and the checksum.
func unseal(b []byte) (content []byte, err error) {
	if len(b) < 1+sumSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(b))
	}
	b, tail := b[:len(b)-sumSize], b[len(b)-sumSize:]
	switch {
	case binary.LittleEndian.Uint64(tail) != xxhash.Sum64(b):
		return nil, fmt.Errorf("%w: %d bytes do not have their checksum", ErrCorrupt, len(b))
	case b[0] == 0:
		return nil, fmt.Errorf("%w: format 0", ErrCorrupt)
	case b[0] > format:
		return nil, fmt.Errorf("format %d: %w", b[0], ErrNewer)
	}
	return b[1:], nil
}

// hashOf is the hash of an object in the filter of a chunk.
func hashOf(o history.Object) uint64 { return xxhash.Sum64String(o.String()) }

// reader takes fields off the front of bytes.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
	r.rest = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("a number is cut off")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 { return unzigzag(r.uvarint()) }

// bytes takes so many bytes, which alias the input.
func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail("%d of %d bytes are there", len(r.rest), n)
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// zigzag makes small numbers of those near zero.
func zigzag(v int64) uint64 { return uint64(v<<1 ^ v>>63) } //nolint:gosec // bits

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) } //nolint:gosec // bits

// Bounds of a chunk.
const (
	// ChunkSize is about how many bytes the columns of a chunk take before they are
	// compressed.
	ChunkSize = 64 << 10
	// MaxRecords is how many records a chunk has at most, so that to find one among them
	// costs little.
	MaxRecords = 4096
)
