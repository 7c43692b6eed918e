package part

import (
	"encoding/binary"
	"fmt"

	"github.com/playhead/playhead/history"
)

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

// readAhead reads chunks that are needed soon, where the reader does that.
func (p *Reader) readAhead(from, to int) error {
	if p.Ahead == nil || from >= to {
		return nil
	}
	infos := make([]*Info, 0, to-from)
	for i := from; i < to; i++ {
		infos = append(infos, &p.Chunks[i])
	}
	return p.Ahead(infos)
}
