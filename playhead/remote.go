package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trust"
)

// remote is the gRPC server that a command talks to.
type remote struct {
	Service string     `help:"Address of history-service, or of the gRPC server of playhead serve." default:"127.0.0.1:7070"`
	Token   string     `help:"Token with the scope admin, for a playhead serve on another machine. Prefer the variable: flags are for all to see."`
	Peer    trust.Peer `embed:"" prefix:"service-"`
}

func (r *remote) check() error { return connect.Addresses("--service", r.Service) }

// dial connects to the server. The caller closes the connection.
func (r *remote) dial() (*grpc.ClientConn, error) {
	conf, err := r.Peer.Config()
	if err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if conf != nil {
		options[0] = grpc.WithTransportCredentials(credentials.NewTLS(conf))
	}
	if r.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(r.Token)))
	}
	conn, err := grpc.NewClient(r.Service, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", r.Service, err)
	}
	return conn, nil
}

// warnUnreachable connects, and writes a line if the server does not answer within two seconds. Calls try on.
func warnUnreachable(ctx context.Context, conn *grpc.ClientConn, patience time.Duration, out io.Writer) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if s == connectivity.TransientFailure || !conn.WaitForStateChange(ctx, s) {
			fmt.Fprintf(out, "playhead: no answer from %s; trying for %v\n", conn.Target(), patience)
			return
		}
	}
}

// dialFor is dial for a command about a user.
func (r *remote) dialFor(uid string) (*grpc.ClientConn, error) {
	if err := errors.Join(history.ValidateUID(uid), r.check()); err != nil {
		return nil, err
	}
	return r.dial()
}

// bearer is a token as credentials of each call.
type bearer string

// GetRequestMetadata returns the header with the token.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity allows plain text, such as in a private network.
func (bearer) RequireTransportSecurity() bool { return false }

type tokenFlags struct {
	User            string        `arg:"" help:"User that the token is for."`
	TTL             time.Duration `name:"ttl" help:"Time for which it is valid." default:"1h" positive:""`
	Scope           string        `help:"Scopes with spaces between; a user's own history needs none. See docs/tokens.md."`
	Audience        string        `help:"Audience of the token, if the server wants one."`
	TokenSecretFile string        `help:"File with the secret of the server."`
	Data            string        `help:"Data directory of playhead serve, which has the secret if no file was named." default:"playhead-data"`
}

// Help is the introduction of --help.
func (*tokenFlags) Help() string {
	return `Prints a token, signed with the secret of a server: for trials, scripts and support. ` +
		`Players get theirs from your backend or identity provider.`
}

func printToken(_ context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f tokenFlags
	if err := run.Parse("playhead token", &f, args, getenv, out); err != nil {
		return err
	}
	secret, err := f.secret()
	if err != nil {
		return err
	}
	text, err := token.Claims{UID: f.User, Audience: f.Audience, Scope: f.Scope, TTL: f.TTL}.Sign(secret)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

func (f *tokenFlags) secret() ([]byte, error) {
	if f.TokenSecretFile != "" {
		secret, err := token.ReadSecret(f.TokenSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--token-secret-file: %w", err)
		}
		return secret, nil
	}
	secret, err := allinone.ReadSecret(f.Data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--data: %s has no secret: name the file with --token-secret-file, or start playhead serve once", f.Data)
	}
	return secret, err
}
