package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trust"
)

type serveFlags struct {
	Data            string        `help:"Data directory, created when missing." default:"playhead-data"`
	Listen          string        `help:"Address of the HTTP API." default:"127.0.0.1:8080"`
	RPC             string        `name:"rpc" help:"Address of the gRPC server." default:"127.0.0.1:7070"`
	InsecureRPC     bool          `name:"insecure-rpc" help:"Let other machines call the gRPC server without a token of the scope admin: who reaches the port may read and erase every user."`
	Admin           string        `help:"Address of health, metrics and profiles." default:"127.0.0.1:7071"`
	Hosts           trust.Hosts   `name:"host" help:"Names under which it is asked, such as api.example.com; * is any. Addresses, localhost and names without a dot always are."`
	TokenSecretFile string        `help:"File with the secrets that tokens may be signed with, one a line, 32 bytes or more each; read again when it changes. Without it the process makes its own."`
	TokenKeysFile   string        `help:"File with public keys whose tokens are accepted too, a JSON web key set; read again when it changes."`
	OIDCIssuer      string        `name:"oidc-issuer" help:"URL of an OpenID Connect issuer whose tokens are accepted too, as in their claim iss; needs --audience. See docs/tokens.md."`
	Audience        string        `help:"Audience that tokens must be made out to; any by default."`
	Images          trust.Origins `name:"image-origin" help:"Sites that the history page takes pictures of titles from (image in the metadata), such as https://images.example.com."`
	Origins         trust.Origins `name:"origin" help:"Sites whose pages may use the API, besides its own, such as https://app.example.com."`
	UserRate        float64       `help:"Requests, messages and connections of one user in a second; each hundred heartbeats count as one." default:"10" positive:""`
	UserBurst       float64       `help:"How many of them at once." default:"60" positive:""`
	User            string        `help:"User to print a token for." default:"demo"`
	PrintToken      bool          `help:"Print a token that is good for 30 days, and where everything is, also where standard output is no terminal."`
	Hold            time.Duration `help:"Longest time a key waits for its viewing to end." default:"120s" positive:"" most:"24h"`
	Keep            int           `help:"Records of a user that the cache keeps." default:"1000" positive:""`
	CompactAbove    int           `help:"Records of a user from which on the archive moves what is older than a day into segments; 0 is never. See docs/retention.md." default:"2000"`
	Summary         time.Duration `help:"For how long a summary of each object is kept after its record has expired, such as 43800h; 0 keeps to the time that was set before, and keeps none if there was none. See docs/retention.md."`
	Plays           bool          `help:"Keep a stream of the newest million completed plays, retractions and removals, for GET /v1/plays. See docs/plays.md."`
	MaxClockGap     time.Duration `help:"How far the clock may be from the latest trusted time, such as after a long stop, before it is no longer followed and nothing expires until it is confirmed. See docs/operate.md." default:"768h" positive:""`
	LameDuck        time.Duration `help:"How long it serves on after SIGTERM, while /readyz fails and load balancers turn away." default:"0s"`
	Drain           time.Duration `help:"Longest time the stop may take after that." default:"20s" positive:""`
	Retention       string        `help:"How long records live after they were last played, such as 90d, 36h or forever. The data has it, and another one is refused: playhead retention set changes it. See docs/retention.md." default:"90d"`
	Rules           []string      `sep:";" placeholder:"RULES" help:"Rules of types: begun=5,done=90 (percent), short=300s, grace=10s for all types, or 3:done=95,grace=5s for one. Classes of types: previews: types=7,8 keep=14d list=200 least=2s. See docs/retention.md."`
	CountedTypes    []string      `placeholder:"TYPES" help:"Types of objects of which plays, viewers and watched time are counted, with commas between, or all; none by default. What was archived before is counted by playhead replay counts. See docs/counts.md."`
	LogLevel        string        `help:"debug, info, warn or error." default:"info"`
	LogFormat       string        `help:"text or json." default:"text"`
	LogUIDs         bool          `name:"log-uids" help:"Name users in logs by their ids instead of pseudonyms. See docs/operate.md."`

	webhook.Endpoint
	obs.Traces
}

