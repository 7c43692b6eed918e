// Package obs has a process's log, metrics and admin port with health, readiness and profiles.
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
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/playhead/playhead/deploy/observe"
	"github.com/playhead/playhead/internal/audit"
	"github.com/playhead/playhead/internal/trace"
	"github.com/playhead/playhead/internal/trust"
)

// NewLogger returns a logger to out; a blocked out does not block callers, and equal warnings are spared. level is debug, info, warn or error
// in any case (default info); format is text or json (default text). The error names the flag and its choices.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	l := new(slog.LevelVar)
	if err := setLevel(l, level); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: l, ReplaceAttr: plain}
	var handler func(io.Writer) slog.Handler
	switch format {
	case "", "text":
		handler = func(out io.Writer) slog.Handler { return traced{slog.NewTextHandler(out, options)} }
	case "json":
		handler = func(out io.Writer) slog.Handler { return traced{slog.NewJSONHandler(out, options)} }
	default:
		return nil, fmt.Errorf("--log-format: want text or json, got %q", format)
	}
	return slog.New(leveled{sparing{Handler: handler(&lines{out: out, handler: handler}), past: new(past)}, l}), nil
}

// leveled is a handler with its variable level.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// traced is a handler that adds the trace id of a sampled request.
type traced struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if id := trace.ID(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup implements [slog.Handler].
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }

// SetLevel changes the level of a logger of [NewLogger], and of those derived from it. The error is that of NewLogger.
func SetLevel(log *slog.Logger, level string) error {
	h, ok := log.Handler().(leveled)
	if !ok {
		return fmt.Errorf("log level: %T has none", log.Handler())
	}
	return setLevel(h.level, level)
}

func setLevel(to *slog.LevelVar, level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); level != "" && err != nil {
		return fmt.Errorf("--log-level: want debug, info, warn or error, got %q", level)
	}
	to.Set(l)
	return nil
}

// plain reduces an error to its message, since some errors format themselves with a stack. It writes a duration with
// its unit, since JSON has bare nanoseconds.
func plain(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() { //nolint:exhaustive // the rest is plain
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
	}
	return a
}

// NewRegistry returns a registry with the metrics of the Go runtime, the process and the build.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return reg
}

// AdminConfig configures an [Admin]. Listener is required; zero values of the other fields select the defaults.
type AdminConfig struct {
	// Listener accepts connections; Run closes it. Anyone who reaches it can read profiles, and an address
	// without a host listens on every interface.
	Listener net.Listener
	// Hosts are accepted Host names; IP addresses and names without a dot are always accepted.
	Hosts trust.Hosts
	// Metrics feeds /metrics; nil serves none.
	Metrics prometheus.Gatherer
	// Checks are the readiness checks by name, run concurrently for 900 ms at most. A check that ignores its
	// context leaks a goroutine per probe.
	Checks map[string]func(context.Context) error
	// Degraded checks appear in /readyz without affecting readiness.
	Degraded map[string]func(context.Context) error
	// ConfirmClock handles POST /clock/confirm of this machine; nil disables the route.
	ConfirmClock func(context.Context) error
	// Hot returns what GET /hot shows, as JSON: which users and buckets report most. nil disables the route.
	Hot func() any
	// BackUp handles POST /backup of this machine, by copying the data directory dir to a new directory. It returns what
	// the answer shows, as JSON. nil disables the route.
	BackUp func(ctx context.Context, dir, to string) (any, error)
	// Recount handles POST /recount of this machine, by comparing the totals of objects, or of all, with the archive in
	// the data directory dir. It returns what the answer shows, as JSON. nil disables the route.
	Recount func(ctx context.Context, dir string, objects []string, verify bool) (any, error)
	// Terminate handles POST /terminate of this machine, by stopping the process as SIGTERM does; nil disables the route.
	Terminate func()
	// Drain bounds the wait for open requests at shutdown (default 2 s). Run then cuts them off.
	Drain time.Duration
	// Log receives the address, readiness changes and server errors; nil discards them.
	Log *slog.Logger
}

// Admin serves the port for operators and probes, never for players:
//
//	/              the operator's page: checks and figures with links to /runbooks
//	/healthz       200 while the process is alive
//	/readyz        200, or 503 while a check fails; {"ready":false,"failing":{"redis":"dial tcp: connection refused"}};
//	               "degraded" has the same form, for failures that leave the process ready
//	/metrics       Prometheus
//	/alerts.yml    the alerting rules for Prometheus
//	/clock/confirm POST confirms the machine's clock
//	/hot           users and buckets that report most; a service only
//	/terminate     POST stops the process as SIGTERM does
//	/backup        POST copies the data directory; the all-in-one only
//	/recount       POST compares totals with the archive; the all-in-one only
//	/debug/pprof/  profiles, without the command line, which may contain a secret
//
// A POST must come from the same machine and not from a browser: whoever scrapes the port may only read.
type Admin struct {
	cfg AdminConfig
	mux *http.ServeMux
}

