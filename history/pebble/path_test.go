package pebble_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

var preloaded = flag.Int("records", 0, "records that BenchmarkPath, BenchmarkRestart and BenchmarkScale find in the store")

// pathStore is the part of a store on the path of a heartbeat to the archive.
type pathStore interface {
	Load(ctx context.Context, keys []history.Key) []history.Entry
	Write(ctx context.Context, writes []history.Write) []history.Outcome
	MarkClean(ctx context.Context, contents []history.Content) error
	Get(ctx context.Context, keys []history.Key) ([]history.Entry, error)
	Put(ctx context.Context, cells []history.Cell) []error
	Close() error
}

// journaled is the product's store.
type journaled struct {
	*pebble.Cache
	archive *pebble.Archive
	db      *pebble.DB
}

func (j journaled) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	return j.archive.Get(ctx, keys)
}

func (j journaled) Put(ctx context.Context, cells []history.Cell) []error {
	return j.archive.Put(ctx, cells)
}

func (j journaled) Close() error { return j.db.Close() }

// variants are the store with its journal and one with Pebble's own log.
var variants = []struct {
	name string
	open func(dir string, files vfs.FS) (pathStore, error)
}{
	{"journal", func(dir string, files vfs.FS) (pathStore, error) {
		db, err := pebble.Open(dir, pebble.Config{}.On(files))
		if err != nil {
			return nil, err
		}
		return journaled{db.Cache(), db.Archive(), db}, nil
	}},
	{"plain", func(dir string, files vfs.FS) (pathStore, error) { return pebble.OpenPlain(dir, files) }},
}

// BenchmarkPath takes viewings of 3 or 4 heartbeats to the archive, as the demo does. Each key is loaded, written
// without a base, written with one, loaded by the job, put, and marked clean. 16 callers have 24,000 open
// viewings. An operation is a heartbeat.
//
//	go test ./history/pebble -run '^$' -bench Path -benchtime 200000x
//	go test ./history/pebble -run '^$' -bench Path -benchtime 200000x -timeout 1h -args -records 5000000
func BenchmarkPath(b *testing.B) {
	for _, v := range variants {
		b.Run(v.name, func(b *testing.B) {
			s, err := v.open(b.TempDir(), vfs.Default)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			if b.N > 1 { // the first run only calibrates
				preload(b, s, *preloaded)
			}
			measured(b, "heartbeat", func() { sendHeartbeats(b, s, b.N) })
		})
	}
}

// BenchmarkRestart opens a store in memory after a crash with about 55 MiB of log, and after Close. An
// operation is a start.
func BenchmarkRestart(b *testing.B) {
	for _, v := range variants {
		files := vfs.NewCrashableMem()
		s, err := v.open("store", files)
		if err != nil {
			b.Fatal(err)
		}
		preload(b, s, *preloaded)
		sendHeartbeats(b, s, 130_000)
		killed := files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		for _, state := range []struct {
			name  string
			files *vfs.MemFS
		}{{"killed", killed}, {"closed", files}} {
			b.Run(v.name+"/"+state.name, func(b *testing.B) { restart(b, v.open, state.files) })
		}
	}
}

// restart opens copies of a store.
func restart(b *testing.B, open func(string, vfs.FS) (pathStore, error), files *vfs.MemFS) {
	var took, used time.Duration
	for range b.N {
		again := files.CrashClone(vfs.CrashCloneCfg{})
		began, before := time.Now(), cpu()
		s, err := open("store", again)
		if err != nil {
			b.Fatal(err)
		}
		took, used = took+time.Since(began), used+cpu()-before
		_ = s.Close()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took.Seconds()*1000/float64(b.N), "ms/start")
	b.ReportMetric(used.Seconds()*1000/float64(b.N), "cpu-ms/start")
}

