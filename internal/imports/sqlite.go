package imports

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxStreams bounds the streams of NewPipe that are in memory while the plays are read.
const maxStreams = 500_000

// stream is a video of NewPipe.
type stream struct {
	address, title, channel string
	duration                int64 // seconds
	progress                int64 // milliseconds
	placed                  bool
}

// sqlite reads the database of NewPipe from a temporary copy.
func (s *Source) sqlite(name string, r *bufio.Reader) error {
	s.files = append(s.files, File{Name: name})
	f, err := s.spool(r)
	if err != nil {
		return s.failed(name, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // nothing can be done
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s.failed(name, err)
	}
	d, err := openDatabase(f, info.Size())
	if err != nil {
		return s.broken(name, 0, err.Error())
	}
	if _, ok := d.tables["stream_history"]; !ok {
		s.problem = errors.New("an SQLite database, and not NewPipe's. " + wantForms())
		return nil
	}
	s.recognised(newPipe)
	return s.newPipe(name, d)
}

func (s *Source) newPipe(name string, d *database) error {
	streams, err := d.streams()
	if err != nil {
		return s.broken(name, 0, err.Error())
	}
	line := int64(0)
	err = d.each("stream_history", func(get func(string) any) error {
		line++
		r, err := newPipeRow(streams, get)
		return s.took(Item{Place: Place{File: name, Line: line}}, newPipe, r, err)
	})
	if errors.Is(err, errDatabase) {
		return s.broken(name, line+1, "the rest of the file was not read: "+err.Error())
	}
	return err
}

// streams reads the videos by id, with the positions in them.
func (d *database) streams() (map[int64]*stream, error) {
	all := make(map[int64]*stream)
	err := d.each("streams", func(get func(string) any) error {
		id, _ := get("uid").(int64)
		one := &stream{}
		one.address, _ = get("url").(string)
		one.title, _ = get("title").(string)
		one.channel, _ = get("uploader").(string)
		one.duration, _ = get("duration").(int64)
		if all[id] = one; len(all) > maxStreams {
			return fmt.Errorf("more than %d streams", maxStreams)
		}
		return nil
	})
	if _, ok := d.tables["stream_state"]; err != nil || !ok {
		return all, err
	}
	return all, d.each("stream_state", func(get func(string) any) error {
		id, _ := get("stream_id").(int64)
		if one := all[id]; one != nil {
			if one.progress, one.placed = get("progress_time").(int64); !one.placed {
				one.progress, one.placed = get("progress_millis").(int64)
			}
		}
		return nil
	})
}

// newPipeRow reads a play. Earlier repeats have no times and do not count.
func newPipeRow(streams map[int64]*stream, get func(string) any) (*row, error) {
	id, _ := get("stream_id").(int64)
	at, ok := get("access_date").(int64)
	one := streams[id]
	switch {
	case !ok:
		return nil, bad("access_date", "missing")
	case one == nil:
		return nil, bad("stream_id", "no stream %d", id)
	case !utf8.ValidString(one.address + one.title):
		return nil, bad("stream_id", "invalid UTF-8")
	}
	r := &row{kind: video, object: one.address, end: at, duration: max(one.duration, 0) * 1000, position: one.progress, placed: one.placed}
	if v := videoID(one.address); v != "" {
		r.object = "youtube:" + v
	}
	if !one.placed {
		r.state = finished
	}
	r.put("title", one.title)
	r.put("channel", one.channel)
	return r, nil
}

// database reads the tables of an SQLite file that is not in use, as https://www.sqlite.org/fileformat2.html has it.
// It knows tables with row ids only, and no SQL.
type database struct {
	r      io.ReaderAt
	page   int // size in bytes
	usable int // without what is reserved at its end
	left   int // pages that may still be read: a damaged file may have cycles
	tables map[string]dbTable
}

type dbTable struct {
	root    uint32
	columns []string
	rowID   int // column that stands for the row id, -1 without
}

var errDatabase = errors.New("damaged SQLite database")

// openDatabase reads the header and the list of tables.
func openDatabase(r io.ReaderAt, size int64) (*database, error) {
	var h [100]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return nil, errDatabase
	}
	d := &database{r: r, page: int(binary.BigEndian.Uint16(h[16:])), tables: make(map[string]dbTable)}
	if d.page == 1 {
		d.page = 65536
	}
	d.usable = d.page - int(h[20])
	switch {
	case d.page < 512 || d.page&(d.page-1) != 0 || d.usable < 480:
		return nil, errDatabase
	case binary.BigEndian.Uint32(h[56:]) > 1:
		return nil, errors.New("SQLite database in UTF-16")
	}
	d.left = int(size/int64(d.page)) + 1
	err := d.scan(1, func(_ int64, v []any) error {
		if len(v) == 5 && v[0] == "table" {
			name, _ := v[1].(string)
			root, _ := v[3].(int64)
			sql, _ := v[4].(string)
			columns, rowID := columnsOfSQL(sql)
			d.tables[name] = dbTable{uint32(root), columns, rowID} //nolint:gosec // a wrong page is refused
		}
		return nil
	})
	return d, err
}

// columnsOfSQL returns the columns of CREATE TABLE, and which one is its integer primary key.
func columnsOfSQL(sql string) (columns []string, rowID int) {
	_, body, _ := strings.Cut(sql, "(")
	key := ""
	if m := primaryKey.FindStringSubmatch(body); m != nil {
		key = m[1]
	}
	rowID = -1
	depth, start := 0, 0
	for i, c := range body + "," {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth > 0 {
				continue
			}
			m := column.FindStringSubmatch(strings.TrimSpace(body[start:min(i, len(body))]))
			start = i + 1
			if m == nil || notColumns[strings.ToUpper(m[1])] {
				continue
			}
			if integer := strings.HasPrefix(strings.ToUpper(m[2]), "INTEGER"); integer && (m[1] == key || strings.Contains(strings.ToUpper(m[2]), "PRIMARY KEY")) {
				rowID = len(columns)
			}
			columns = append(columns, m[1])
		}
	}
	return columns, rowID
}

