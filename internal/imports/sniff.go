package imports

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sniffed is what a file looks like.
type Sniffed struct {
	Form    string // empty if unknown
	Columns []Column
	Map     string // proposed for a form that is unknown
	First   []Item // the first rows as they would be stored, and the first that are rejected
}

// Column is a column of a table, or a field of NDJSON.
type Column struct {
	Name, Sample string
	Field        string // field of the map with its format, empty if not recognised
	values       []string
}

// sniffedRows is the number of rows that are shown, of each outcome.
const sniffedRows = 5

// Sniff looks at the begin of a file. For a table of no known form it proposes a map, and reads the first rows by it.
// It fails with [ErrUnknown] without a proposal.
func Sniff(ctx context.Context, o Options, path string) (*Sniffed, error) {
	s := Open(o, path)
	found, err := s.sniff(ctx)
	if !errors.Is(err, ErrUnknown) || o.Map != nil || len(s.seen) == 0 {
		return found, err
	}
	found.Columns = s.seen
	if found.Map = propose(found.Columns, s.headless); found.Map == "" || path == "-" {
		return found, err
	}
	if o.Map, err = ParseMap(found.Map); err != nil {
		return found, err
	}
	rows, err := Open(o, path).sniff(ctx)
	found.First = rows.First
	return found, err
}

// sniff reads the first rows.
func (s *Source) sniff(ctx context.Context) (*Sniffed, error) {
	found, count := &Sniffed{}, [3]int{}
	for i, err := range s.Items(ctx) {
		if err != nil {
			return found, err
		}
		if count[i.Outcome]++; count[i.Outcome] <= sniffedRows {
			found.First = append(found.First, i)
		}
		if count[Read] == sniffedRows || i.N == 1000 {
			break
		}
	}
	for _, f := range s.files {
		if f.Form != "" {
			found.Form = f.Form
		}
	}
	return found, nil
}

// saw notes the columns of a table of no known form, with some values.
func (s *Source) saw(header []string, rows [][]string) {
	s.headless = slices.ContainsFunc(header, func(name string) bool { return timeFormat([]string{name}) != "" })
	s.seen = nil
	for i, name := range header {
		c := Column{Name: name}
		if s.headless {
			c.Name = strconv.Itoa(i + 1)
			c.values = append(c.values, name)
		}
		for _, r := range rows {
			if i < len(r) && len(r) == len(header) && r[i] != "" {
				c.values = append(c.values, r[i])
			}
		}
		if len(c.values) > 0 {
			c.Sample = c.values[0]
		}
		s.seen = append(s.seen, c)
	}
}

// usualNames are names of columns, in lower case and without spaces and signs. The first match of a field counts.
var usualNames = []struct{ field, names string }{
	{"user", "user userid uid username account accountid profile profilename profileid viewer viewerid member customer customerid"},
	{"object", "object objectid video videoid item itemid content contentid media mediaid movie movieid film filmid track trackid asset assetid program url uri id"},
	{"time", "time timestamp ts timems watchedat startedat started start starttime begin playedat viewedat eventtime datetime date at created createdat watched"},
	{"end", "end endtime endedat ended stopped stoppedat stop finishedat"},
	{"played", "played playtime playtimems playedms msplayed watchtime watchedms watchedseconds playedseconds playduration secondswatched"},
	{"position", "position positionms progress progressms progressseconds bookmark resume offset lastposition"},
	{"duration", "duration durationms length lengthms runtime lengthseconds durationseconds"},
	{"type", "type mediatype kind contenttype itemtype objecttype"},
	{"title", "title name videotitle contenttitle itemname"},
	{"series", "series show showname seriesname"},
	{"season", "season seasonnumber"},
	{"episode", "episode episodenumber"},
	{"session", "session sessionid"},
	{"device", "device devicename devicetype client platform"},
}

