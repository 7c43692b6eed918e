// Package scan reads JSON from front to back without building values of its own. It is
// jsontext with what players need besides: a lone surrogate spoils its own string only, values
// of a wrong kind are skipped, and nesting is bounded. It refuses invalid UTF-8 and repeated
// names, which encoding/json mends in silence.
package scan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
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
	*decoder // nil after End

	next Kind // the kind of the next value, None when it is not known
	err  error
}

// decoder is used again for other inputs.
type decoder struct {
	dec  jsontext.Decoder
	body bytes.Buffer
	buf  []byte // the last string that had escapes
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// New returns an input over data, which it reads and never changes.
func New(data []byte) *Input {
	in := &Input{decoder: decoders.Get().(*decoder)}
	in.body = *bytes.NewBuffer(data)
	in.dec.Reset(&in.body, jsontext.AllowInvalidUTF8(true)) // of lone surrogates: Text refuses those
	if !utf8.Valid(data) {
		in.syntax("invalid UTF-8")
	}
	return in
}

// Kind returns what the next value is.
func (in *Input) Kind() Kind {
	if in.err != nil {
		return None
	}
	if in.next == None {
		switch k := in.dec.PeekKind(); k {
		case '{', '[', '"', 'n', '0':
			in.next = Kind(k)
		case 't', 'f':
			in.next = Bool
		}
	}
	return in.next
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
	case None:
		in.syntax("want a value")
	default:
		in.value()
	}
}

// Object returns the names of the next value, which must be an object. The caller
// reads or skips the value of each before asking for the next, and does not break
// off. A name is valid until its value is read. One with half a pair of surrogates is
// no UTF-8.
func (in *Input) Object() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for in.enter('{'); in.Kind() == Text; {
			name, _ := in.unquote(in.value())
			if in.err != nil || !yield(name) {
				return
			}
		}
		in.leave()
	}
}

// Array returns the indexes of the next value, which must be an array. The caller
// reads or skips each element before asking for the next, and does not break off.
func (in *Input) Array() iter.Seq[int] {
	return func(yield func(int) bool) {
		i := 0
		for in.enter('['); in.Kind() != None; i++ {
			if !yield(i) {
				return
			}
		}
		in.leave()
	}
}

// enter steps over an opening bracket.
func (in *Input) enter(bracket Kind) {
	if in.Kind() != bracket {
		in.syntax("want " + string(bracket))
		return
	}
	in.token()
	if in.dec.StackDepth() > maxDepth {
		in.syntax("nested too deep")
	}
}

// leave steps over a closing bracket; the decoder knows which one it must be.
func (in *Input) leave() {
	if depth := in.dec.StackDepth(); in.err == nil {
		in.token()
		if in.err == nil && in.dec.StackDepth() >= depth {
			in.syntax("want a value")
		}
	}
}

func (in *Input) token() {
	if in.err == nil {
		in.next = None
		if _, err := in.dec.ReadToken(); err != nil {
			in.refuse(err)
		}
	}
}

// value returns the text of the next value.
func (in *Input) value() jsontext.Value {
	if in.err != nil {
		return nil
	}
	in.next = None
	v, err := in.dec.ReadValue()
	if err != nil {
		in.refuse(err)
	}
	return v
}

// Text returns the next value, a string without its quotes and escapes, valid until
// the next one is read. Any other value is skipped and not ok, and so is a string with
// half a pair of surrogates.
func (in *Input) Text() (text []byte, ok bool) {
	if in.Kind() != Text {
		in.Skip()
		return nil, false
	}
	return in.unquote(in.value())
}

// lone stands for a string with half a pair of surrogates.
var lone = []byte("\xff")

func (in *Input) unquote(v jsontext.Value) (text []byte, ok bool) {
	switch {
	case in.err != nil:
		return nil, false
	case bytes.IndexByte(v, '\\') < 0:
		return v[1 : len(v)-1], true
	}
	var err error
	if in.buf, err = jsontext.AppendUnquote(in.buf[:0], v); err != nil {
		return lone, false
	}
	return in.buf, true
}

// Int returns the next value, a number without fraction and exponent that fits.
// Any other value is skipped and not ok.
func (in *Input) Int() (n int64, ok bool) {
	if in.Kind() != Number {
		in.Skip()
		return 0, false
	}
	n, err := strconv.ParseInt(string(in.value()), 10, 64)
	return n, err == nil
}

// Float returns the next value, a number. Any other value is skipped and not ok.
func (in *Input) Float() (f float64, ok bool) {
	if in.Kind() != Number {
		in.Skip()
		return 0, false
	}
	f, err := strconv.ParseFloat(string(in.value()), 64)
	return f, err == nil
}

// Bool returns the next value, true or false. Any other value is skipped and not ok.
func (in *Input) Bool() (b, ok bool) {
	if in.Kind() != Bool {
		in.Skip()
		return false, false
	}
	return string(in.value()) == "true", in.err == nil
}

// Null steps over the next value if it is null, and reports whether it was.
func (in *Input) Null() bool {
	if in.Kind() != Null {
		return false
	}
	in.value()
	return in.err == nil
}

// Fail makes err the input's error, unless it has one.
func (in *Input) Fail(err error) {
	if in.err == nil {
		in.err = err
	}
}

// End returns the first error. There must be nothing left but space. No other method may be
// called after it, and nothing that they returned be used.
func (in *Input) End() error {
	if in.decoder == nil {
		return in.err
	}
	if in.err == nil {
		if _, err := in.dec.ReadToken(); err != io.EOF { //nolint:errorlint // the decoder's own word for the end
			in.syntax("want nothing more")
		}
	}
	decoders.Put(in.decoder)
	in.decoder = nil
	return in.err
}

func (in *Input) syntax(reason string) {
	in.Fail(fmt.Errorf("%w at byte %d: %s", ErrSyntax, in.dec.InputOffset(), reason))
}

// refuse takes over an error of the decoder.
func (in *Input) refuse(err error) {
	e, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		in.syntax("repeated name")
	case errors.Is(err, io.ErrUnexpectedEOF):
		in.syntax("want more")
	case ok:
		in.Fail(fmt.Errorf("%w at byte %d: %w", ErrSyntax, e.ByteOffset, e.Err))
	default:
		in.syntax(err.Error())
	}
}
