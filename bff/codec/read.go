package codec

import (
	"math"
	"strings"

	"github.com/playhead/playhead/bff/scan"
)

// text returns "" for null, like all readers of fields: not given.
const wantText = "want a string of whole characters"

func (d *decoder) text(field, known string) string {
	if d.in.Null() {
		return ""
	}
	text, ok := d.in.Text()
	if !ok {
		d.refuse(field, wantText)
		return known
	}
	if string(text) == known { // most entries of a body share it, and then its memory
		return known
	}
	return string(text)
}

func (d *decoder) millis(field string) (ms int64, given bool) {
	if d.in.Null() {
		return 0, false
	}
	ms, ok := d.in.Int()
	if !ok {
		d.refuse(field, "want a whole number of milliseconds, 0 to 2592000000 (30 days)")
	}
	return ms, true
}

func (d *decoder) time(field string) int64 {
	if d.in.Null() {
		return 0
	}
	text, _ := d.in.Text()
	ms, err := ParseTime(field, text)
	if err != nil {
		d.refuse(field, wantTime)
	}
	return ms
}

func (d *decoder) flag(field string) bool {
	if d.in.Null() {
		return false
	}
	b, ok := d.in.Bool()
	if !ok {
		d.refuse(field, "want true or false")
	}
	return b
}

// etag reads the text that [FormatETag] writes.
func (d *decoder) etag(field string) uint64 {
	if d.in.Null() {
		return 0
	}
	text, _ := d.in.Text()
	tag, ok := ParseETag(string(text))
	if !ok {
		d.refuse(field, "want the etag of a record")
	}
	return tag
}

// object reads {"id","type"}. What is missing stays zero, which is not legal.
func (d *decoder) object(prefix string) (id string, typ uint32) {
	if d.in.Kind() != scan.Object {
		d.in.Skip()
		d.refuse(strings.TrimSuffix(prefix, "."), `want an object {"id","type"}`)
		return "", 0
	}
	for name := range d.in.Object() {
		switch string(name) {
		case "id":
			id = d.text(prefix+"id", "")
		case "type":
			typ = d.objectType(prefix + "type")
		default:
			d.unknown(prefix, name)
		}
	}
	return id, typ
}

func (d *decoder) objectType(field string) uint32 {
	n, ok := d.in.Int()
	if !ok || n < 1 || n > math.MaxUint32 {
		d.refuse(field, "want a number from 1 to 4294967295")
		return 0
	}
	return uint32(n)
}
