// Command bff is the edge. It serves HTTP and WebSocket to players, authenticates them by token, and forwards
// reports and reads to history-service.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"

	"github.com/playhead/playhead/bff/edge"
	"github.com/playhead/playhead/bff/flow"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	"github.com/playhead/playhead/internal/trust"
)

const secretVariable = "PLAYHEAD_TOKEN_SECRET"

type flags struct {
	Listen          string        `help:"Address for players." default:"127.0.0.1:8080"`
	Admin           string        `help:"Address of health, metrics and profiles." default:"127.0.0.1:8081"`
	Hosts           trust.Hosts   `name:"host" help:"Names under which it is asked, such as api.example.com; * is any. Addresses, localhost and names without a dot always are."`
	Service         []string      `help:"Instances of history-service: host:port of each, or dns:///name:port for all addresses of a name." default:"127.0.0.1:7070"`
	Upstream        trust.Peer    `embed:"" prefix:"service-"`
	TokenSecretFile string        `help:"File with the secrets that tokens may be signed with, one a line, 32 bytes or more each; read again when it changes. Without it the secret is taken from $PLAYHEAD_TOKEN_SECRET; there is no flag for it, since flags are for all to see."`
	TokenKeysFile   string        `help:"File with the public keys of those who sign tokens, a JSON web key set; read again when it changes. The secret is not needed then."`
	OIDCIssuer      string        `name:"oidc-issuer" help:"URL of an OpenID Connect issuer whose tokens are accepted, as in their claim iss; needs --audience. The secret is not needed then."`
	Pages           bool          `help:"Serve the history and the player page." default:"true" negatable:""`
	Flow            bool          `help:"Serve the page /flow too: what comes in at this edge, to all who have a token."`
	Origins         trust.Origins `name:"origin" help:"Sites whose pages may use the edge, besides its own, such as https://app.example.com."`
	Images          trust.Origins `name:"image-origin" help:"Sites that the history page takes pictures of titles from (image in the metadata), such as https://images.example.com."`
	Audience        string        `help:"Audience that tokens must be made out to; any by default."`
	WriteDeadline   time.Duration `help:"Longest time a write may take." default:"2s" positive:""`
	ReadDeadline    time.Duration `help:"Longest time a read may take, old pages included." default:"5s" positive:""`
	UserRate        float64       `help:"Requests, messages and connections of one user in a second; each hundred heartbeats count as one." default:"10" positive:""`
	UserBurst       float64       `help:"How many of them at once." default:"60" positive:""`
	MaxConnections  int           `help:"Connections of players at once; one more takes the place of the oldest without a token, or waits. Less where fewer file descriptors are allowed." default:"30000" positive:""`
	PerAddress      int           `name:"max-connections-per-address" help:"Of them from one address, more are closed; 0 is no bound, as it must be behind a proxy."`
	LameDuck        time.Duration `help:"How long it serves on after SIGTERM, while /readyz fails and load balancers turn away." default:"5s"`
	Drain           time.Duration `help:"Longest time the stop may take after that." default:"20s" positive:""`
	LogLevel        string        `help:"debug, info, warn or error." default:"info"`
	LogFormat       string        `help:"text or json." default:"text"`
	LogUIDs         bool          `name:"log-uids" help:"Name users in logs by their ids instead of pseudonyms. See docs/operate.md."`

	obs.Traces
}

// Help is the introduction of --help.
func (*flags) Help() string {
	return `The edge: it speaks HTTP and WebSocket to players and apps, knows users by their tokens, and hands on to history-service.`
}

func main() { run.Main(serve) }

