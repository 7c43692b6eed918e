package imports

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Limits of archives.
const (
	maxDepth   = 3       // archives in each other, such as a file in .tar.gz
	maxMembers = 100_000 // files of an archive
	maxRatio   = 200     // unpacked to packed size, beyond the first bytes
	freeRatio  = 64 << 20
	maxWindow  = 64 << 20 // memory of zstd
)

// headSize is the number of bytes by which a file is recognised.
const headSize = 1 << 20

// input reads a file, or all files of a directory in the order of their names.
func (s *Source) input(in input) error {
	s.named = true
	if in.name == "-" {
		return s.unpack("-", os.Stdin, 0)
	}
	info, err := os.Stat(in.name)
	if err == nil && info.IsDir() {
		s.named = false
		return filepath.WalkDir(in.name, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return s.broken(path, 0, err.Error())
			}
			if !d.Type().IsRegular() {
				return nil
			}
			return s.opened(input{path, func() (io.ReadCloser, error) { return os.Open(path) }})
		})
	}
	return s.opened(in)
}

func (s *Source) opened(in input) error {
	f, err := in.open()
	if err != nil {
		return fmt.Errorf("read %s: %w", in.name, errors.Unwrap(err))
	}
	defer f.Close()
	return s.unpack(in.name, f, 0)
}

