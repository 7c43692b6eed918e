package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/bff/token"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const secret = "0123456789abcdef0123456789abcdef"

func TestEdgeRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, env, want string }{
		{"", "", "set --token-secret-file or $PLAYHEAD_TOKEN_SECRET"},
		{"", "short", "want at least 32"},
		{"--token-secret-file=" + short, secret, "short: secret: line 1 has 6 bytes; want at least 32"},
		{"", strings.Repeat("s", 31) + "\n", "want at least 32"},
		{"--token-secret-file=" + dir + "/none", secret, "no such file"},
		{"--token-keys-file=" + short, "", "short: key set: "},
		{"--token-keys-file=" + dir + "/none", secret, "--token-keys-file: "},
		{"--oidc-issuer=https://idp.example.com", "", "--oidc-issuer needs --audience"},
		{"--log-format=xml", secret, "--log-format"},
		{"--service=", secret, "no address of history-service"},
		{"--listen=nowhere", secret, "(choose another with --listen)"},
		{"--origin=nonsense", secret, "--origin: want an origin"},
		{"--image-origin=https://images.example.com/a", secret, "--image-origin: want an origin"},
		{"--prot=1", secret, "unknown flag"},
	} {
		getenv := func(name string) string { return map[string]string{secretVariable: tt.env}[name] }
		args := append([]string{"--admin=127.0.0.1:0"}, strings.Fields(tt.args)...)
		err := serve(t.Context(), args, getenv, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q, secret %q: %v, want %q", tt.args, tt.env, err, tt.want)
		}
	}
}

// TestTakenPort checks that a taken port is a single-line error before anything starts.
func TestTakenPort(t *testing.T) {
	taken := listen(t)
	defer taken.Close()
	for _, flag := range []string{"--listen", "--admin"} {
		logged, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		stderr := os.Stderr
		os.Stderr = logged
		args := []string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", flag, taken.Addr().String()}
		err = serve(t.Context(), args, func(name string) string { return map[string]string{secretVariable: secret}[name] }, io.Discard)
		os.Stderr = stderr
		if err == nil || !strings.HasSuffix(err.Error(), "address already in use (choose another with "+flag+")") {
			t.Errorf("%s: %v", flag, err)
		}
		if said, err := os.ReadFile(logged.Name()); err != nil || len(said) > 0 {
			t.Errorf("%s: logs %q, %v", flag, said, err)
		}
	}
}

type service struct {
	historyv1.UnimplementedHistoryServiceServer
}

func (service) List(_ context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	return &historyv1.ListResponse{Cursor: "of " + req.Uid}, nil
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func free(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

func TestEdge(t *testing.T) {
	l, srv := listen(t), grpc.NewServer()
	historyv1.RegisterHistoryServiceServer(srv, service{})
	go func() { _ = srv.Serve(l) }() // ends with Stop
	t.Cleanup(srv.Stop)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	players, admin := free(t), free(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		args := []string{"--listen", players, "--admin", admin, "--service", l.Addr().String(), "--token-secret-file", file, "--pages=false"}
		ended <- serve(ctx, args, func(string) string { return "" }, io.Discard)
	}()
	text, err := token.Mint([]byte(secret), "u1", "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "http://"+admin+"/readyz", text, `{"ready":true}`)
	eventually(t, "http://"+players+"/v1/history", text, `"cursor":"of u1"`)
	eventually(t, "http://"+players+"/", text, `"title":"Not Found"`)
	eventually(t, "http://"+admin+"/metrics", text, `playhead_api_requests_total{route="GET /v1/history",status="200"} 1`)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("edge: %v", err)
	}
}

// TestFlow checks that the page /flow is opt-in.
func TestFlow(t *testing.T) {
	for flag, want := range map[string]string{"--flow": "<title>How it works", "--log-level=warn": `"title":"Not Found"`} {
		players := free(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			args := []string{"--listen", players, "--admin=127.0.0.1:0", flag}
			ended <- serve(ctx, args, func(name string) string { return map[string]string{secretVariable: secret}[name] }, io.Discard)
		}()
		eventually(t, "http://"+players+"/flow", "", want)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("edge: %v", err)
		}
	}
}

// eventually polls until the answer contains want.
func eventually(t *testing.T, url, bearer, want string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	var last string
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			last = err.Error()
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if last = string(text); strings.Contains(last, want) {
			return
		}
	}
	t.Fatalf("%s: got %s, want %s", url, last, want)
}
