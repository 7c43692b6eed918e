package imports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonForm is a form of JSON objects, recognised by their keys: in an array, in lines, or in an array inside of
// objects.
type jsonForm struct {
	name string
	keys []string
	read func(s *Source, object []byte) (*row, error)
}

// label is a JSON string or number, as text.
type label string

// UnmarshalJSON takes strings, numbers and null.
func (l *label) UnmarshalJSON(b []byte) error {
	switch {
	case len(b) > 0 && b[0] == '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*l = label(s)
	case string(b) == "null":
		*l = ""
	case len(b) > 0 && (b[0] == '-' || b[0] >= '0' && b[0] <= '9'):
		*l = label(b)
	default:
		return fmt.Errorf("want a text or a number, got %s", shown(string(b)))
	}
	return nil
}

var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), json.MatchCaseInsensitiveNames(false))

// object decodes the JSON of a row.
func object[T any](b []byte) (v T, err error) {
	if err = json.Unmarshal(b, &v, lenient); err == nil {
		return v, nil
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return v, bad(strings.TrimPrefix(string(e.JSONPointer), "/"), "want another type of value than %s", e.JSONKind)
	}
	return v, bad("", "%s", jsonReason(err))
}

// jsonReason words a syntax error without the names of packages and offsets.
func jsonReason(err error) string {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && e.Err != nil {
		return "not JSON: " + e.Err.Error()
	}
	return "not JSON: " + err.Error()
}

// keysOf returns the keys of a JSON object that may be cut off, and whether it is whole.
func keysOf(b []byte) (keys map[string]bool, size int) {
	keys = make(map[string]bool)
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return keys, 0
	}
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return keys, 0
		}
		keys[t.String()] = true
		if d.SkipValue() != nil {
			return keys, 0
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return keys, 0
	}
	return keys, int(d.InputOffset())
}

func formOf(keys map[string]bool) *jsonForm {
next:
	for i := range jsonForms {
		for _, k := range jsonForms[i].keys {
			if !keys[k] {
				continue next
			}
		}
		return &jsonForms[i]
	}
	return nil
}

// json reads an array, lines, or the arrays inside of an object.
func (s *Source) json(in *text, head []byte) error {
	if head[0] == '[' {
		return s.array(in, bytes.TrimLeft(head[1:], " \t\r\n,"), nil)
	}
	keys, size := keysOf(head)
	if f := formOf(keys); f != nil {
		return s.jsonLines(in, f)
	}
	if path := wrapped(keys); path != nil {
		return s.array(in, nil, path)
	}
	if first := bytes.IndexByte(head, '\n'); s.options.Map != nil && size > 0 && (first < 0 || size <= first) {
		return s.jsonLines(in, nil)
	}
	// The first line may be damaged: the others tell.
	for line := range bytes.Lines(head) {
		if f := formOf(firstKeys(line)); f != nil {
			return s.jsonLines(in, f)
		}
	}
	if s.options.Map != nil {
		return s.jsonLines(in, nil)
	}
	s.sawLines(head)
	s.problem = fmt.Errorf("its fields are %s. %s", strings.Join(sorted(keys), ", "), wantForms())
	return nil
}

// sawLines notes the fields of the first objects.
func (s *Source) sawLines(head []byte) {
	var header []string
	var rows [][]string
	for _, line := range firstLines(head, 50) {
		values, err := object[map[string]jsontext.Value](line)
		if err != nil {
			continue
		}
		if header == nil {
			header = slices.Sorted(maps.Keys(values))
		}
		var r []string
		for _, name := range header {
			text, _ := valueAt(values, name)
			r = append(r, text)
		}
		rows = append(rows, r)
	}
	s.saw(header, rows)
	s.headless = false
}

func firstKeys(line []byte) map[string]bool {
	keys, _ := keysOf(line)
	return keys
}

// wrappers are the paths of arrays inside of objects.
var wrappers = [][]string{{"actions"}, {"scrobbles"}, {"response", "data", "data"}, {"data", "data"}, {"data", "list"}}

func wrapped(keys map[string]bool) []string {
	for _, path := range wrappers {
		if keys[path[0]] {
			return path
		}
	}
	return nil
}

// jsonLines reads one object per line, of a form or of the map.
func (s *Source) jsonLines(in *text, f *jsonForm) error {
	name := genericLines
	read := s.mappedObject
	if f != nil {
		name, read = f.name, func(b []byte) (*row, error) { return f.read(s, b) }
	}
	s.recognised(name)
	l := &lines{in: in}
	for {
		b, err := l.next()
		i := Item{Place: Place{File: in.name, Line: l.line}}
		switch {
		case errors.Is(err, errLong):
			err = s.took(i, name, nil, err)
		case err != nil:
			return s.ended(l, err)
		case len(bytes.TrimSpace(b)) > 0:
			r, bad := s.object(in, b, read)
			err = s.took(i, name, r, bad)
		}
		if err != nil {
			return err
		}
	}
}

// object reads one JSON object, if its text can be trusted.
func (s *Source) object(in *text, b []byte, read func([]byte) (*row, error)) (*row, error) {
	if reason := in.fault(b); reason != "" {
		return nil, bad("", "%s", reason)
	}
	if b = bytes.TrimSpace(b); b[0] != '{' {
		return nil, bad("", "not a JSON object")
	}
	return read(b)
}

