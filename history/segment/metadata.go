package segment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/bloom"
)

// Metadata lists the chunks of a user's segments.
type Metadata struct {
	// Version grows with every change.
	Version uint64
	// Cleared are the clear marks applied to the chunks, by type.
	Cleared map[uint32]int64
	// Chunks are the chunks of records, newest first, then those of summaries. Chunks of one kind do not
	// overlap: none has a record newer than the oldest of the chunk before.
	Chunks []Info
}

// Info is the metadata of a chunk.
type Info struct {
	Name           string // storage name, 1 to 128 bytes
	Kind           Kind
	Count, Bytes   int
	Newest, Oldest history.Version
	Sum            uint64       // checksum at the chunk's end
	Filter         bloom.Filter // of its objects
	CellTime       int64        // latest of its records, see [history.Record.CellTime]
	Full           bool         // no further record fits
	// Superseded are the places of superseded records, ascending: a newer chunk has their objects.
	Superseded []uint16
	// Types counts the valid records per type, ascending by type. Beyond maxTypes it has the most frequent types.
	Types []TypeCount
}

// TypeCount is the number of records of a type.
type TypeCount struct {
	Type  uint32
	Count int
}

const (
	maxName  = 128
	maxTypes = 32 // per chunk
)

// ofType returns the least number of valid records of a type, 0 for all types, and whether there may be any.
func (i *Info) ofType(typ uint32) (sure int, may bool) {
	left := i.Count - len(i.Superseded)
	if typ == 0 {
		return left, true
	}
	for _, t := range i.Types {
		if t.Type == typ {
			return t.Count, true
		}
		left -= t.Count
	}
	return 0, left > 0
}

// countTypes returns the counts to list.
func countTypes(counts map[uint32]int) (types []TypeCount) {
	for typ, n := range counts {
		types = append(types, TypeCount{typ, n})
	}
	slices.SortFunc(types, func(a, b TypeCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Type, b.Type)) })
	types = slices.Clip(types[:min(len(types), maxTypes)])
	slices.SortFunc(types, func(a, b TypeCount) int { return cmp.Compare(a.Type, b.Type) })
	return types
}

// Names returns the names of the listed chunks.
func (m *Metadata) Names() map[string]bool {
	names := make(map[string]bool, len(m.Chunks))
	for i := range m.Chunks {
		names[m.Chunks[i].Name] = true
	}
	return names
}

// MayHave reports whether the chunk may have a record of an object; it has no false negatives.
func (i *Info) MayHave(o history.Object) bool { return i.Filter.Has(hashOf(o)) }

// Append appends the encoded metadata. It fails with [history.ErrInvalid] for an invalid list.
func (m *Metadata) Append(dst []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, fmt.Errorf("metadata of segments: %w: %w", history.ErrInvalid, err)
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
		b = appendTypes(b, c.Types)
	}
	return append(dst, seal(b)...)
}

func appendTypes(dst []byte, types []TypeCount) []byte {
	dst = append(dst, byte(len(types)))
	before := uint32(0)
	for _, t := range types {
		dst = binary.AppendUvarint(dst, uint64(t.Type-before))
		dst = binary.AppendUvarint(dst, uint64(t.Count)) //nolint:gosec // checked
		before = t.Type
	}
	return dst
}

// appendPlaces appends ascending places, with a flag in their count.
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

// ParseMetadata is the inverse of [Metadata.Append]. It fails with [ErrCorrupt] or [ErrNewer]. Filters refer to b.
func ParseMetadata(b []byte) (*Metadata, error) {
	b, err := unseal(b)
	if err != nil {
		return nil, fmt.Errorf("metadata of segments: %w", err)
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
		return nil, fmt.Errorf("metadata of segments: %w", r.err)
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
	i.Types = r.types()
	return i
}

func (r *reader) types() (types []TypeCount) {
	n, typ := r.bytes(1), uint64(0)
	for len(n) > 0 && len(types) < int(n[0]) && r.err == nil {
		if typ += r.uvarint(); typ > math.MaxUint32 {
			r.fail("type %d", typ)
		}
		types = append(types, TypeCount{uint32(typ), r.size()}) //nolint:gosec // bounded
	}
	return types
}

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

// size parses a number up to the largest file size.
func (r *reader) size() int {
	v := r.uvarint()
	if v > 1<<31 {
		r.fail("a size of %d", v)
		return 0
	}
	return int(v) //nolint:gosec // bounded
}

// check reports the first invalid chunk.
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
	case !i.listsTypes():
		return fmt.Errorf("types %v, of %d records", i.Types, i.Count)
	case len(i.Filter) == 0 || len(i.Filter)%bloom.BlockSize != 0:
		return fmt.Errorf("a filter of %d bytes", len(i.Filter))
	}
	return nil
}

// supersedes reports whether the superseded places are ascending, in the chunk, and not all of it.
func (i *Info) supersedes() bool {
	for n, p := range i.Superseded {
		if int(p) >= i.Count || n > 0 && p <= i.Superseded[n-1] {
			return false
		}
	}
	return len(i.Superseded) < i.Count
}

// listsTypes reports whether the types are ascending and their counts within the chunk's.
func (i *Info) listsTypes() bool {
	left := i.Count - len(i.Superseded)
	for n, t := range i.Types {
		if left -= t.Count; t.Count < 1 || left < 0 || n > 0 && t.Type <= i.Types[n-1].Type {
			return false
		}
	}
	return len(i.Types) <= maxTypes
}

const (
	maxAhead = 8   // chunks read at once if the need is unknown: 1 MiB decompressed.
	maxPage  = 128 // if it is known: a page of 100 spans no more, however rare its type.
)

// AppendIndex appends what a reader needs to fetch a page's chunks along with the metadata: names, times, and
// counts of records by type.
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
		b = appendTypes(b, c.Types)
		before = c.Name
	}
	return append(dst, seal(b)...)
}

// ParseIndex is the inverse of [Metadata.AppendIndex]; other fields are unset. It fails with [ErrCorrupt] or
// [ErrNewer].
func ParseIndex(b []byte) (chunks []Info, err error) {
	b, err = unseal(b)
	if err != nil {
		return nil, fmt.Errorf("index of segments: %w", err)
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
		i.Types = r.types()
		if r.err != nil {
			return nil, fmt.Errorf("index of segments: %w", r.err)
		}
		chunks, before = append(chunks, i), i.Name
	}
	return chunks, nil
}

// Ahead returns the chunks that may have records for a query, newest first, and the number needed for the first
// page. It adds up to maxAhead for records that live ones may hide.
func Ahead(chunks []Info, q history.Query, hidden int) (may []*Info, first int) {
	top, sure, needed := topOf(q), 0, 0 // sure: records certain for the page so far
	for i := range chunks {
		c := &chunks[i]
		if c.Kind != Records || c.Newest.Time() < q.Since {
			break
		}
		n, some := c.ofType(q.Type)
		if c.Oldest > top || !some {
			continue
		}
		may = append(may, c)
		if sure <= q.Limit {
			needed = len(may)
		}
		if q.Limit > 0 && sure <= q.Limit+hidden && len(may) <= needed+maxAhead {
			first = min(len(may), maxPage)
		}
		if c.Newest < top {
			sure += n
		}
	}
	return may, first
}

// topOf returns the latest version that a query selects.
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
