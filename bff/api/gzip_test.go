package api_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestGzip(t *testing.T) {
	long := answering(&historyv1.ListResponse{Items: slices.Repeat([]*historyv1.Item{item}, 20)}, nil)
	short := answering(&historyv1.ListResponse{}, nil)
	for name, tt := range map[string]struct {
		service  *service
		accept   string
		squeezed bool
	}{
		"asked for":      {long, "gzip", true},
		"among others":   {long, "br, GZIP;q=0.8", true},
		"not asked for":  {long, "", false},
		"refused":        {long, "gzip;q=0, br", false},
		"refused, 0.0":   {long, "gzip; q=0.0", false},
		"something else": {long, "br", false},
		"not worth it":   {short, "gzip", false},
	} {
		e := newEdge(t, tt.service)
		plain := e.do(t, "GET /v1/history", "").Body.String()
		r := request(t, "u1", "GET /v1/history", nil)
		r.Header.Set("Accept-Encoding", tt.accept)
		w := e.send(r)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != tt.squeezed {
			t.Errorf("%s: squeezed is %v", name, got)
			continue
		}
		if tt.squeezed {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil || w.Code != http.StatusOK || string(text) != plain {
			t.Errorf("%s: %d, %v, %s", name, w.Code, err, text)
		}
	}
}

func TestGzipAndPanic(t *testing.T) {
	e := newEdge(t, &service{answer: func(context.Context, any) (any, error) { panic("nil map") }})
	r := request(t, "u1", "GET /v1/history", strings.NewReader(""))
	r.Header.Set("Accept-Encoding", "gzip")
	wantProblem(t, e.send(r), 500)
}
