package segment

import (
	"fmt"
	"math/bits"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// coder encodes or decodes the fields of consecutive records. One code path for both directions keeps them in step.
//
// The values of a column are mostly small: a number is stored as its difference to a known one. The first columns
// are the lengths of the texts, the next has the times.
type coder struct {
	values  [][]uint64
	texts   [][]byte
	err     error
	decodes bool

	size int      // approximate encoded bytes
	time int64    // of the record before, to encode
	row  int      // to decode
	last []string // of the row before, by text
}

func newCoder(columns, texts int) *coder {
	return &coder{values: make([][]uint64, columns), texts: make([][]byte, texts), last: make([]string, texts)}
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
}

func (c *coder) put(col int, v uint64) {
	c.values[col] = append(c.values[col], v)
	c.size += bits.Len64(v|1)/7 + 1
}

func (c *coder) get(col int) uint64 {
	if c.row < len(c.values[col]) {
		return c.values[col][c.row]
	}
	return 0
}

func (c *coder) unsigned(col int, p *uint64) {
	if c.decodes {
		*p = c.get(col)
	} else {
		c.put(col, *p)
	}
}

// number codes a number near a known one.
func (c *coder) number(col int, p *int64, near int64) {
	if c.decodes {
		*p = near + unzigzag(c.get(col))
	} else {
		c.put(col, zigzag(*p-near))
	}
}

// rare codes a number that is usually 0, else near another one.
func (c *coder) rare(col int, p *int64, near int64) {
	if c.decodes {
		*p = near + unzigzag(unswap(c.get(col), zigzag(-near)))
	} else {
		c.put(col, swap(zigzag(*p-near), zigzag(-near)))
	}
}

// swap maps the expected number to 0 and shifts smaller ones up.
func swap(v, expected uint64) uint64 {
	switch {
	case v == expected:
		return 0
	case v < expected:
		return v + 1
	}
	return v
}

func unswap(v, expected uint64) uint64 {
	switch {
	case v == 0:
		return expected
	case v <= expected:
		return v - 1
	}
	return v
}

// zigzag maps numbers near zero to small ones.
func zigzag(v int64) uint64 { return uint64(v<<1 ^ v>>63) } //nolint:gosec // bits

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) } //nolint:gosec // bits

// version codes a version's time, which is at most the previous record's. A column of flags adds the rank.
func (c *coder) version(p *history.Version) {
	col := len(c.texts)
	if c.decodes {
		*p = history.Version(c.get(col) << 2) //nolint:gosec // bits
		return
	}
	c.put(col, uint64(c.time-p.Time())) //nolint:gosec // bits
	c.time = p.Time()
}

// text codes a text.
func (c *coder) text(i int, p *string) {
	if !c.decodes {
		c.put(i, uint64(len(*p)))
		c.texts[i] = append(c.texts[i], *p...)
		c.size += len(*p)
		return
	}
	if b := c.bytes(i); c.last[i] != string(b) {
		c.last[i] = string(b)
	}
	*p = c.last[i]
}

// bytes returns a text to decode, which refers to the chunk.
func (c *coder) bytes(i int) []byte {
	from := uint64(0)
	if c.row > 0 {
		from = c.values[i][c.row-1]
	}
	return c.texts[i][from:c.values[i][c.row]]
}

// message returns the encoded columns, without zeros at their ends.
func (c *coder) message() *historyv1.SegmentChunk {
	m := &historyv1.SegmentChunk{Texts: c.texts}
	for _, values := range c.values {
		for len(values) > 0 && values[len(values)-1] == 0 {
			values = values[:len(values)-1]
		}
		m.Columns = append(m.Columns, &historyv1.SegmentColumn{Values: values})
	}
	return m
}

// parse prepares to decode a message. An older chunk may have fewer columns; one with more is refused, since
// rewriting its records would lose them.
func (c *coder) parse(m *historyv1.SegmentChunk) error {
	count := int(m.GetCount())
	if len(m.GetColumns()) > len(c.values) || len(m.GetTexts()) > len(c.texts) || len(m.ProtoReflect().GetUnknown()) > 0 {
		return fmt.Errorf("columns that are not known: %w", ErrNewer)
	}
	copy(c.texts, m.GetTexts())
	for i, column := range m.GetColumns() {
		if c.values[i] = column.GetValues(); len(c.values[i]) > count {
			return fmt.Errorf("%w: %d values of %d records", ErrCorrupt, len(c.values[i]), count)
		}
	}
	for i, text := range c.texts {
		c.values[i] = padded(c.values[i], count)
		if end := sums(c.values[i], len(text)); end != uint64(len(text)) {
			return fmt.Errorf("%w: texts of %d bytes in %d", ErrCorrupt, end, len(text))
		}
	}
	times := padded(c.values[len(c.texts)], count)
	at := uint64(m.GetNewestMs()) //nolint:gosec // bits
	for i, earlier := range times {
		at -= earlier
		times[i] = at
	}
	c.values[len(c.texts)], c.decodes = times, true
	return nil
}

func padded(values []uint64, n int) []uint64 { return append(values, make([]uint64, n-len(values))...) }

// sums replaces lengths by the ends of texts, and returns the last one. It stops beyond the limit.
func sums(lengths []uint64, limit int) (end uint64) {
	for i, n := range lengths {
		if end += n; n > uint64(limit) || end > uint64(limit) { //nolint:gosec // never negative
			return end
		}
		lengths[i] = end
	}
	return end
}
