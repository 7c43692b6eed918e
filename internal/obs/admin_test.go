package obs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/playhead/playhead/internal/obs"
)

func TestAdminRoutes(t *testing.T) {
	reg := obs.NewRegistry()
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "playhead_test_total", Help: "A test."}))
	tests := []struct {
		path   string
		status int
		body   string // substring
	}{
		{"/healthz", 200, "ok"},
		{"/alerts.yml", 200, "alert: PlayheadEngineAway"},
		{"/readyz", 200, "true"},
		{"/metrics", 200, "playhead_test_total 0"},
		{"/metrics", 200, "go_goroutines"},
		{"/metrics", 200, "process_start_time_seconds"},
		{"/metrics", 200, "go_build_info"},
		{"/debug/pprof/", 200, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", 200, "TestAdminRoutes"},
		{"/debug/pprof/symbol", 200, "num_symbols"},
		{"/debug/pprof/cmdline", 404, "Unknown profile"},
		{"/", 200, "All is well."},
		{"/runbooks", 200, `<h2 id="playheadarchivelate">`},
		{"/favicon.ico", 404, ""},
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

// started runs an Admin in the bubble. It returns a client, and a function that stops the Admin and returns the
// time that took.
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

type checks = map[string]func(context.Context) error

func fine(context.Context) error { return nil }

func refused(context.Context) error {
	return errors.New("connection refused")
}

func hung(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Minute) // ignores its context too
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
				time.Sleep(time.Minute) // the hanging check ends
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

// TestDegraded: a degraded dependency is reported and leaves the process ready.
func TestDegraded(t *testing.T) {
	a := obs.NewAdmin(obs.AdminConfig{Checks: checks{"redis": fine}, Degraded: checks{"kafka": refused, "hbase": fine}})
	w := get(t, a, "/readyz")
	if got, want := strings.TrimSpace(w.Body.String()), `{"ready":true,"degraded":{"kafka":"connection refused"}}`; w.Code != 200 || got != want {
		t.Errorf("got %d %s, want 200 %s", w.Code, got, want)
	}
}

// pipes is a listener of in-memory connections, which block durably in a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func fetch(client *http.Client, url string) (string, error) {
	res, err := client.Get(url) //nolint:noctx // the tests stop the server
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	return string(body), err
}

// slow gathers nothing, after d.
func slow(d time.Duration) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		time.Sleep(d)
		return nil, nil
	})
}

type collector struct {
	desc   *prometheus.Desc
	metric prometheus.Metric
}

func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c collector) Collect(ch chan<- prometheus.Metric) { ch <- c.metric }

// TestAdminBackUp copies the directories that the request names.
func TestAdminBackUp(t *testing.T) {
	var asked []string
	a := obs.NewAdmin(obs.AdminConfig{BackUp: func(_ context.Context, dir, to string) (any, error) {
		asked = append(asked, dir+" "+to)
		return map[string]int{"files": 2}, nil
	}})
	w := post(t, a, "/backup?data=/data&to=/backups/1", "127.0.0.1:5", "")
	if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusOK || got != `{"files":2}` || !slices.Equal(asked, []string{"/data /backups/1"}) {
		t.Errorf("got %d %s, asked for %q", w.Code, got, asked)
	}
}

// TestAdminActsForItsMachine: what changes something is for commands of the same machine, and no browser is one.
func TestAdminActsForItsMachine(t *testing.T) {
	done := 0
	a := obs.NewAdmin(obs.AdminConfig{
		ConfirmClock: func(context.Context) error { done++; return nil },
		Terminate:    func() { done++ },
		BackUp:       func(context.Context, string, string) (any, error) { done++; return nil, nil },
		Recount:      func(context.Context, string, []string, bool) (any, error) { done++; return nil, nil },
	})
	for _, path := range []string{"/terminate", "/clock/confirm", "/backup", "/recount"} {
		for _, tt := range []struct {
			from, origin string
			status       int
		}{
			{"127.0.0.1:5", "", http.StatusOK},
			{"[::1]:5", "", http.StatusOK},
			{"[::ffff:127.0.0.1]:5", "", http.StatusOK},
			{"192.0.2.1:5", "", http.StatusForbidden},
			{"127.0.0.1:5", "http://elsewhere.example", http.StatusForbidden},
		} {
			before := done
			w := post(t, a, path, tt.from, tt.origin)
			if w.Code != tt.status || (done > before) != (tt.status == http.StatusOK) {
				t.Errorf("%s from %s %s: %d %s, done %d times, want %d", path, tt.from, tt.origin, w.Code, w.Body, done-before, tt.status)
			}
		}
		if got := get(t, a, path).Code; got != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, got)
		}
	}
}

func post(t *testing.T, h http.Handler, path, from, origin string) *httptest.ResponseRecorder { //nolint:revive // the parts of a request
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody)
	req.RemoteAddr = from
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestAdminShowsTheLoad(t *testing.T) {
	w := get(t, obs.NewAdmin(obs.AdminConfig{Hot: func() any { return map[string]int{"rate": 7} }}), "/hot")
	if w.Code != http.StatusOK || w.Body.String() != "{\"rate\":7}\n" {
		t.Errorf("/hot: %d %q", w.Code, w.Body)
	}
}
