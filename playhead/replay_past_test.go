package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestCopyOlderDeletesUnknown brings a file that is older than the retention: refused with a hint, then into summaries
// once, which readers see with titles.
func TestCopyOlderDeletesUnknown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	db, err := pebble.Open(dir, pebble.Config{Summary: 20 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	at := time.Now().AddDate(-3, 0, 0)
	old := file(t, fmt.Sprintf("user,object,time,title\nann,1,%d,Low Tide\nann,1,%d,Low Tide\nann,2,%d,\n", at.Unix(), at.Unix()+86_400, at.Unix()))
	columns := "--map=user=user,object=object,time=time:s,title=title"
	out, err := replayed(t, "copy", old, columns, "--to=archive:"+dir)
	if exitCode(err) != exitIncomplete || !strings.Contains(err.Error(), "--older-deletes-unknown") || !strings.Contains(out, "  expired    3\n") {
		t.Errorf("not confirmed: got %q, %v", out, err)
	}
	if out, err = replayed(t, "verify", old, columns, "--to=archive:"+dir); err != nil || !strings.HasSuffix(out, "  expired    3\n") {
		t.Errorf("verify: got %q, %v, want no difference", out, err)
	}
	for range 2 {
		out, err = replayed(t, "copy", old, columns, "--to=archive:"+dir, "--older-deletes-unknown")
		if err != nil || !strings.HasSuffix(out, "  summarised 3\n") {
			t.Errorf("confirmed: got %q, %v, want 3 summarised", out, err)
		}
	}
	for _, args := range [][]string{{"copy", old, columns, "--older-deletes-unknown"}, {"verify", old, columns, "--to=archive:" + dir, "--older-deletes-unknown"}} {
		if out, err := replayed(t, args...); err == nil || !strings.Contains(err.Error(), "--older-deletes-unknown") {
			t.Errorf("%v: got %q, %v, want a refusal", args, out, err)
		}
	}
	conn, err := grpc.NewClient(started(t, dir).RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	page, err := historyv1.NewHistoryServiceClient(conn).List(t.Context(), &historyv1.ListRequest{Uid: "ann", Summaries: true})
	if err != nil || len(page.GetItems()) != 0 || len(page.GetSummaries()) != 2 {
		t.Fatalf("got %v, %v, want two summaries", page, err)
	}
	if s := page.GetSummaries()[0]; s.GetObject().GetId() != "1" || s.GetTitle() != "Low Tide" || s.GetPlays() != 2 || s.GetFirstMs() != at.Unix()*1000 || !s.GetCompleted() {
		t.Errorf("got %v, want both plays", s)
	}
}
