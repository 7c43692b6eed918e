package allinone_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/bff/token"
)

// written returns a file with that text.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRPCFromElsewhere: callers on other machines need a token with the scope admin.
func TestRPCFromElsewhere(t *testing.T) {
	secret := bytes.Repeat([]byte("s"), token.MinSecret)
	bearer := func(scope string) string {
		text, err := token.Claims{UID: "ops", Scope: scope, TTL: time.Hour}.Sign(secret)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + text
	}
	asked := openWith(t, func(c *allinone.Config) { c.Dir, c.SecretFile = t.TempDir(), written(t, string(secret)) })
	insecure := openWith(t, func(c *allinone.Config) { c.Dir, c.InsecureRPC = t.TempDir(), true })
	for _, tt := range []struct {
		name, from, header string
		server             *here
		want               codes.Code
	}{
		{"loopback", "127.0.0.1", "", asked, codes.OK},
		{"loopback, IPv6", "::1", "", asked, codes.OK},
		{"the machine's own address", "192.0.2.1", "", asked, codes.OK},
		{"without a token", "192.0.2.2", "", asked, codes.Unauthenticated},
		{"another scheme", "192.0.2.2", "Basic b3BzOm9wcw==", asked, codes.Unauthenticated},
		{"not a token", "192.0.2.2", "Bearer ops", asked, codes.Unauthenticated},
		{"no scope", "192.0.2.2", bearer(""), asked, codes.PermissionDenied},
		{"a lesser scope", "192.0.2.2", bearer("history:read"), asked, codes.PermissionDenied},
		{"admin", "192.0.2.2", bearer("openid admin"), asked, codes.OK},
		{"insecure", "192.0.2.2", "", insecure, codes.OK},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{
			Addr: &net.TCPAddr{IP: net.ParseIP(tt.from)}, LocalAddr: &net.TCPAddr{IP: net.ParseIP("192.0.2.1")},
		})
		if tt.header != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", tt.header))
		}
		if got := status.Code(tt.server.Authorize(ctx)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
