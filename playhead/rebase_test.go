package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/all-in-one/allinone"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestRebase moves a record written by a fast clock back to the present, once, and prints it.
func TestRebase(t *testing.T) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())).Round(0) }
	p := started(t, t.TempDir(), func(c *allinone.Config) { c.Wall = now })
	conn, err := grpc.NewClient(p.RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ahead.Store(int64(24 * time.Hour))
	beat := &historyv1.Heartbeat{Uid: "7", ObjectId: "100", ObjectType: 1, Kind: historyv1.Kind_KIND_STOP, EventTimeMs: now().UnixMilli(), PositionMs: 50000}
	if _, err := historyv1.NewHistoryServiceClient(conn).Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat}}); err != nil {
		t.Fatal(err)
	}
	ahead.Store(0)
	addr := "--service=" + p.RPC()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--dry-run"}, []string{"100_1 ", " ahead\n", "1 records ahead"}},
		{nil, []string{"100_1 ", " rebased\n", "1 records rebased", "0 records rebased"}},
		{nil, []string{"0 records rebased"}},
	} {
		var out strings.Builder
		if err := replayCommand(t.Context(), append([]string{"rebase", "7", addr, "--look=1ms"}, tt.args...), none, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: got\n%s\nwant %q in it", tt.args, out.String(), want)
			}
		}
	}
	var out strings.Builder
	if err := replayCommand(t.Context(), []string{"rebase", "7", "--service=127.0.0.1:1"}, none, &out); err == nil {
		t.Error("nobody listens: want an error")
	}
	printRebased(&out, &historyv1.RebaseResponse{ClearedMs: 1_790_000_000_000}, false)
	if !strings.Contains(out.String(), "history was cleared at 2026-09-21T") {
		t.Errorf("got %q, want the clear", out.String())
	}
}
