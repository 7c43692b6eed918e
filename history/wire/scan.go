package wire

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// scanner reads the fields of an encoded message in order. Like protobuf it skips unknown fields and unexpected
// wire types.
type scanner struct {
	rest  []byte
	tag   uint64 // number and wire type of the current field
	num   uint64 // value of a number
	bytes []byte // value of bytes
	err   error
}

// next moves to the next field. It returns false at the end or after an error.
func (s *scanner) next() bool {
	if len(s.rest) == 0 || s.err != nil {
		return false
	}
	var n int
	if s.tag, n = protowire.ConsumeVarint(s.rest); n < 0 {
		return s.fail(protowire.ParseError(n))
	}
	s.rest = s.rest[n:]
	field, kind := s.tag>>3, protowire.Type(s.tag&7) //nolint:gosec // three bits
	if field < uint64(protowire.MinValidNumber) || field > uint64(protowire.MaxValidNumber) {
		return s.fail(errNumber)
	}
	if n = s.value(protowire.Number(field), kind); n < 0 { //nolint:gosec // in bounds
		return s.fail(protowire.ParseError(n))
	}
	s.rest = s.rest[n:]
	return true
}

func (s *scanner) value(field protowire.Number, kind protowire.Type) (n int) {
	switch kind {
	case protowire.VarintType:
		s.num, n = protowire.ConsumeVarint(s.rest)
	case protowire.Fixed64Type:
		s.num, n = protowire.ConsumeFixed64(s.rest)
	case protowire.BytesType:
		s.bytes, n = protowire.ConsumeBytes(s.rest)
	default:
		n = protowire.ConsumeFieldValue(field, kind, s.rest)
	}
	return n
}

func (s *scanner) fail(err error) bool {
	s.err = err
	return false
}

// text returns the field as a string, which must be UTF-8.
func (s *scanner) text() string { return string(s.valid()) }

// valid returns the field's bytes, which must be UTF-8.
func (s *scanner) valid() []byte {
	if !utf8.Valid(s.bytes) {
		s.err = errUTF8
	}
	return s.bytes
}

var (
	errNumber = errors.New("field number out of range")
	errUTF8   = errors.New("text is not UTF-8")
)
