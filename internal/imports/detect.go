package imports

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Forms returns the names of the known forms, for errors and documents.
func Forms() []string {
	names := []string{youTubeHTML, scrobblerLog, jellyfin, newPipe}
	for _, f := range tableForms {
		names = append(names, f.name)
	}
	for _, f := range jsonForms {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func wantForms() string {
	return "known are " + strings.Join(Forms(), ", ") + ", and CSV or NDJSON with a map"
}

// file reads one unpacked file by its first bytes.
func (s *Source) file(name string, r *bufio.Reader) error {
	if first, _ := r.Peek(16); string(first) == "SQLite format 3\x00" {
		return s.sqlite(name, r)
	}
	in := newText(name, r)
	head := in.head()
	start := bytes.TrimLeft(head, " \t\r\n")
	s.files = append(s.files, File{Name: name})
	var err error
	switch {
	case len(start) == 0:
		s.problem = errEmpty
	case bytes.HasPrefix(start, []byte("#AUDIOSCROBBLER")):
		err = s.scrobblerLog(in)
	case start[0] == '[' || start[0] == '{':
		err = s.json(in, start)
	case start[0] == '<':
		err = s.html(in, start)
	default:
		err = s.delimited(in, head)
	}
	if err == nil || errors.Is(err, errStopped) || errors.Is(err, ErrDateOrder) || s.ctx.Err() != nil {
		return err
	}
	return s.broken(name, 0, cause(err))
}

// recognised notes the form of the file that is read.
func (s *Source) recognised(form string) {
	s.files[len(s.files)-1].Form = form
}

// tableForm is a form of tables, recognised by its columns.
type tableForm struct {
	name    string
	columns []string
	exact   bool // no other columns
	row     func(s *Source, c *cells) (*row, error)
}

// cells are the named fields of a record.
type cells struct {
	*table
	columns columns
	dates   DateOrder
	wanted  string // the latest field
}

// get returns a field without spaces around it, "" if the column is absent.
func (c *cells) get(name string) string {
	i, ok := c.columns.index(name)
	if !ok {
		return ""
	}
	c.wanted = name
	return strings.TrimSpace(string(c.fields[i]))
}

// delimited reads a table: of the map if there is one, of a known form, or of Jellyfin's, which has no header.
func (s *Source) delimited(in *text, head []byte) error {
	t := &table{lines: lines{in: in}}
	first := firstLines(head, 1)
	if len(first) == 0 || in.fault(first[0]) != "" {
		s.problem = errors.New("the file is neither text nor an archive")
		return nil
	}
	if s.options.Map != nil {
		return s.mappedTable(t, head)
	}
	if isJellyfin(first[0]) {
		s.recognised(jellyfin)
		return s.jellyfin(t)
	}
	for _, d := range s.delimiters() {
		c := columnsOf(splitLine(first[0], d))
		for i := range tableForms {
			if f := &tableForms[i]; c.has(f.columns...) && (!f.exact || len(c.header) == len(f.columns)) {
				s.recognised(f.name)
				t.delim = []byte(d)
				return s.formTable(t, f, head)
			}
		}
	}
	delim := s.delimiter(head)
	header := splitLine(first[0], delim)
	var rows [][]string
	for _, line := range firstLines(head, 50)[1:] {
		rows = append(rows, splitLine(line, delim))
	}
	s.saw(header, rows)
	s.problem = fmt.Errorf("its columns are %s; give a map, which `sniff` proposes. %s", strings.Join(header, ", "), wantForms())
	return nil
}

func (s *Source) delimiters() []string {
	if s.options.Delimiter != "" {
		return []string{s.options.Delimiter}
	}
	return delimiters
}

func (s *Source) delimiter(head []byte) string {
	if s.options.Delimiter != "" {
		return s.options.Delimiter
	}
	return sniffDelimiter(head)
}

// formTable reads the rows of a known form.
func (s *Source) formTable(t *table, f *tableForm, head []byte) error {
	if err := t.readHeader(); err != nil {
		return err
	}
	c := &cells{table: t, columns: columnsOf(t.header)}
	if f.name == netflixShort {
		order, err := s.netflixOrder(head, t, c.columns)
		if err != nil {
			return fmt.Errorf("read %s: %w: give dmy, mdy or ymd", t.lines.in.name, err)
		}
		c.dates = order
	}
	return s.rows(t, f.name, func() (*row, int, error) {
		c.wanted = ""
		r, err := f.row(s, c)
		column := -1
		if i, ok := c.columns.index(c.wanted); ok && err != nil {
			column = i
			if b, ok := errors.AsType[*badField](err); ok && b.field == "" {
				b.field = c.wanted
			}
		}
		return r, column, err
	})
}

// readHeader reads the first row that is not empty as the header.
func (t *table) readHeader() error {
	for {
		if err := t.next(); err != nil {
			return err
		}
		if len(t.row) > 0 {
			break
		}
	}
	for _, f := range t.fields {
		t.header = append(t.header, strings.TrimSpace(string(f)))
	}
	t.width = len(t.header)
	return nil
}

// rows yields all records of a table. Empty lines are no rows.
func (s *Source) rows(t *table, form string, read func() (*row, int, error)) error {
	for {
		err := t.next()
		i := Item{Place: Place{File: t.lines.in.name, Line: t.at}}
		if f, ok := errors.AsType[*fault](err); ok {
			if len(t.row) == 0 && len(t.fields) <= 1 && f.column == 0 && f.reason != errLong.Error() {
				continue
			}
			i.Place.Column, i.Outcome, i.Reason = int64(f.column), Rejected, f.reason
			if err := s.emit(i); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return s.ended(&t.lines, err)
		}
		if len(t.row) == 0 {
			continue
		}
		r, column, err := read()
		if _, rejected := errors.AsType[*badField](err); rejected {
			i.Place.Line, i.Place.Column = t.place(column)
		}
		if err := s.took(i, form, r, err); err != nil {
			return err
		}
	}
}
