// Package segment is the format of a user's older history: chunks of some thousand records each, newest first,
// and metadata that lists them. Chunks are immutable.
//
// A chunk is a protobuf message, compressed with zstd. It stores the fields of most records by column, since the
// values of one field are alike, and the others as history/wire encodes them. Records survive exactly, except for
// their revision, which identifies a cached content: a record from a chunk has none.
//
//	format  message, compressed  checksum
//	1 byte                       8 bytes
//
// Metadata has its own form. Both end with a checksum, the xxHash64 of everything before.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/playhead/playhead/history"
)

var (
	// ErrCorrupt means that this package did not write these bytes.
	ErrCorrupt = errors.New("corrupt")
	// ErrNewer means that intact bytes have a format of a newer version of Playhead.
	ErrNewer = errors.New("written by a newer version of Playhead")
)

const (
	format  = 1 // of chunks and of metadata
	sumSize = 8
)

// Kind is the content of a chunk.
type Kind uint8

// The kinds of chunks.
const (
	Records Kind = iota + 1
	Summaries
)

// seal appends the checksum.
func seal(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b)) }

// unseal checks the format and the checksum and returns the content between them.
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

// hashOf returns an object's hash for the filter of a chunk.
func hashOf(o history.Object) uint64 { return xxhash.Sum64String(o.String()) }

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

// bytes returns the next n bytes, which alias the input.
func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail("%d of %d bytes are there", len(r.rest), n)
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