// Help is the introduction of --help.
func (*serveFlags) Help() string {
	return `Playhead in one process: it keeps what users watched, read or heard, and where they stopped, in its data directory. ` +
		`Players report over HTTP and WebSocket, services over gRPC; /docs of the HTTP address describes the API. Nothing else needs installing.`
}

func serve(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f serveFlags
	if err := run.Parse("playhead serve", &f, args, getenv, out); err != nil {
		return err
	}
	history.LogUIDs(f.LogUIDs)
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, f.LogFormat)
	if err != nil {
		return err
	}
	if f.TokenSecretFile != "" { // a wrong one creates nothing
		if _, err := token.ReadSecret(f.TokenSecretFile); err != nil {
			return fmt.Errorf("--token-secret-file: %w", err)
		}
	}
	if f.OIDCIssuer != "" && f.Audience == "" {
		return errors.New("--oidc-issuer needs --audience: tokens of the issuer's other applications would be accepted too")
	}
	rules, err := history.ParseRules(f.Retention, f.Rules)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	if err := rules.ValidateSummaryTTL(f.Summary); err != nil {
		return fmt.Errorf("--%w", err)
	}
	counted, err := count.ParseTypes(f.CountedTypes)
	if err != nil {
		return fmt.Errorf("--counted-types: %w", err)
	}
	if err := history.ValidateUID(f.User); err != nil {
		return fmt.Errorf("--user: %w", err)
	}
	files, err := run.Files()
	if err != nil {
		return err
	}
	registry := obs.NewRegistry()
	traces, err := f.Traces.Open(ctx, "playhead", log, registry)
	if err != nil {
		return err
	}
	defer traces.Close()
	hook, err := f.Endpoint.Open(log, registry)
	if err != nil {
		return err
	}
	p, err := allinone.Open(ctx, allinone.Config{
		Dir: f.Data, HTTP: f.Listen, RPC: f.RPC, InsecureRPC: f.InsecureRPC, Admin: f.Admin, SecretFile: f.TokenSecretFile, KeysFile: f.TokenKeysFile, Issuer: f.OIDCIssuer, Audience: f.Audience, Memory: run.Memory(), Files: files, Hosts: f.Hosts, Origins: f.Origins, Images: f.Images, UserRate: f.UserRate, UserBurst: f.UserBurst,
		Hold: f.Hold, Keep: f.Keep, CompactAbove: f.CompactAbove, Summary: f.Summary, Plays: f.Plays, Rules: rules, Counted: counted, Webhook: hook, MaxClockGap: f.MaxClockGap, LameDuck: f.LameDuck, Drain: f.Drain, Terminate: run.Terminate, Tracer: traces.Tracer, Logger: log, Registry: registry,
		Reload: func(setUserRate func(rate, burst float64)) ([]string, error) {
			var next serveFlags
			if err := run.Parse("playhead serve", &next, args, getenv, io.Discard); err != nil {
				return nil, err
			}
			if err := obs.SetLevel(log, next.LogLevel); err != nil {
				return nil, err
			}
			setUserRate(next.UserRate, next.UserBurst)
			return run.Changed(f, next, "log-level", "user-rate", "user-burst")
		},
	})
	if err != nil {
		return err
	}
	if f.PrintToken || terminal(out) {
		p.Greet(out, f.User)
	} else {
		log.Info("running", "http", p.HTTP(), "rpc", p.RPC(), "data", f.Data, "token", "not printed, see --print-token")
	}
	return p.Run(ctx)
}

// terminal reports whether out is a terminal.
func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	about, err := f.Stat()
	return err == nil && about.Mode()&os.ModeCharDevice != 0
}