// preload writes n archived, clean records of users with 40 each.
func preload(b *testing.B, s pathStore, n int) {
	b.Helper()
	if n > 0 {
		runViewings(b, s, n, load{beats: 1, users: preloadedUsers(n), first: 1_000_000})
	}
}

func preloadedUsers(n int) int { return max(n/40, 1) }

// sendHeartbeats sends n heartbeats of viewings with 3 or 4 each.
func sendHeartbeats(b *testing.B, s pathStore, n int) {
	runViewings(b, s, n, load{beats: 3, users: 25_000})
}

const (
	pathCallers = 16
	pathAtOnce  = 1500 // viewings per caller
)

// load is a kind of viewing. Half of the viewings have the given beats, the others one more, unless beats is 1.
// Objects are numbered from first.
type load struct{ beats, users, first int }

// runViewings sends n heartbeats from all callers.
func runViewings(b *testing.B, s pathStore, n int, l load) {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for caller := range pathCallers {
		all.Go(func() {
			for round := 0; left.Load() > 0; round++ {
				v := make([]*openViewing, pathAtOnce)
				for i := range v {
					at := (round*pathCallers+caller)*pathAtOnce + i
					v[i] = &openViewing{key: viewing(at%l.users, l.first+at), beats: l.beats + i%2*min(l.beats-1, 1)}
				}
				rand.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
				for len(v) > 0 && left.Load() > 0 {
					for some := range slices.Chunk(v, window) {
						left.Add(-int64(len(some)))
						beatAll(b, s, some)
					}
					v = archiveDone(b, s, v)
				}
			}
		})
	}
	all.Wait()
}

// openViewing is a viewing with heartbeats still to send.
type openViewing struct {
	key   history.Key
	base  uint64
	beats int
}

func beatAll(b *testing.B, s pathStore, some []*openViewing) {
	var unknown []history.Key
	writes := make([]history.Write, len(some))
	for i, v := range some {
		if v.base == 0 {
			unknown = append(unknown, v.key)
		}
		r := beat(time.Now().UnixMilli())
		r.Revision &^= history.CleanBit
		writes[i] = history.Write{Key: v.key, Base: v.base, Record: r, BeginsHold: v.base == 0}
		v.base = r.Revision
		v.beats--
	}
	for i, e := range s.Load(b.Context(), unknown) {
		if e.Err != nil || e.Record != nil {
			b.Errorf("load %s: got %v, %v; want none", unknown[i], e.Record, e.Err)
		}
	}
	for i, o := range s.Write(b.Context(), writes) {
		if o.Status != history.Applied {
			b.Fatalf("apply %s: got status %d, %v; want applied", writes[i].Key, o.Status, o.Err)
		}
	}
}

// archiveDone archives the finished viewings as the job does and returns the others.
func archiveDone(b *testing.B, s pathStore, all []*openViewing) (rest []*openViewing) {
	var keys []history.Key
	for _, v := range all {
		if v.beats == 0 {
			keys = append(keys, v.key)
		} else {
			rest = append(rest, v)
		}
	}
	for some := range slices.Chunk(keys, 500) {
		archiveSome(b, s, some)
	}
	return rest
}

func archiveSome(b *testing.B, s pathStore, keys []history.Key) {
	if _, err := s.Get(b.Context(), keys); err != nil { // completes partial records
		b.Fatal(err)
	}
	cells, contents := make([]history.Cell, len(keys)), make([]history.Content, len(keys))
	for i, e := range s.Load(b.Context(), keys) {
		if e.Err != nil || e.Record == nil {
			b.Fatalf("load %s: got %v, %v", keys[i], e.Record, e.Err)
		}
		cells[i] = history.Cell{Key: keys[i], Record: e.Record}
		contents[i] = history.Content{Key: keys[i], Revision: e.Record.Revision}
	}
	for _, err := range s.Put(b.Context(), cells) {
		b.Fatal(err)
	}
	if err := s.MarkClean(b.Context(), contents); err != nil {
		b.Fatal(err)
	}
}
