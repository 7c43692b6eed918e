package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// replay reads the journal at a start.
type replay struct {
	dir        string
	syncedPath string
	log        *slog.Logger
	found      bool // the journal-synced file exists
	rotation   rotation
	reached    syncPoint
	use        func(change []byte) error

	path string // of the last replayed file
	end  int64  // end of its complete changes
}

// ErrDamaged means that durable data is missing from the store.
var ErrDamaged = errors.New("what was acknowledged cannot be read")

// all replays the files from the first needed one and returns the number of the last. No file may be missing.
func (r *replay) all(logs wal.Logs, needed wal.NumWAL) (last wal.NumWAL, err error) {
	last = max(needed, 1) - 1
	for i, log := range logs {
		if log.Num < needed { // kept for reuse
			continue
		}
		if log.Num != last+1 {
			return 0, r.missing(last + 1)
		}
		if err := r.file(log, i == len(logs)-1); err != nil {
			return 0, err
		}
		last = log.Num
	}
	if n := max(r.rotation.number, r.reached.number); last < n {
		return 0, r.missing(last + 1)
	}
	r.unverified(last)
	return last, nil
}

func (r *replay) missing(n wal.NumWAL) error {
	return fmt.Errorf("file %d of the journal in %s is missing: %w; %s", n, r.dir, ErrDamaged, without(r.syncedPath))
}

// unverified logs that the journal's end cannot be checked, unless the store is new.
func (r *replay) unverified(last wal.NumWAL) {
	if r.found || last == 0 {
		return
	}
	r.log.Warn("journal cannot be checked, because the file that says how far it was on disk is missing: "+
		"acknowledged changes after its end would be lost without notice",
		"missing", r.syncedPath, "file", r.path, "offset", r.end)
}

// synced returns the known durable length of a file.
func (r *replay) synced(n wal.NumWAL) (length int64) {
	if n == r.reached.number {
		length = r.reached.offset
	}
	if n == r.rotation.before {
		length = max(length, r.rotation.length)
	}
	return length
}

// file calls use for every change of a file. Only the last file may have a torn end, which was never acknowledged.
func (r *replay) file(log wal.LogicalLog, last bool) (err error) {
	files, path := log.SegmentLocation(0)
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// A killed process may leave unsynced changes. Sync them before their effects are persisted.
	if err := f.Sync(); err != nil {
		return err
	}
	found, err := measure(f, uint32(log.Num))
	if err != nil {
		return err
	}
	if synced := r.synced(log.Num); found.valid < synced {
		return fmt.Errorf("journal %s is damaged at byte %d, %d bytes before the end of what was synced: %w; %s",
			path, found.valid, synced-found.valid, ErrDamaged, without(r.syncedPath))
	}
	end, err := r.changes(f, log.Num)
	if err == nil && (end != found.whole || !last && !found.closed) {
		err = ErrDamaged
	}
	switch {
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("journal %s is damaged at byte %d: %w", path, min(end, found.whole), err)
	case err != nil:
		return err
	}
	r.path, r.end = path, end
	if torn := found.written - end; torn > 0 {
		r.log.Warn("journal's torn end dropped; it held nothing acknowledged", "file", path, "offset", end, "bytes", torn)
	}
	return nil
}

// changes replays the complete changes and returns their end.
func (r *replay) changes(f vfs.File, n wal.NumWAL) (end int64, err error) {
	in := newReader(record.NewReader, io.NewSectionReader(f, 0, 1<<62), n)
	for {
		end = in.Offset()
		change, err := nextChange(in)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, record.ErrUnexpectedEOF):
			return end, nil
		case err != nil:
			return end, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err := r.use(change); err != nil {
			return end, fmt.Errorf("replay: %w", err)
		}
	}
}

// newReader calls open. The type of open's second argument is not exported by Pebble.
func newReader[N ~uint64](open func(io.Reader, N) *record.Reader, r io.Reader, n wal.NumWAL) *record.Reader {
	return open(r, N(n))
}

func nextChange(r *record.Reader) ([]byte, error) {
	change, err := r.Next()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(change)
	return b.Bytes(), err
}

// extent describes a journal file, in bytes from its start.
type extent struct {
	whole   int64 // end of the complete changes
	valid   int64 // end of the valid chunks, which may include a partial change
	written int64 // end including a partial next chunk
	closed  bool  // a trailer follows
}

// The file format of Pebble's package record: blocks of chunks. A chunk has a checksum, a length, a kind, the file
// number and an offset. Zeros fill the end of a block.
const (
	blockSize   = 32 << 10
	chunkHeader = 4 + 2 + 1 + 4 + 8
	trailerSize = 4 + 2 + 1 + 4
	chunkFull   = 9
	chunkFirst  = 10
	chunkMiddle = 11
	chunkLast   = 12
	trailer     = 5
)

func measure(f vfs.File, number uint32) (e extent, err error) {
	in, block := io.NewSectionReader(f, 0, 1<<62), make([]byte, blockSize)
	for {
		n, err := io.ReadFull(in, block)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return e, err
		}
		if !e.block(block[:n], number) {
			return e, nil
		}
	}
}

// block scans a block and reports whether another may follow.
func (e *extent) block(b []byte, number uint32) bool {
	inBlock := len(b)
	for {
		if isTrailer(b, number) {
			e.closed, e.valid = true, e.valid+trailerSize
			return false
		}
		if len(b) < chunkHeader {
			break
		}
		size := chunkHeader + int(binary.LittleEndian.Uint16(b[4:]))
		kind, own := b[6], binary.LittleEndian.Uint32(b[7:])
		if kind < chunkFull || kind > chunkLast || own != number || size > len(b) || !sound(b[:size]) {
			if own == number {
				e.written = e.valid + int64(min(size, len(b)))
			}
			return false
		}
		e.valid += int64(size)
		e.written = e.valid
		if kind == chunkFull || kind == chunkLast {
			e.whole = e.valid
		}
		b = b[size:]
	}
	// Zeros fill the rest of a whole block.
	if inBlock < blockSize {
		if bytes.Trim(b, "\x00") != nil {
			e.written = e.valid + int64(len(b))
		}
		return false
	}
	e.valid += int64(len(b))
	return true
}

// isTrailer reports whether the file was closed here.
func isTrailer(b []byte, number uint32) bool {
	return len(b) >= trailerSize && b[6] == trailer && binary.LittleEndian.Uint32(b[7:]) == number+1
}

// sound reports whether a chunk's checksum matches.
func sound(chunk []byte) bool {
	c := crc32.Checksum(chunk[6:], castagnoli)
	return binary.LittleEndian.Uint32(chunk) == (c>>15|c<<17)+0xa282ead8
}
