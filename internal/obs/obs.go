// Package obs is what an operator sees of a process: its log, its metrics, and the admin port with health, readiness
// and profiles.
package obs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/playhead/playhead/internal/trust"
)

// NewLogger returns a logger that writes to out from level on. The level is debug, info, warn or error, in any case,
// and "" is info; the format is text or json, and "" is text. Anything else is an error
// that names the flag and the choices. A caller that logs does not wait for an out that stands still.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); level != "" && err != nil {
		return nil, fmt.Errorf("--log-level: want debug, info, warn or error, got %q", level)
	}
	options := &slog.HandlerOptions{Level: l, ReplaceAttr: short}
	var handler func(io.Writer) slog.Handler
	switch format {
	case "", "text":
		handler = func(out io.Writer) slog.Handler { return slog.NewTextHandler(out, options) }
	case "json":
		handler = func(out io.Writer) slog.Handler { return slog.NewJSONHandler(out, options) }
	default:
		return nil, fmt.Errorf("--log-format: want text or json, got %q", format)
	}
	return slog.New(handler(&lines{out: out, handler: handler})), nil
}

// short leaves out of an error what it has beside its message: some write the stack of where they come from.
func short(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindAny {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
	}
	return a
}

// NewRegistry returns a registry that holds the metrics every process has: the Go runtime, the process and the build.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return reg
}

// AdminConfig configures an [Admin]. Its zero value works, on a free port of the loopback that the log tells.
type AdminConfig struct {
	// Listener is where Run serves; Run closes it. Anybody who reaches it can read profiles: an address without a
	// host is on every interface.
	Listener net.Listener
	// Hosts are the names under which it may be asked, besides addresses and names without a dot.
	Hosts trust.Hosts
	// Metrics are served on /metrics; nil means none.
	Metrics prometheus.Gatherer
	// Checks are what /readyz asks, by name, all at once and 900 ms at most. A check honours its context, or each
	// probe leaves a goroutine behind.
	Checks map[string]func(context.Context) error
	// Degraded is asked by /readyz like Checks, and only told: the process goes on without what fails there.
	Degraded map[string]func(context.Context) error
	// ConfirmClock is what POST /clock/confirm does; nil means that there is no such route.
	ConfirmClock func(context.Context) error
	// Drain is how long Run waits for open requests when it stops; zero means 2 s. Then they are cut off.
	Drain time.Duration
	// Log tells the address, changes of readiness and what the server complains of; nil means nowhere.
	Log *slog.Logger
}

// Admin serves the port that is for operators and probes, never for players:
//
//	/healthz       200 while the process is alive
//	/readyz        200, or 503 while a check fails; {"ready":false,"failing":{"redis":"dial tcp: connection refused"}};
//	               what the process goes on without is under "degraded", of the same form
//	/metrics       Prometheus
//	/clock/confirm POST says that the machine's clock is right; browsers are refused
//	/debug/pprof/  profiles, without the command line, which may hold a secret
type Admin struct {
	cfg AdminConfig
	mux *http.ServeMux
}

// NewAdmin returns an Admin that does nothing until Run.
func NewAdmin(cfg AdminConfig) *Admin {
	cfg.Drain = cmp.Or(cfg.Drain, 2*time.Second)
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Admin{cfg: cfg, mux: routes(cfg)}
}

func routes(cfg AdminConfig) *http.ServeMux {
	errorLog := slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.Handle("GET /readyz", &readiness{checks: cfg.Checks, degraded: cfg.Degraded, log: cfg.Log})
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{ErrorLog: errorLog}))
	if cfg.ConfirmClock != nil {
		mux.HandleFunc("POST /clock/confirm", func(w http.ResponseWriter, r *http.Request) { confirmClock(w, r, cfg.ConfirmClock) })
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// confirmClock refuses pages of other sites, which a browser lets post anywhere.
func confirmClock(w http.ResponseWriter, r *http.Request, confirm func(context.Context) error) {
	if r.Header.Get("Origin") != "" {
		http.Error(w, "not from a browser", http.StatusForbidden)
		return
	}
	if err := confirm(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	alive(w, r)
}

func alive(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// ServeHTTP answers one request, for callers with a server of their own.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Run serves until ctx is done and open requests are answered or cut off. Add it to a group last: it tells of the
// others while they drain. A listener that fails is an error.
func (a *Admin) Run(ctx context.Context) error {
	l := a.cfg.Listener
	a.cfg.Log.Info("admin listening", "addr", l.Addr().String())
	srv, served := a.server(ctx), make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve admin: %w", err)
	case <-ctx.Done():
	}
	err := a.drain(context.WithoutCancel(ctx), srv)
	if got := <-served; !errors.Is(got, http.ErrServerClosed) {
		err = errors.Join(err, got)
	}
	return err
}

func (a *Admin) drain(ctx context.Context, srv *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Drain)
	defer cancel()
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return srv.Close()
	}
	return err
}

// server ends the requests' contexts with ctx, so that a profile under way does not hold up the stop. Profiles extend
// the write timeout by their own length.
func (a *Admin) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           a.cfg.Hosts.Only(a),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelWarn),
	}
}

// checkTimeout lies under the second that a Kubernetes probe waits by default.
const checkTimeout = 900 * time.Millisecond

type readiness struct {
	checks, degraded map[string]func(context.Context) error
	log              *slog.Logger
	was              atomic.Bool
}

// report is the body of /readyz.
type report struct {
	Ready   bool              `json:"ready"`
	Failing map[string]string `json:"failing,omitempty"` // error texts by the name of the check
	// Degraded is the same of what the process goes on without.
	Degraded map[string]string `json:"degraded,omitempty"`
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), checkTimeout)
	defer cancel()
	bad := failing(ctx, r.checks)
	degraded := failing(ctx, r.degraded)
	ready := len(bad) == 0
	if req.Context().Err() == nil && r.was.Swap(ready) != ready { // a prober that hung up has seen nothing
		r.log.Info("readiness changed", "ready", ready, "failing", bad)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(report{Ready: ready, Failing: bad, Degraded: degraded})
}

// failing runs the checks side by side. One that has not answered in time has failed.
func failing(ctx context.Context, checks map[string]func(context.Context) error) map[string]string {
	failing := make(map[string]string)
	answers := make(chan answer, len(checks)) // room for all: late ones go nowhere
	for name, check := range checks {
		failing[name] = fmt.Sprintf("no answer within %v", checkTimeout)
		go func() { answers <- answer{name, ask(ctx, check)} }()
	}
	for range checks {
		select {
		case a := <-answers:
			delete(failing, a.name)
			if a.err != nil {
				failing[a.name] = a.err.Error()
			}
		case <-ctx.Done():
			return failing
		}
	}
	return failing
}

type answer struct {
	name string
	err  error
}

// ask keeps a check that panics from ending the process.
func ask(ctx context.Context, check func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return check(ctx)
}
