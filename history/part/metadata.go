package part

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/bloom"
)

// Metadata lists the chunks that a user's parts consist of.
type Metadata struct {
	// Version grows with every change of the list.
	Version uint64
	// Cleared are the clear marks, by type, of which the chunks have nothing that they cover.
	Cleared map[uint32]int64
	// Chunks are the chunks of records, newest first, and then those of summaries. Those of one
	// kind do not overlap: none has a record newer than the oldest of the one before.
	Chunks []Info
}

// Info is what the metadata says of a chunk.
type Info struct {
	Name           string // where it is stored, 1 to 128 bytes
	Kind           Kind
	Count, Bytes   int
	Newest, Oldest history.Version
	Sum            uint64       // the chunk ends with it
	Filter         bloom.Filter // of its objects
	CellTime       int64        // the latest of its records, see [history.Record.CellTime]
	Full           bool         // nothing more fitted in
	// Superseded are the places of the records that count no more, because a newer part has their
	// object, in ascending order.
	Superseded []uint16
}

const maxName = 128

// Names returns the names of the listed chunks.
func (m *Metadata) Names() map[string]bool {
	names := make(map[string]bool, len(m.Chunks))
	for i := range m.Chunks {
		names[m.Chunks[i].Name] = true
	}
	return names
}

// MayHave reports whether the chunk may have a record of an object: it surely has none where
// that is false.
func (i *Info) MayHave(o history.Object) bool { return i.Filter.Has(hashOf(o)) }

// Append appends the encoded metadata. It fails with [history.ErrInvalid] when the list is not
// as it has to be.
func (m *Metadata) Append(dst []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, fmt.Errorf("metadata of parts: %w: %w", history.ErrInvalid, err)
	}
	return m.encode(dst), nil
}

func (m *Metadata) encode(dst []byte) []byte {
	b := binary.AppendUvarint([]byte{format}, m.Version)
	b = binary.AppendUvarint(b, uint64(len(m.Cleared)))
	for _, typ := range slices.Sorted(maps.Keys(m.Cleared)) {
		b = binary.AppendUvarint(b, uint64(typ))
		b = binary.AppendUvarint(b, zigzag(m.Cleared[typ]))
	}
	b = binary.AppendUvarint(b, uint64(len(m.Chunks)))
	for _, c := range m.Chunks {
		b = append(b, byte(c.Kind))
		b = appendBytes(b, c.Name)
		b = binary.AppendUvarint(b, uint64(c.Count)) //nolint:gosec // checked
		b = binary.AppendUvarint(b, uint64(c.Bytes)) //nolint:gosec // checked
		b = binary.AppendUvarint(b, zigzag(int64(c.Newest)))
		b = binary.AppendUvarint(b, zigzag(int64(c.Newest-c.Oldest)))
		b = binary.LittleEndian.AppendUint64(b, c.Sum)
		b = appendBytes(b, c.Filter)
		b = binary.AppendUvarint(b, zigzag(c.CellTime-c.Newest.Time()))
		b = appendPlaces(b, c.Superseded, c.Full)
	}
	return append(dst, seal(b)...)
}

// appendPlaces appends places in ascending order, with a flag beside their number.
func appendPlaces(dst []byte, places []uint16, flag bool) []byte {
	head := uint64(len(places)) << 1
	if flag {
		head |= 1
	}
	dst = binary.AppendUvarint(dst, head)
	before := -1
	for _, p := range places {
		dst = binary.AppendUvarint(dst, uint64(int(p)-before-1)) //nolint:gosec // checked
		before = int(p)
	}
	return dst
}

