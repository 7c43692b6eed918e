package segment

import "github.com/playhead/playhead/history"

// Seal corrects the checksum of changed bytes.
func Seal(b []byte) []byte {
	if len(b) < sumSize {
		return b
	}
	return seal(b[: len(b)-sumSize : len(b)-sumSize])
}

// WithColumns encodes records like a version with more number columns, or fewer.
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

// Unchecked encodes metadata without checks.
func Unchecked(m *Metadata) []byte { return m.encode(nil) }
