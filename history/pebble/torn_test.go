package pebble_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestTornJournal opens journals with ends that a crash may leave.
func TestTornJournal(t *testing.T) {
	garbage := make([]byte, 5000)
	for i := range garbage {
		garbage[i] = byte(rand.Uint32())
	}
	for _, test := range []struct {
		name string
		tear func(whole []byte) []byte
		lost int // number of last writes
	}{
		{"nothing", func(b []byte) []byte { return b }, 0},
		{"three bytes short", func(b []byte) []byte { return b[:len(b)-3] }, 1},
		{"half of the last change", func(b []byte) []byte { return b[:len(b)-100] }, 1},
		{"garbage after the end", func(b []byte) []byte { return append(b, garbage...) }, 0},
		{"zeros after the end", func(b []byte) []byte { return append(b, make([]byte, 100_000)...) }, 0},
		{"garbage in the last change", func(b []byte) []byte { return append(b[:len(b)-100], garbage...) }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			keys := crashed(t, dir)
			path := lastJournal(t, dir)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, test.tear(whole), 0o600); err != nil {
				t.Fatal(err)
			}
			wantFirst(t, open(t, dir, pebble.Config{}), keys, len(keys)-test.lost)
		})
	}
}

// TestDamagedJournal refuses to open with damage in the middle of the journal, since the changes after it were
// acknowledged.
func TestDamagedJournal(t *testing.T) {
	dir := t.TempDir()
	crashed(t, dir)
	path := lastJournal(t, dir)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole[200] ^= 1
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = pebble.Open(dir, pebble.Config{})
	if err == nil || !strings.Contains(err.Error(), path+" is damaged") || errors.Is(err, history.ErrLocked) {
		t.Errorf("open: got %v, want an error that names %s", err, path)
	}
}

// TestDamagedSynced refuses to open if the file with the synced length of the journal is damaged. Without it, a
// truncated journal would look torn.
func TestDamagedSynced(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(whole []byte) []byte
		at     string
	}{
		{"zeroed", func(b []byte) []byte { return make([]byte, len(b)) }, "at byte 0, 28 bytes of 28"},
		{"emptied", func([]byte) []byte { return nil }, "at byte 0, 0 bytes of 28"},
		{"second half zeroed", func(b []byte) []byte { clear(b[4096:]); return b }, "at byte 4096, 28 bytes of 28"},
		{"cut short", func(b []byte) []byte { return b[:4100] }, "at byte 4096, 4 bytes of 28"},
		{"flipped", func(b []byte) []byte { b[5] ^= 1; return b }, "at byte 0, 28 bytes of 28"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			keys := crashed(t, dir)
			cutJournal(t, dir)
			path := filepath.Join(dir, "journal-synced")
			rewrite(t, path, test.damage)
			_, err := pebble.Open(dir, pebble.Config{})
			if err == nil {
				t.Fatal("open: got no error")
			}
			for _, want := range []string{path + " is damaged " + test.at, "remove " + path, "from a backup"} {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("open: got %q, want one line with %q", err, want)
				}
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			wantFirst(t, open(t, dir, pebble.Config{}), keys, len(keys)-1)
		})
	}
}

// TestMissingSynced opens without the file and logs that the end of the journal was not checked. The next start
// can check again.
func TestMissingSynced(t *testing.T) {
	dir := t.TempDir()
	keys := crashed(t, dir)
	cutJournal(t, dir)
	path, journal := filepath.Join(dir, "journal-synced"), lastJournal(t, dir)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	config := pebble.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	db := open(t, dir, config)
	wantFirst(t, db, keys, len(keys)-1)
	for _, want := range []string{"journal cannot be checked", "missing=" + path, "file=" + journal, "offset="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got the log\n%s\nwant %q in it", &log, want)
		}
	}
	closed(t, db)
	log.Reset()
	closed(t, open(t, dir, config))
	if log.Len() > 0 {
		t.Errorf("the next start logs\n%s\nwant nothing", &log)
	}
}

// TestNewStoreIsQuiet: a new store logs nothing as missing.
func TestNewStoreIsQuiet(t *testing.T) {
	var log bytes.Buffer
	closed(t, open(t, t.TempDir(), pebble.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	if log.Len() > 0 {
		t.Errorf("got the log\n%s\nwant none", &log)
	}
}

// cutJournal removes the last change.
func cutJournal(t *testing.T, dir string) {
	t.Helper()
	rewrite(t, lastJournal(t, dir), func(b []byte) []byte { return b[:len(b)-100] })
}

func rewrite(t *testing.T, path string, as func(whole []byte) []byte) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, as(whole), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// crashed leaves a directory as after a crash, without the zeros at the end of the journal. The writes span
// several blocks.
func crashed(t *testing.T, dir string) []history.Key {
	t.Helper()
	fs := vfs.NewCrashableMem()
	db := open(t, "store", pebble.Config{}.On(fs))
	var keys []history.Key
	for n := range 300 {
		keys = append(keys, viewing(1, n))
		put(t, db.Cache(), keys[n])
	}
	from := fs.CrashClone(vfs.CrashCloneCfg{})
	if ok, err := vfs.Clone(from, vfs.Default, abs(t, "store"), dir); err != nil || !ok {
		t.Fatalf("clone: %v, %v", ok, err)
	}
	if err := os.Truncate(lastJournal(t, dir), db.Journaled()); err != nil {
		t.Fatal(err)
	}
	return keys
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func lastJournal(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journal", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("journals in %s: %v, %v", dir, files, err)
	}
	slices.Sort(files)
	return files[len(files)-1]
}

// wantFirst checks that only the first n keys have records, and marks.
func wantFirst(t *testing.T, db *pebble.DB, keys []history.Key, n int) {
	t.Helper()
	for i, e := range db.Cache().Load(t.Context(), keys) {
		if e.Err != nil || (e.Record != nil) != (i < n) {
			t.Errorf("write %d of %d: got %+v, %v; want the first %d", i, len(keys), e.Record, e.Err, n)
		}
	}
	if got := len(allDirty(t, db)); got != n {
		t.Errorf("got %d dirty marks, want %d", got, n)
	}
}
