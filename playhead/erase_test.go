package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestErase erases a user of a running all-in-one that caches the user's keys. Other users' data stays, and
// resent reports do not restore the erased data.
func TestErase(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead-letters.ndjson")
	kept := `{"time":"2026-01-02T03:04:05Z","key":"77/100_1","origin":"archive","reason":"too large","letter":""}` + "\nno letter\n"
	gone := `{"time":"2026-01-02T03:04:05Z","key":"7/100_1","origin":"archive","reason":"too large","letter":""}` + "\n"
	p := started(t, dir)
	if err := os.WriteFile(dead, []byte(gone+kept+gone), 0o600); err != nil {
		t.Fatal(err)
	}
	service := "--service=" + p.RPC()
	trace := file(t, recent())
	run := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		if err := replayCommand(t.Context(), args, none, &out); err != nil {
			t.Fatalf("replay %q: %v", args, err)
		}
		return out.String()
	}
	run(service, trace)
	conn, err := grpc.NewClient(p.RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	records := func(uid string) int {
		t.Helper()
		page, err := historyv1.NewHistoryServiceClient(conn).List(t.Context(), &historyv1.ListRequest{Uid: uid, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.GetItems())
	}
	for _, tt := range []struct {
		args []string
		want []string
		left int
	}{
		{[]string{"erase", "7", service, "--dry-run"}, []string{"cache: records                    1 found\n", "dead letters                      2 found\n", "copies of the data directory"}, 1},
		{[]string{"erase", "7", service}, []string{"cache: records                    1 found      0 left\n", "dead letters                      2 found      0 left\n", "erased up to 20"}, 0},
		{[]string{"erase", "7", service}, []string{"cache: records                    0 found      0 left\n", "dead letters                      0 found      0 left\n"}, 0},
	} {
		out := run(tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: got\n%s\nwant %q in it", tt.args, out, want)
			}
		}
		if seven, eight := records("7"), records("8"); seven != tt.left || eight != 1 {
			t.Errorf("after %q: %d and %d records, want %d and 1", tt.args, seven, eight, tt.left)
		}
	}
	if out := run(service, trace); !strings.Contains(out, "  deleted    1\n") || records("7") != 0 {
		t.Errorf("what is sent again: got\n%s\nand %d records, want its viewing deleted", out, records("7"))
	}
	if left, err := os.ReadFile(dead); err != nil || string(left) != kept {
		t.Errorf("dead letters %q, %v, want %q", left, err, kept)
	}
}

func TestEraseFails(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"no user", "erase", "<uid>"},
		{"nobody listens", "erase 7 --service=127.0.0.1:1", "try again"},
		{"a user who cannot be", "erase a\x01b --service=" + serveRPC(t, service(t)), "uid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := replayCommand(t.Context(), strings.Fields(tt.args), none, new(strings.Builder))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
			}
		})
	}
	left := &historyv1.EraseResponse{Places: []*historyv1.ErasedPlace{{Name: "cache: records", Found: 2, Left: 1}}}
	var out strings.Builder
	if err := printErased(&out, left, false); err == nil || !strings.Contains(out.String(), "1 left") {
		t.Errorf("with something left: got %v and\n%s\nwant an error", err, out.String())
	}
}
