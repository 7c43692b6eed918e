package scan

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string from its opening quote on. One without escapes is a part of
// the data, any other is put together in the buffer.
func (in *Input) text() []byte {
	in.escaped, in.lone = false, false
	start := in.pos + 1
	for i := start; i < len(in.data); i++ {
		switch c := in.data[i]; {
		case c == '"':
			in.pos = i + 1
			return in.data[start:i]
		case c == '\\':
			in.pos = i
			return in.unescape(start)
		case c < ' ':
			in.pos = i
			in.syntax("control character in a string")
			return nil
		}
	}
	in.pos = len(in.data)
	in.syntax("string without end")
	return nil
}

// unescape reads on from the first backslash of a string.
func (in *Input) unescape(start int) []byte {
	in.escaped = true
	in.buf = append(in.buf[:0], in.data[start:in.pos]...)
	for in.pos < len(in.data) {
		c, n := in.data[in.pos], 1
		switch {
		case c == '"':
			in.pos++
			return in.buf
		case c == '\\':
			n = in.escape(in.data[in.pos:])
		case c < ' ':
			n = 0
		default:
			in.buf = append(in.buf, c)
		}
		if n == 0 {
			in.syntax("control character or illegal escape in a string")
			return nil
		}
		in.pos += n
	}
	in.syntax("string without end")
	return nil
}

// escape appends what an escape stands for and returns its length, 0 if it is illegal.
func (in *Input) escape(s []byte) int {
	const letters, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if len(s) < 2 {
		return 0
	}
	if s[1] == 'u' {
		r, n := codePoint(s)
		if utf16.IsSurrogate(r) {
			in.lone = true
			in.buf = append(in.buf, 0xe0|byte(r>>12), 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
			return n
		}
		in.buf = utf8.AppendRune(in.buf, r)
		return n
	}
	i := strings.IndexByte(letters, s[1])
	if i < 0 {
		return 0
	}
	in.buf = append(in.buf, meanings[i])
	return 2
}

// codePoint decodes \u0000, or two of them that are a pair of surrogates. It returns
// the length of what it decoded, 0 if that is illegal. A surrogate alone is returned
// as it is.
func codePoint(s []byte) (r rune, n int) {
	r = unit(s)
	switch {
	case r < 0:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if pair := utf16.DecodeRune(r, unit(s[6:])); pair != unicode.ReplacementChar {
		return pair, 12
	}
	return r, 6
}

// unit returns -1 for what is no escape of four hexadecimal digits.
func unit(s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	v, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(v)
}

// Text returns the next value, a string without its quotes and escapes, valid until
// the next one is read. Any other value is skipped and not ok, and so is a string with
// half a pair of surrogates.
func (in *Input) Text() (text []byte, ok bool) {
	if in.Kind() != Text {
		in.Skip()
		return nil, false
	}
	text = in.text()
	return text, in.err == nil && !in.lone
}

// Int returns the next value, a number without fraction and exponent that fits.
// Any other value is skipped and not ok.
func (in *Input) Int() (n int64, ok bool) {
	if in.Kind() != Number {
		in.Skip()
		return 0, false
	}
	n, err := strconv.ParseInt(string(in.number()), 10, 64)
	return n, err == nil
}

// Float returns the next value, a number. Any other value is skipped and not ok.
func (in *Input) Float() (f float64, ok bool) {
	if in.Kind() != Number {
		in.Skip()
		return 0, false
	}
	f, err := strconv.ParseFloat(string(in.number()), 64)
	return f, err == nil
}

// Bool returns the next value, true or false. Any other value is skipped and not ok.
func (in *Input) Bool() (b, ok bool) {
	if in.Kind() != Bool {
		in.Skip()
		return false, false
	}
	return in.literal() == 't', in.err == nil
}

// Null steps over the next value if it is null, and reports whether it was.
func (in *Input) Null() bool {
	if in.Kind() != Null {
		return false
	}
	in.literal()
	return in.err == nil
}

func (in *Input) literal() byte {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(in.data[in.pos:], []byte(word)) {
			in.pos += len(word)
			return word[0]
		}
	}
	in.syntax("want a value")
	return 0
}

// number returns the text of a number: -0.0e+0 with its parts optional, and no
// zeros in front.
func (in *Input) number() []byte {
	start := in.pos
	in.accept('-', '-')
	ok := true
	if !in.accept('0', '0') {
		ok = in.digits()
	}
	if in.accept('.', '.') {
		ok = ok && in.digits()
	}
	if in.accept('e', 'E') {
		_ = in.accept('+', '-')
		ok = ok && in.digits()
	}
	if !ok {
		in.syntax("want a digit")
	}
	return in.data[start:in.pos]
}

func (in *Input) digits() bool {
	start := in.pos
	for in.pos < len(in.data) && in.data[in.pos]-'0' <= 9 {
		in.pos++
	}
	return in.pos > start
}

func (in *Input) accept(a, b byte) bool {
	if in.pos < len(in.data) && (in.data[in.pos] == a || in.data[in.pos] == b) {
		in.pos++
		return true
	}
	return false
}