// array reads the elements of an array, or of the array at a path.
func (s *Source) array(in *text, first []byte, path []string) error {
	e := &elements{places: places{r: in, room: maxRow}, in: in}
	e.d = jsontext.NewDecoder(&e.places, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	var form *jsonForm
	if first != nil {
		if form = formOf(firstKeys(first)); form == nil {
			form = s.laterForm(first)
		}
		if form == nil && s.options.Map == nil {
			s.problem = fmt.Errorf("its fields are %s. %s", strings.Join(sorted(firstKeys(first)), ", "), wantForms())
			return nil
		}
	}
	if err := e.enter(path); err != nil {
		return s.endedJSON(e, err)
	}
	for {
		b, err := e.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return s.endedJSON(e, err)
		}
		if form == nil {
			form = formOf(firstKeys(b))
		}
		if err := s.element(e, form, b); err != nil {
			return err
		}
	}
}

// laterForm looks at some more elements than the first.
func (s *Source) laterForm(b []byte) *jsonForm {
	for range 20 {
		_, size := keysOf(b)
		if size == 0 {
			return nil
		}
		b = bytes.TrimLeft(b[size:], " \t\r\n,")
		if f := formOf(firstKeys(b)); f != nil {
			return f
		}
	}
	return nil
}

func (s *Source) element(e *elements, form *jsonForm, b []byte) error {
	i := Item{Place: Place{File: e.in.name}}
	i.Place.Line, i.Place.Column = e.places.at(e.d.InputOffset() - int64(len(b)))
	if form == nil && s.options.Map == nil {
		return nil // another array
	}
	name, read := genericLines, s.mappedObject
	if form != nil {
		name, read = form.name, func(b []byte) (*row, error) { return form.read(s, b) }
	}
	s.recognised(name)
	r, err := s.object(e.in, b, read)
	return s.took(i, name, r, err)
}

func (s *Source) endedJSON(e *elements, err error) error {
	line, column := e.places.at(e.d.InputOffset())
	reason := jsonReason(err)
	switch {
	case errors.Is(err, errAfter):
		reason = err.Error()
	case errors.Is(err, errLong):
		reason = "an object is " + errLong.Error()
	case errors.Is(e.places.err, io.EOF) && errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		reason = "the file ends in the middle"
	case e.places.err != nil && !errors.Is(e.places.err, io.EOF):
		reason = cause(e.places.err)
	}
	return s.emit(Item{Place: Place{e.in.name, line, column}, Outcome: Rejected, Reason: "the rest of the file was not read: " + reason})
}

// elements reads the elements of an array one by one.
type elements struct {
	d      *jsontext.Decoder
	places places
	in     *text
	depth  int // of the array
}

// enter goes to the array at a path of keys, and passes over the rest.
func (e *elements) enter(path []string) error {
	for _, want := range path {
		t, err := e.token()
		if err != nil {
			return err
		}
		if t.Kind() != '{' {
			return fmt.Errorf("want an object with %q", want)
		}
		if err := e.seek(want); err != nil {
			return err
		}
	}
	t, err := e.token()
	if err == nil && t.Kind() != '[' {
		err = errors.New("want an array")
	}
	e.depth = e.d.StackDepth()
	return err
}

func (e *elements) seek(want string) error {
	for {
		t, err := e.token()
		if err != nil {
			return err
		}
		if t.Kind() != '"' {
			return fmt.Errorf("no %q", want)
		}
		if t.String() == want {
			return nil
		}
		if err := e.skip(); err != nil {
			return err
		}
	}
}

// skip passes over a value, token by token: it may be larger than memory.
func (e *elements) skip() error {
	for depth := e.d.StackDepth(); ; {
		if _, err := e.token(); err != nil {
			return err
		}
		if e.d.StackDepth() <= depth {
			return nil
		}
	}
}

func (e *elements) token() (jsontext.Token, error) {
	e.places.allow(e.d.InputOffset())
	return e.d.ReadToken()
}

// next returns the next element, valid until the next call, and [io.EOF] after the last one.
func (e *elements) next() ([]byte, error) {
	e.places.allow(e.d.InputOffset())
	if e.d.PeekKind() == ']' {
		return nil, e.finish()
	}
	b, err := e.d.ReadValue()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

var errAfter = errors.New("something follows the end")

// finish reads on to the end, where nothing may follow.
func (e *elements) finish() error {
	for {
		if _, err := e.token(); err != nil {
			return err
		}
		if e.d.StackDepth() == 0 {
			break
		}
	}
	if _, err := e.token(); err != nil && !errors.Is(err, io.EOF) || err == nil {
		return errAfter
	}
	return io.EOF
}

// places is a reader that knows the lines of what it has read, and bounds how far it reads ahead.
type places struct {
	r       io.Reader
	room    int64
	offset  int64
	limit   int64
	err     error
	breaks  []int64 // offsets of line breaks after the latest place
	line    int64   // lines before the latest place
	lineEnd int64   // offset after the last of their breaks
}

// allow lets one more row be read.
func (p *places) allow(from int64) { p.limit = from + p.room + 64<<10 }

func (p *places) Read(b []byte) (int, error) {
	if p.offset >= p.limit {
		return 0, errLong
	}
	if left := p.limit - p.offset; int64(len(b)) > left {
		b = b[:left]
	}
	n, err := p.r.Read(b)
	for i := 0; ; {
		next := bytes.IndexByte(b[i:n], '\n')
		if next < 0 {
			break
		}
		i += next + 1
		p.breaks = append(p.breaks, p.offset+int64(i))
	}
	p.offset += int64(n)
	if err != nil {
		p.err = err
	}
	return n, err
}

// at returns the place of an offset, which never decreases.
func (p *places) at(offset int64) (line, column int64) {
	i := 0
	for i < len(p.breaks) && p.breaks[i] <= offset {
		p.lineEnd = p.breaks[i]
		i++
	}
	p.line += int64(i)
	p.breaks = p.breaks[i:]
	return p.line + 1, offset - p.lineEnd + 1
}
