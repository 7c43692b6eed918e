package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// killed holds the files and the acknowledged records of a killed store.
type killed struct {
	files   map[string][]byte
	names   []string
	records map[history.Key]*history.Record // nil if cleared
}

// newKilled writes to tables, to a journal file waiting for its table, and to the newest journal file.
func newKilled(t *testing.T) *killed {
	fs := vfs.NewCrashableMem()
	db := open(t, "store", pebble.Config{}.On(fs))
	k := &killed{files: map[string][]byte{}, records: map[history.Key]*history.Record{}}
	start := now() - 1000
	for n := range 400 {
		user := 1 + n%4
		key := viewing(user, n)
		k.records[key] = beat(start + int64(n))
		mustApply(t, db.Cache(), []history.Write{{Key: key, Record: k.records[key], Cleared: start + int64(n)}})
		if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: key, Record: k.records[key]}}); errs != nil {
			t.Fatal(errs)
		}
		switch n {
		case 100, 200:
			db.Checkpoint()
		case 250, 399:
			k.clear(t, db, 4, start+int64(n))
		case 300:
			db.Flush()
		}
	}
	left := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	k.take(t, left, abs(t, "store"))
	return k
}

func (k *killed) clear(t *testing.T, db *pebble.DB, user int, at int64) {
	uid := viewing(user, 0).UID
	until, err := db.Cache().Clear(t.Context(), uid, history.Clear{Until: at})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Archive().PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{0: until}}); err != nil {
		t.Fatal(err)
	}
	for key := range k.records {
		if key.UID == uid {
			k.records[key] = nil
		}
	}
}

func (k *killed) take(t *testing.T, fs vfs.FS, dir string) {
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			k.take(t, fs, path)
			continue
		}
		f, err := fs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		must(t, errors.Join(err, f.Close()))
		k.files[path], k.names = data, append(k.names, path)
	}
}

// left returns a disk with the files, the one at path replaced by data, or missing if data is nil.
func (k *killed) left(t fataler, path string, data []byte) vfs.FS {
	fs := vfs.NewMem()
	for name, whole := range k.files {
		if name == path {
			whole = data
		}
		if whole == nil {
			continue
		}
		if err := fs.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		// Under the race detector, the file system overwrites the buffers it was given.
		if _, err := f.Write(bytes.Clone(whole)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// TestKilledWhole opens the undamaged files without a log line.
func TestKilledWhole(t *testing.T) {
	k := newKilled(t)
	var log bytes.Buffer
	db := open(t, "store", pebble.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.On(k.left(t, "", nil)))
	for what, err := range k.read(t, db) {
		t.Errorf("%s: %v", what, err)
	}
	if log.Len() != 0 {
		t.Errorf("got the log\n%s\nwant none", log.String())
	}
}

// TestDamageIsNoticed damages one file of a killed store anywhere, in any way. Either the store refuses to open
// with one line, or reads return every acknowledged change or an error.
func TestDamageIsNoticed(t *testing.T) {
	k := newKilled(t)
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom(k.names).Draw(t, "file")
		data, damage := bytes.Clone(k.files[path]), "remove"
		if len(data) > 0 {
			damage = rapid.SampledFrom([]string{"flip", "truncate", "remove", "zero"}).Draw(t, "damage")
		}
		at := rapid.IntRange(0, max(len(data)-1, 0)).Draw(t, "at")
		switch damage {
		case "flip":
			data[at] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		case "truncate":
			data = append([]byte{}, data[:at]...)
		case "zero":
			clear(data[at:min(at+512, len(data))])
		case "remove":
			data = nil
		}
		for _, what := range k.silent(t, path, data) {
			t.Errorf("%s: it is not as it was acknowledged, and nobody said so", what)
		}
	})
}

// silent opens a store with one file replaced and returns the differences from the acknowledged state that no
// error reports.
func (k *killed) silent(t *rapid.T, path string, data []byte) (silent []string) {
	db, err := pebble.Open("store", pebble.Config{}.On(k.left(t, path, data)))
	if err != nil {
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("open: got %q, want one line", err)
		}
		return nil
	}
	defer func() { _ = db.Close() }()
	for what, err := range k.read(t, db) {
		if err == nil {
			silent = append(silent, what)
		}
	}
	return silent
}

// read returns the differences from the acknowledged state, each with its error, if any.
func (k *killed) read(t fataler, db *pebble.DB) map[string]error {
	wrong := map[string]error{}
	dirty, err := db.Cache().Overdue(t.Context(), history.AllBuckets(), 0, 1<<30)
	if err != nil {
		wrong["overdue"] = err
	}
	marked := map[history.Key]bool{}
	for _, key := range dirty {
		marked[key] = true
	}
	for key, want := range k.records {
		e := db.Cache().Load(t.Context(), []history.Key{key})[0]
		if e.Err != nil || (e.Record != nil) != (want != nil) || want != nil && e.Record.Revision != want.Revision {
			wrong[fmt.Sprintf("load %s: %+v", key, e.Record)] = e.Err
		}
		if err == nil && marked[key] != (want != nil) {
			wrong[fmt.Sprintf("mark of %s: %v", key, marked[key])] = nil
		}
		got, err := db.Archive().Get(t.Context(), []history.Key{key})
		if err == nil {
			err = got[0].Err
		}
		if err != nil || (got[0].Record != nil) != (want != nil) {
			wrong["get "+key.String()] = err
		}
	}
	return wrong
}

// TestPromoteBesideDamage promotes records of several users, one with an unreadable state. That record is left
// to its readers; the others are promoted.
func TestPromoteBesideDamage(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{})
	keys := []history.Key{viewing(1, 1), viewing(2, 1), viewing(3, 1)}
	for _, k := range keys {
		must(t, db.Cache().Warm(t.Context(), k.UID, history.WarmSet{}))
		r := beat(now())
		r.Partial = false
		mustApply(t, db.Cache(), []history.Write{{Key: k, Record: r, BeginsHold: true}})
	}
	db.Cache().Damage(history.UserKey(keys[1].UID), []byte{0xff})
	closed(t, db)
	db = open(t, dir, pebble.Config{})
	put, left, err := db.Promote(t.Context(), keys)
	if err != nil || put != 2 || !slices.Equal(left, keys[1:2]) {
		t.Errorf("carried %d, left %v, %v; want two carried and %v left", put, left, err, keys[1])
	}
	for i, e := range db.Cache().Load(t.Context(), keys) {
		if damaged := i == 1; damaged != (e.Err != nil) || !damaged && !e.Record.Clean() {
			t.Errorf("%s: got %+v, %v", keys[i], e.Record, e.Err)
		}
	}
}
