package main

import (
	"context"
	"path/filepath"
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

// TestClassesOfProcesses: a server that puts a type with data into a class is refused in one line. The copy that the line
// names moves the type. A type without data changes its class by playhead retention set.
func TestClassesOfProcesses(t *testing.T) {
	dir, rpc := filepath.Join(t.TempDir(), "old"), freePort(t)
	serve := func(dir string, rules ...string) *process {
		return startProcess(t, append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--rpc", rpc, "--admin", "127.0.0.1:0", "--log-level", "error"}, rules...)...)
	}
	finish := func(args ...string) string {
		p := startProcess(t, args...)
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
	mark := func(id string, typ uint32) {
		t.Helper()
		resp, err := service.Mark(ctx, &historyv1.MarkRequest{Uid: "ann", Objects: []*historyv1.MarkedObject{{Object: &historyv1.Object{Id: id, Type: typ}}}, Mark: historyv1.Mark_MARK_WATCHED}, grpc.WaitForReady(true))
		if err != nil || resp.GetStatuses()[0] != historyv1.Status_STATUS_STORED {
			t.Fatalf("%s: got %v, %v", id, resp.GetStatuses(), err)
		}
	}
	has := func(typ uint32, want int) {
		t.Helper()
		list, err := service.List(ctx, &historyv1.ListRequest{Uid: "ann", Type: typ}, grpc.WaitForReady(true))
		if err != nil || len(list.GetItems()) != want {
			t.Errorf("type %d: got %v, %v, want %d records", typ, list, err, want)
		}
	}
	server := serve(dir)
	mark("film", 1)
	mark("preview", 7)
	mark("gone", 7)
	if _, err := service.Delete(ctx, &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "gone", Type: 7}}}); err != nil {
		t.Fatal(err)
	}
	server.kill()

	both, other := "--rules=previews: types=7,8 keep=14d", "--rules=previews: types=8 keep=14d"
	refused := serve(dir, both)
	<-refused.done
	if got := refused.out.String(); !strings.Contains(got, "its type 7 is in no class") || !strings.Contains(got, "playhead replay copy --from archive:"+dir+" ") || strings.Count(got, "\n") != 1 {
		t.Fatalf("a moved type: got %q, want one line with the command", got)
	}
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"retention", "set", "90d", both}, "the type 7 has data"},
		{[]string{"retention"}, "records live 90d\n"},
		{[]string{"retention", "set", "90d", other}, "records of the class previews, types 8, live 14d"},
	} {
		if got := finish(append(step.args, "--data", dir)...); !strings.Contains(got, step.want) {
			t.Fatalf("%s: got %q, want %q", step.args, got, step.want)
		}
	}
	server = serve(dir, other)
	has(7, 1)
	server.kill()

	next := filepath.Join(t.TempDir(), "new")
	if got := finish("replay", "copy", "--from=archive:"+dir, "--to=archive:"+next, both); !strings.Contains(got, "  new  ") {
		t.Fatalf("copy: got %q", got)
	}
	serve(next, both)
	has(0, 2)
	has(7, 1)
	has(1, 1)
}
