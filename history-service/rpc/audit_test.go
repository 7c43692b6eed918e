package rpc_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestAudit: a removal over the network is logged. Only the edge of the same process logs its own.
func TestAudit(t *testing.T) {
	for caller, want := range map[string]int{"network": 3, "edge": 0} {
		var out bytes.Buffer
		edge := bufconn.Listen(1 << 10)
		s := newHouse(t).service(t, func(c *rpc.Config) {
			c.Edge, c.Logger = edge, slog.New(slog.NewTextHandler(&out, nil))
		})
		var options []grpc.DialOption
		if caller == "edge" {
			options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return edge.DialContext(ctx) }))
		}
		client := historyv1.NewHistoryServiceClient(dialed(t, s, options...))
		object := &historyv1.Object{Id: "o", Type: 1}
		_, err := client.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{object}, AtMs: start}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Import(t.Context(), &historyv1.ImportRequest{Uid: "ann"}); err != nil {
			t.Fatal(err)
		}
		log := out.String()
		if got := strings.Count(log, "audit.user="+history.Pseudonym("ann")); got != want {
			t.Errorf("%s: %d lines, want %d, in\n%s", caller, got, want, log)
		}
		for _, action := range []string{"delete", "clear", "import"} {
			if got := strings.Contains(log, "audit.action="+action+" audit.by=127.0.0.1:"); got != (want > 0) {
				t.Errorf("%s: %s is logged: %v\n%s", caller, action, got, log)
			}
		}
	}
}
