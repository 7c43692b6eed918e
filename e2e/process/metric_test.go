package process_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/playhead/playhead/e2e/process"
)

// TestMetric sums series, also of labels with spaces and braces.
func TestMetric(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# HELP x y\nx{engine=\"first of day\"} 1\nx{engine=\"re{dis\"} 2\nxy 4\nalone 8\n"))
	}))
	defer s.Close()
	admin := strings.TrimPrefix(s.URL, "http://")
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{{"x", nil, 3}, {"x", []string{`engine="first of day"`}, 1}, {"alone", nil, 8}} {
		if got, err := process.Metric(t.Context(), admin, tt.name, tt.labels...); err != nil || got != tt.want {
			t.Errorf("%s%q: got %v, %v; want %v", tt.name, tt.labels, got, err, tt.want)
		}
	}
	if got, err := process.Metric(t.Context(), admin, "gone"); err == nil {
		t.Errorf("a missing metric is %v", got)
	}
}
