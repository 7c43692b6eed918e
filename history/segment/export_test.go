package segment

import "github.com/playhead/playhead/history"

// Seal gives changed bytes of a chunk or of metadata the checksum that they need.
func Seal(b []byte) []byte {
	if len(b) < sumSize {
		return b
	}
	return seal(b[: len(b)-sumSize : len(b)-sumSize])
}

// WithColumns encodes records as a version does that knows so many columns more, which have
// numbers, or fewer.
func WithColumns(items []history.Item, more int) []byte {
	c := recordCoder()
	c.time = items[0].Record.Version.Time()
	n := c.records(items)
	for range more {
		c.columns = append(c.columns, column{values: []uint64{7}})
	}
	c.columns = c.columns[:recordColumns+more]
	return c.finish(Records, rangeOf(items[:n])).Data
}

// Unchecked encodes metadata as it is.
func Unchecked(m *Metadata) []byte { return m.encode(nil) }
