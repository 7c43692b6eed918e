// Package codec turns the JSON that players send into the service's messages, and
// the service's answers into the JSON that players get. It judges form only: types,
// names and times. What the values may be is for the service to say.
package codec

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
)

// ErrTooLarge means that a body has more entries than one request may.
var ErrTooLarge = errors.New("too large")

// decoder reads the list of one body, entry by entry.
type decoder struct {
	in    *scan.Input
	list  string // the name of the list
	place int    // in the list, -1 outside
	// wrong is the first field of a wrong form, since it was last looked at; the
	// fields behind it are read all the same, because the text goes on there.
	wrong *history.FieldError
}

func newDecoder(body []byte, list string) *decoder {
	return &decoder{in: scan.New(body), list: list, place: -1}
}

func (d *decoder) noObject() {
	d.in.Skip()
	d.in.Fail(history.Invalid("body", "want an object"))
}

// entries returns the indexes of the list, at most limit of them.
func (d *decoder) entries(limit int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if d.in.Kind() != scan.Array {
			d.in.Skip()
			d.refuse(d.list, "want an array")
			return
		}
		for i := range d.in.Array() {
			if i == limit {
				d.in.Fail(fmt.Errorf("body.%s: %w: want at most %d entries", d.list, ErrTooLarge, limit))
				return
			}
			d.place = i
			if !yield(i) {
				return
			}
		}
		d.place = -1
	}
}

// path tells where in the body a field is.
func (d *decoder) path(field string) string {
	path := "body"
	if d.place >= 0 {
		path = fmt.Sprintf("body.%s[%d]", d.list, d.place)
	}
	return strings.TrimSuffix(path+"."+field, ".")
}

// unknown refuses the whole body: a name that nobody knows is a mistake, or somebody
// who wants to be another user.
func (d *decoder) unknown(parent string, name []byte) {
	d.in.Fail(history.Invalid(d.path(fmt.Sprintf("%s%.64s", parent, name)), "unknown field"))
}

func (d *decoder) refuse(field, reason string) {
	if d.wrong == nil {
		d.wrong = &history.FieldError{Field: field, Reason: reason}
	}
}

// strict refuses the whole body for a field that was refused.
func (d *decoder) strict() {
	if d.wrong != nil {
		d.in.Fail(history.Invalid(d.path(d.wrong.Field), d.wrong.Reason))
	}
}
