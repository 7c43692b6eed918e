package rpc_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestAudit: a removal is logged whatever the caller says it is. Only the edge of the same process, which has a secret
// name, logs its own.
func TestAudit(t *testing.T) {
	const own = "playhead-edge-7Q2"
	for agent, want := range map[string]int{"": 3, "playhead-edge": 3, own + "x": 3, own: 0} {
		var out bytes.Buffer
		s := newHouse(t).service(t, func(c *rpc.Config) {
			c.OwnEdge, c.Logger = own, slog.New(slog.NewTextHandler(&out, nil))
		})
		client := historyv1.NewHistoryServiceClient(dialed(t, s, grpc.WithUserAgent(agent)))
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
			t.Errorf("%q: %d lines, want %d, in\n%s", agent, got, want, log)
		}
		for _, action := range []string{"delete", "clear", "import"} {
			if got := strings.Contains(log, "audit.action="+action+" audit.by=127.0.0.1:"); got != (want > 0) {
				t.Errorf("%q: %s is logged: %v\n%s", agent, action, got, log)
			}
		}
	}
}
