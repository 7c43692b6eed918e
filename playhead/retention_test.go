package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestRetentionOfProcesses: a server with another retention is refused in one line, which names the command. After
// that it keeps what is older than 90 days, through kill -9.
func TestRetentionOfProcesses(t *testing.T) {
	dir, rpc := t.TempDir(), freePort(t)
	serve := func(retention string) *process {
		return startProcess(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--rpc", rpc, "--admin", "127.0.0.1:0", "--log-level", "error", "--retention", retention)
	}
	finish := func(p *process) string {
		<-p.done
		return p.out.String()
	}
	conn, err := grpc.NewClient(rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	service := historyv1.NewHistoryServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ago := func(days int) int64 { return time.Now().AddDate(0, 0, -days).UnixMilli() }
	mark := func(id string, days int, want historyv1.Status) {
		t.Helper()
		resp, err := service.Mark(ctx, &historyv1.MarkRequest{Uid: "ann", Objects: []*historyv1.MarkedObject{{Object: &historyv1.Object{Id: id, Type: 1}}}, Mark: historyv1.Mark_MARK_WATCHED, AtMs: ago(days)}, grpc.WaitForReady(true))
		if err != nil || resp.GetStatuses()[0] != want {
			t.Fatalf("%s: got %v, %v, want %v", id, resp.GetStatuses(), err, want)
		}
	}
	has := func(want ...string) {
		t.Helper()
		list, err := service.List(ctx, &historyv1.ListRequest{Uid: "ann"}, grpc.WaitForReady(true))
		var got []string
		for _, it := range list.GetItems() {
			got = append(got, it.GetObject().GetId())
		}
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	}

	server := serve("90d")
	mark("80", 80, historyv1.Status_STATUS_STORED)
	mark("100", 100, historyv1.Status_STATUS_EXPIRED)
	server.kill()
	refused := finish(serve("forever"))
	if !strings.Contains(refused, "playhead retention set forever --data "+dir) || strings.Count(refused, "\n") != 1 {
		t.Fatalf("another retention: got %q, want one line with the command", refused)
	}
	for _, step := range []struct{ args, want string }{
		{"retention", "records live 90d\n"},
		{"retention set 30d", "--yes"},
		{"retention set forever", "records live forever, expired before "},
		{"retention", "records live forever, expired before "},
	} {
		if got := finish(startProcess(t, append(strings.Fields(step.args), "--data", dir)...)); !strings.Contains(got, step.want) {
			t.Fatalf("%s: got %q, want %q", step.args, got, step.want)
		}
	}
	server = serve("forever")
	mark("89", 89, historyv1.Status_STATUS_STORED)
	mark("100", 100, historyv1.Status_STATUS_EXPIRED) // its delete may be forgotten
	server.kill()
	serve("forever")
	has("80", "89") // newest first
}
