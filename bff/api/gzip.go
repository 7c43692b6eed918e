package api

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/playhead/playhead/bff/codec"
)

// minCompressed is the smallest first write, in bytes, that is compressed. Most responses are a single write.
const minCompressed = 1 << 10

var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	return z
}}

type compressed struct {
	http.ResponseWriter
	status  int // not written yet, 0 if unset
	decided bool
	gzip    *gzip.Writer
}

// compress returns the response writer and the function that completes the response.
func compress(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func()) {
	whole := r.Method != http.MethodHead && r.Header.Get("Range") == "" && r.Header.Get("Upgrade") == ""
	if !whole || !acceptsGzip(r.Header) {
		return w, func() {}
	}
	s := &compressed{ResponseWriter: w}
	return s, s.end
}

// acceptsGzip ignores preferences: it reports whether gzip is accepted at all.
func acceptsGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			name, quality, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
			if strings.EqualFold(name, "gzip") {
				return strings.Trim(strings.TrimPrefix(quality, "q="), "0.") != "" || quality == ""
			}
		}
	}
	return false
}

// WriteHeader waits for the first write, which decides the headers.
func (s *compressed) WriteHeader(status int) {
	if !s.decided && s.status == 0 {
		s.status = status
	}
}

func (s *compressed) Write(b []byte) (int, error) {
	s.decide(len(b) >= minCompressed)
	if s.gzip == nil {
		return s.ResponseWriter.Write(b)
	}
	return s.gzip.Write(b)
}

func (s *compressed) decide(compress bool) {
	if s.decided {
		return
	}
	s.decided = true
	s.Header().Add("Vary", "Accept-Encoding")
	if compress {
		s.Header().Set("Content-Encoding", "gzip")
		s.Header().Del("Content-Length")
		s.gzip = compressors.Get().(*gzip.Writer)
		s.gzip.Reset(s.ResponseWriter)
	}
	if s.status != 0 {
		s.ResponseWriter.WriteHeader(s.status)
	}
}

// FlushError sends everything written so far.
func (s *compressed) FlushError() error {
	s.decide(false)
	if s.gzip != nil {
		if err := s.gzip.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// end completes the response. An aborted one is never completed, so the client can detect it.
func (s *compressed) end() {
	s.decide(false)
	if s.gzip != nil {
		_ = s.gzip.Close() // an error only means that the client is gone
		s.gzip.Reset(nil)
		compressors.Put(s.gzip)
	}
}

// Unwrap supports http.ResponseController.
func (s *compressed) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func packed(r *http.Request) bool {
	coding := r.Header.Get("Content-Encoding")
	return strings.EqualFold(coding, "gzip") || strings.EqualFold(coding, "x-gzip")
}

var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// A body over denseFrom bytes may expand at most maxDensity times, so cheap requests cannot cause expensive
// reads.
const (
	denseFrom  = 1 << 20
	maxDensity = 64
)

// unpackedBody decompresses a request body. Bytes beyond the limit, compressed or not, fail with
// [http.MaxBytesError]; excessive compression fails with [codec.ErrTooLarge].
type unpackedBody struct {
	from   counter
	gzip   *gzip.Reader // nil before the first read, and for a plain body
	packed bool
	limit  int64
	read   int64
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) { // the connection broke or was too slow
		err = errCut
	}
	return n, err
}

// unpack returns the body of a request. The caller closes it.
func unpack(w http.ResponseWriter, r *http.Request, limit int64) *unpackedBody {
	return &unpackedBody{from: counter{Reader: http.MaxBytesReader(w, r.Body, limit)}, packed: packed(r), limit: limit}
}

func (b *unpackedBody) Read(p []byte) (int, error) {
	if !b.packed {
		return b.from.Read(p)
	}
	if b.gzip == nil {
		z := unpackers.Get().(*gzip.Reader)
		if err := z.Reset(&b.from); err != nil {
			unpackers.Put(z)
			if err == io.EOF { //nolint:errorlint // an empty body, which is no gzip
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		b.gzip = z
	}
	n, err := b.gzip.Read(p[:min(int64(len(p)), b.limit-b.read+1)])
	switch b.read += int64(n); {
	case b.read > b.limit:
		return 0, &http.MaxBytesError{Limit: b.limit}
	case b.read > denseFrom+maxDensity*b.from.n:
		return 0, fmt.Errorf("body: %w: want at most %d bytes for each that they are packed into", codec.ErrTooLarge, maxDensity)
	}
	return n, err
}

func (b *unpackedBody) close() {
	if b.gzip != nil {
		unpackers.Put(b.gzip)
		b.gzip = nil
	}
}
