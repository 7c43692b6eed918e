package pebble

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

// replay is a start's way through the journal.
type replay struct {
	dir        string
	syncedPath string
	log        *slog.Logger
	found      bool // the file that says how far the journal is on disk
	rotation   rotation
	reached    syncPoint
	use        func(change []byte) error

	path string // of the last file that was replayed
	end  int64  // of its whole changes
}

// errDamaged says that something of the store that was on disk is not there.
var errDamaged = errors.New("what was acknowledged cannot be read")

// all goes through the files from the first that is needed on, and returns the number
// of the last there is. None of them may be missing.
func (r *replay) all(logs wal.Logs, needed wal.NumWAL) (last wal.NumWAL, err error) {
	last = max(needed, 1) - 1
	for i, log := range logs {
		if log.Num < needed { // kept to be written over
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
	return fmt.Errorf("file %d of the journal in %s is missing: %w; %s", n, r.dir, errDamaged, without(r.syncedPath))
}

// unverified logs that the end of the journal cannot be checked, unless the store is new.
func (r *replay) unverified(last wal.NumWAL) {
	if r.found || last == 0 {
		return
	}
	r.log.Warn("journal cannot be checked, because the file that says how far it was on disk is missing: "+
		"acknowledged changes after its end would be lost without notice",
		"missing", r.syncedPath, "file", r.path, "offset", r.end)
}

// synced returns how much of a file is known to be on disk.
func (r *replay) synced(n wal.NumWAL) (length int64) {
	if n == r.reached.number {
		length = r.reached.offset
	}
	if n == r.rotation.before {
		length = max(length, r.rotation.length)
	}
	return length
}

// file calls use with every change in a file. Only the last file may have a torn end:
// nothing in it was acknowledged.
func (r *replay) file(log wal.LogicalLog, last bool) (err error) {
	files, path := log.SegmentLocation(0)
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// Changes of a killed process may not be on disk yet, and their effects will be.
	if err := f.Sync(); err != nil {
		return err
	}
	found, err := measure(f, uint32(log.Num))
	if err != nil {
		return err
	}
	if synced := r.synced(log.Num); found.valid < synced {
		return fmt.Errorf("journal %s is damaged at byte %d, %d bytes before the end of what was synced: %w; %s",
			path, found.valid, synced-found.valid, errDamaged, without(r.syncedPath))
	}
	end, err := r.changes(f, log.Num)
	if err == nil && (end != found.whole || !last && !found.closed) {
		err = errDamaged
	}
	switch {
	case errors.Is(err, errDamaged):
		return fmt.Errorf("journal %s is damaged at byte %d: %w", path, min(end, found.whole), err)
	case err != nil:
		return err
	}
	r.path, r.end = path, end
	if torn := found.written - end; torn > 0 {
		r.log.Warn("journal has a torn end, of which nothing was acknowledged", "file", path, "offset", end, "bytes", torn)
	}
	return nil
}

// changes goes through the whole changes and returns where they end.
func (r *replay) changes(f vfs.File, n wal.NumWAL) (end int64, err error) {
	in := newReader(record.NewReader, io.NewSectionReader(f, 0, 1<<62), n)
	for {
		end = in.Offset()
		change, err := nextChange(in)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, record.ErrUnexpectedEOF):
			return end, nil
		case err != nil:
			return end, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if err := r.use(change); err != nil {
			return end, fmt.Errorf("replay: %w", err)
		}
	}
}

// newReader calls open, whose second argument has a type that Pebble does not
// export.
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

// extent is what a file of the journal holds, in bytes from its beginning.
type extent struct {
	whole   int64 // of whole changes
	valid   int64 // of valid chunks, which may end with a part of a change
	written int64 // with what was begun of the next chunk
	closed  bool  // there is a trailer behind it all
}

// The form of a file of the journal, as package record of Pebble describes it: blocks
// of chunks, each with a checksum, a length, what it is of a change, the number of the
// file and an offset. A block ends with zeros where no chunk fits in.
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

// measure walks through the chunks of a file.
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

// block takes in a block, and reports whether there may be another one behind it.
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
	// The rest of a whole block is filled with zeros.
	if inBlock < blockSize {
		if bytes.Trim(b, "\x00") != nil {
			e.written = e.valid + int64(len(b))
		}
		return false
	}
	e.valid += int64(len(b))
	return true
}

// isTrailer reports whether a file was closed here.
func isTrailer(b []byte, number uint32) bool {
	return len(b) >= trailerSize && b[6] == trailer && binary.LittleEndian.Uint32(b[7:]) == number+1
}

// sound reports whether the checksum of a chunk is that of its bytes.
func sound(chunk []byte) bool {
	c := crc32.Checksum(chunk[6:], castagnoli)
	return binary.LittleEndian.Uint32(chunk) == (c>>15|c<<17)+0xa282ead8
}
