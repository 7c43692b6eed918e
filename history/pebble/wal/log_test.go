package wal_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history/pebble/wal"
)

func open(t *testing.T, dir string) *wal.Log {
	t.Helper()
	l, err := wal.Open(wal.Config{
		FS: vfs.Default, Dir: dir, Log: slog.New(slog.DiscardHandler), Failed: pebble.DefaultLogger,
		Latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sync_seconds"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// replay returns what a start finds in a journal.
func replay(t *testing.T, dir string, needed uint64) (changes []string, err error) {
	t.Helper()
	l := open(t, dir)
	err = l.Replay(needed, func(change []byte) error {
		changes = append(changes, string(change[12:]))
		return nil
	})
	return changes, errors.Join(err, l.Close())
}

// begin opens a journal in a directory and starts its next file.
func begin(t *testing.T, dir string) *wal.Log {
	t.Helper()
	l := open(t, dir)
	if err := errors.Join(l.Replay(0, func([]byte) error { return nil }), l.Rotate(true)); err != nil {
		t.Fatal(err)
	}
	return l
}

// write appends the texts, on disk when it returns.
func write(t *testing.T, l *wal.Log, texts ...string) {
	t.Helper()
	for _, text := range texts {
		w := new(wal.Waiter)
		if err := errors.Join(l.Append(append(make([]byte, 12), text...), w), w.Wait()); err != nil {
			t.Fatal(err)
		}
	}
}

// files returns the paths of the journal files, oldest first.
func files(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "journal", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	if l := open(t, dir); l.Begun() {
		t.Error("an empty directory has a journal")
	}
	l := begin(t, dir)
	first := l.Number()
	write(t, l, "a", "b")
	if err := l.Rotate(false); err != nil {
		t.Fatal(err)
	}
	write(t, l, "c")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !open(t, dir).Begun() {
		t.Error("a written journal was not found")
	}
	for needed, want := range map[uint64][]string{0: {"a", "b", "c"}, first: {"a", "b", "c"}, first + 1: {"c"}} {
		if got, err := replay(t, dir, needed); err != nil || !slices.Equal(got, want) {
			t.Errorf("replay from file %d: got %q, %v, want %q", needed, got, err, want)
		}
	}
}

// TestForget deletes the files before the current one. A kept file is reused, and its old changes do not come back.
func TestForget(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep=%t", keep), func(t *testing.T) {
			dir := t.TempDir()
			l := begin(t, dir)
			for _, text := range []string{"a", "b", "c"} {
				write(t, l, text+" old", text)
				if err := errors.Join(l.Rotate(false), l.Forget(keep)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, l, "d")
			last := l.Number()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := replay(t, dir, last); err != nil || !slices.Equal(got, []string{"d"}) {
				t.Errorf("got %q, %v, want d", got, err)
			}
			if n := len(files(t, dir)); n > 2 || !keep && n != 1 {
				t.Errorf("%d files are left", n)
			}
		})
	}
}

// TestDamage tells an end that a crash may leave from damage to what was on disk.
func TestDamage(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, dir, file string, data []byte)
		want  error
	}{
		{"whole", func(*testing.T, string, string, []byte) {}, nil},
		{"more at the end", func(t *testing.T, _, file string, data []byte) {
			put(t, file, append(data, "torn"...))
		}, nil},
		{"cut", func(t *testing.T, _, file string, data []byte) { put(t, file, data[:60]) }, wal.ErrDamaged},
		{"changed byte", func(t *testing.T, _, file string, data []byte) {
			data[30] ^= 1
			put(t, file, data)
		}, wal.ErrDamaged},
		{"no file", func(t *testing.T, _, file string, _ []byte) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, wal.ErrDamaged},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			l := begin(t, dir)
			write(t, l, "a", "b", "c")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			file := files(t, dir)[0]
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			test.spoil(t, dir, file, data)
			got, err := replay(t, dir, 0)
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if test.want == nil && !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("got %q, want a, b and c", got)
			}
		})
	}
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestUnknown refuses to open if the file with the synced length is damaged.
func TestUnknown(t *testing.T) {
	dir := t.TempDir()
	if err := begin(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "journal-synced"), []byte("short"))
	_, err := wal.Open(wal.Config{FS: vfs.Default, Dir: dir})
	if !errors.Is(err, wal.ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	l := begin(t, dir)
	if err := errors.Join(l.Append(append(make([]byte, 12), "a"...), nil), l.Sync()); err != nil {
		t.Fatal(err)
	}
	// A second reader sees what is on disk. The log stays open, as after a kill.
	got, err := replay(t, dir, 0)
	if err != nil || !slices.Contains(got, "a") {
		t.Errorf("after a sync: got %q, %v, want a", got, err)
	}
}

func TestLater(t *testing.T) {
	l := begin(t, t.TempDir())
	first, second := new(wal.Waiter), new(wal.Waiter)
	for _, w := range []*wal.Waiter{first, second} {
		if err := errors.Join(l.Append(make([]byte, 12), w), w.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ a, b, want *wal.Waiter }{
		{nil, nil, nil}, {first, nil, first}, {nil, first, first}, {first, second, second}, {second, first, second},
	} {
		if got := wal.Later(test.a, test.b); got != test.want {
			t.Errorf("Later(%p, %p): got %p, want %p", test.a, test.b, got, test.want)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
