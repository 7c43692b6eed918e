package pebble_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// childEnv makes the test binary a child process: an action and a directory, separated by a colon.
const childEnv = "PLAYHEAD_PEBBLE_CHILD"

func TestMain(m *testing.M) {
	if what, dir, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		os.Exit(child(what, dir))
	}
	// Each rapid check opens stores, so run fewer; the command line can ask for more.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// start returns a command that runs the test binary as a child process.
func start(t testing.TB, what, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what+":"+dir)
	return cmd
}

func child(what, dir string) int {
	switch what {
	case "open":
		return childOpens(dir)
	case "write":
		return childWrites(dir, (*pebble.DB).Checkpoint)
	case "compact":
		return childWrites(dir, compactChildren)
	case "snapshot":
		return childWrites(dir, snapshots)
	case "fill":
		return childWrites(dir, func(*pebble.DB) { select {} })
	}
	return 2
}

// childOpens prints the error of opening the store.
func childOpens(dir string) int {
	db, err := pebble.Open(dir, pebble.Config{})
	if err == nil {
		_ = db.Close()
		return 1
	}
	_, _ = os.Stdout.WriteString(err.Error())
	if !errors.Is(err, history.ErrLocked) {
		return 1
	}
	return 0
}

// open opens a store and closes it at the end of the test.
func open(tb testing.TB, dir string, config pebble.Config) *pebble.DB {
	tb.Helper()
	db, err := pebble.Open(dir, config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closed(tb, db) })
	return db
}

func closed(tb testing.TB, db *pebble.DB) {
	tb.Helper()
	if key := db.Lacking(); key != nil {
		tb.Errorf("%q is there and taken for absent", key)
	}
	if err := db.Close(); err != nil {
		tb.Errorf("close: %v", err)
	}
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, dir + "/", link} {
		_, err := pebble.Open(path, pebble.Config{})
		if !errors.Is(err, history.ErrLocked) || !strings.Contains(err.Error(), "data directory "+dir+" is in use") {
			t.Errorf("open %s again: got %v, want ErrLocked that names %s", path, err, dir)
		}
	}
	put(t, db.Cache(), viewing(1, 1)) // the first store still works
	closed(t, db)
	open(t, dir, pebble.Config{})
}

func TestOpenInTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{})
	put(t, db.Cache(), viewing(1, 1))
	out, err := start(t, "open", dir).CombinedOutput()
	want := "open store: data directory " + dir + " is in use by another process: stop it, or choose another directory"
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("open in another process: got %q, %v; want %q", out, err, want)
	}
	put(t, db.Cache(), viewing(1, 2))
}

// TestOpenImpossible fails for a reason other than the lock.
func TestOpenImpossible(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pebble.Open(file, pebble.Config{})
	if err == nil || errors.Is(err, history.ErrLocked) || !strings.Contains(err.Error(), file) {
		t.Errorf("open a file: got %v, want an error that names it and is not ErrLocked", err)
	}
}

// TestOpenForeign refuses a directory with foreign files and leaves it unchanged. It accepts an empty
// directory, a mounted disk, and a store killed during its creation.
func TestOpenForeign(t *testing.T) {
	for name, want := range map[string]bool{"letter.txt": false, "journal": false, "lost+found": true, ".gitkeep": true, "LOCK": true} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := pebble.Open(dir, pebble.Config{})
		if want != (err == nil) || err != nil && !strings.Contains(err.Error(), "such as "+name) {
			t.Errorf("%s: %v", name, err)
		}
		if files, _ := os.ReadDir(dir); !want && len(files) != 1 {
			t.Errorf("%s: it was refused, and %d files are there", name, len(files))
		}
		if err == nil {
			closed(t, db)
		}
	}
}

func TestCloseThenCall(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	closed(t, db)
	closed(t, db)
	ctx, k := t.Context(), viewing(1, 1)
	_, clearing := db.Cache().Clear(ctx, k.UID, history.Clear{Until: 1})
	_, listing := db.Cache().List(ctx, k.UID, history.Query{Limit: 1})
	_, overdue := db.Cache().Overdue(ctx, nil, 0, 1)
	_, getting := db.Archive().Get(ctx, []history.Key{k})
	_, row := db.Archive().Page(ctx, k.UID, history.Query{Limit: 10_000})
	_, sweeping := db.Sweep(ctx)
	for name, err := range map[string]error{
		"load":          db.Cache().Load(ctx, []history.Key{k})[0].Err,
		"apply":         db.Cache().Write(ctx, []history.Write{{Key: k, Record: beat(1)}})[0].Err,
		"clear":         clearing,
		"warm":          db.Cache().Warm(ctx, k.UID, history.WarmSet{}),
		"list":          listing,
		"overdue":       overdue,
		"mark_clean":    db.Cache().MarkClean(ctx, nil),
		"trim":          db.Cache().Trim(ctx, []string{k.UID}),
		"put":           db.Archive().Put(ctx, []history.Cell{{Key: k, Record: beat(1)}})[0],
		"get":           getting,
		"row":           row,
		"clear archive": db.Archive().PutUser(ctx, k.UID, history.User{}),
		"sweep":         sweeping,
	} {
		if !errors.Is(err, history.ErrClosed) || !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("%s after close: got %v, want ErrClosed and ErrUnavailable", name, err)
		}
	}
}

func TestCanceled(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := db.Cache().Write(ctx, []history.Write{{Key: viewing(1, 1), Record: beat(1)}})[0]
	if out.Status != history.Unknown || !errors.Is(out.Err, history.ErrUnavailable) || !errors.Is(out.Err, context.Canceled) {
		t.Errorf("apply when canceled: got %+v, want unknown because of the context", out)
	}
}

// put writes a new record with a mark.
func put(tb testing.TB, cache history.Cache, k history.Key) *history.Record {
	tb.Helper()
	r := beat(now())
	out := cache.Write(tb.Context(), []history.Write{{Key: k, Record: r, BeginsHold: true}})[0]
	if out.Status != history.Applied {
		tb.Fatalf("apply %s: got status %d, %v; want applied", k, out.Status, out.Err)
	}
	return r
}