// unpack reads one stream by its first bytes: an archive, or a file.
func (s *Source) unpack(name string, r io.Reader, depth int) error {
	packed := &counter{r: r}
	if depth == 0 {
		packed.all = &s.consumed
	}
	head := bufio.NewReaderSize(packed, 64<<10)
	first, err := head.Peek(512)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return s.failed(name, err)
	case len(first) == 0:
		s.files = append(s.files, File{Name: name})
		s.problem = errEmpty
		return nil
	case depth > maxDepth:
		return s.broken(name, 0, "archives inside of archives; unpack it first")
	case bytes.HasPrefix(first, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(head)
		if err != nil {
			return s.broken(name, 0, "gzip: "+err.Error())
		}
		return s.unpack(inner(name, ".gz"), s.bounded(z, packed), depth+1)
	case bytes.HasPrefix(first, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(head, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return s.broken(name, 0, "zstd: "+err.Error())
		}
		defer z.Close()
		return s.unpack(inner(name, ".zst"), s.bounded(z, packed), depth+1)
	case bytes.HasPrefix(first, []byte("PK\x03\x04")), bytes.HasPrefix(first, []byte("PK\x05\x06")):
		return s.zip(name, r, head, depth)
	case len(first) > 262 && string(first[257:262]) == "ustar":
		return s.tar(name, head, depth)
	}
	s.problem = nil
	if err := s.file(name, head); err != nil {
		return err
	}
	s.passOver(name)
	return nil
}

func inner(name, suffix string) string { return strings.TrimSuffix(name, suffix) }

// zip reads an archive, whose list is at its end: from the file itself, or from a temporary copy.
func (s *Source) zip(name string, r io.Reader, head *bufio.Reader, depth int) error {
	s.named = false
	f, ok := r.(*os.File)
	if info, err := statOf(f); !ok || err != nil || !info.Mode().IsRegular() {
		spool, err := s.spool(head)
		if err != nil {
			return s.failed(name, err)
		}
		defer os.Remove(spool.Name()) //nolint:errcheck // nothing can be done
		defer spool.Close()
		f = spool
	}
	info, err := f.Stat()
	if err != nil {
		return s.failed(name, err)
	}
	var packed io.ReaderAt = f
	if depth == 0 {
		packed = counterAt{f, &s.consumed}
	}
	z, err := zip.NewReader(packed, info.Size())
	switch {
	case err != nil:
		return s.broken(name, 0, "zip: no list of files at its end, so it is cut off or damaged")
	case len(z.File) > maxMembers:
		return s.broken(name, 0, fmt.Sprintf("zip: %d files, want at most %d", len(z.File), maxMembers))
	}
	slices.SortStableFunc(z.File, func(a, b *zip.File) int { return compareNames(a.Name, b.Name) })
	for _, m := range z.File {
		if err := s.zipMember(name, m, depth); err != nil {
			return err
		}
	}
	return nil
}

func statOf(f *os.File) (os.FileInfo, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.Stat()
}

func (s *Source) zipMember(archive string, m *zip.File, depth int) error {
	if m.FileInfo().IsDir() {
		return nil
	}
	name := archive + "/" + m.Name
	if !filepath.IsLocal(m.Name) || strings.Contains(m.Name, "\\") {
		return s.broken(name, 0, "zip: the name leads out of the archive")
	}
	if !m.Mode().IsRegular() {
		return nil
	}
	f, err := m.Open()
	if err != nil {
		return s.broken(name, 0, "zip: "+err.Error())
	}
	defer f.Close()
	return s.unpack(name, &bounded{source: s, r: f, packed: func() int64 { return int64(min(m.CompressedSize64, 1<<62)) }}, depth+1) //nolint:gosec // it was bounded
}

func (s *Source) tar(archive string, r io.Reader, depth int) error {
	s.named = false
	t := tar.NewReader(r)
	for range maxMembers {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return s.broken(archive, 0, "tar: "+err.Error())
		case h.Typeflag != tar.TypeReg:
			continue
		case !filepath.IsLocal(h.Name):
			err = s.broken(archive+"/"+h.Name, 0, "tar: the name leads out of the archive")
		default:
			err = s.unpack(archive+"/"+h.Name, t, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return s.broken(archive, 0, fmt.Sprintf("tar: more than %d files", maxMembers))
}

// compareNames orders numbered parts by their numbers: part-2 before part-10.
func compareNames(a, b string) int {
	digits := func(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
	for a != "" && b != "" {
		if m, n := digits(a), digits(b); m > 0 && n > 0 && m != n {
			return m - n
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// spool copies a stream to a temporary file, which the caller removes.
func (s *Source) spool(r io.Reader) (*os.File, error) {
	f, err := os.CreateTemp("", "playhead-import-*")
	if err != nil {
		return nil, fmt.Errorf("copy to a temporary file: %w", err)
	}
	if s.options.MaxBytes > 0 {
		r = io.LimitReader(r, s.options.MaxBytes+1)
	}
	n, err := io.Copy(f, r)
	if err == nil && s.options.MaxBytes > 0 && n > s.options.MaxBytes {
		err = fmt.Errorf("more than %d bytes", s.options.MaxBytes)
	}
	if err != nil {
		_, _ = f.Close(), os.Remove(f.Name())
		return nil, fmt.Errorf("copy to a temporary file: %w", err)
	}
	return f, nil
}

var errBomb = errors.New("unpacks to more than allowed; unpack it first and look at it")

// bounded ends a stream that unpacks to too much.
type bounded struct {
	source *Source
	r      io.Reader
	packed func() int64 // bytes of it so far, or in all
	read   int64
}

// bounded returns a reader of the unpacked bytes of a stream.
func (s *Source) bounded(r io.Reader, packed *counter) io.Reader {
	return &bounded{source: s, r: r, packed: func() int64 { return packed.n }}
}

// counter counts the bytes that are read.
type counter struct {
	r   io.Reader
	n   int64
	all *atomic.Int64 // counts them too; may be nil
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.all != nil {
		c.all.Add(int64(n))
	}
	return n, err
}

// counterAt counts the bytes that are read.
type counterAt struct {
	r   io.ReaderAt
	all *atomic.Int64
}

func (c counterAt) ReadAt(p []byte, offset int64) (int, error) {
	n, err := c.r.ReadAt(p, offset)
	c.all.Add(int64(n))
	return n, err
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.read += int64(n)
	b.source.unpacked += int64(n)
	if limit := b.source.options.MaxBytes; limit > 0 && b.source.unpacked > limit ||
		b.read > freeRatio && b.read/maxRatio > b.packed() {
		return 0, errBomb
	}
	return n, err
}

// failed rejects a file whose bytes cannot be read.
func (s *Source) failed(name string, err error) error { return s.broken(name, 0, cause(err)) }

// cause words the error of a stream.
func cause(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the archive is cut off"
	}
	return err.Error()
}