// NewAdmin returns an idle Admin; Run serves it.
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
	mux.HandleFunc("GET /{$}", status(cfg))
	mux.HandleFunc("GET /runbooks", runbooks)
	mux.HandleFunc("GET /alerts.yml", alerts)
	mux.HandleFunc("GET /healthz", alive)
	mux.Handle("GET /readyz", &readiness{checks: cfg.Checks, degraded: cfg.Degraded, log: cfg.Log})
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{ErrorLog: errorLog, EnableOpenMetrics: true}))
	if cfg.ConfirmClock != nil {
		mux.HandleFunc("POST /clock/confirm", local(cfg.perform("clock/confirm", cfg.ConfirmClock)))
	}
	if cfg.Hot != nil {
		mux.HandleFunc("GET /hot", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(cfg.Hot())
		})
	}
	if cfg.Terminate != nil {
		mux.HandleFunc("POST /terminate", local(cfg.perform("terminate", cfg.terminate)))
	}
	if cfg.BackUp != nil {
		mux.HandleFunc("POST /backup", local(cfg.work("backup", func(r *http.Request) (any, error) {
			return cfg.BackUp(r.Context(), r.FormValue("data"), r.FormValue("to"))
		})))
	}
	if cfg.Recount != nil {
		mux.HandleFunc("POST /recount", local(cfg.work("recount", func(r *http.Request) (any, error) {
			return cfg.Recount(r.Context(), r.FormValue("data"), r.Form["object"], r.FormValue("verify") == "true")
		})))
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// local refuses callers on other machines, and browsers: any page could post here.
func local(do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !caller.Addr().Unmap().IsLoopback() || r.Header.Get("Origin") != "" {
			http.Error(w, "only for commands on the same machine", http.StatusForbidden)
			return
		}
		do(w, r)
	}
}

// terminate cannot fail.
func (c AdminConfig) terminate(context.Context) error {
	c.Terminate()
	return nil
}

// work takes as long as it takes, and ends with its caller.
func (c AdminConfig) work(action string, do func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		_ = errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})) // without them, long work fails
		done, err := do(r)
		audit.Log(r.Context(), c.Log, audit.Entry{Action: action, By: r.RemoteAddr, Err: err})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(done)
	}
}

// perform does what an operator asks for.
func (c AdminConfig) perform(action string, do func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := do(r.Context())
		audit.Log(r.Context(), c.Log, audit.Entry{Action: action, By: r.RemoteAddr, Err: err})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		alive(w, r)
	}
}

func alerts(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, observe.Alerts) }

func alive(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// ServeHTTP answers one request, for callers with a server of their own.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Run serves until ctx is done and open requests have ended or been cut off. Add it to a group last, to report
// on the other parts while they drain. It fails if the listener does.
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

// server cancels requests' contexts with ctx, or a running profile would delay shutdown. Profiles extend the
// write timeout by their own length.
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

// checkTimeout is below the default timeout of a Kubernetes probe, 1 s.
const checkTimeout = 900 * time.Millisecond

type readiness struct {
	checks, degraded map[string]func(context.Context) error
	log              *slog.Logger
	was              atomic.Bool
}

// report is the body of /readyz.
type report struct {
	Ready   bool              `json:"ready"`
	Failing map[string]string `json:"failing,omitempty"` // error texts by check name
	// Degraded has the same form, for failures that leave the process ready.
	Degraded map[string]string `json:"degraded,omitempty"`
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), checkTimeout)
	defer cancel()
	bad := failing(ctx, r.checks)
	degraded := failing(ctx, r.degraded)
	ready := len(bad) == 0
	if req.Context().Err() == nil && r.was.Swap(ready) != ready { // ignore a canceled probe
		r.log.Info("readiness changed", "ready", ready, "failing", bad)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(report{Ready: ready, Failing: bad, Degraded: degraded})
}

// failing runs the checks concurrently and returns the errors by name. A late check has failed.
func failing(ctx context.Context, checks map[string]func(context.Context) error) map[string]string {
	failing := make(map[string]string)
	answers := make(chan answer, len(checks)) // room for all: late answers block nobody
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

// ask turns a check's panic into an error.
func ask(ctx context.Context, check func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return check(ctx)
}