// propose returns a map of the columns whose fields are recognised, and marks these.
func propose(columns []Column, headless bool) string {
	if headless {
		guess(columns)
	}
	for _, u := range usualNames {
		for name := range strings.FieldsSeq(u.names) {
			if i := slices.IndexFunc(columns, func(c Column) bool { return c.Field == "" && plain(c.Name) == name }); i >= 0 && !headless {
				if format := columns[i].format(u.field); format != "" || u.field != "time" && u.field != "end" {
					columns[i].Field = u.field + format
				}
				break
			}
		}
	}
	timeByValues(columns)
	var fields []string
	seen := map[string]bool{}
	for i := range columns {
		if c := &columns[i]; c.Field != "" {
			field, format, _ := strings.Cut(c.Field, ":")
			text := field + "=" + c.Name
			if format != "" {
				text += ":" + format
			}
			fields, seen[field] = append(fields, text), true
		}
	}
	if !seen["object"] || !seen["time"] && !seen["end"] {
		return ""
	}
	return strings.Join(fields, ",")
}

// timeByValues marks the one column whose values are times, if none is by name.
func timeByValues(columns []Column) {
	var found *Column
	format := ""
	for i := range columns {
		c := &columns[i]
		if strings.HasPrefix(c.Field, "time") || strings.HasPrefix(c.Field, "end") {
			return
		}
		if f := timeFormat(c.values); f != "" && c.Field == "" {
			if found != nil {
				return
			}
			found, format = c, f
		}
	}
	if found != nil {
		found.Field = "time:" + format
	}
}

// plain returns a name in lower case, without spaces and signs.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" _-.()[]", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// guess marks the columns of a table without a header: the first time, and the columns before it or after as user and
// object.
func guess(columns []Column) {
	fields := []string{"object"}
	if len(columns) > 2 {
		fields = []string{"user", "object"}
	}
	timed := false
	for i := range columns {
		c := &columns[i]
		if format := timeFormat(c.values); format != "" && !timed {
			timed = true
			c.Field = "time:" + format
			continue
		}
		if len(fields) > 0 {
			c.Field, fields = fields[0], fields[1:]
		}
	}
}

// format returns the format of a column's values for a field, with a colon before.
func (c *Column) format(field string) string {
	format := ""
	switch field {
	case "time", "end":
		format = timeFormat(c.values)
	case "played", "position", "duration":
		format = c.lengthUnit()
	}
	if format == "" {
		return ""
	}
	return ":" + format
}

// timeLayouts are proposed if all values have them. An ambiguous one is not proposed.
var timeLayouts = []string{
	"02.01.2006 15:04:05", "02.01.2006 15:04", "02.01.2006", "02/01/2006 15:04:05", "01/02/2006 15:04:05", "02/01/2006 15:04", "01/02/2006 15:04",
	"02/01/2006", "01/02/2006", "2006/01/02 15:04:05", "2006/01/02", "1/2/2006 3:04:05 PM", "1/2/2006 3:04 PM", "20060102150405", time.RFC1123, time.RFC1123Z,
	"Jan 2, 2006, 3:04:05 PM", "Jan 2, 2006",
}

// timeFormat returns the one format of times that all values have, "" without one.
func timeFormat(values []string) string {
	fits := func(format string) bool {
		f := &mapped{field: "time", format: format}
		return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool {
			_, err := f.time(v, nil)
			return err != nil
		})
	}
	for _, format := range append([]string{"iso"}, timeUnits...) {
		if fits(format) {
			return format
		}
	}
	found := ""
	for _, layout := range timeLayouts {
		switch {
		case !fits(layout):
		case found != "":
			return ""
		default:
			found = layout
		}
	}
	return found
}

// lengthUnit returns the unit of lengths, by name or else by size.
func (c *Column) lengthUnit() string {
	longest := int64(0)
	for _, v := range c.values {
		if strings.Contains(v, ":") {
			return "hms"
		}
		n, _ := number(v, "ms")
		longest = max(longest, n)
	}
	name := plain(c.Name)
	switch {
	case strings.HasSuffix(name, "ms") || strings.Contains(name, "milli"):
		return "ms"
	case strings.Contains(name, "sec") || strings.HasSuffix(strings.ToLower(c.Name), "_s"):
		return "s"
	case strings.Contains(name, "min"):
		return "min"
	case longest > 86_400:
		return "ms"
	}
	return "s"
}
