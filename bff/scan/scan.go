// Package scan reads JSON from front to back without building values of its own,
// several times faster than encoding/json, and stricter: it refuses invalid UTF-8,
// lone surrogates and repeated names, all of which encoding/json mends in silence. A
// lone surrogate spoils its own string only.
package scan

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"
)

// ErrSyntax means that a text is not JSON.
var ErrSyntax = errors.New("malformed JSON")

// Kind is what a value is.
type Kind byte

// The kinds of values. None is the end of the text, or what is no value.
const (
	None   Kind = 0
	Null   Kind = 'n'
	Bool   Kind = 't'
	Number Kind = '0'
	Text   Kind = '"'
	Array  Kind = '['
	Object Kind = '{'
)

// maxDepth bounds how deep values nest, and with it the stack.
const maxDepth = 32

// Input is a JSON text on its way through. The first error sticks: from then on
// there are no more values, and [Input.End] returns it.
type Input struct {
	data    []byte
	pos     int
	depth   int
	buf     []byte // the last string that had escapes
	escaped bool   // the last string was one of them
	lone    bool   // and had a surrogate without its other half
	err     error
}

// New returns an input over data, which it reads and never changes.
func New(data []byte) *Input {
	in := &Input{data: data}
	if !utf8.Valid(data) {
		in.syntax("invalid UTF-8")
	}
	return in
}

// Kind returns what the next value is.
func (in *Input) Kind() Kind {
	switch c := in.peek(); c {
	case '{', '[', '"', 'n':
		return Kind(c)
	case 't', 'f':
		return Bool
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return Number
	}
	return None
}

// Skip steps over the next value, which must be JSON all the same.
func (in *Input) Skip() {
	switch in.Kind() {
	case Object:
		for range in.Object() {
			in.Skip()
		}
	case Array:
		for range in.Array() {
			in.Skip()
		}
	case Text:
		in.text()
	case Number:
		in.number()
	case Bool, Null:
		in.literal()
	default:
		in.syntax("want a value")
	}
}

// Fail makes err the input's error, unless it has one.
func (in *Input) Fail(err error) {
	if in.err == nil {
		in.err = err
	}
}

// End returns the first error. There must be nothing left but space.
func (in *Input) End() error {
	in.peek()
	if in.pos < len(in.data) {
		in.syntax("want nothing more")
	}
	return in.err
}

func (in *Input) syntax(reason string) {
	in.Fail(fmt.Errorf("%w at byte %d: %s", ErrSyntax, in.pos, reason))
}

// peek returns the first byte of the next token, 0 at the end and after an error.
func (in *Input) peek() byte {
	if in.err != nil {
		return 0
	}
	for in.pos < len(in.data) {
		switch c := in.data[in.pos]; c {
		case ' ', '\t', '\n', '\r':
			in.pos++
		default:
			return c
		}
	}
	return 0
}

// maxNames bounds how many names of one object are looked at for repeats.
const maxNames = 24

// Object returns the names of the next value, which must be an object. The caller
// reads or skips the value of each before asking for the next, and does not break
// off. A name is valid until its value is read. One with half a pair of surrogates is
// no UTF-8.
func (in *Input) Object() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var seen [maxNames][]byte
		n := 0
		for more := in.enter('{', '}'); more; more = in.more('}') {
			name := in.name()
			for _, s := range seen[:n] {
				if string(s) == string(name) {
					in.syntax("repeated name")
				}
			}
			if n < maxNames {
				seen[n] = name
				n++
			}
			if in.err != nil || !yield(name) {
				return
			}
		}
	}
}

// Array returns the indexes of the next value, which must be an array. The caller
// reads or skips each element before asking for the next, and does not break off.
func (in *Input) Array() iter.Seq[int] {
	return func(yield func(int) bool) {
		i := 0
		for more := in.enter('[', ']'); more; more = in.more(']') {
			if !yield(i) {
				return
			}
			i++
		}
	}
}

// enter steps over an opening bracket and reports whether an element follows.
func (in *Input) enter(open, end byte) bool {
	if in.peek() != open {
		in.syntax("want " + string(open))
		return false
	}
	in.pos++
	if in.depth++; in.depth > maxDepth {
		in.syntax("nested too deep")
	}
	if in.peek() == end {
		return in.leave()
	}
	return in.err == nil
}

// more reports whether another element follows, and steps over what is between.
func (in *Input) more(end byte) bool {
	switch in.peek() {
	case ',':
		in.pos++
		return true
	case end:
		return in.leave()
	}
	in.syntax("want , or " + string(end))
	return false
}

func (in *Input) leave() bool {
	in.pos++
	in.depth--
	return false
}

func (in *Input) name() []byte {
	if in.peek() != '"' {
		in.syntax("want a name")
		return nil
	}
	name := in.text()
	if in.escaped {
		name = bytes.Clone(name) // the buffer is the next string's
	}
	if in.peek() != ':' {
		in.syntax("want :")
		return nil
	}
	in.pos++
	return name
}
