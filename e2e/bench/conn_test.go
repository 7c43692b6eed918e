package bench_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/playhead/playhead/e2e/bench"
)

// TestResponses reads answers of known length and chunked ones over one connection.
func TestResponses(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			_, _ = io.WriteString(w, long)
			return
		}
		_, _ = io.WriteString(w, "short")
	}))
	defer srv.Close()
	c, err := bench.Dial(context.WithoutCancel(t.Context()), strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for path, want := range map[string]string{"/long": long, "/": "short", "/long?again": long, "/?again": "short"} {
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: edge\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := c.ReadResponse(func(text []byte) error { got = string(text); return nil }); err != nil || got != want {
			t.Fatalf("%s: %d bytes, %v, want %d", path, len(got), err, len(want))
		}
	}
}

func TestFrames(t *testing.T) {
	for size, want := range map[int]string{5: "\x81\x85", 300: "\x81\xfe\x01\x2c", 70_000: "\x81\xff\x00\x00\x00\x00\x00\x01\x11\x70"} {
		if got := string(bench.AppendFrame(nil, bench.TextFrame, size)); got != want+"\x00\x00\x00\x00" {
			t.Errorf("%d: %q, want %q and a mask of zeros", size, got, want)
		}
	}
}
