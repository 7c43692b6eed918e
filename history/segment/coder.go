package segment

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// coder encodes or decodes the fields of consecutive records. One code path for both directions keeps them in step.
type coder struct {
	columns []column
	texts   []texts
	err     error
	decodes bool

	bits int // approximate encoded size

	packed []byte          // bits of all columns
	skips  bool            // the current record is decoded only to reach later ones
	fresh  *history.Record // for the next wanted record

	time     int64    // of the previous record
	viewings []uint64 // of the current record
}

func newCoder(columns int, textColumn ...int) *coder {
	c := &coder{columns: make([]column, columns), texts: make([]texts, len(textColumn))}
	for i, first := range textColumn {
		c.texts[i].first = first
	}
	return c
}

// clone returns a decoder at the same place.
func (c *coder) clone() *coder {
	d := *c
	d.columns, d.texts = slices.Clone(c.columns), slices.Clone(c.texts)
	d.fresh, d.viewings = nil, nil
	return &d
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
}

func (c *coder) put(col int, v uint64) {
	c.columns[col].values = append(c.columns[col].values, v)
	c.bits += bits.Len64(v) + 2 // about two bits per symbol
}

func (c *coder) get(col int) uint64 { return c.columns[col].next(c.packed) }

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

// like codes a number that often equals another one, else in full.
func (c *coder) like(col int, p *int64, other int64) {
	if c.decodes {
		*p = unzigzag(unswap(c.get(col), zigzag(other)))
	} else {
		c.put(col, swap(zigzag(*p), zigzag(other)))
	}
}

// chain codes a time near the previous one and returns it.
func (c *coder) chain(col int, p *int64, before int64) int64 {
	c.number(col, p, before)
	return *p
}

// text codes a text and reports whether it is non-empty.
func (c *coder) text(i int, p *string) bool {
	t := &c.texts[i]
	if !c.decodes {
		t.encode(c, *p)
		return *p != ""
	}
	v := t.decode(c)
	if !c.skips {
		*p = v.String()
	}
	return v.how > textEmpty
}

// column has the values of one field in record order. Trailing zeros are omitted: an unused field takes one
// byte.
//
// A number is stored as its bit length, a symbol of one byte, and its bits below the highest. If all numbers of
// a column are below 256, the symbols are the numbers.
type column struct {
	values []uint64 // to encode

	symbols []byte // to decode
	small   bool   // symbols are the numbers
	at      int    // bit position of the next number
}

// empty reports whether a column to encode is all zeros.
func (c *column) empty() bool {
	return !slices.ContainsFunc(c.values, func(v uint64) bool { return v != 0 })
}

// appendTo appends a column's length and symbols, and packs its bits.
func (c *column) appendTo(symbols []byte, packed *bitWriter) []byte {
	values := c.values
	for len(values) > 0 && values[len(values)-1] == 0 {
		values = values[:len(values)-1]
	}
	if len(values) == 0 {
		return append(symbols, 0)
	}
	if slices.Max(values) < 256 {
		symbols = binary.AppendUvarint(symbols, uint64(len(values))<<1)
		for _, v := range values {
			symbols = append(symbols, byte(v))
		}
		return symbols
	}
	symbols = binary.AppendUvarint(symbols, uint64(len(values))<<1|1)
	for _, v := range values {
		symbols = append(symbols, packed.put(v))
	}
	return symbols
}

// parse reads a column from the front of the symbols. Its bits start at at; it returns their end.
func (c *column) parse(r *reader, at int) (end int) {
	head := r.uvarint()
	c.symbols, c.small, c.at = r.bytes(head>>1), head&1 == 0, at
	if c.small {
		return at
	}
	for _, size := range c.symbols {
		if size > 64 {
			r.fail("a number of %d bits", size)
		}
		at += max(int(size)-1, 0)
	}
	return at
}

// next returns the next number. parse has checked the number of bits.
func (c *column) next(packed []byte) uint64 {
	if len(c.symbols) == 0 {
		return 0
	}
	s := c.symbols[0]
	c.symbols = c.symbols[1:]
	if c.small || s == 0 {
		return uint64(s)
	}
	n := int(s) - 1
	v := uint64(1)<<n | bitsAt(packed, c.at, n)
	c.at += n
	return v
}

// bitWriter packs bits, lowest first.
type bitWriter struct {
	bytes []byte
	room  int // free bits in the last byte
}

// put appends a number's bits below the highest, and returns its bit length.
func (w *bitWriter) put(v uint64) byte {
	size := bits.Len64(v)
	for n := size - 1; n > 0; {
		if w.room == 0 {
			w.bytes, w.room = append(w.bytes, 0), 8
		}
		k := min(n, w.room)
		w.bytes[len(w.bytes)-1] |= byte(v&(1<<k-1)) << (8 - w.room)
		v, n, w.room = v>>k, n-k, w.room-k
	}
	return byte(size)
}

