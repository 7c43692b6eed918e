package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestCopyStores fills the data directory of an all-in-one that does not run, and moves it through a file to one that
// does. Both have what a plain merge of the rows makes.
func TestCopyStores(t *testing.T) {
	v := generated(2000, rand.New(rand.NewPCG(3, 4)))
	rows, dir, lines := file(t, v.csv), filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "lines.ndjson")
	out, err := replayed(t, "copy", "--from=csv:"+rows, "--to=archive:"+dir)
	if exitCode(err) != exitIncomplete || !strings.Contains(out, "  rejected") { // some rows cannot be read
		t.Fatal(out, err)
	}
	if out, err = replayed(t, "copy", "--from=archive:"+dir, "--to=ndjson:"+lines); err != nil {
		t.Fatal(out, err)
	}
	other := started(t, t.TempDir())
	for _, want := range []string{"  new  ", "  equal  "} {
		if out, err = replayed(t, "copy", "--from=ndjson:"+lines, "--to=service", "--service="+other.RPC()); err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, want) {
			t.Fatalf("got %q, %v, want all %s", out, err, want)
		}
	}
	v.check(t, other.RPC())
	for _, from := range []string{"--from=ndjson:" + lines, "--from=csv:" + rows, "--from=archive:" + dir} {
		if out, err = replayed(t, "verify", from, "--to=service", "--service="+other.RPC()); strings.Contains(from, "csv") != (exitCode(err) == exitIncomplete) || strings.Contains(out, "missing") || !strings.Contains(out, "  equal  ") {
			t.Errorf("verify %s: %q, %v, want all equal", from, out, err)
		}
	}
	verifyRepairs(t, dir, lines)
	filled := started(t, dir)
	v.check(t, filled.RPC())
	if _, err := replayed(t, "copy", "--from=archive:"+dir, "--to=none"); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a directory in use: %v", err)
	}
}

// verifyRepairs compares with an empty archive, and fills it.
func verifyRepairs(t *testing.T, dir, lines string) {
	t.Helper()
	empty := "--to=archive:" + filepath.Join(t.TempDir(), "data")
	out, err := replayed(t, "verify", "--from=archive:"+dir, empty, "--wait=0s")
	if err == nil || !strings.Contains(err.Error(), "rows are missing and 0 are different") || !strings.Contains(out, "  missing  ") || strings.Contains(out, "  equal  ") {
		t.Errorf("verify with nothing: %q, %v", out, err)
	}
	if out, err = replayed(t, "verify", "--from=archive:"+dir, empty, "--wait=0s", "--repair"); err != nil || !strings.Contains(out, "  repaired  ") {
		t.Errorf("repair: %q, %v", out, err)
	}
	if out, err = replayed(t, "verify", "--from=ndjson:"+lines, empty); err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, "  equal  ") {
		t.Errorf("verify what was repaired: %q, %v", out, err)
	}
}

// TestCopyDeleted sends a file again after its objects were deleted: they stay so, and the rows say it.
func TestCopyDeleted(t *testing.T) {
	trace, addr := file(t, recent()), serveRPC(t, service(t))
	if out, err := replayed(t, trace, "--service="+addr); err != nil || !strings.Contains(out, "  new        2\n") {
		t.Fatal(out, err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := historyv1.NewHistoryServiceClient(conn).Delete(t.Context(), &historyv1.DeleteRequest{Uid: "7", Objects: []*historyv1.Object{{Id: "100", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	if out, err := replayed(t, trace, "--service="+addr); err != nil || !strings.HasSuffix(out, "  equal      1\n  deleted    1\n") {
		t.Errorf("got %q, %v, want one deleted", out, err)
	}
}

// TestCopyDeadFile copies the letters of an all-in-one's data directory. A line that is no letter is rejected.
func TestCopyDeadFile(t *testing.T) {
	dir, at := t.TempDir(), time.Now().UnixMilli()
	e := history.Event{Key: history.Key{UID: "7", Object: history.Object{ID: "100", Type: 1}}, Kind: history.KindStop, At: at, Position: 5}
	line, err := json.Marshal(map[string]any{"time": time.Now(), "key": e.Key.String(), "letter": wire.AppendDead(nil, history.Dead{Key: e.Key, Record: e.Record(), At: at})})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dead-letters.ndjson"), append(line, "\nno letter\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := replayed(t, "copy", "--from=dead:"+dir, "--service="+started(t, t.TempDir()).RPC())
	if exitCode(err) != exitIncomplete || !strings.Contains(out, "  new        1\n") || !strings.Contains(out, "  rejected   1\n") {
		t.Errorf("got %q, %v, want one new, one rejected", out, err)
	}
}