func appendBytes[T ~string | ~[]byte](dst []byte, b T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// ParseMetadata is the inverse of [Metadata.Append]. It fails with [ErrCorrupt] or [ErrNewer]. The
// filters refer to b.
func ParseMetadata(b []byte) (*Metadata, error) {
	b, err := unseal(b)
	if err != nil {
		return nil, fmt.Errorf("metadata of parts: %w", err)
	}
	r := &reader{rest: b}
	m := &Metadata{Version: r.uvarint()}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		if m.Cleared == nil {
			m.Cleared = make(map[uint32]int64)
		}
		typ, at := r.uvarint(), r.varint()
		m.Cleared[uint32(typ)] = at //nolint:gosec // bits
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		m.Chunks = append(m.Chunks, r.info())
	}
	if len(r.rest) > 0 {
		r.fail("%d bytes after the last chunk", len(r.rest))
	}
	if r.err == nil {
		if err := m.check(); err != nil {
			r.fail("%v", err)
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("metadata of parts: %w", r.err)
	}
	return m, nil
}

func (r *reader) info() (i Info) {
	if kind := r.bytes(1); kind != nil {
		i.Kind = Kind(kind[0])
	}
	i.Name = string(r.bytes(r.uvarint()))
	i.Count, i.Bytes = r.size(), r.size()
	i.Newest = history.Version(r.varint())
	i.Oldest = i.Newest - history.Version(r.varint())
	if sum := r.bytes(sumSize); sum != nil {
		i.Sum = binary.LittleEndian.Uint64(sum)
	}
	i.Filter = r.bytes(r.uvarint())
	i.CellTime = i.Newest.Time() + r.varint()
	i.Superseded, i.Full = r.places()
	return i
}

// places is the inverse of appendPlaces.
func (r *reader) places() (places []uint16, flag bool) {
	head := r.uvarint()
	if head>>1 > MaxRecords {
		r.fail("%d places", head>>1)
		return nil, false
	}
	next := uint64(0)
	for range head >> 1 {
		if next += r.uvarint(); next >= MaxRecords {
			r.fail("place %d", next)
			return nil, false
		}
		places = append(places, uint16(next))
		next++
	}
	return places, head&1 != 0
}

// size takes a number that is no larger than a file may be.
func (r *reader) size() int {
	v := r.uvarint()
	if v > 1<<31 {
		r.fail("a size of %d", v)
		return 0
	}
	return int(v) //nolint:gosec // bounded
}

// check reports the first chunk that is not as it has to be.
func (m *Metadata) check() error {
	names := make(map[string]bool, len(m.Chunks))
	for i := range m.Chunks {
		c := &m.Chunks[i]
		if err := c.check(); err != nil {
			return fmt.Errorf("chunk %d of %d, %q: %w", i+1, len(m.Chunks), c.Name, err)
		}
		if names[c.Name] {
			return fmt.Errorf("chunk %d of %d, %q: listed twice", i+1, len(m.Chunks), c.Name)
		}
		names[c.Name] = true
		if i == 0 {
			continue
		}
		switch before := &m.Chunks[i-1]; {
		case before.Kind > c.Kind:
			return fmt.Errorf("chunk %d of %d, %q: records after summaries", i+1, len(m.Chunks), c.Name)
		case before.Kind == c.Kind && c.Newest > before.Oldest:
			return fmt.Errorf("chunk %d of %d, %q: overlaps with the one before", i+1, len(m.Chunks), c.Name)
		}
	}
	return nil
}

func (i *Info) check() error {
	switch {
	case len(i.Name) == 0 || len(i.Name) > maxName || !utf8.ValidString(i.Name):
		return fmt.Errorf("a name of %d bytes, want 1 to %d of UTF-8", len(i.Name), maxName)
	case i.Kind != Records && i.Kind != Summaries:
		return fmt.Errorf("kind %d", i.Kind)
	case i.Count < 1 || i.Count > MaxRecords:
		return fmt.Errorf("%d records, want 1 to %d", i.Count, MaxRecords)
	case i.Bytes < 1+sumSize:
		return fmt.Errorf("%d bytes", i.Bytes)
	case i.Oldest > i.Newest:
		return fmt.Errorf("its oldest record is newer than its newest")
	case !i.supersedes():
		return fmt.Errorf("superseded records %d, of %d", i.Superseded, i.Count)
	case len(i.Filter) == 0 || len(i.Filter)%bloom.BlockSize != 0:
		return fmt.Errorf("a filter of %d bytes", len(i.Filter))
	}
	return nil
}

// supersedes reports whether the superseded records are some of the chunk's, in order, and not all.
func (i *Info) supersedes() bool {
	for n, p := range i.Superseded {
		if int(p) >= i.Count || n > 0 && p <= i.Superseded[n-1] {
			return false
		}
	}
	return len(i.Superseded) < i.Count
}

// maxAhead is how many chunks are read at once: a mebibyte, decompressed.
const maxAhead = 8

// AppendIndex appends what of the metadata a reader needs to ask for the chunks of a page beside the metadata: names,
// times, and how many records count.
func (m *Metadata) AppendIndex(dst []byte) []byte {
	b, before := []byte{format}, ""
	for i := range m.Chunks {
		c := &m.Chunks[i]
		if c.Kind != Records {
			continue
		}
		shared := 0
		for shared < len(c.Name) && shared < len(before) && c.Name[shared] == before[shared] {
			shared++
		}
		b = binary.AppendUvarint(b, uint64(shared)) //nolint:gosec // never negative
		b = appendBytes(b, c.Name[shared:])
		b = binary.AppendUvarint(b, uint64(c.Count-len(c.Superseded))) //nolint:gosec // checked
		b = binary.AppendUvarint(b, zigzag(int64(c.Newest)))
		b = binary.AppendUvarint(b, zigzag(int64(c.Newest-c.Oldest)))
		before = c.Name
	}
	return append(dst, seal(b)...)
}

// ParseIndex is the inverse of [Metadata.AppendIndex]: of the chunks only that is known. It fails with [ErrCorrupt] or
// [ErrNewer].
func ParseIndex(b []byte) (chunks []Info, err error) {
	b, err = unseal(b)
	if err != nil {
		return nil, fmt.Errorf("index of parts: %w", err)
	}
	for r, before := (&reader{rest: b}), ""; len(r.rest) > 0; {
		shared := r.uvarint()
		if shared > uint64(len(before)) {
			r.fail("%d bytes of a name of %d", shared, len(before))
			shared = 0
		}
		i := Info{Kind: Records, Name: before[:shared] + string(r.bytes(r.uvarint())), Count: r.size()}
		i.Newest = history.Version(r.varint())
		i.Oldest = i.Newest - history.Version(r.varint())
		if r.err != nil {
			return nil, fmt.Errorf("index of parts: %w", r.err)
		}
		chunks, before = append(chunks, i), i.Name
	}
	return chunks, nil
}

// Ahead returns which of the chunks, from one to before another, the first page of a query is in. Where it asks for a
// type, or live records take the place of those in parts, it may go on behind them.
func Ahead(chunks []Info, q history.Query) (from, to int) {
	top := topOf(q)
	for from < len(chunks) && (chunks[from].Kind != Records || chunks[from].Oldest > top) {
		from++
	}
	sure := 0 // records that the page has of what is between
	for to = from; to < len(chunks) && to-from < maxAhead && sure <= q.Limit && q.Limit > 0; to++ {
		c := &chunks[to]
		if c.Kind != Records || c.Newest.Time() < q.Since {
			break
		}
		if c.Newest < top {
			sure += c.Count - len(c.Superseded)
		}
	}
	return from, to
}

// topOf returns the latest version that a query asks for.
func topOf(q history.Query) history.Version {
	top := history.MaxVersion
	if q.Until > 0 {
		top = history.VersionOf(q.Until+1, 0) - 1
	}
	if q.After != (history.Cursor{}) {
		top = min(top, q.After.Version)
	}
	return top
}
