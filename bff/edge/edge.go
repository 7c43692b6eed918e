// Package edge assembles the player-facing HTTP server and WebSocket handler. They share tokens, origins and
// rate limits.
package edge

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/flow"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/pages"
	"github.com/playhead/playhead/bff/server"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/bff/ws"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	"github.com/playhead/playhead/internal/trust"
)

// Config configures an [Edge]. Service and Tokens are required; other zero values take the defaults.
type Config struct {
	Service *uplink.Client
	Tokens  *token.Verifier
	// Listener accepts players. The edge closes it.
	Listener net.Listener
	// Hosts are the accepted host names, besides addresses and names without a dot.
	Hosts trust.Hosts
	// Pages enables the history and player pages.
	Pages bool
	// Images are the allowed origins of the pages' pictures.
	Images []string
	// Flow is the data of the page "/flow". Nil disables that page.
	Flow *flow.Flow
	// Plays is the stream of plays; nil has none.
	Plays api.Plays
	// Origins are the sites whose pages may use the edge, besides its own.
	Origins []string
	// UserRate is a user's rate limit for requests, messages and connections per second (default 10). UserBurst
	// is the burst (default 60).
	UserRate, UserBurst float64
	// Memory is the process's memory limit in bytes, 0 for none. Pending requests get an eighth of it.
	Memory int64
	// MaxConnections limits concurrent connections (default 10,000); see [server.Config]. PerAddress limits
	// those of one address (default none).
	MaxConnections, PerAddress int
	// WriteDeadline limits a write (default 2 s), ReadDeadline a read (default 5 s).
	WriteDeadline, ReadDeadline time.Duration
	// Drain limits the shutdown (default 15 s).
	Drain time.Duration
	// Tracer traces a sample of the requests and messages; nil traces none.
	Tracer   *trace.Tracer
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Edge is an HTTP server and a WebSocket handler.
type Edge struct {
	cfg     Config
	players *server.Server
	streams *ws.Handler
	users   *limit.Users
}

// New returns an edge. It does nothing before its parts run.
func New(cfg Config) (*Edge, error) {
	cfg.Drain = run.Default(cfg.Drain, 15*time.Second)
	users, memory := limit.New(cfg.UserRate, cfg.UserBurst), limit.NewMemory(cfg.Memory) // shared by HTTP and WebSockets
	streams, err := ws.New(ws.Config{
		Service: cfg.Service, Changes: cfg.Service, Tokens: cfg.Tokens, Limit: users, Memory: memory, Origins: cfg.Origins,
		WriteDeadline: cfg.WriteDeadline, Drain: cfg.Drain / 5, Tracer: cfg.Tracer, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	if err != nil {
		return nil, err
	}
	var routes map[string]http.Handler
	if cfg.Pages {
		if routes, err = pages.Routes(pages.Config{Flow: cfg.Flow != nil, Images: cfg.Images}); err != nil {
			return nil, err
		}
	}
	var private map[string]flow.Operation
	if cfg.Pages && cfg.Flow != nil {
		private = cfg.Flow.Operations()
	}
	handler, err := api.New(api.Config{
		Service: cfg.Service, Tokens: cfg.Tokens, Stream: streams.Upgrade, Plays: cfg.Plays, Pages: routes, Private: private, Limit: users, Memory: memory, Hosts: cfg.Hosts, Origins: cfg.Origins,
		WriteDeadline: cfg.WriteDeadline, ReadDeadline: cfg.ReadDeadline, Tracer: cfg.Tracer, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	if err != nil {
		return nil, err
	}
	players := server.New(server.Config{
		Handler: handler, Listener: cfg.Listener, Known: known(cfg.Tokens), MaxConnections: cfg.MaxConnections, PerAddress: cfg.PerAddress,
		Drain: cfg.Drain * 2 / 5, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	return &Edge{cfg, players, streams, users}, nil
}

// known reports whether a request has a valid token.
func known(tokens *token.Verifier) func(*http.Request) bool {
	return func(r *http.Request) bool {
		text, err := token.Bearer(r.Header.Get("Authorization"))
		if err == nil {
			_, _, err = tokens.Verify(text)
		}
		return err == nil
	}
}

// SetUserRate changes the rate limit of users, as in [Config].
func (e *Edge) SetUserRate(rate, burst float64) { e.users.Set(rate, burst) }

// AddTo adds the edge's parts to g, in the order in which they stop.
func (e *Edge) AddTo(g *run.Group) {
	if e.cfg.Flow != nil {
		g.Add("flow", time.Second, e.cfg.Flow.Run) // first: its streams would delay the players' drain
	}
	g.Add("players", e.cfg.Drain*3/5, e.players.Run)
	g.Add("streams", e.cfg.Drain*2/5, e.streams.Run)
}
