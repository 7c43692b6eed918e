package imports

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
)

// Map assigns the columns of a table, or the fields of NDJSON, to a viewing.
type Map struct {
	fields []mapped
	zone   *time.Location
}

// mapped is a field of a viewing, and where its value comes from.
type mapped struct {
	field    string
	column   string // name, number from 1, or path of an object such as "video.id"
	constant bool   // column is the value
	format   string // unit or layout
}

// mapFields are the fields of a viewing, with their usual format.
var mapFields = map[string]string{
	"user": "", "object": "", "type": "", "title": "", "session": "", "device": "", "series": "", "season": "", "episode": "",
	"time": "iso", "end": "iso", "played": "ms", "position": "ms", "duration": "ms",
}

// nextField begins at a comma before "name=" or "name:=", so that layouts may have commas.
var nextField = regexp.MustCompile(`,\s*([a-z]+:?=)`)

// ParseMap parses "user=1,object=video_id,time=4:s,zone=Europe/Berlin,type:=2": a field takes a column by name or
// number, or after := a constant. After the colon is a unit: s, ms, us or ns, of lengths also min, h and
// hms. Of times it may be rfc3339, iso, or a layout of Go's package time.
func ParseMap(text string) (*Map, error) {
	m := &Map{}
	for one := range strings.SplitSeq(nextField.ReplaceAllString(text, "\x00$1"), "\x00") {
		if err := m.add(one); err != nil {
			return nil, fmt.Errorf("map %q: %w", one, err)
		}
	}
	for _, field := range []string{"object", "time"} {
		if !slices.ContainsFunc(m.fields, func(f mapped) bool { return f.field == field || field == "time" && f.field == "end" }) {
			return nil, fmt.Errorf("map: want %s=COLUMN", field)
		}
	}
	return m, nil
}

func (m *Map) add(one string) (err error) {
	field, column, ok := strings.Cut(one, "=")
	field, constant := strings.CutSuffix(strings.TrimSpace(field), ":")
	usual, known := mapFields[field]
	switch {
	case field == "zone" && ok:
		m.zone, err = history.ParseZone(column)
		return err
	case !ok || !known || column == "":
		return fmt.Errorf("want FIELD=COLUMN or FIELD:=VALUE with one of %s and zone", strings.Join(slices.Sorted(maps.Keys(mapFields)), ", "))
	case slices.ContainsFunc(m.fields, func(f mapped) bool { return f.field == field }):
		return fmt.Errorf("%s is there twice", field)
	}
	f := mapped{field: field, column: column, constant: constant, format: usual}
	if usual != "" && !constant {
		if name, format, ok := strings.Cut(column, ":"); ok {
			f.column, f.format = name, format
		}
		if err := f.checkFormat(); err != nil {
			return err
		}
	}
	m.fields = append(m.fields, f)
	return nil
}

func (f *mapped) checkFormat() error {
	if f.format == "unix" {
		f.format = "s"
	}
	_, unit := units[f.format]
	length := f.field != "time" && f.field != "end"
	switch {
	case unit && (length || slices.Contains(timeUnits, f.format)), length && f.format == "hms", !length && (f.format == "iso" || f.format == "rfc3339"):
		return nil
	case length || !strings.Contains(f.format, "06"):
		return fmt.Errorf("unknown format %q; want s, ms, us, ns, and of lengths min, h or hms, of times rfc3339, iso or a layout such as 02.01.2006 15:04:05", f.format)
	}
	return nil
}

var timeUnits = []string{"s", "ms", "us", "ns"}

// byNumber reports whether no column has a name, so that a table may lack a header.
func (m *Map) byNumber() bool {
	return !slices.ContainsFunc(m.fields, func(f mapped) bool {
		_, err := strconv.Atoi(f.column)
		return err != nil && !f.constant
	})
}

// row sets the fields of a row from their texts: get returns one and whether it is there.
func (m *Map) row(o *Options, get func(i int) string) (*row, int, error) {
	r := &row{kind: video}
	zone := m.zone
	if zone == nil {
		zone = o.Zone
	}
	for i := range m.fields {
		f := &m.fields[i]
		text := f.column
		if !f.constant {
			text = strings.TrimSpace(get(i))
		}
		if err := r.set(f, text, zone); err != nil {
			return nil, i, err
		}
	}
	if !r.placed && r.played > 0 {
		r.position, r.placed = r.played, true
	}
	if r.typ == 0 {
		r.typ = o.typeOf(r.kind)
	}
	return r, -1, nil
}

func (r *row) set(f *mapped, text string, zone *time.Location) (err error) {
	if strings.IndexByte(text, '\n') >= 0 || strings.IndexByte(text, '\r') >= 0 {
		return bad(f.field, "a line break; is a quote missing?")
	}
	switch f.field {
	case "user":
		r.user, err = id(text)
	case "object":
		r.object, err = id(text)
	case "type":
		r.kind, r.typ, err = kindOf(text)
	case "session":
		r.session = text
	case "device":
		r.device = text
	case "title", "series", "season", "episode":
		r.put(f.field, text)
	case "time":
		r.start, err = f.time(text, zone)
	case "end":
		r.end, err = f.time(text, zone)
	case "played":
		r.played, err = f.length(text)
	case "position":
		r.position, err = f.length(text)
		r.placed = text != ""
	case "duration":
		r.duration, err = f.length(text)
	}
	if err != nil {
		return bad(f.field, "%s", err)
	}
	return nil
}

// id refuses what databases write for no value, and what other quotes than " leave behind.
func id(text string) (string, error) {
	switch {
	case text == "" || text == `\N` || strings.EqualFold(text, "null"):
		return "", bad("", "missing")
	case len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'':
		return "", bad("", "single quotes around %s", shown(text))
	}
	return text, nil
}

// kindOf parses a type: a number, or a usual word.
func kindOf(text string) (kind string, typ uint32, err error) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil && n > 0 {
		return "", uint32(n), nil
	}
	switch strings.ToLower(text) {
	case "movie", "film", "video", "clip":
		return video, 0, nil
	case "episode", "show", "series", "tv":
		return episode, 0, nil
	case "track", "song", "audio", "music", "podcast", "audiobook":
		return audio, 0, nil
	}
	return "", 0, bad("", "%s is no type; want a number, or video, episode or audio", shown(text))
}

func (f *mapped) time(text string, zone *time.Location) (int64, error) {
	if text == "" {
		return 0, bad("", "missing")
	}
	if slices.Contains(timeUnits, f.format) {
		ms, err := number(text, f.format)
		return ms, cmp.Or(err, plausible(ms, text))
	}
	switch f.format {
	case "iso":
		return iso(text, zone)
	case "rfc3339":
		return rfc3339(text)
	}
	t, err := time.Parse(f.format, text)
	if err != nil {
		return 0, bad("", "%s is not a time like %s", shown(text), f.format)
	}
	return inZone(t, f.format, zone)
}

// plausible refuses times of another unit.
func plausible(ms int64, text string) error {
	if ms > 1<<43 || ms < 100_000_000_000 {
		return bad("", "%s is %s; another unit than the map's?", shown(text), time.UnixMilli(ms).UTC().Format("year 2006"))
	}
	return nil
}

func (f *mapped) length(text string) (int64, error) {
	switch {
	case text == "":
		return 0, nil
	case f.format == "hms":
		return hms(text)
	}
	return number(text, f.format)
}
