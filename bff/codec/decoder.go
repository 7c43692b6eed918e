// Package codec converts between the players' JSON and the service's messages. It checks form: types, names and
// times. The service checks values.
package codec

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxBody limits a body, in bytes, over HTTP and WebSocket.
const MaxBody = 1 << 20

// Batch is one upload of heartbeats.
type Batch struct {
	// Seq is the player's number of a stream message.
	Seq uint64
	// Heartbeats are the well-formed heartbeats of the body, in order.
	Heartbeats []*historyv1.Heartbeat
	// Records asks for records in the response.
	Records bool
	// Ack is the requested durability.
	Ack historyv1.Ack
	// Day is the player's day check, nil without one.
	Day *historyv1.DayCheck

	refused []*history.FieldError // one per heartbeat in the body, nil if well-formed
}

type decoder struct {
	in    *scan.Input
	list  string // the name of the list
	place int    // index in the list, -1 outside
	// wrong is the first malformed field since the last check. Decoding continues after it to stay in sync.
	wrong *history.FieldError
}

type batchDecoder struct {
	*decoder
	uid   string
	seq   bool // the body has a sequence number
	batch *Batch
	slab  []historyv1.Heartbeat
	last  *historyv1.Heartbeat
	given bool // the heartbeat has a position
}

func newDecoder(body []byte, list string) *decoder {
	return &decoder{in: scan.New(body), list: list, place: -1}
}

func (d *decoder) bodyIsObject() bool {
	if d.in.Kind() == scan.Object {
		return true
	}
	d.in.Skip()
	d.in.Fail(history.Invalid("body", "want an object"))
	return false
}

// entries yields the indexes of the list and fails beyond limit.
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

func (d *decoder) path(field string) string {
	path := "body"
	if d.place >= 0 {
		path = fmt.Sprintf("body.%s[%d]", d.list, d.place)
	}
	return strings.TrimSuffix(path+"."+field, ".")
}

// unknown refuses the whole body: an unknown name is a mistake, or an attempt to set the uid.
func (d *decoder) unknown(parent string, name []byte) {
	d.in.Fail(history.Invalid(d.path(fmt.Sprintf("%s%.64s", parent, name)), "unknown field"))
}

func (d *decoder) refuse(field, reason string) {
	if d.wrong == nil {
		d.wrong = &history.FieldError{Field: field, Reason: reason}
	}
}

// strict refuses the whole body if a field was refused.
func (d *decoder) strict() {
	if d.wrong != nil {
		d.in.Fail(history.Invalid(d.path(d.wrong.Field), d.wrong.Reason))
	}
}

const wantText = "want a string of whole characters"

// text returns "" for null: all field readers treat null as absent.
func (d *decoder) text(field, known string) string {
	if d.in.Null() {
		return ""
	}
	text, ok := d.in.Text()
	if !ok {
		d.refuse(field, wantText)
		return known
	}
	if string(text) == known { // most entries repeat it; this saves an allocation
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
		d.refuse(field, wantFlag)
	}
	return b
}

// given is flag for fields in which null is ambiguous and therefore refused.
func (d *decoder) given(field string) bool {
	return !d.refuseNull(field, wantFlag) && d.flag(field)
}

// refuseNull refuses null and reports whether the value was null.
func (d *decoder) refuseNull(field, want string) bool {
	if d.in.Kind() != scan.Null {
		return false
	}
	d.in.Skip()
	d.refuse(field, want)
	return true
}

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

func formatETag(tag uint64) string { return strconv.FormatUint(tag, 16) }

// ParseETag parses the text of an etag.
func ParseETag(text string) (tag uint64, ok bool) {
	tag, err := strconv.ParseUint(text, 16, 64)
	return tag, err == nil && tag != 0
}

// ErrTooLarge is returned for a body with too many bytes or entries.
var ErrTooLarge = errors.New("too large")

// object reads {"id","type"}. A missing member stays zero, which is invalid.
func (d *decoder) object(prefix string) (id string, typ uint32) { return d.objectWith(prefix, nil) }

// objectWith reads an object. A nil meta refuses metadata.
func (d *decoder) objectWith(prefix string, meta func()) (id string, typ uint32) {
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
		case "meta":
			if meta == nil {
				d.unknown(prefix, name)
				continue
			}
			meta()
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

const wantFlag = "want true or false"

const wantTime = "want RFC 3339 with an offset, such as 2026-03-01T20:15:00.000+01:00"

// ParseTime parses RFC 3339 with an offset and returns Unix milliseconds. The result is at least 1, since the
// service takes 0 for unset. Errors are [history.ErrInvalid] with the field.
func ParseTime(field string, text []byte) (int64, error) {
	var t time.Time
	if err := t.UnmarshalText(text); err != nil {
		return 0, history.Invalid(field, wantTime)
	}
	return max(t.UnixMilli(), 1), nil
}

// FormatTime formats Unix milliseconds as RFC 3339 in UTC, or "" for 0.
func FormatTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
