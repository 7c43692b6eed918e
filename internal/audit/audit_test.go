package audit_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/audit"
)

// TestLog has every known field, and no name of a user.
func TestLog(t *testing.T) {
	user := history.Pseudonym("alice")
	for _, tt := range []struct {
		entry audit.Entry
		want  string
	}{
		{audit.Entry{Action: "terminate", By: "127.0.0.1:9"}, `audit.action=terminate audit.by=127.0.0.1:9 audit.count=0 audit.outcome=done`},
		{
			audit.Entry{Action: "deleteObject", By: "ops", Scopes: "admin", UID: "alice", Count: 3, Request: "r1", Err: errors.New("no answer")},
			`audit.action=deleteObject audit.by=ops audit.scopes=admin audit.user=` + user + ` audit.count=3 audit.request_id=r1 audit.outcome="no answer"`,
		},
	} {
		var out bytes.Buffer
		audit.Log(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), tt.entry)
		if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), "msg=audit "); got != tt.want {
			t.Errorf("%+v:\n%s\nwant\n%s", tt.entry, got, tt.want)
		}
	}
}