// bitsAt returns n bits at a position, which must exist.
func bitsAt(packed []byte, at, n int) (v uint64) {
	if i := at / 8; n+at%8 <= 64 && i+8 <= len(packed) {
		return binary.LittleEndian.Uint64(packed[i:]) >> (at % 8) & (1<<n - 1)
	}
	for got := 0; got < n; {
		k := min(n-got, 8-at%8)
		v |= uint64(packed[at/8]) >> (at % 8) & (1<<k - 1) << got
		at, got = at+k, got+k
	}
	return v
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

// Columns of a text, relative to its first.
const (
	textHow = iota
	textNumber
	textLength
	textColumns
)

// How a text is stored. Numbers from textSeen refer to earlier texts of the column: textSeen is the first new
// one, textSeen+1 the second, and so on.
const (
	textSame = iota // as in the previous record
	textEmpty
	textDigits // a number below 2^64 without leading zeros, in textNumber
	textHex    // 16 lowercase hexadecimal digits, in textNumber
	textNew    // in full, with its length
	textSeen
)

// texts is a column of texts with its state.
type texts struct {
	first int    // first of its columns
	rest  []byte // encoded, or not yet decoded

	last value   // last decoded
	seen []value // decoded new texts
	all  []value // all new texts, if the chunk is indexed

	text  string         // last encoded
	index map[string]int // places of new texts
}

// value is a stored text.
type value struct {
	how    uint64
	number uint64
	text   []byte
}

// String returns the text.
func (v value) String() string {
	if v.how == textDigits {
		return strconv.FormatUint(v.number, 10)
	}
	return string(v.appendTo(nil))
}

// appendTo appends the text.
func (v value) appendTo(dst []byte) []byte {
	switch v.how {
	case textDigits:
		return strconv.AppendUint(dst, v.number, 10)
	case textHex:
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], v.number)
		return hex.AppendEncode(dst, b[:])
	}
	return append(dst, v.text...)
}

// valueOf is the inverse of String.
func valueOf(s string) value {
	if s == "" {
		return value{how: textEmpty}
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && s[0] != '+' && (s[0] != '0' || s == "0") {
		return value{how: textDigits, number: n}
	}
	if n, err := strconv.ParseUint(s, 16, 64); err == nil && len(s) == 16 && s == strings.ToLower(s) {
		return value{how: textHex, number: n}
	}
	return value{how: textNew, text: []byte(s)}
}

// encode appends a text.
func (t *texts) encode(c *coder, s string) {
	if s == t.text {
		c.put(t.first+textHow, textSame)
		return
	}
	t.text = s
	if i, ok := t.index[s]; ok {
		c.put(t.first+textHow, textSeen+uint64(i)) //nolint:gosec // a chunk has fewer
		return
	}
	v := valueOf(s)
	c.put(t.first+textHow, v.how)
	switch v.how {
	case textEmpty:
		return
	case textDigits:
		c.put(t.first+textNumber, v.number)
		return
	case textHex:
		c.put(t.first+textNumber, v.number)
	case textNew:
		c.put(t.first+textLength, uint64(len(v.text)))
		t.rest = append(t.rest, v.text...)
		c.bits += 8 * len(v.text)
	}
	if t.index == nil {
		t.index = make(map[string]int)
	}
	t.index[s] = len(t.index)
}

// decode returns the next text, which aliases the chunk.
func (t *texts) decode(c *coder) value {
	how := c.get(t.first + textHow)
	switch how {
	case textSame:
		return t.last
	case textEmpty:
		t.last = value{how: how}
	case textDigits:
		t.last = value{how: how, number: c.get(t.first + textNumber)}
	case textHex:
		t.last = value{how: how, number: c.get(t.first + textNumber)}
		t.see()
	case textNew:
		n := c.get(t.first + textLength)
		if n > uint64(len(t.rest)) {
			c.fail("a text of %d bytes in %d", n, len(t.rest))
			return value{}
		}
		t.last, t.rest = value{how: how, text: t.rest[:n]}, t.rest[n:]
		t.see()
	default:
		if how-textSeen >= uint64(len(t.seen)) {
			c.fail("text %d of %d", how-textSeen, len(t.seen))
			return value{}
		}
		t.last = t.seen[how-textSeen]
	}
	return t.last
}

// see keeps the last text for later references.
func (t *texts) see() {
	if n := len(t.seen); n < len(t.all) {
		t.seen = t.all[:n+1]
		return
	}
	t.seen = append(t.seen, t.last)
}
