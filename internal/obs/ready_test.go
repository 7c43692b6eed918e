package obs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/obs"
)

type checks = map[string]func(context.Context) error

func fine(context.Context) error { return nil }
func refused(context.Context) error {
	return errors.New("connection refused")
}

func hung(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Minute) // does not honour it either
	return ctx.Err()
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w
}

func TestReady(t *testing.T) {
	tests := []struct {
		name   string
		checks checks
		status int
		body   string
		took   time.Duration
	}{
		{"no checks", nil, 200, `{"ready":true}`, 0},
		{"all pass", checks{"redis": fine, "kafka": fine}, 200, `{"ready":true}`, 0},
		{"one fails", checks{"redis": refused, "kafka": fine}, 503, `{"ready":false,"failing":{"redis":"connection refused"}}`, 0},
		{
			"two fail",
			checks{"redis": refused, "kafka": refused},
			503,
			`{"ready":false,"failing":{"kafka":"connection refused","redis":"connection refused"}}`, 0,
		},
		{
			"one hangs",
			checks{"redis": hung, "kafka": fine},
			503,
			`{"ready":false,"failing":{"redis":"no answer within 900ms"}}`, 900 * time.Millisecond,
		},
		{
			"one panics",
			checks{"redis": func(context.Context) error { panic("nil map") }},
			503,
			`{"ready":false,"failing":{"redis":"panic: nil map"}}`, 0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := get(t, obs.NewAdmin(obs.AdminConfig{Checks: tt.checks}), "/readyz")
				if got := strings.TrimSpace(w.Body.String()); w.Code != tt.status || got != tt.body {
					t.Errorf("got %d %s, want %d %s", w.Code, got, tt.status, tt.body)
				}
				if got := time.Since(began); got != tt.took {
					t.Errorf("took %v, want %v", got, tt.took)
				}
				if got, want := w.Header().Get("Content-Type"), "application/json"; got != want {
					t.Errorf("content type %q, want %q", got, want)
				}
				time.Sleep(time.Minute) // the check that hangs ends
			})
		})
	}
}

func TestReadyChecksRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(context.Context) error { time.Sleep(500 * time.Millisecond); return nil }
		a := obs.NewAdmin(obs.AdminConfig{Checks: checks{"redis": slow, "kafka": slow, "hbase": slow}})
		if w := get(t, a, "/readyz"); w.Code != http.StatusOK {
			t.Errorf("got %d %s, want 200", w.Code, w.Body)
		}
	})
}

func TestReadyLogsChangesOnly(t *testing.T) {
	var out bytes.Buffer
	var err error
	a := obs.NewAdmin(obs.AdminConfig{
		Checks: checks{"redis": func(context.Context) error { return err }},
		Log:    slog.New(slog.NewTextHandler(&out, nil)),
	})
	for _, err = range []error{nil, nil, errors.New("refused"), errors.New("refused"), nil} {
		get(t, a, "/readyz")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{"ready=true", `ready=false failing=map[redis:refused]`, "ready=true"}
	if len(lines) != len(want) {
		t.Fatalf("log %q, want %d lines", lines, len(want))
	}
	for i := range want {
		if !strings.Contains(lines[i], want[i]) {
			t.Errorf("line %d is %q, want %q in it", i, lines[i], want[i])
		}
	}
}

func TestReadyLogsNothingForAProberThatHungUp(t *testing.T) {
	var out bytes.Buffer
	a := obs.NewAdmin(obs.AdminConfig{Checks: checks{"redis": fine}, Log: slog.New(slog.NewTextHandler(&out, nil))})
	get(t, a, "/readyz")
	out.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
	if out.Len() > 0 {
		t.Errorf("log %q, want nothing", out.String())
	}
}

// What the process goes on without is told, and takes nothing from readiness.
func TestDegraded(t *testing.T) {
	a := obs.NewAdmin(obs.AdminConfig{Checks: checks{"redis": fine}, Degraded: checks{"kafka": refused, "hbase": fine}})
	w := get(t, a, "/readyz")
	if got, want := strings.TrimSpace(w.Body.String()), `{"ready":true,"degraded":{"kafka":"connection refused"}}`; w.Code != 200 || got != want {
		t.Errorf("got %d %s, want 200 %s", w.Code, got, want)
	}
}