var (
	primaryKey = regexp.MustCompile("(?i)PRIMARY KEY *\\( *[`\"\\[]?(\\w+)[`\"\\]]? *\\)")
	column     = regexp.MustCompile("^[`\"\\[]?(\\w+)[`\"\\]]? *(.*)")
	notColumns = map[string]bool{"PRIMARY": true, "FOREIGN": true, "UNIQUE": true, "CHECK": true, "CONSTRAINT": true}
)

// each passes the rows of a table, by column.
func (d *database) each(name string, fn func(get func(column string) any) error) error {
	t, ok := d.tables[name]
	if !ok {
		return fmt.Errorf("no table %s", name)
	}
	return d.scan(t.root, func(id int64, v []any) error {
		return fn(func(column string) any {
			for i, c := range t.columns {
				switch {
				case c != column:
				case i == t.rowID:
					return id
				case i < len(v):
					return v[i]
				}
			}
			return nil
		})
	})
}

// scan passes the rows below a page.
func (d *database) scan(page uint32, fn func(id int64, values []any) error) error {
	if d.left--; page == 0 || d.left < 0 {
		return errDatabase
	}
	b := make([]byte, d.page)
	if _, err := d.r.ReadAt(b, int64(page-1)*int64(d.page)); err != nil {
		return errDatabase
	}
	head := b
	if page == 1 {
		head = b[100:]
	}
	cells := int(binary.BigEndian.Uint16(head[3:]))
	size := 8
	if head[0] == 5 {
		size = 12
	}
	if head[0] != 5 && head[0] != 13 || size+2*cells > len(head) {
		return errDatabase
	}
	for i := range cells {
		at := int(binary.BigEndian.Uint16(head[size+2*i:]))
		if at+4 > d.usable {
			return errDatabase
		}
		var err error
		if head[0] == 5 {
			err = d.scan(binary.BigEndian.Uint32(b[at:]), fn)
		} else {
			err = d.cell(b[at:d.usable], fn)
		}
		if err != nil {
			return err
		}
	}
	if head[0] == 5 {
		return d.scan(binary.BigEndian.Uint32(head[8:]), fn)
	}
	return nil
}

// cell passes the row of a leaf.
func (d *database) cell(b []byte, fn func(id int64, values []any) error) error {
	size, n := varint(b)
	id, m := varint(b[n:])
	b = b[n+m:]
	if n == 0 || m == 0 || size > maxRow {
		return errDatabase
	}
	payload, err := d.payload(b, int(size)) //nolint:gosec // it was bounded
	if err != nil {
		return err
	}
	values, err := recordOf(payload)
	if err != nil {
		return err
	}
	return fn(int64(id), values) //nolint:gosec // a row id of 64 bits
}

// payload collects a row from its leaf and its overflow pages.
func (d *database) payload(b []byte, size int) ([]byte, error) {
	local := size
	if most := d.usable - 35; size > most {
		least := (d.usable-12)*32/255 - 23
		if local = least + (size-least)%(d.usable-4); local > most {
			local = least
		}
	}
	if local > len(b) || local < size && local+4 > len(b) {
		return nil, errDatabase
	}
	payload := b[:local:local]
	if local == size {
		return payload, nil
	}
	for next := binary.BigEndian.Uint32(b[local:]); len(payload) < size; {
		if d.left--; next == 0 || d.left < 0 {
			return nil, errDatabase
		}
		page := make([]byte, d.usable)
		if _, err := d.r.ReadAt(page, int64(next-1)*int64(d.page)); err != nil {
			return nil, errDatabase
		}
		next = binary.BigEndian.Uint32(page)
		payload = append(payload, page[4:min(len(page), 4+size-len(payload))]...)
	}
	return payload, nil
}

// recordOf decodes the values of a row: nil, int64, float64, string or []byte.
func recordOf(b []byte) (values []any, err error) {
	size, n := varint(b)
	if n == 0 || size > uint64(len(b)) || int(size) < n { //nolint:gosec // it was bounded
		return nil, errDatabase
	}
	head, body := b[n:size], b[size:]
	for len(head) > 0 {
		kind, n := varint(head)
		if n == 0 {
			return nil, errDatabase
		}
		head = head[n:]
		length := lengthOf(kind)
		if length > uint64(len(body)) {
			return nil, errDatabase
		}
		values = append(values, valueOf(kind, body[:length]))
		body = body[length:]
	}
	return values, nil
}

func lengthOf(kind uint64) uint64 {
	switch {
	case kind <= 9:
		return [...]uint64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0}[kind]
	case kind < 12:
		return math.MaxUint64 // reserved
	}
	return (kind - 12) / 2
}

func valueOf(kind uint64, b []byte) any {
	switch {
	case kind == 0:
		return nil
	case kind == 7:
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	case kind == 8 || kind == 9:
		return int64(kind - 8) //nolint:gosec // 0 or 1
	case kind >= 12 && kind%2 == 0:
		return b
	case kind >= 12:
		return string(b)
	}
	n := int64(int8(b[0])) //nolint:gosec // the sign is wanted
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	return n
}

// varint decodes a number of SQLite, which is big-endian. It returns 0 bytes for one that is cut off.
func varint(b []byte) (v uint64, n int) {
	for i := range min(len(b), 9) {
		if i == 8 {
			return v<<8 | uint64(b[i]), 9
		}
		v = v<<7 | uint64(b[i]&0x7f)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
