package allinone_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history/pebble"
)

// TestBackUp makes backups under load. Each has every report and removal that was acknowledged before it, and accepts the
// tokens. The process goes on.
func TestBackUp(t *testing.T) {
	dir, known := t.TempDir(), newLoad(t)
	h := open(t, dir)
	stop := known.run(h.RPC())
	known.until(2000)
	stop()
	h.stops(t.Context(), "kept", "removed")
	h.send(t.Context(), "DELETE /v1/history/1/removed", "")
	want := h.send(t.Context(), "GET /v1/export", "")
	noise := newLoad(t)
	for i, v := range noise.viewers {
		v.uid = fmt.Sprint("noise", i)
	}
	stop = noise.run(h.RPC())
	for n := range 3 {
		noise.until(500)
		to := filepath.Join(t.TempDir(), "backup")
		made, err := h.BackUp(t.Context(), dir, to)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := allinone.VerifyBackup(t.Context(), to); err != nil || got.Size() != made.Size() {
			t.Errorf("verify: %v, %v", got, err)
		}
		restored := open(t, to)
		known.held(restored.Cache())
		if n == 2 { // archived in the background
			restored.clean(patience)
			known.archived(restored.Cache(), restored.Archive())
		}
		restored.token = h.token
		if got := restored.send(t.Context(), "GET /v1/export", ""); got != want {
			t.Errorf("restored:\n%s\nwant\n%s", got, want)
		}
		restored.stop()
		if allinone.IsBackup(to) {
			t.Error("a data directory in use counts as a backup")
		}
	}
	stop()
	noise.held(h.Cache())
	if entries, err := filepath.Glob(filepath.Join(dir, "snapshot*")); err != nil || entries != nil {
		t.Errorf("left in the data directory: %v, %v", entries, err)
	}
}

// TestBackUpCursors: after a restore, only an app that saw changes after the backup reads everything again.
func TestBackUpCursors(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	h := open(t, dir)
	h.stops(t.Context(), "early")
	early, _, _ := h.changes(t.Context(), "")
	h.stop()
	h = open(t, dir)
	later, _, _ := h.changes(t.Context(), early)
	if _, err := h.BackUp(t.Context(), dir, to); err != nil {
		t.Fatal(err)
	}
	h.stops(t.Context(), "after")
	restored := open(t, to)
	restored.token = h.token
	for _, tt := range []struct {
		name, since string
		resync      bool
	}{{"of an earlier run", early, false}, {"of the run of the backup", later, true}} {
		if _, _, got := restored.changes(t.Context(), tt.since); got != tt.resync {
			t.Errorf("%s: resync %t, want %t", tt.name, got, tt.resync)
		}
	}
}

// TestBackUpRefuses names what is wrong, and changes nothing.
func TestBackUpRefuses(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, dir, to, want string }{
		{"a full directory", dir, full, "not empty"},
		{"inside the data", dir, filepath.Join(dir, "backup"), "inside"},
		{"nowhere", dir, filepath.Join(full, "no", "backup"), "no such file"},
		{"other data", full, filepath.Join(full, "backup"), "has the data directory"},
	} {
		if _, err := h.BackUp(t.Context(), tt.dir, tt.to); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	to := filepath.Join(t.TempDir(), "backup")
	if _, err := h.BackUp(canceled, dir, to); err == nil {
		t.Error("canceled: no error")
	}
	if left, err := filepath.Glob(to + "*"); err != nil || left != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if files, err := os.ReadDir(full); err != nil || len(files) != 1 {
		t.Errorf("%v, %v in the directory of others", files, err)
	}
}

// TestDamagedBackup: verification and a start refuse a backup that lacks, has or changed anything.
func TestDamagedBackup(t *testing.T) {
	dir, made := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	h := open(t, dir)
	h.stops(t.Context(), "a")
	b, err := h.BackUp(t.Context(), dir, made)
	if err != nil {
		t.Fatal(err)
	}
	name := b.Files[len(b.Files)-1].Name
	for what, damage := range map[string]func(dir string) error{
		"a byte":          func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600) },
		"a missing file":  func(dir string) error { return os.Remove(filepath.Join(dir, name)) },
		"a file too many": func(dir string) error { return os.WriteFile(filepath.Join(dir, "more"), nil, 0o600) },
		"half a list":     func(dir string) error { return os.Truncate(filepath.Join(dir, "backup.json"), 100) },
		"an empty list":   func(dir string) error { return os.Truncate(filepath.Join(dir, "backup.json"), 0) },
	} {
		to := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(to, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
		if err := damage(to); err != nil {
			t.Fatal(err)
		}
		if _, err := allinone.VerifyBackup(t.Context(), to); err == nil {
			t.Errorf("%s: verified", what)
		}
		if p, err := allinone.Open(t.Context(), config(to)); err == nil {
			t.Errorf("%s: started %v", what, p)
		}
	}
	if _, err := allinone.VerifyBackup(t.Context(), dir); err == nil {
		t.Error("a data directory is verified as a backup")
	}
}

// TestKillDuringBackUp kills the process while it makes backups. A directory with the name of a backup is complete, an
// incomplete one does not start. The process starts again with every acknowledged report.
func TestKillDuringBackUp(t *testing.T) {
	dir, backups, l := t.TempDir(), t.TempDir(), newLoad(t)
	for round := range 4 {
		p := start(t, dir)
		stop := l.run(p.rpc)
		l.until(300)
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan struct{}, 100)
		go func() {
			defer cancel()
			for n := 0; p.backUp(ctx, dir, filepath.Join(backups, fmt.Sprint(round, "-", n))); n++ {
				begun <- struct{}{}
			}
		}()
		<-begun // the next one is being made
		l.until(int64(20 + 100*round))
		p.kill()
		stop()
		<-ctx.Done()
		db, err := pebble.Open(dir, pebble.Config{})
		if err != nil {
			t.Fatal(err)
		}
		l.held(db.Cache())
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := os.ReadDir(backups)
	if err != nil || len(all) < 4 {
		t.Fatalf("%d backups, %v", len(all), err)
	}
	for _, f := range all {
		path := filepath.Join(backups, f.Name())
		_, err := allinone.VerifyBackup(t.Context(), path)
		if err == nil {
			continue
		}
		if !strings.HasSuffix(path, ".partial") {
			t.Errorf("%s: %v", f.Name(), err)
		}
		if p, err := allinone.Open(t.Context(), config(path)); err == nil {
			t.Errorf("%s: started %v", f.Name(), p)
		}
	}
}

// backUp asks a child for a backup, and reports whether it was made.
func (p *process) backUp(ctx context.Context, dir, to string) bool {
	form := url.Values{"data": {dir}, "to": {to}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.admin+"/backup?"+form.Encode(), nil)
	if err != nil {
		p.Error(err)
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false // killed
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
