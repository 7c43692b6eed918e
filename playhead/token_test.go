package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/token"
)

func TestToken(t *testing.T) {
	dir := t.TempDir()
	started(t, dir)
	own, err := os.ReadFile(filepath.Join(dir, "token-secret"))
	if err != nil {
		t.Fatal(err)
	}
	given := strings.Repeat("s", token.MinSecret)
	for _, tt := range []struct {
		args, secret, audience string
		ttl                    time.Duration
	}{
		{"--data " + dir, strings.TrimSpace(string(own)), "", time.Hour},
		{"--token-secret-file " + file(t, given+"\n") + " --ttl 5m --audience players", given, "players", 5 * time.Minute},
	} {
		var out strings.Builder
		if err := playhead(t.Context(), strings.Fields("token ann "+tt.args), none, &out); err != nil {
			t.Fatal(err)
		}
		v, err := token.NewVerifier([]byte(tt.secret), tt.audience)
		if err != nil {
			t.Fatal(err)
		}
		uid, until, err := v.Verify(strings.TrimSpace(out.String()))
		if left := time.Until(until) - token.Leeway; uid != "ann" || err != nil || left > tt.ttl || left < tt.ttl-time.Minute {
			t.Errorf("token ann %s: got %q for %v, %v; want ann for %v", tt.args, uid, left, err, tt.ttl)
		}
	}
}

func TestTokenFails(t *testing.T) {
	empty := t.TempDir()
	for args, want := range map[string]string{
		"":                    "<user>",
		"ann --data " + empty: "has no secret: name the file with --token-secret-file",
		"ann --token-secret-file " + file(t, "s"): "--token-secret-file: token secret: line 1 has 1 bytes; want at least 32",
		"ann --ttl 0s": "--ttl: want more than 0",
	} {
		if err := playhead(t.Context(), strings.Fields("token "+args), none, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("token %s: got %v, want %q", args, err, want)
		}
	}
}