func serve(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("bff", &f, args, getenv, out); err != nil {
		return err
	}
	secret, err := f.secret(getenv)
	if err != nil {
		return err
	}
	history.LogUIDs(f.LogUIDs)
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, f.LogFormat)
	if err != nil {
		return err
	}
	tokens, err := token.Open(token.Config{Secret: secret, SecretFile: f.TokenSecretFile, KeysFile: f.TokenKeysFile, Issuer: f.OIDCIssuer, Audience: f.Audience, Logger: log})
	if err != nil {
		return err
	}
	registry := obs.NewRegistry()
	traces, err := f.Open(ctx, "bff", log, registry)
	if err != nil {
		return err
	}
	defer traces.Close()
	g, players, err := f.wire(ctx, process{tokens, registry, traces.Tracer, log})
	if err != nil {
		return err
	}
	g.Add("reload", 0, run.Reloading(log, func() ([]string, error) {
		var next flags
		if err := run.Parse("bff", &next, args, getenv, io.Discard); err != nil {
			return nil, err
		}
		if err := obs.SetLevel(log, next.LogLevel); err != nil {
			return nil, err
		}
		players.SetUserRate(next.UserRate, next.UserBurst)
		return run.Changed(f, next, "log-level", "user-rate", "user-burst")
	}))
	return g.Run(ctx)
}

// secret returns the secret of the environment.
func (f *flags) secret(getenv func(string) string) ([]byte, error) {
	s := getenv(secretVariable)
	if s == "" && f.TokenSecretFile == "" && f.TokenKeysFile == "" && f.OIDCIssuer == "" {
		return nil, errors.New("no token secret: set --token-secret-file or $" + secretVariable + ", or --token-keys-file, or --oidc-issuer")
	}
	return bytes.TrimSpace([]byte(s)), nil // as for a file
}

// process has what all parts share.
type process struct {
	tokens   *token.Verifier
	registry *prometheus.Registry
	tracer   *trace.Tracer
	log      *slog.Logger
}

// wire assembles the process in the order in which its parts stop.
func (f *flags) wire(ctx context.Context, p process) (*run.Group, *edge.Edge, error) {
	log, registry := p.log, p.registry
	files, err := run.Files()
	if err != nil {
		return nil, nil, err
	}
	conf, err := f.Upstream.Config()
	if err != nil {
		return nil, nil, fmt.Errorf("service: %w", err)
	}
	trust.RegisterExpiry(registry, "service", conf)
	front, back, err := run.ListenBoth(ctx, f.Listen, f.Admin)
	if err != nil {
		return nil, nil, err
	}
	up, err := uplink.Open(uplink.Config{Services: f.Service, TLS: conf, Logger: log, Registry: registry})
	if err != nil {
		return nil, nil, errors.Join(err, front.Close(), back.Close())
	}
	var shown *flow.Flow
	if f.Flow {
		shown = flow.New(flow.Config{Metrics: registry, Logger: log})
	}
	players, err := edge.New(edge.Config{
		Service: up, Tokens: p.tokens, Listener: front, Pages: f.Pages, Images: f.Images, Flow: shown, Hosts: f.Hosts, Origins: f.Origins, UserRate: f.UserRate, UserBurst: f.UserBurst,
		Memory: run.Memory(), MaxConnections: min(f.MaxConnections, files-files/4), PerAddress: f.PerAddress, WriteDeadline: f.WriteDeadline, ReadDeadline: f.ReadDeadline,
		Drain: f.Drain * 3 / 4, Tracer: p.tracer, Logger: log, Registry: registry,
	})
	if err != nil {
		return nil, nil, errors.Join(err, front.Close(), back.Close(), up.Close())
	}
	g := &run.Group{Drain: f.Drain, LameDuck: f.LameDuck, Log: log}
	admin := obs.NewAdmin(obs.AdminConfig{
		Listener: netutil.LimitListener(back, min(files/32, 64)), Hosts: f.Hosts, Metrics: registry, Log: log, Checks: map[string]func(context.Context) error{"service": up.Ready, "stopping": g.Check},
		Degraded: map[string]func(context.Context) error{"token keys": p.tokens.Check}, Terminate: run.Terminate,
	})
	players.AddTo(g)
	g.Add("uplink", 0, run.Closing(up.Close))
	g.Add("admin", 0, admin.Run)
	return g, players, nil
}
