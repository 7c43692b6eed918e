package segment

import "github.com/playhead/playhead/history"

// Seal corrects the checksum of changed bytes.
func Seal(b []byte) []byte {
	if len(b) < sumSize {
		return b
	}
	return seal(b[: len(b)-sumSize : len(b)-sumSize])
}

// WithColumns encodes records like a version with more columns, or fewer.
func WithColumns(items []history.Item, more int) []byte {
	c := recordCoder()
	c.time = items[0].Record.Version.Time()
	n := c.records(items)
	for range more {
		c.values = append(c.values, []uint64{7})
	}
	c.values = c.values[:recordColumns+more]
	e, err := c.finish(rangeOf(items[:n]))
	if err != nil {
		panic(err)
	}
	return e.Data
}

// Columns returns the decompressed columns of a chunk.
func Columns(chunk []byte) []byte {
	b, err := decompressor().DecodeAll(chunk[1:len(chunk)-sumSize], nil)
	if err != nil {
		panic(err)
	}
	return b
}

// Unchecked encodes metadata without checks.
func Unchecked(m *Metadata) []byte { return m.encode(nil) }
