package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// edge runs all of the product and returns its address and the file of its secret.
func edge(t *testing.T) (url, secret string) {
	t.Helper()
	secret = filepath.Join(t.TempDir(), "secret")
	text := strings.Repeat("s", 40)
	if err := os.WriteFile(secret, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := allinone.Open(t.Context(), allinone.Config{
		Dir: t.TempDir(), HTTP: "127.0.0.1:0", RPC: "127.0.0.1:0", Admin: "127.0.0.1:0", Secret: []byte(text),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + p.HTTP(), secret
}

func TestThroughAnEdge(t *testing.T) {
	url, secret := edge(t)
	trace, moved := file(t, rows), file(t, recent(rows))
	for _, stored := range []bool{true, false} { // the second time it is all known
		var out strings.Builder
		err := send(t.Context(), []string{"--edge=" + url, "--token-secret-file=" + secret, "--no-shift", moved}, none, &out)
		if err != nil || strings.Contains(out.String(), "stored       5") != stored || strings.Contains(out.String(), "stored") != stored {
			t.Errorf("got %q, %v, want them stored: %v", out.String(), err, stored)
		}
	}
	for args, want := range map[string]string{
		"--edge=" + url: "--edge needs --token-secret-file",
		"--edge=" + url + "/nowhere --token-secret-file=" + secret:                                     "refused for good",
		"--edge=" + url + " --patience=1h --token-secret-file=" + file(t, strings.Repeat("wrong", 10)): "refuses the tokens, is the secret its own?",
		"--edge=" + url + " --token-secret-file=" + file(t, "short"):                                   "want at least 32",
		"--edge=http://127.0.0.1:1 --patience=300ms --token-secret-file=" + secret:                     "is it there",
	} {
		err := send(t.Context(), append(strings.Fields(args), trace), none, new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// recent moves the rows of a trace to the last hours.
func recent(rows string) string {
	return strings.ReplaceAll(rows, "16508127414", strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli()/100, 10))
}
