package scan

import (
	"bytes"
	"iter"
)

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
