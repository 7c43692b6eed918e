package part

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// column is the numbers that one field has in the records of a chunk, in their order. Zeros at
// its end are left out, so that a field which no record has takes one byte.
//
// A number is stored as how many bits it has, in a symbol of one byte, and as those bits but the
// highest. Of a column of numbers below 256 the symbols are the numbers.
type column struct {
	values []uint64 // to be encoded

	symbols []byte // to be decoded
	small   bool   // a symbol is the number
	at      int    // the bit where those of the next number begin
}

// appendTo appends the length and the symbols of a column, and its bits to those of the others.
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

// parse takes a column off the front of the symbols. Its bits begin at the given one; it returns
// where they end.
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

// next returns the next number. The bits are as many as parse has said.
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

// bitWriter packs bits, the lowest of a byte first.
type bitWriter struct {
	bytes []byte
	room  int // bits free in the last byte
}

// put appends the bits of a number below its highest, and returns how many it has with that.
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

// bitsAt returns n bits from a place on, which are there.
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

// swap makes 0 of the number that is expected, and makes room for that.
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
