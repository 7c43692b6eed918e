// Package replay brings old histories in: it reads a trace of viewings, turns each
// into the heartbeats that a player would have sent, and sends them in the order of
// their times through the front door of history-service. It can also say, from a
// plain merge in memory, what the stores must hold afterwards.
package replay

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// Viewing is one row of a trace: somebody played something for a while.
type Viewing struct {
	UID      string
	Object   history.Object
	At       int64 // Unix milliseconds of the start
	Played   int64 // milliseconds; beyond the duration on a loop
	Duration int64 // milliseconds; 0 is unknown
}

// columns are what a trace must have, by name, in any order.
var columns = []string{"user_id", "video_id", "time_ms", "play_time_ms", "duration_ms"}

// ReadFile reads a trace, gzip or plain CSV with a header. See [Read].
func ReadFile(path string) ([]Viewing, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("read trace %s: %w", path, err)
		}
	}
	vs, err := Read(r)
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", path, err)
	}
	return vs, nil
}

// Read reads a trace from CSV in UTF-8 whose header names at least user_id, video_id,
// time_ms, play_time_ms and duration_ms. Every object is of type 1. It returns all
// rows or none: the first that is not legal fails with its line and column, and so
// does one that was cut off, unless what is left of it is a legal row.
func Read(r io.Reader) ([]Viewing, error) {
	rows := csv.NewReader(unmarked(r))
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	at, err := locate(header)
	if err != nil {
		return nil, err
	}
	var vs []Viewing
	for n := 1; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return vs, nil
		}
		if err != nil {
			return nil, broken(rows, row, n, err)
		}
		v, err := viewing(row, at)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		vs = append(vs, v)
	}
}

// unmarked leaves out the byte order mark that spreadsheets write before UTF-8.
func unmarked(r io.Reader) io.Reader {
	const mark = "\ufeff"
	b := bufio.NewReader(r)
	if start, _ := b.Peek(len(mark)); string(start) == mark {
		_, _ = b.Discard(len(mark)) // they are there
	}
	return b
}

// broken says where row n, which is no row of CSV, stands. Syntax errors say so
// themselves.
func broken(rows *csv.Reader, row []string, n int, err error) error {
	if _, ok := errors.AsType[*csv.ParseError](err); !ok { // the file cannot be read on
		return fmt.Errorf("after row %d: %w", n-1, err)
	}
	if !errors.Is(err, csv.ErrFieldCount) {
		return err
	}
	line, _ := rows.FieldPos(0)
	return fmt.Errorf("line %d: %d columns, want %d", line, len(row), rows.FieldsPerRecord)
}

func locate(header []string) ([]int, error) {
	at := make([]int, len(columns))
	for i, name := range columns {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return nil, fmt.Errorf("no column %q; want %s", name, strings.Join(columns, ", "))
		}
	}
	return at, nil
}

func viewing(row []string, at []int) (Viewing, error) {
	v := Viewing{UID: strings.Clone(row[at[0]]), Object: history.Object{ID: strings.Clone(row[at[1]]), Type: 1}}
	for i, n := range []*int64{&v.At, &v.Played, &v.Duration} {
		column, text := columns[2+i], row[at[2+i]]
		var err error
		if *n, err = strconv.ParseInt(text, 10, 64); err != nil {
			return Viewing{}, history.Invalid(column, fmt.Sprintf("%q is not a number of milliseconds", text))
		}
	}
	return v, v.validate()
}

// fields are what the columns become.
var fields = map[string]string{
	"uid": "user_id", "object.id": "video_id", "event_time": "time_ms", "position_ms": "play_time_ms", "duration_ms": "duration_ms",
}

// validate asks of a viewing what the service will ask of its heartbeats, so that it
// refuses none in the middle of a replay.
func (v *Viewing) validate() error {
	e := history.Event{
		Key: history.Key{UID: v.UID, Object: v.Object}, Kind: history.KindStop,
		At: v.At, Position: v.Played, Duration: v.Duration,
	}
	err := e.Validate()
	if bad, ok := errors.AsType[*history.FieldError](err); ok {
		return history.Invalid(fields[bad.Field], bad.Reason)
	}
	return err
}
