package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/internal/run"
)

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
