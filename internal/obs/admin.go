package obs

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// AdminConfig configures an [Admin]. Its zero value works, on a free port of the loopback that the log tells.
type AdminConfig struct {
	// Addr is where Run listens; "" means 127.0.0.1:0. Whoever reaches it can read profiles: an address without a host
	// listens on every interface.
	Addr string
	// Listener is used in place of Addr. Run closes it.
	Listener net.Listener
	// Metrics are served on /metrics; nil means none.
	Metrics prometheus.Gatherer
	// Checks are what /readyz asks, by name, all at once and 900 ms at most. A check honours its context, or each
	// probe leaves a goroutine behind.
	Checks map[string]func(context.Context) error
	// Degraded is asked by /readyz like Checks, and only told: the process goes on without what fails there.
	Degraded map[string]func(context.Context) error
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
//	/debug/pprof/  profiles, without the command line, which may hold a secret
type Admin struct {
	cfg AdminConfig
	mux *http.ServeMux
}

// NewAdmin returns an Admin that does nothing until Run.
func NewAdmin(cfg AdminConfig) *Admin {
	cfg.Addr = cmp.Or(cfg.Addr, "127.0.0.1:0")
	cfg.Drain = cmp.Or(cfg.Drain, 2*time.Second)
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Admin{cfg: cfg, mux: routes(cfg)}
}

func routes(cfg AdminConfig) *http.ServeMux {
	errorLog := slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.Handle("GET /readyz", &readiness{checks: cfg.Checks, degraded: cfg.Degraded, log: cfg.Log})
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{ErrorLog: errorLog}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func alive(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// ServeHTTP answers one request, for who has a server of its own.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }
