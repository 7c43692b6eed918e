package imports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// table reads the rows of a delimited text as RFC 4180 has it. A row with faulty quotes is rejected, and reading
// goes on at the next line. An open quote never swallows the lines after it.
type table struct {
	lines  lines
	delim  []byte
	header []string // empty without one
	width  int      // columns of each row

	row    []byte   // of the latest record, with its line breaks
	again  [][]byte // its lines but the first
	fields [][]byte
	starts []int // offsets of the fields in row
	at     int64 // line of the record
}

// fault is why a row is rejected, and the column in it.
type fault struct {
	column int // in bytes, from 1; 0 is the whole row
	reason string
}

func (f *fault) Error() string { return f.reason }

// next reads a record. It returns a [fault] for one that is rejected, and any other error at the end.
func (t *table) next() error {
	t.again, t.row = nil, t.row[:0]
	line, err := t.lines.next()
	t.at = t.lines.line
	if errors.Is(err, errLong) {
		return &fault{reason: err.Error()}
	}
	if err != nil {
		return err
	}
	t.row = append(t.row, line...)
	if err := t.record(); err != nil {
		t.lines.unread(t.again)
		return err
	}
	return nil
}

func (t *table) record() error {
	quotes := bytes.Count(t.row, quote)
	if quotes%2 == 1 {
		if err := t.extend(quotes); err != nil {
			return err
		}
	}
	if err := t.split(quotes > 0); err != nil {
		return err
	}
	if t.width > 0 && len(t.fields) != t.width {
		return &fault{reason: fmt.Sprintf("%d columns, want %d", len(t.fields), t.width)}
	}
	if reason := t.lines.in.fault(t.row); reason != "" {
		return &fault{reason: reason}
	}
	return nil
}

var quote = []byte(`"`)

// extend appends the lines of a field with line breaks. It refuses lines that look like rows of their own, since
// then a quote is rather missing.
func (t *table) extend(quotes int) error {
	open := &fault{column: bytes.LastIndex(t.row, quote) + 1, reason: "a quote is not closed"}
	for quotes%2 == 1 {
		line, err := t.lines.next()
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLong) {
			return err
		}
		if err != nil || len(t.row)+len(line) >= maxRow {
			if err == nil {
				t.again = append(t.again, bytes.Clone(line))
			}
			return open
		}
		t.again = append(t.again, bytes.Clone(line))
		if t.width > 2 && bytes.Count(line, t.delim) >= t.width-1 {
			return open
		}
		t.row = append(append(t.row, '\n'), line...)
		quotes += bytes.Count(line, quote)
	}
	return nil
}

// split divides the row into fields. It removes quotes in place.
func (t *table) split(quoted bool) error {
	t.fields, t.starts = t.fields[:0], t.starts[:0]
	for at := 0; ; {
		t.starts = append(t.starts, at)
		if quoted && at < len(t.row) && t.row[at] == '"' {
			end, err := t.quoted(at)
			if err != nil || end == len(t.row) {
				return err
			}
			at = end + len(t.delim)
			continue
		}
		end := bytes.Index(t.row[at:], t.delim)
		field := t.row[at:]
		if end >= 0 {
			field = t.row[at : at+end]
		}
		if err := t.bare(at, field); err != nil {
			return err
		}
		t.fields = append(t.fields, field)
		if end < 0 {
			return nil
		}
		at += end + len(t.delim)
	}
}

func (t *table) bare(at int, field []byte) error {
	if i := bytes.IndexByte(field, '"'); i >= 0 {
		return &fault{at + i + 1, "a quote inside of a field without quotes"}
	}
	if i := bytes.IndexByte(field, '\r'); i >= 0 {
		return &fault{at + i + 1, "a carriage return inside of a field"}
	}
	return nil
}

// quoted appends the field whose quote opens at an offset, and returns the offset of the delimiter after it.
func (t *table) quoted(at int) (end int, err error) {
	field := t.row[at+1 : at+1]
	for i := at + 1; i < len(t.row); i++ {
		if t.row[i] != '"' {
			field = append(field, t.row[i]) // never overtakes i
			continue
		}
		if i+1 < len(t.row) && t.row[i+1] == '"' {
			field = append(field, '"')
			i++
			continue
		}
		if i+1 < len(t.row) && !bytes.HasPrefix(t.row[i+1:], t.delim) {
			return 0, &fault{i + 2, "text after a closing quote"}
		}
		t.fields = append(t.fields, field)
		return i + 1, nil
	}
	return 0, &fault{at + 1, "a quote is not closed"}
}

// place returns where a field is.
func (t *table) place(column int) (line, col int64) {
	if column < 0 || column >= len(t.starts) {
		return t.at, 0
	}
	before := t.row[:t.starts[column]]
	return t.at + int64(bytes.Count(before, []byte("\n"))), int64(len(before) - bytes.LastIndexByte(before, '\n'))
}

// delimiters are sniffed in this order.
var delimiters = []string{",", ";", "\t", "|", "^", "~", "\x1f", "\x01"}

// sniffDelimiter returns the delimiter that divides the first lines into the most columns of the same number.
func sniffDelimiter(head []byte) string {
	first := firstLines(head, 20)
	best, most := ",", 1
	for _, d := range delimiters {
		if n := commonWidth(first, d); n > most {
			best, most = d, n
		}
	}
	return best
}

// commonWidth returns the number of columns of the first line, if three quarters of the lines have it.
func commonWidth(first [][]byte, delim string) int {
	width, same := 0, 0
	for i, line := range first {
		n := len(splitLine(line, delim))
		if i == 0 {
			width = n
		}
		if n == width {
			same++
		}
	}
	if same*4 < len(first)*3 {
		return 0
	}
	return width
}

// firstLines returns the first lines of a text, without a last one that may be cut off.
func firstLines(head []byte, n int) (first [][]byte) {
	for line := range bytes.Lines(head) {
		if len(first) == n || line[len(line)-1] != '\n' && len(first) > 0 {
			break
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			first = append(first, line)
		}
	}
	return first
}

// splitLine returns the trimmed fields of a line, nil if its quotes are faulty.
func splitLine(line []byte, delim string) (fields []string) {
	t := table{delim: []byte(delim), row: bytes.Clone(line)}
	if t.split(true) != nil {
		return nil
	}
	for _, f := range t.fields {
		fields = append(fields, strings.TrimSpace(string(f)))
	}
	return fields
}

// columns finds the columns of a table by name, in any case.
type columns struct {
	header []string
	at     map[string]int // by name in lower case
}

func columnsOf(header []string) columns {
	c := columns{header, make(map[string]int, len(header))}
	for i, name := range header {
		if _, twice := c.at[strings.ToLower(name)]; !twice {
			c.at[strings.ToLower(name)] = i
		}
	}
	return c
}

func (c columns) index(name string) (int, bool) {
	i, ok := c.at[strings.ToLower(name)]
	return i, ok
}

// find returns the index of a column by name. It fails for a name that is there twice.
func (c columns) find(name string) (int, error) {
	n := 0
	at := -1
	for i, h := range c.header {
		if strings.EqualFold(h, name) {
			at = i
			n++
		}
	}
	switch {
	case n == 1:
		return at, nil
	case n > 1:
		return 0, fmt.Errorf("column %q is there %d times; give its number", name, n)
	}
	return 0, fmt.Errorf("no column %q; the file has %s", name, strings.Join(c.header, ", "))
}

// has reports whether all names are columns, once each.
func (c columns) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		_, err := c.find(name)
		return err != nil
	})
}
