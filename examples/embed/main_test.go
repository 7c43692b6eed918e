package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/playhead/playhead/embedded"
)

func TestRoutes(t *testing.T) {
	p, err := embedded.Open(t.TempDir(), bytes.Repeat([]byte("s"), 32))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for path, want := range map[string]int{"/watched/ann": http.StatusOK, "/v1/history": http.StatusUnauthorized} {
		w := httptest.NewRecorder()
		routes(p).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
