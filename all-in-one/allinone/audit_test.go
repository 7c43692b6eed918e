package allinone_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// output is a log that parts of a process write at once.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestLogsNameNobody lets two users do everything that is logged, at the level debug. The log has a line for each removal
// and export, and for what an operator does over gRPC, and no name of a user.
func TestLogsNameNobody(t *testing.T) {
	ctx, log := t.Context(), new(output)
	h := openWith(t, func(c *allinone.Config) {
		c.Dir, c.Logger = t.TempDir(), slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	users := []string{"somebody@example.com", "unique-name-7401"}
	conn, err := grpc.NewClient(h.RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, uid := range users {
		if h.token, err = h.Token(uid, time.Hour); err != nil {
			t.Fatal(err)
		}
		h.stops(ctx, "a", "b", "c")
		h.send(ctx, "DELETE /v1/history/1/a", "")
		export := h.send(ctx, "GET /v1/export", "")
		h.send(ctx, "DELETE /v1/history", "")
		h.send(ctx, "POST /v1/import?restore=true", export)
		h.clean(patience)
		if _, err := historyv1.NewHistoryServiceClient(conn).Delete(ctx, &historyv1.DeleteRequest{
			Uid: uid, Objects: []*historyv1.Object{{Id: "b", Type: 1}},
		}); err != nil {
			t.Fatal(err)
		}
		for _, dry := range []bool{true, false} {
			if _, err := historyv1.NewErasureServiceClient(conn).Erase(ctx, &historyv1.EraseRequest{Uid: uid, DryRun: dry}); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.stop()
	text := log.String()
	for _, uid := range users {
		if strings.Contains(text, uid) {
			t.Errorf("%s is named in\n%s", uid, text)
		}
		for _, action := range []string{"deleteObject", "exportHistory", "clearHistory", "importHistory", "delete", "erase"} {
			n := 0
			for line := range strings.Lines(text) {
				if strings.Contains(line, "audit.action="+action+" ") && strings.Contains(line, "audit.user="+history.Pseudonym(uid)+" ") && strings.Contains(line, "audit.outcome=done") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s of %s: %d lines, want 1, in\n%s", action, uid, n, text)
			}
		}
	}
}
