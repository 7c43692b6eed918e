package obs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/internal/obs"
)

func TestAdminRoutes(t *testing.T) {
	reg := obs.NewRegistry()
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "playhead_test_total", Help: "A test."}))
	tests := []struct {
		path   string
		status int
		body   string // part of it
	}{
		{"/healthz", 200, "ok"},
		{"/readyz", 200, "true"},
		{"/metrics", 200, "playhead_test_total 0"},
		{"/metrics", 200, "go_goroutines"},
		{"/metrics", 200, "process_start_time_seconds"},
		{"/metrics", 200, "go_build_info"},
		{"/debug/pprof/", 200, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", 200, "TestAdminRoutes"},
		{"/debug/pprof/symbol", 200, "num_symbols"},
		{"/debug/pprof/cmdline", 404, "Unknown profile"},
		{"/", 404, ""},
	}
	a := obs.NewAdmin(obs.AdminConfig{Metrics: reg})
	for _, tt := range tests {
		w := get(t, a, tt.path)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("GET %s: got %d %s, want %d and %q", tt.path, w.Code, w.Body, tt.status, tt.body)
		}
	}
}

func TestAdminZeroConfig(t *testing.T) {
	a := obs.NewAdmin(obs.AdminConfig{})
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/heap"} {
		if w := get(t, a, path); w.Code != http.StatusOK {
			t.Errorf("GET %s: got %d %s, want 200", path, w.Code, w.Body)
		}
	}
}

func TestAdminListensOnTheLoopback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	lines, w := io.Pipe()
	a := obs.NewAdmin(obs.AdminConfig{Log: slog.New(slog.NewTextHandler(w, nil))})
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	line := make([]byte, 1000)
	n, err := lines.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`msg="admin listening" addr=(127\.0\.0\.1:\d+)`).FindSubmatch(line[:n])
	if m == nil {
		t.Fatalf("no loopback address in %q", line[:n])
	}
	if got, err := fetch(http.DefaultClient, fmt.Sprintf("http://%s/healthz", m[1])); got != "ok\n" {
		t.Errorf("GET /healthz: %q, %v, want ok", got, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v, want nil", err)
	}
}

func TestAdminAddressTaken(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = obs.NewAdmin(obs.AdminConfig{Addr: l.Addr().String()}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "listen for admin: ") || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Run on a taken address: %v, want an error that names it", err)
	}
}

func TestAdminListenerFails(t *testing.T) {
	l := newPipes()
	_ = l.Close()
	if err := obs.NewAdmin(obs.AdminConfig{Listener: l}).Run(t.Context()); err == nil {
		t.Error("Run on a closed listener: nil, want an error")
	}
}

func TestAdminStoppedBeforeItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := newPipes()
		if err := obs.NewAdmin(obs.AdminConfig{Listener: l}).Run(ctx); err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
		if _, err := l.Accept(); err == nil {
			t.Error("the listener is open after Run")
		}
	})
}

// started returns a client of an Admin that runs in the bubble, and what stops it and tells how long that took.
func started(t *testing.T, cfg obs.AdminConfig) (*http.Client, func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l, done := newPipes(), make(chan error, 1)
	cfg.Listener = l
	go func() { done <- obs.NewAdmin(cfg).Run(ctx) }()
	transport := &http.Transport{DialContext: l.dial}
	return &http.Client{Transport: transport}, func() time.Duration {
		began := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
		transport.CloseIdleConnections()
		return time.Since(began)
	}
}

func TestAdminServesProfilesLongerThanItsTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := started(t, obs.AdminConfig{})
		began := time.Now()
		body, err := fetch(client, "http://admin/debug/pprof/heap?seconds=60")
		if err != nil || !strings.HasPrefix(body, "\x1f\x8b") || time.Since(began) != time.Minute {
			t.Errorf("got %d bytes, %v after %v, want a profile after 1m", len(body), err, time.Since(began))
		}
		stop()
	})
}

func TestAdminStopDoesNotWaitForAProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := started(t, obs.AdminConfig{})
		go func() { _, _ = fetch(client, "http://admin/debug/pprof/heap?seconds=60") }()
		synctest.Wait()
		if got := stop(); got > time.Second {
			t.Errorf("stopped after %v, want at once", got)
		}
	})
}

func TestAdminAnswersWhatIsOpenWhenItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := started(t, obs.AdminConfig{Metrics: slow(time.Second)})
		answer := make(chan error, 1)
		go func() {
			_, err := fetch(client, "http://admin/metrics")
			answer <- err
		}()
		synctest.Wait()
		if got := stop(); got < time.Second || got > 2*time.Second {
			t.Errorf("stopped after %v, want the second that the request takes", got)
		}
		if err := <-answer; err != nil {
			t.Errorf("open request: %v, want an answer", err)
		}
	})
}

func TestAdminCutsOffWhatIsNotAnsweredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := started(t, obs.AdminConfig{Metrics: slow(time.Hour), Drain: 3 * time.Second})
		answer := make(chan error, 1)
		go func() {
			_, err := fetch(client, "http://admin/metrics")
			answer <- err
		}()
		synctest.Wait()
		if got := stop(); got != 3*time.Second {
			t.Errorf("stopped after %v, want 3s", got)
		}
		synctest.Wait()
		select {
		case err := <-answer:
			if err == nil {
				t.Error("open request: nil, want an error")
			}
		default:
			t.Error("the open request was not cut off")
		}
		time.Sleep(time.Hour) // the handler ends
	})
}

func TestAdminCutsOffASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- obs.NewAdmin(obs.AdminConfig{Listener: l}).Run(ctx) }()
		conn, err := l.dial(ctx, "", "")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn)
		if got := time.Since(began); got > 6*time.Second {
			t.Errorf("half a header held a connection for %v, want 5s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
	})
}

func TestAdminLogsAMetricThatFails(t *testing.T) {
	var out bytes.Buffer
	broken := prometheus.NewRegistry()
	desc := prometheus.NewDesc("broken", "A broken metric.", nil, nil)
	broken.MustRegister(collector{desc, prometheus.NewInvalidMetric(desc, io.ErrUnexpectedEOF)})
	a := obs.NewAdmin(obs.AdminConfig{Metrics: broken, Log: slog.New(slog.NewTextHandler(&out, nil))})
	if w := get(t, a, "/metrics"); w.Code != http.StatusInternalServerError || !strings.Contains(out.String(), "unexpected EOF") {
		t.Errorf("got %d, log %q, want 500 and the error", w.Code, out.String())
	}
}
