package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/token"
)

// BenchmarkHeartbeats is the edge's own share of a request: all but the sockets and
// the service.
func BenchmarkHeartbeats(b *testing.B) {
	tokens, err := token.NewVerifier([]byte(secret), "")
	if err != nil {
		b.Fatal(err)
	}
	h, err := api.New(api.Config{Service: storing(), Tokens: tokens})
	if err != nil {
		b.Fatal(err)
	}
	bearer, err := token.Mint([]byte(secret), "u1", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body := upload(slices.Repeat([]string{at("100", "progress", time.Minute, 1)}, n)...)
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/heartbeats", strings.NewReader(body))
				r.Header.Set("Authorization", "Bearer "+bearer)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/heartbeat")
		})
	}
}
