package api

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/bff/codec"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 1 << 20

// upload is the input of an operation with a body. The operation reads it itself:
// huma would decode it twice, mend what must be refused, and refuse a whole batch
// for one field.
type upload struct {
	r *http.Request
	w http.ResponseWriter
}

// Resolve is called by huma.
func (u *upload) Resolve(ctx huma.Context) []error {
	u.r, u.w = humago.Unwrap(ctx)
	return nil
}

// read hands the body to fn, which keeps no part of it.
func (a *api) read(u *upload, fn func(body []byte) error) error {
	if err := checkMedia(u.r, "application/json"); err != nil {
		return err
	}
	buf := a.bodies.Get().(*bytes.Buffer)
	defer a.bodies.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(http.MaxBytesReader(u.w, u.r.Body, maxBody)); err != nil {
		return broken(err, maxBody)
	}
	return fn(buf.Bytes())
}

// broken says why a body could not be read to its end.
func broken(err error, limit int) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("body: %w: want at most %d bytes", codec.ErrTooLarge, limit)
	}
	return fmt.Errorf("%w: %w", errBody, err)
}

func checkMedia(r *http.Request, want string) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fmt.Errorf("content encoding %.64q: %w none", coding, errMediaType)
	}
	contentType := r.Header.Get("Content-Type")
	if contentType == "" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != want {
		return fmt.Errorf("content type %.64q: %w %s", contentType, errMediaType, want)
	}
	return nil
}
