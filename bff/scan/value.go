package scan

import (
	"bytes"
	"strconv"
)

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
