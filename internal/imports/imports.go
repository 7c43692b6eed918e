// Package imports reads files of old viewings: bytes in, events out. It knows no store.
//
// A [Source] unpacks its inputs, recognises each file by its content, and yields one [Item] per row, in order. It
// holds one row at a time. A row that cannot be read with certainty is rejected with its place and the reason, and
// the rest goes on.
//
// Data flows from unpack.go (archives) through text.go (encodings, lines) and detect.go (forms) to a reader of
// tables, JSON or HTML. A form turns each row into a [row], and row.go makes the event.
package imports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
)

// Outcome says what became of a row.
type Outcome uint8

// Outcomes of rows. A skipped row is no viewing, such as a trailer.
const (
	Read Outcome = iota
	Skipped
	Rejected
)

// Item is one row. It is the same, at the same N, whenever the same files are read with the same options.
type Item struct {
	N       int64 // number of the row in the whole source, from 1
	Place   Place
	Outcome Outcome
	// Event is the last report of the viewing, if Outcome is Read. Its user is empty if the file names none. A
	// viewing with a known begin has StartedAt.
	Event history.Event
	// Reason says why the row was skipped or rejected.
	Reason string
}

// Place is where a row is in its source.
type Place struct {
	File   string
	Line   int64 // from 1; 0 is the whole file
	Column int64 // in bytes, from 1; 0 is the whole line
}

// String returns the place such as "history.csv:12:7".
func (p Place) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Options say what files do not. The zero value reads known forms, with times in UTC where a file has no zone.
type Options struct {
	// Map assigns the columns of a table or NDJSON of no known form.
	Map *Map
	// Zone is the time zone of times without an offset (default UTC).
	Zone *time.Location
	// Dates is the order of day, month and year in dates of digits.
	Dates DateOrder
	// Types are the numbers of the types "video", "episode" and "audio" (default 1, 2 and 3).
	Types map[string]uint32
	// User is the user of every row. From skips the rows of other users of the file.
	User, From string
	// Delimiter separates the columns of a table; by default it is sniffed.
	Delimiter string
	// Now is the time after which a row is rejected (default: the present).
	Now time.Time
	// MaxBytes bounds the unpacked size of all inputs, and of archives on disk; 0 is unlimited.
	MaxBytes int64
}

// File says how one file was read.
type File struct {
	Name string
	Form string // empty if the file was ignored
}

// ErrUnknown means that no input has a known form.
var ErrUnknown = errors.New("no known form")

// ErrDateOrder means that the dates of a file can be read in several ways, and [Options.Dates] is needed.
var ErrDateOrder = errors.New("order of dates unknown")

// Source yields the rows of files. It is used once.
type Source struct {
	options Options
	inputs  []input
	files   []File
	started time.Time

	yield    func(Item) bool
	ctx      context.Context
	n        int64
	unpacked int64
	consumed atomic.Int64
	problem  error // why the latest file was not recognised
	named    bool  // the caller named the file: it is no part of a directory or an archive
	unread   []Item

	// Columns of the latest file of no known form, and whether it lacks a header.
	seen     []Column
	headless bool
}

// Open returns the source of files, directories and "-" for standard input. Files open when their turn comes.
func Open(o Options, paths ...string) *Source {
	s := &Source{options: o}
	for _, path := range paths {
		s.inputs = append(s.inputs, input{name: path, open: func() (io.ReadCloser, error) { return os.Open(path) }})
	}
	return s
}

// FromReader returns the source of one stream with that name. The caller closes it.
func FromReader(o Options, name string, r io.Reader) *Source {
	return &Source{options: o, inputs: []input{{name: name, open: func() (io.ReadCloser, error) { return io.NopCloser(r), nil }}}}
}

type input struct {
	name string
	open func() (io.ReadCloser, error)
}

// Items yields all rows, then at most one error. It fails with [ErrUnknown] if nothing had a known form, with
// [ErrDateOrder], and with the error of a cancelled context. A damaged file among others is a rejected row. So is a
// file of no known form that the caller named, or that lacks columns of the map.
func (s *Source) Items(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		s.ctx, s.yield = ctx, func(i Item) bool { return yield(i, nil) }
		s.started = s.options.Now
		if s.started.IsZero() {
			s.started = time.Now()
		}
		if err := s.all(); err != nil && !errors.Is(err, errStopped) {
			yield(Item{}, err)
		}
	}
}

// Consumed returns the bytes of the inputs that were read. It is safe for concurrent use.
func (s *Source) Consumed() int64 { return s.consumed.Load() }

// Files returns the files so far, with their forms.
func (s *Source) Files() []File { return s.files }

// errStopped ends the readers after the caller has stopped.
var errStopped = errors.New("stopped")

func (s *Source) all() error {
	for _, in := range s.inputs {
		if err := s.input(in); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(s.files, func(f File) bool { return f.Form != "" }) {
		return s.unknown()
	}
	for _, i := range s.unread {
		if err := s.emit(i); err != nil {
			return err
		}
	}
	return nil
}

// passOver notes a file of no known form. Most files of an archive or a directory are none of viewings.
func (s *Source) passOver(name string) {
	if s.problem != nil && !errors.Is(s.problem, errEmpty) && (s.named || errors.Is(s.problem, errMap)) {
		s.unread = append(s.unread, Item{Place: Place{File: name}, Outcome: Rejected, Reason: "the file was not read: " + s.problem.Error()})
	}
}

var (
	errEmpty = errors.New("the file is empty")
	errMap   = errors.New("map")
)

func (s *Source) unknown() error {
	switch {
	case s.problem != nil && len(s.files) == 1:
		return fmt.Errorf("read %s: %w: %w", s.files[0].Name, ErrUnknown, s.problem)
	case len(s.files) == 1:
		return fmt.Errorf("read %s: %w; %s", s.files[0].Name, ErrUnknown, wantForms())
	}
	return fmt.Errorf("read %d files: %w in any of them; %s", len(s.files), ErrUnknown, wantForms())
}

// emit yields an item with its number.
func (s *Source) emit(i Item) error {
	s.n++
	i.N = s.n
	if s.n%256 == 1 && s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if !s.yield(i) {
		return errStopped
	}
	return nil
}

// broken rejects a file, or the rest of it.
func (s *Source) broken(name string, line int64, reason string) error {
	return s.emit(Item{Place: Place{File: name, Line: line}, Outcome: Rejected, Reason: reason})
}
