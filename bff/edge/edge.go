// Package edge puts the parts that face players together: the server of HTTP requests and
// the handler of WebSockets, which share tokens, origins and each user's budget.
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
	"github.com/playhead/playhead/internal/trust"
)

// Config configures an [Edge]. Zero values take the defaults; Service and Tokens have none.
type Config struct {
	Service *uplink.Client
	Tokens  *token.Verifier
	// Listener is where players are served. The edge closes it.
	Listener net.Listener
	// Hosts are the names under which players reach it, besides addresses and names without a dot.
	Hosts trust.Hosts
	// Pages says that the history and the player page are served.
	Pages bool
	// Images are the origins that the pages take pictures of titles from.
	Images []string
	// Flow is what the page "/flow" shows, which is one of the pages. Without it there is none.
	Flow *flow.Flow
	// Origins are the sites whose pages may use the edge, besides its own.
	Origins []string
	// UserRate is how many requests, messages and connections a user may come with in a
	// second (default 10), UserBurst how many at once (default 60).
	UserRate, UserBurst float64
	// Memory is how many bytes the process may take; requests under way take an eighth of it. 0 is no limit.
	Memory int64
	// MaxConnections bounds the connections served at once (default 10,000): see [server.Config]. PerAddress bounds
	// those of one address (no bound by default).
	MaxConnections, PerAddress int
	// WriteDeadline bounds what a write takes (default 2 s), ReadDeadline a read (default 5 s).
	WriteDeadline, ReadDeadline time.Duration
	// Drain bounds the stop (default 15 s).
	Drain    time.Duration
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Edge is a server of requests and a handler of WebSockets.
type Edge struct {
	cfg     Config
	players *server.Server
	streams *ws.Handler
}

// New returns an edge that does nothing until its parts run.
func New(cfg Config) (*Edge, error) {
	cfg.Drain = run.Default(cfg.Drain, 15*time.Second)
	users, memory := limit.New(cfg.UserRate, cfg.UserBurst), limit.NewMemory(cfg.Memory) // one of each for both ways in
	streams, err := ws.New(ws.Config{
		Service: cfg.Service, Changes: cfg.Service, Tokens: cfg.Tokens, Limit: users, Memory: memory, Origins: cfg.Origins,
		WriteDeadline: cfg.WriteDeadline, Drain: cfg.Drain / 5, Logger: cfg.Logger, Registry: cfg.Registry,
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
		Service: cfg.Service, Tokens: cfg.Tokens, Stream: streams.Upgrade, Pages: routes, Private: private, Limit: users, Memory: memory, Hosts: cfg.Hosts, Origins: cfg.Origins,
		WriteDeadline: cfg.WriteDeadline, ReadDeadline: cfg.ReadDeadline, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	if err != nil {
		return nil, err
	}
	players := server.New(server.Config{
		Handler: handler, Listener: cfg.Listener, Known: known(cfg.Tokens), MaxConnections: cfg.MaxConnections, PerAddress: cfg.PerAddress,
		Drain: cfg.Drain * 2 / 5, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	return &Edge{cfg, players, streams}, nil
}

// known reports whether a request has a token that is taken.
func known(tokens *token.Verifier) func(*http.Request) bool {
	return func(r *http.Request) bool {
		text, err := token.Bearer(r.Header.Get("Authorization"))
		if err == nil {
			_, _, err = tokens.Verify(text)
		}
		return err == nil
	}
}

// AddTo adds both parts to a process, in the order in which they stop.
func (e *Edge) AddTo(g *run.Group) {
	if e.cfg.Flow != nil {
		g.Add("flow", time.Second, e.cfg.Flow.Run) // or the players would wait for its streams
	}
	g.Add("players", e.cfg.Drain*3/5, e.players.Run)
	g.Add("streams", e.cfg.Drain*2/5, e.streams.Run)
}
