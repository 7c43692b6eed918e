package imports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/playhead/playhead/history"
)

// row is one viewing as a form found it. Times are Unix milliseconds, lengths milliseconds; 0 is unknown.
type row struct {
	user       string // in the file
	object     string
	kind       string // "video", "episode" or "audio"
	typ        uint32 // instead of a kind
	start, end int64
	played     int64
	position   int64 // unknown unless placed
	placed     bool
	duration   int64
	state      state
	session    string
	device     string
	meta       []history.MetaEntry[string] // distinct keys
}

// state says whether a form knows that the viewing reached the end.
type state uint8

const (
	open     state = iota // the position says it
	finished              // it did
	stopped               // it did not, or unknown
)

// notViewing is the reason for which a row is skipped.
type notViewing string

func (n notViewing) Error() string { return string(n) }

// badField is the reason for which a row is rejected, and its field.
type badField struct{ field, reason string }

func (b *badField) Error() string {
	if b.field == "" {
		return b.reason
	}
	return b.field + ": " + b.reason
}

func bad(field, format string, args ...any) error {
	return &badField{field, fmt.Sprintf(format, args...)}
}

// shown shortens a text of a file for an error.
func shown(s string) string {
	if len(s) > 40 {
		s = strings.ToValidUTF8(s[:40], "") + "…"
	}
	return strconv.Quote(s)
}

// put sets metadata, unless it is empty or long.
func (r *row) put(key, value string) {
	if value = strings.TrimSpace(value); value == "" {
		return
	}
	if key == "title" || key == "series" || key == "artist" || key == "album" {
		value = shortened(value, 200)
	}
	if len(value) > 200 {
		return
	}
	if i := slices.IndexFunc(r.meta, func(e history.MetaEntry[string]) bool { return e.Key == key }); i >= 0 {
		r.meta[i].Value = value
		return
	}
	r.meta = append(r.meta, history.MetaEntry[string]{Key: key, Value: value})
}

func shortened(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// fitted replaces the end of a long id by a hash.
func fitted(id string) string {
	if len(id) <= history.MaxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return strings.ToValidUTF8(id[:history.MaxID-33], "") + "#" + hex.EncodeToString(sum[:16])
}

// event makes the event of a row, or returns why it has none.
func (s *Source) event(form string, r *row) (history.Event, error) {
	o := &s.options
	switch {
	case o.From != "" && r.user != o.From:
		return history.Event{}, notViewing("of another user: " + shown(r.user))
	case r.start == 0 && r.end == 0:
		return history.Event{}, bad("time", "missing")
	case r.end > 0 && r.start > r.end:
		return history.Event{}, bad("time", "the end is before the begin")
	case r.duration < 0 || r.played < 0 || r.position < 0:
		return history.Event{}, bad("", "a negative length")
	}
	e := history.Event{
		Key:      history.Key{UID: cmp.Or(o.User, r.user), Object: history.Object{ID: fitted(r.object), Type: r.typ}},
		Position: r.position, Duration: r.duration, Device: shortened(cmp.Or(r.device, brand(form)), history.MaxLabel),
	}
	if r.typ == 0 {
		e.Key.Object.Type = o.typeOf(r.kind)
	}
	e.At = cmp.Or(r.end, r.start+r.played)
	if r.start > 0 && r.start < e.At {
		e.StartedAt, e.Watched = r.start, min(r.played, e.At-r.start)
	}
	e.Kind = history.KindStop
	if r.state == finished || r.state == open && !r.placed && r.duration == 0 && r.played == 0 {
		e.Kind = history.KindFinish
		if !r.placed {
			e.Position = r.duration
		}
	}
	if e.Session = r.session; e.Session == "" {
		e.Session = strconv.FormatInt(cmp.Or(r.start, r.end), 36)
	}
	e.Meta, _ = history.MetaOf(r.meta)
	err := s.check(&e)
	e.Clamp() // after the check: a loop is longer than the object
	return e, err
}

// brand returns the first word of a form's name.
func brand(form string) string {
	name, _, _ := strings.Cut(form, " ")
	return name
}

// check applies the history's own rules, and refuses the future.
func (s *Source) check(e *history.Event) error {
	if now := s.started; e.At > now.UnixMilli() {
		return bad("time", "%s is in the future", time.UnixMilli(e.At).UTC().Format(time.RFC3339))
	}
	if e.At < history.MinTime {
		return bad("time", "%s is before 1973; is the unit of the time right?", time.UnixMilli(e.At).UTC().Format(time.RFC3339))
	}
	probe := *e
	probe.Key.UID = cmp.Or(e.Key.UID, "-")
	err := probe.Validate()
	if f, ok := errors.AsType[*history.FieldError](err); ok {
		return bad(f.Field, "%s", f.Reason)
	}
	return err
}

// Kinds of objects.
const (
	video   = "video"
	episode = "episode"
	audio   = "audio"
)

var standardTypes = map[string]uint32{video: 1, episode: 2, audio: 3}

func (o *Options) typeOf(kind string) uint32 {
	if n := o.Types[kind]; n > 0 {
		return n
	}
	return standardTypes[kind]
}

// ParseTypes parses "video=1,episode=2,audio=3".
func ParseTypes(text string) (map[string]uint32, error) {
	types := make(map[string]uint32)
	for one := range strings.SplitSeq(text, ",") {
		kind, number, _ := strings.Cut(strings.TrimSpace(one), "=")
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n == 0 || standardTypes[kind] == 0 {
			return nil, fmt.Errorf("types: want video=1,episode=2,audio=3 with numbers of yours, got %q", one)
		}
		types[kind] = uint32(n)
	}
	return types, nil
}

// took yields the item of a row.
func (s *Source) took(i Item, form string, r *row, err error) error {
	if err == nil {
		i.Event, err = s.event(form, r)
	}
	switch reason := notViewing(""); {
	case err == nil:
	case errors.As(err, &reason):
		i.Outcome, i.Reason = Skipped, string(reason)
	default:
		i.Outcome, i.Reason = Rejected, err.Error()
	}
	if i.Outcome != Read {
		i.Event = history.Event{}
	}
	return s.emit(i)
}
