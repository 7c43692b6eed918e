package pebble_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	store "github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/wire"
)

const longRecords = 100_000 // of one user

// BenchmarkOrder compares two orders by time of a row of 100,000 records: the archive's, in memory, and keys in
// Pebble. An operation is a page of 20 from the middle; with "after a put" a record of the user is put before each.
func BenchmarkOrder(b *testing.B) {
	for _, kind := range []struct {
		name string
		open func(b *testing.B) ordered
	}{{"memory", openMemoryOrder}, {"keys", openKeyOrder}} {
		o, start := kind.open(b), now()-longRecords
		fillOrder(b, o, start)
		for _, put := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/put=%t", kind.name, put), func(b *testing.B) {
				o.page(b, start+longRecords/2)
				measured(b, "page", func() {
					for n := range b.N {
						if put {
							o.put(b, []history.Cell{{Key: viewing(0, n*7919%longRecords), Record: beat(start + longRecords + int64(n))}})
						}
						o.page(b, start+longRecords/2)
					}
				})
			})
		}
	}
}

// BenchmarkOrderPuts replaces records of the same row, 500 a call. An operation is a put.
func BenchmarkOrderPuts(b *testing.B) {
	for _, kind := range []struct {
		name string
		open func(b *testing.B) ordered
	}{{"records", openRecords}, {"records and keys", openKeyOrder}} {
		o, start := kind.open(b), now()-longRecords
		fillOrder(b, o, start)
		b.Run(kind.name, func(b *testing.B) {
			n := 0
			measured(b, "put", func() {
				for ; n < b.N; n += 500 {
					cells := make([]history.Cell, 500)
					for i := range cells {
						cells[i] = history.Cell{Key: viewing(0, (n+i)*7919%longRecords), Record: beat(start + longRecords + int64(n+i))}
					}
					o.put(b, cells)
				}
			})
		})
	}
}

type ordered interface {
	put(b *testing.B, cells []history.Cell)
	page(b *testing.B, until int64)
}

func fillOrder(b *testing.B, o ordered, start int64) {
	const step = longRecords / 10
	for n := 0; n < longRecords; n += step {
		cells := make([]history.Cell, step)
		for i := range cells {
			cells[i] = history.Cell{Key: viewing(0, (n+i)*7919%longRecords), Record: beat(start + int64(n+i))}
		}
		o.put(b, cells)
	}
}

type memoryOrder struct{ archive *pebble.Archive }

func openMemoryOrder(b *testing.B) ordered {
	return memoryOrder{open(b, b.TempDir(), pebble.Config{}).Archive()}
}

func (m memoryOrder) put(b *testing.B, cells []history.Cell) {
	for _, err := range m.archive.Put(b.Context(), cells) {
		b.Fatal(err)
	}
}

func (m memoryOrder) page(b *testing.B, until int64) {
	page, err := m.archive.Page(b.Context(), viewing(0, 0).UID, history.Query{Limit: 20, Until: until})
	if err != nil || len(page.Items) == 0 {
		b.Fatalf("got %d items, %v", len(page.Items), err)
	}
}

// keyOrder has a record per object and, with times, a key per record that sorts by time, newest first.
type keyOrder struct {
	db    *store.DB
	times bool
}

func openKeyOrder(b *testing.B) ordered { return openKeys(b, true) }

func openRecords(b *testing.B) ordered { return openKeys(b, false) }

func openKeys(b *testing.B, times bool) ordered {
	db, err := store.Open(b.TempDir(), &store.Options{DisableWAL: true, Logger: quiet{}, CacheSize: 64 << 20, MemTableSize: 32 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return keyOrder{db, times}
}

// quiet discards Pebble's messages.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func timeKey(version history.Version, object []byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte("t"), ^uint64(version)), object...)
}

func (k keyOrder) put(b *testing.B, cells []history.Cell) {
	batch := k.db.NewBatch()
	defer batch.Close()
	for _, c := range cells {
		key := pebble.AppendKey(nil, 'a', c.Key)
		if was, closer, err := k.db.Get(key); err == nil {
			version := wire.Peek(was).Version
			if k.times {
				check(b, batch.Delete(timeKey(version, key), nil))
			}
			check(b, closer.Close())
		}
		check(b, batch.Set(key, wire.AppendRecord(nil, c.Record), nil))
		if k.times {
			check(b, batch.Set(timeKey(c.Record.Version, key), nil, nil))
		}
	}
	check(b, k.db.Apply(batch, store.NoSync))
}

func (k keyOrder) page(b *testing.B, until int64) {
	it, err := k.db.NewIter(&store.IterOptions{LowerBound: timeKey(history.VersionOf(until+1, 0), nil), UpperBound: []byte("u")})
	check(b, err)
	n := 0
	for ok := it.First(); ok && n <= 20; ok = it.Next() {
		value, closer, err := k.db.Get(it.Key()[9:])
		check(b, err)
		if _, err := wire.Record(value); err != nil {
			b.Fatal(err)
		}
		check(b, closer.Close())
		n++
	}
	check(b, it.Close())
	if n == 0 {
		b.Fatal("got no items")
	}
}

func check(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}
