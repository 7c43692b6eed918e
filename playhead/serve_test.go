package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTokenIsPrintedWhenAsked: without a terminal, a token is printed only on request.
func TestTokenIsPrintedWhenAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		args := []string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
		if asked {
			args = append(args, "--print-token")
		}
		var out strings.Builder
		if err := serve(ctx, args, func(string) string { return "" }, &out); err != nil {
			t.Fatal(err)
		}
		if printed := strings.Contains(out.String(), "export TOKEN="); printed != asked || !asked && out.Len() > 0 {
			t.Errorf("asked %v: printed %q", asked, out.String())
		}
	}
}

// TestRefusedFlags: the error names the refused flag, and nothing is created.
func TestRefusedFlags(t *testing.T) {
	short := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // for accepted flags
	defer cancel()
	for flag, value := range map[string]string{
		"--summary": "5h", "--rules": "a: types=7 keep=91d", "--keep": "-1", "--hold": "25h", "--user": "a\nb", "--token-secret-file": short, "--origin": "x",
		"--image-origin": "x", "--host": "a b", "--webhook-url": "http://127.0.0.1/", "--oidc-issuer": "https://idp.example.com", "--listen": "127.0.0.1:none", "--admin": "127.0.0.1:none",
		"--rpc": "127.0.0.1:none", "--nope": "1",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		args := []string{"--data", dir, "--listen", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0", flag + "=" + value}
		err := serve(ctx, args, func(string) string { return "" }, io.Discard)
		if err == nil || !strings.Contains(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: got %v, want one line that names the flag", flag, value, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s=%s: the data directory: %v, want none", flag, value, err)
		}
	}
	args := []string{"--data", filepath.Join(short, "data"), "--listen", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	if err := serve(ctx, args, func(string) string { return "" }, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "--data: ") {
		t.Errorf("a data directory below a file: got %v, want an error that names the flag", err)
	}
}
