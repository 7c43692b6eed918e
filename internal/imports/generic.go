package imports

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ended rejects the rest of a file whose bytes cannot be read.
func (s *Source) ended(l *lines, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return s.broken(l.in.name, l.line, "the rest of the file was not read: "+cause(err))
}

const genericTable, genericLines = "CSV", "NDJSON"

// mappedTable reads a table by the map. Without names in the map the first row is a header only if its time is none.
func (s *Source) mappedTable(t *table, head []byte) error {
	m := s.options.Map
	t.delim = []byte(s.delimiter(head))
	s.recognised(genericTable)
	at := make([]int, len(m.fields))
	if m.byNumber() {
		if first := firstLines(head, 1); len(first) > 0 {
			t.width = len(splitLine(first[0], string(t.delim)))
		}
	} else if err := t.readHeader(); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	for i, f := range m.fields {
		if f.constant {
			continue
		}
		n, err := columnsOf(t.header).find(f.column)
		if number, e := strconv.Atoi(f.column); e == nil && err != nil {
			n, err = number-1, nil
			if number < 1 || t.width > 0 && number > t.width {
				err = fmt.Errorf("no column %d; the file has %d, separated by %q", number, t.width, t.delim)
			}
		}
		if err != nil {
			s.files[len(s.files)-1].Form = ""
			s.problem = fmt.Errorf("%w: %w", errMap, err)
			return nil
		}
		at[i] = n
	}
	first := m.byNumber()
	return s.rows(t, genericTable, func() (*row, int, error) {
		r, field, err := m.row(&s.options, func(i int) string { return string(t.fields[at[i]]) })
		header := first && err != nil && s.isHeader(t, at)
		first = false
		switch {
		case header:
			return nil, -1, notViewing("the header")
		case field >= 0:
			return nil, at[field], err
		}
		return r, -1, err
	})
}

// isHeader reports whether no field of the first row of a map by numbers has a digit.
func (s *Source) isHeader(t *table, at []int) bool {
	for i, f := range s.options.Map.fields {
		if (f.field == "time" || f.field == "end") && !f.constant {
			for _, c := range t.fields[at[i]] {
				if c >= '0' && c <= '9' {
					return false
				}
			}
		}
	}
	return true
}
