package part

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// The columns of a text, from its first one on.
const (
	textHow = iota
	textNumber
	textLength
	textColumns
)

// How a text is stored. A larger number names a text that the column had before: the first one that
// was new is textSeen, the next one textSeen+1, and so on.
const (
	textSame = iota // as that of the record before
	textEmpty
	textDigits // a number below 2^64 without zeros in front, in textNumber
	textHex    // 16 digits from 0 to f, in textNumber
	textNew    // as it is, so many bytes
	textSeen
)

// texts is a column of texts, and what of it has passed.
type texts struct {
	first int    // of its columns
	rest  []byte // what is encoded, or not yet decoded

	last value   // to decode
	seen []value // those that were new

	text  string         // the last one, to encode
	index map[string]int // those that were new
}

// value is a text as it is stored.
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
		t.seen = append(t.seen, t.last)
	case textNew:
		n := c.get(t.first + textLength)
		if n > uint64(len(t.rest)) {
			c.fail("a text of %d bytes in %d", n, len(t.rest))
			return value{}
		}
		t.last, t.rest = value{how: how, text: t.rest[:n]}, t.rest[n:]
		t.seen = append(t.seen, t.last)
	default:
		if how-textSeen >= uint64(len(t.seen)) {
			c.fail("text %d of %d", how-textSeen, len(t.seen))
			return value{}
		}
		t.last = t.seen[how-textSeen]
	}
	return t.last
}
