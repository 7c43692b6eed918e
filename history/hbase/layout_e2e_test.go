//go:build e2e

package hbase_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// BenchmarkExport reads a history of 100,000 records in pages, as an export does, with an empty cache. It reports where
// the time goes: HBase's answers about the user's row and about chunks, and the rest, which is the reader's own.
func BenchmarkExport(b *testing.B) {
	client, table := longTable(b)
	u := longUserOf(b, client, table, 100_000)
	for _, perPage := range []int{100, 400} {
		b.Run(fmt.Sprintf("pages-of-%d", perPage), func(b *testing.B) { export(b, u, client, table, perPage) })
	}
}

func export(b *testing.B, u longUser, client gohbase.Client, table string, perPage int) { //nolint:revive // who, where from, and how
	timed := &timedClient{Client: client, segments: []byte(table + "_segments")}
	var all, rows, chunks []float64
	for b.Loop() {
		timed.rows, timed.chunks, timed.exchanges = 0, 0, 0
		u.Archive = hbase.NewCompacting(timed, hbase.Config{Table: table, CompactAbove: 2000, Deadline: time.Minute})
		began, q := time.Now(), history.Query{Limit: perPage}
		for range len(u.cells) / perPage {
			page := u.page(b, q)
			q.After = page.End()
		}
		all = append(all, time.Since(began).Seconds()*1000)
		rows, chunks = append(rows, timed.rows.Seconds()*1000), append(chunks, timed.chunks.Seconds()*1000)
	}
	b.ReportMetric(median(all), "export-ms")
	b.ReportMetric(median(rows), "rows-ms")
	b.ReportMetric(median(chunks), "chunks-ms")
	b.ReportMetric(float64(timed.exchanges), "exchanges-of-chunks")
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// timedClient sums the time of exchanges, apart for the tables.
type timedClient struct {
	gohbase.Client
	segments []byte

	mu           sync.Mutex
	rows, chunks time.Duration
	exchanges    int // about chunks
}

func (c *timedClient) SendBatch(ctx context.Context, calls []hrpc.Call) ([]hrpc.RPCResult, bool) {
	began := time.Now()
	results, ok := c.Client.SendBatch(ctx, calls)
	c.mu.Lock()
	defer c.mu.Unlock()
	if took := time.Since(began); bytes.Equal(calls[0].Table(), c.segments) {
		c.chunks, c.exchanges = c.chunks+took, c.exchanges+1
	} else {
		c.rows += took
	}
	return results, ok
}

// BenchmarkDeletedCells reads a page in the middle of 12,000 live records, then right after their compaction, after
// a flush, and after a major compaction. The records came one by one, or late, as those of an import do. HBase has
// flushed them before, as it does each hour: none that moves is younger than a day. The ratios are to the page before the
// compaction.
func BenchmarkDeletedCells(b *testing.B) {
	for _, late := range []bool{false, true} {
		b.Run(fmt.Sprintf("late=%v", late), func(b *testing.B) { deletedCells(b, late) })
	}
}

func deletedCells(b *testing.B, late bool) {
	const records, pages = 12_000, 50
	client, table := longTable(b)
	figures := make(map[string][]float64)
	for b.Loop() {
		u, compactAll := liveUserOf(b, client, table, records, late)
		page := func(name string) {
			times := make([]float64, pages)
			for i := range times {
				began := time.Now()
				u.page(b, u.query(records/2))
				times[i] = time.Since(began).Seconds() * 1000
			}
			figures[name] = append(figures[name], median(times))
		}
		flush(b, table)
		page("live")
		compactAll()
		page("compacted")
		flush(b, table)
		page("flushed")
		compactUser(b, client, table, u.uid)
		page("major")
	}
	for name, times := range figures {
		ratios := make([]float64, len(times))
		for i := range times {
			ratios[i] = times[i] / figures["live"][i]
		}
		b.ReportMetric(median(ratios), name+"-ratio")
		b.ReportMetric(median(times), name+"-ms")
	}
}

func flush(b *testing.B, table string) {
	b.Helper()
	for _, r := range regionsOf(b, table) {
		regionAdmin(b, r.RegionInfo, r.addr, adminCall{name: "FlushRegion"})
	}
}

// BenchmarkChunkTables compares forms of a table of chunks: 200 values of 60 KiB that do not compress, in files. It
// reports the time of a read in random order, HBase's CPU time of a read, and bytes on disk. Use -benchtime 5x.
func BenchmarkChunkTables(b *testing.B) {
	const chunks, size = 200, 60 << 10
	forms := map[string]map[string]string{
		"as-rows": {"DATA_BLOCK_ENCODING": "FAST_DIFF"},
		"plain":   {"DATA_BLOCK_ENCODING": "NONE"},
		"snappy":  {"DATA_BLOCK_ENCODING": "NONE", "COMPRESSION": "SNAPPY"},
		"256K":    {"DATA_BLOCK_ENCODING": "NONE", "BLOCKSIZE": "262144"},
		"1K":      {"DATA_BLOCK_ENCODING": "NONE", "BLOCKSIZE": "1024"},
	}
	admin, client := gohbase.NewAdminClient(zooKeeper(b)), gohbase.NewClient(zooKeeper(b), gohbase.FlushInterval(0))
	b.Cleanup(client.Close)
	row := func(i int) string { return fmt.Sprintf("00user\x001795651699092.RBJWZ63NR2POH.%d", i) }
	tables := make(map[string]string)
	for form, attributes := range forms {
		tables[form] = tableOf(b)
		attributes["VERSIONS"], attributes["BLOOMFILTER"] = "1", "ROW"
		if err := admin.CreateTable(hrpc.NewCreateTable(b.Context(), []byte(tables[form]), map[string]map[string]string{"segment": attributes})); err != nil {
			b.Fatal(err)
		}
		for i := range chunks {
			value := make([]byte, size)
			_, _ = rand.Read(value)
			put, err := hrpc.NewPutStr(b.Context(), tables[form], row(i), map[string]map[string][]byte{"segment": {"v": value}}, hrpc.SkipBatch())
			if err == nil {
				_, err = client.Put(put)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		compact(b, tables[form])
	}
	times, spends := make(map[string][]float64), make(map[string][]float64)
	names := slices.Sorted(maps.Keys(forms))
	for b.Loop() {
		for _, form := range names {
			var s spent
			began := time.Now()
			s.measure(b, func() {
				for _, i := range mathrand.Perm(5 * chunks) {
					get, err := hrpc.NewGetStr(b.Context(), tables[form], row(i%chunks), hrpc.SkipBatch())
					if err != nil {
						b.Fatal(err)
					}
					if r, err := client.Get(get); err != nil || len(r.Cells) != 1 {
						b.Fatal(r, err)
					}
				}
			})
			times[form] = append(times[form], time.Since(began).Seconds()*1e6/(5*chunks))
			spends[form] = append(spends[form], s.engine.Seconds()*1e6/(5*chunks))
		}
		slices.Reverse(names)
	}
	for _, form := range names {
		b.ReportMetric(median(times[form]), form+"-us")
		b.ReportMetric(median(spends[form]), form+"-cpu-us")
		b.ReportMetric(float64(onDisk(b, tables[form]))/(chunks*size), form+"-disk")
	}
}
