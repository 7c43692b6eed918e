// Package scan is a streaming JSON reader that builds no values. It delegates escapes and unusual numbers, both
// rare in reports, to jsontext.
//
// It skips values of the wrong kind, limits nesting, and refuses invalid UTF-8 and repeated names, which
// encoding/json accepts silently. A lone surrogate invalidates only its own string.
package scan

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrSyntax is returned for text that is not JSON.
var ErrSyntax = errors.New("malformed JSON")

// Kind is the kind of a value.
type Kind byte

// The kinds of values. None is the end of the text or an invalid value.
const (
	None   Kind = 0
	Null   Kind = 'n'
	Bool   Kind = 't'
	Number Kind = '0'
	Text   Kind = '"'
	Array  Kind = '['
	Object Kind = '{'
)

// maxDepth limits the nesting of values, and so the stack.
const maxDepth = 32

// Input reads a JSON text. After the first error it returns no more values, and [Input.End] returns that error.
type Input struct {
	data  []byte
	pos   int
	depth int
	buf   []byte // the last string with escapes
	err   error
}

// New returns an input over data, which it never modifies.
func New(data []byte) *Input {
	in := &Input{data: data}
	if !utf8.Valid(data) {
		in.syntax("invalid UTF-8")
	}
	return in
}

// Kind returns the kind of the next value.
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

// peek returns the first byte of the next token, 0 at the end or after an error.
func (in *Input) peek() byte {
	if in.err != nil {
		return 0
	}
	for ; in.pos < len(in.data); in.pos++ {
		switch c := in.data[in.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// Skip skips the next value, which must be valid JSON.
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
		in.word()
	default:
		in.want("a value")
	}
}

// Object yields the names of the next value, which must be an object. The caller reads or skips each value and
// does not break. A name is valid until its value is read. A name with a lone surrogate is not UTF-8.
func (in *Input) Object() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var seen names
		for more := in.enter('{', '}'); more; more = in.more('}') {
			name := in.name()
			if in.err == nil && !seen.add(name) {
				in.syntax("repeated name")
			}
			if in.err != nil || !yield(name) {
				return
			}
		}
	}
}

// Array yields the indexes of the next value, which must be an array. The caller reads or skips each element
// and does not break.
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

// enter reads an opening bracket and reports whether an element follows.
func (in *Input) enter(open, end byte) bool {
	if in.peek() != open {
		in.want(string(open))
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

// more reads a separator or the closing bracket and reports whether an element follows.
func (in *Input) more(end byte) bool {
	switch in.peek() {
	case ',':
		in.pos++
		return true
	case end:
		return in.leave()
	}
	in.want(", or " + string(end))
	return false
}

func (in *Input) leave() bool {
	in.pos++
	in.depth--
	return false
}

// name reads a name and the colon.
func (in *Input) name() []byte {
	if in.peek() != '"' {
		in.want("a name")
		return nil
	}
	name, _ := in.text()
	if len(in.buf) > 0 && len(name) > 0 && &name[0] == &in.buf[0] {
		name = bytes.Clone(name) // the next string reuses the buffer
	}
	if in.peek() != ':' {
		in.want(":")
		return nil
	}
	in.pos++
	return name
}

type names struct {
	few  [16][]byte
	n    int
	many map[string]bool // names beyond few
}

func (s *names) add(name []byte) bool {
	for _, other := range s.few[:s.n] {
		if bytes.Equal(name, other) {
			return false
		}
	}
	switch {
	case s.n < len(s.few):
		s.few[s.n] = name
		s.n++
		return true
	case s.many[string(name)]:
		return false
	case s.many == nil:
		s.many = make(map[string]bool)
	}
	s.many[string(name)] = true
	return true
}

// Text reads a string, unescaped. The result is valid until the next one. A string with a lone surrogate is not
// ok; any other value is skipped and not ok.
func (in *Input) Text() (text []byte, ok bool) {
	if in.Kind() != Text {
		in.Skip()
		return nil, false
	}
	return in.text()
}

// text reads a string. Without escapes it is a slice of the data.
func (in *Input) text() (text []byte, ok bool) {
	escaped := false
	for i := in.pos + 1; i < len(in.data); i++ {
		switch c := in.data[i]; {
		case c == '"':
			whole := in.data[in.pos : i+1]
			if in.pos = i + 1; escaped {
				return in.unquote(whole)
			}
			return whole[1 : len(whole)-1], true
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			in.pos = i
			in.syntax("control character in a string")
			return nil, false
		}
	}
	in.pos = len(in.data)
	in.want("the end of a string")
	return nil, false
}

// lone replaces a string with a lone surrogate.
var lone = []byte("\xff")

func (in *Input) unquote(whole []byte) (text []byte, ok bool) {
	var err error
	if in.buf, err = jsontext.AppendUnquote(in.buf[:0], whole); err == nil {
		return in.buf, true
	}
	if !jsontext.Value(whole).IsValid(jsontext.AllowInvalidUTF8(true)) {
		in.syntax("control character or invalid escape in a string")
		return nil, false
	}
	return lone, false
}

// Int reads an integer as JSON Schema defines it: 1000.0 and 1e3 count, up to 2^53. Any other value is skipped
// and not ok.
func (in *Input) Int() (n int64, ok bool) {
	if in.Kind() != Number {
		in.Skip()
		return 0, false
	}
	text := string(in.number())
	n, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		f, err := strconv.ParseFloat(text, 64)
		return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53
	}
	return n, err == nil
}

// Float reads a number. Any other value is skipped and not ok.
func (in *Input) Float() (f float64, ok bool) {
	if in.Kind() != Number {
		in.Skip()
		return 0, false
	}
	f, err := strconv.ParseFloat(string(in.number()), 64)
	return f, err == nil
}

func (in *Input) number() []byte {
	start, digits := in.pos, true
	for ; in.pos < len(in.data); in.pos++ {
		c := in.data[in.pos]
		if c-'0' <= 9 {
			continue
		}
		if bytes.IndexByte([]byte("+-.eE"), c) < 0 {
			break
		}
		digits = false
	}
	text := in.data[start:in.pos]
	if (!digits || text[0] == '0' && len(text) > 1) && !jsontext.Value(text).IsValid() {
		in.syntax("malformed number")
	}
	return text
}

// Bool reads true or false. Any other value is skipped and not ok.
func (in *Input) Bool() (b, ok bool) {
	if in.Kind() != Bool {
		in.Skip()
		return false, false
	}
	return in.word() == 't', in.err == nil
}

// Null skips a null and reports whether there was one.
func (in *Input) Null() bool {
	if in.Kind() != Null {
		return false
	}
	in.word()
	return in.err == nil
}

// word reads true, false or null, and returns the first letter.
func (in *Input) word() byte {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(in.data[in.pos:], []byte(word)) {
			in.pos += len(word)
			return word[0]
		}
	}
	in.want("a value")
	return 0
}

// Fail sets the input's error unless it has one.
func (in *Input) Fail(err error) {
	if in.err == nil {
		in.err = err
	}
}

// End returns the first error. Only space may remain.
func (in *Input) End() error {
	if in.peek(); in.pos < len(in.data) {
		in.syntax("want nothing more")
	}
	return in.err
}

func (in *Input) want(what string) { in.syntax("want " + what) }

func (in *Input) syntax(reason string) {
	in.Fail(fmt.Errorf("%w at byte %d: %s", ErrSyntax, in.pos, reason))
}
