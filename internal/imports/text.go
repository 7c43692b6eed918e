package imports

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// maxRow bounds a row, in bytes.
const maxRow = 1 << 20

// text is the UTF-8 text of a file.
type text struct {
	*bufio.Reader
	name  string
	lossy bool // decoded: U+FFFD stands for lost text
}

// newText decodes a file: UTF-8 or UTF-16, with or without a byte order mark, and with any line ends.
func newText(name string, r *bufio.Reader) *text {
	t := &text{name: name}
	first, _ := r.Peek(512)
	var decoded io.Reader = r
	switch order, is := utf16Of(first); {
	case is:
		t.lossy = true
		decoded = transform.NewReader(r, unicode.UTF16(order, unicode.UseBOM).NewDecoder())
	case bytes.HasPrefix(first, []byte("\ufeff")):
		_, _ = r.Discard(len("\ufeff")) // Peek has buffered them
	}
	t.Reader = bufio.NewReaderSize(decoded, headSize)
	if head, _ := t.Peek(64 << 10); bytes.IndexByte(head, '\n') < 0 && bytes.IndexByte(head, '\r') >= 0 {
		t.Reader = bufio.NewReaderSize(returns{t.Reader}, headSize)
	}
	return t
}

// utf16Of recognises UTF-16 by its mark, or by the zero bytes of its Latin letters.
func utf16Of(b []byte) (order unicode.Endianness, is bool) {
	switch {
	case bytes.HasPrefix(b, []byte{0xff, 0xfe}):
		return unicode.LittleEndian, true
	case bytes.HasPrefix(b, []byte{0xfe, 0xff}):
		return unicode.BigEndian, true
	}
	var zeros [2]int
	for i, c := range b {
		if c == 0 {
			zeros[i%2]++
		}
	}
	switch enough := len(b) / 5; {
	case zeros[1] > enough && zeros[0] == 0:
		return unicode.LittleEndian, true
	case zeros[0] > enough && zeros[1] == 0:
		return unicode.BigEndian, true
	}
	return unicode.LittleEndian, false
}

// returns makes line feeds of carriage returns, for files without line feeds.
type returns struct{ r io.Reader }

func (r returns) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	for i, c := range p[:n] {
		if c == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}

// head returns the first bytes of the text, at most [headSize].
func (t *text) head() []byte {
	b, _ := t.Peek(headSize)
	return b
}

// fault returns why a row's text cannot be trusted, "" if it can.
func (t *text) fault(row []byte) string {
	switch {
	case !utf8.Valid(row):
		return "invalid UTF-8"
	case t.lossy && bytes.Contains(row, []byte("\ufffd")):
		return "invalid UTF-16"
	case bytes.IndexByte(row, 0) >= 0:
		return "a zero byte"
	}
	return ""
}

var errLong = errors.New("longer than 1 MiB")

// lines reads physical lines.
type lines struct {
	in   *text
	line int64    // number of the latest line
	back [][]byte // lines to read again, the next one first
}

// next returns a line without its end, valid until the next call. A line beyond [maxRow] is passed over and
// returned as [errLong]. A last line without an end after a read error is lost: it may be cut off.
func (l *lines) next() ([]byte, error) {
	l.line++
	if len(l.back) > 0 {
		b := l.back[0]
		l.back = l.back[1:]
		return b, nil
	}
	b, err := l.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.in.ReadSlice('\n')
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = errLong
		}
		return nil, err
	}
	switch {
	case err == nil:
		b = b[:len(b)-1]
	case !errors.Is(err, io.EOF):
		return nil, err
	case len(b) == 0:
		return nil, io.EOF
	}
	return bytes.TrimSuffix(b, []byte("\r")), nil
}

// unread returns lines to be read again.
func (l *lines) unread(again [][]byte) {
	if len(again) == 0 {
		return
	}
	l.back = append(again, l.back...)
	l.line -= int64(len(again))
}
