//go:build e2e

package hbase_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/paired"
)

const (
	benchCallers = 4
	benchCells   = 500
	benchBatches = 20 // per caller and turn
)

// BenchmarkPut puts the same load through the archive and the bare client in turns. It reports both rates in cells
// per second and their ratio.
func BenchmarkPut(b *testing.B) {
	c := hbase.Config{Table: tableOf(b)}
	a := open(b, c)
	raw := gohbase.NewClient(zooKeeper(b))
	defer raw.Close()
	bare := func(ctx context.Context, cells []history.Cell) error { return sendBatch(ctx, raw, c.Table, cells) }
	ours := func(ctx context.Context, cells []history.Cell) error {
		for _, err := range a.Put(ctx, cells) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	turn(b, ours) // warms up a new table and a cold server
	turn(b, bare)
	var spent, bareSpent time.Duration
	turns := 0
	for b.Loop() {
		bareSpent += turn(b, bare)
		spent += turn(b, ours)
		turns++
	}
	cells := float64(turns * benchCallers * benchCells * benchBatches)
	b.ReportMetric(cells/spent.Seconds(), "cells/s")
	b.ReportMetric(cells/bareSpent.Seconds(), "bare-cells/s")
	b.ReportMetric(bareSpent.Seconds()/spent.Seconds(), "ratio")
}

// turn makes every caller put its batches, and returns the total time.
func turn(b *testing.B, put func(context.Context, []history.Cell) error) time.Duration {
	b.Helper()
	load := make([][]history.Cell, benchCallers*benchBatches)
	for i := range load {
		load[i] = benchLoad()
	}
	start := time.Now()
	var wg sync.WaitGroup
	for caller := range benchCallers {
		wg.Go(func() {
			for _, cells := range load[caller*benchBatches:][:benchBatches] {
				if err := put(b.Context(), cells); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// benchLoad returns one cell of about 200 bytes for each of many users.
func benchLoad() []history.Cell {
	cells, now := make([]history.Cell, benchCells), time.Now().UnixMilli()
	for i := range cells {
		cells[i] = history.Cell{
			Key: history.Key{UID: rand.Text(), Object: history.Object{ID: fmt.Sprint(i), Type: 1}},
			Record: &history.Record{
				Revision: uint64(i + 1), Version: history.VersionOf(now, history.RankProgress), State: history.StatePlaying,
				Position: 61_000, Session: rand.Text(), Device: "a television", Duration: 120_000,
				DurationVersion: history.VersionOf(now, history.RankProgress),
				Meta:            history.NewMeta(map[string]string{"title": "A title of ordinary length", "series": "and its series, which is longer"}),
				MetaVersion:     history.VersionOf(now, history.RankProgress),
			},
		}
	}
	return cells
}

// sendBatch puts cells without this package.
func sendBatch(ctx context.Context, client gohbase.Client, table string, cells []history.Cell) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	calls := make([]hrpc.Call, len(cells))
	for i, c := range cells {
		values := map[string]map[string][]byte{"info": {c.Key.Object.String(): wire.AppendRecord(nil, c.Record)}}
		call, err := hrpc.NewPutStr(ctx, table, history.RowKey(c.Key.UID), values, hrpc.TimestampUint64(uint64(c.Record.Version.Time())))
		if err != nil {
			return err
		}
		calls[i] = call
	}
	results, _ := client.SendBatch(ctx, calls)
	for _, r := range results {
		if r.Error != nil {
			return r.Error
		}
	}
	return nil
}

// BenchmarkLongHistory reads pages of 20 of ever longer histories, all but the newest records in segments. It reads
// front, middle and end, with warm and cold caches. The baseline is a row just below the compaction threshold.
func BenchmarkLongHistory(b *testing.B) {
	client, table := longTable(b)
	for _, n := range []int{2_000, 10_000, 100_000} {
		u := longUserOf(b, client, table, n)
		for name, at := range map[string]int{"front": n - 1, "middle": n / 2, "end": 20} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				for b.Loop() {
					u.page(b, u.query(at))
				}
			})
			b.Run(fmt.Sprintf("%d/%s/cold", n, name), func(b *testing.B) { // with empty caches
				for b.Loop() {
					cold := u
					cold.Archive = u.another()
					cold.page(b, u.query(at))
				}
			})
		}
	}
}

// BenchmarkLongHistoryRatios compares a user of 100,000 records with shorter ones, in turns. Pages of 20 compare
// with 2,000 uncompacted records; full exports and warm-ups with 10,000. Run with -benchtime 7x for seven rounds.
func BenchmarkLongHistoryRatios(b *testing.B) {
	client, table := longTable(b)
	var variants []paired.Variant
	add := func(name, of string, times int, do func()) {
		variants = append(variants, paired.Variant{Name: name, Of: of, Times: times, Do: do})
	}
	for _, n := range []int{2_000, 10_000, 100_000} {
		u := longUserOf(b, client, table, n)
		page := func(at int) func() { return func() { u.page(b, u.query(at)) } }
		export := func() {
			q := history.Query{Limit: 100}
			for range n / q.Limit {
				page := u.page(b, q)
				q.After = page.End()
			}
		}
		warm := func() { u.page(b, history.Query{Limit: 1000}) }
		switch n {
		case 2_000:
			add("low watermark", "", 100, page(n/2))
			add("warm-2000", "", 20, warm)
		case 10_000:
			add("export-10000", "", 1, export)
		default:
			add("middle", "low watermark", 100, page(n/2))
			add("end", "low watermark", 100, page(20))
			add("warm-100000", "warm-2000", 20, warm)
			add("export-100000", "export-10000", 1, export)
		}
	}
	paired.Run(b, variants)
}

func longTable(b *testing.B) (client gohbase.Client, table string) {
	b.Helper()
	table = compactingTableOf(b)
	open(b, hbase.Config{Table: table, Regions: 1, CompactAbove: 2000})
	client = gohbase.NewClient(zooKeeper(b), gohbase.FlushInterval(0))
	b.Cleanup(client.Close)
	return client, table
}

// longUser is a user with as many records as possible in segments, after HBase forgot the live cells. cells is
// sorted by age.
type longUser struct {
	*hbase.Archive
	uid     string
	cells   []history.Cell
	another func() *hbase.Archive
}

func longUserOf(b *testing.B, client gohbase.Client, table string, n int) longUser {
	b.Helper()
	u, compactAll := liveUserOf(b, client, table, n, true)
	compactAll()
	compactUser(b, client, table, u.uid)
	return u
}

// liveUserOf returns a user with n live records, put as they came or late, as by an import. compactAll compacts all that
// are old.
func liveUserOf(b *testing.B, client gohbase.Client, table string, n int, late bool) (u longUser, compactAll func()) { //nolint:revive // what a user is made of
	b.Helper()
	clock := &testClock{at: time.Now()}
	u = longUser{uid: "u" + rand.Text(), another: func() *hbase.Archive {
		return hbase.NewCompacting(client, hbase.Config{Table: table, CompactAbove: 2000, Now: clock.now, Deadline: time.Minute})
	}}
	u.Archive = u.another()
	start := time.Now().Add(-80 * 24 * time.Hour).UnixMilli()
	for i := range n {
		r := record(start + int64(i)*60_000)
		r.Session = fmt.Sprintf("%016x", i*7919)
		u.cells = append(u.cells, history.Cell{Key: history.Key{UID: u.uid, Object: history.Object{ID: fmt.Sprint(i), Type: 1}}, Record: r})
	}
	by := u.Archive
	if !late {
		by = hbase.Over(client, hbase.Config{Table: table, Now: func() time.Time { return time.Unix(1, 0) }, Deadline: time.Minute}) // nothing is old for it
	}
	if errs := by.Put(b.Context(), u.cells); errs != nil {
		b.Fatal(errs)
	}
	return u, func() {
		clock.pass(3 * time.Hour)
		for again := time.Millisecond; again == time.Millisecond; {
			var err error
			if again, err = u.Compact(b.Context(), u.uid); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// query asks for the 20 records before a given one.
func (u longUser) query(at int) history.Query {
	return history.Query{Limit: 20, After: history.Cursor{Version: u.cells[at].Record.Version, Object: u.cells[at].Key.Object}}
}

func (u longUser) page(b *testing.B, q history.Query) history.Page {
	page, err := u.Page(b.Context(), u.uid, q)
	if err != nil || len(page.Items) != q.Limit {
		b.Fatal(len(page.Items), err)
	}
	return page
}

// BenchmarkCompact grows a user to 20,000 records, a thousand per round, a fifth of them rewatched. It reports the
// CPU of a put and of a compacted record, ours and HBase's, and the bytes written per remaining record.
func BenchmarkCompact(b *testing.B) {
	table := compactingTableOf(b)
	open(b, hbase.Config{Table: table, Regions: 1, CompactAbove: 2})
	client := gohbase.NewClient(zooKeeper(b), gohbase.FlushInterval(0))
	b.Cleanup(client.Close)
	for b.Loop() {
		clock := &testClock{at: time.Now().Add(-30 * 24 * time.Hour)}
		a := hbase.NewCompacting(client, hbase.Config{Table: table, CompactAbove: 2, CompactAfter: time.Minute, CompactMargin: time.Minute, Now: clock.now, Deadline: time.Minute})
		uid, records := "u"+rand.Text(), 0
		var puts, compactions spent
		for round := range 25 {
			cells := growth(uid, round, clock.now().UnixMilli())
			puts.measure(b, func() {
				for some := range slices.Chunk(cells, 100) {
					if errs := a.Put(b.Context(), some); errs != nil {
						b.Fatal(errs)
					}
				}
			})
			clock.pass(time.Hour)
			compactions.measure(b, func() {
				if _, err := a.Compact(b.Context(), uid); err != nil {
					b.Fatal(err)
				}
			})
			records += len(cells)
			compactUser(b, client, table, uid) // rounds of a real user are days apart
		}
		i, err := a.Inspect(b.Context(), uid, false)
		if err != nil || i.Live > 1000 {
			b.Fatalf("%d live records, %v", i.Live, err)
		}
		list, err := i.Segments.Append(nil)
		if err != nil {
			b.Fatal(err)
		}
		size := len(list)
		for _, c := range i.Segments.Chunks {
			size += c.Bytes
		}
		b.ReportMetric(float64(puts.ours.Nanoseconds())/float64(records), "cpu-ns/put")
		b.ReportMetric(float64(compactions.ours.Nanoseconds())/float64(records), "cpu-ns/compacted")
		b.ReportMetric(float64(puts.engine.Nanoseconds())/float64(records), "hbase-ns/put")
		b.ReportMetric(float64(compactions.engine.Nanoseconds())/float64(records), "hbase-ns/compacted")
		b.ReportMetric(a.WrittenSegments()/float64(size), "written/byte")
	}
}

// BenchmarkDisk compares the trace's disk size after a major compaction, all live against all but one in segments.
// Both use the same block compression.
func BenchmarkDisk(b *testing.B) {
	for _, codec := range []string{"none", "snappy", "gz"} {
		for _, each := range []int{1000, 4000} {
			b.Run(fmt.Sprintf("%s/%d", codec, each), func(b *testing.B) {
				for b.Loop() {
					onceOnDisk(b, codec, each)
				}
			})
		}
	}
}

const diskRecords = 24_000 // of all users

func onceOnDisk(b *testing.B, codec string, each int) {
	table, clock := compactingTableOf(b), &testClock{at: time.Now().Add(-30 * 24 * time.Hour)}
	open(b, hbase.Config{Table: table, Regions: 1, Compression: codec, CompactAbove: 2})
	client := gohbase.NewClient(zooKeeper(b), gohbase.FlushInterval(0))
	b.Cleanup(client.Close)
	a := hbase.NewCompacting(client, hbase.Config{Table: table, CompactAbove: 2, CompactAfter: time.Minute, CompactMargin: time.Minute, Now: clock.now, Deadline: time.Minute})
	cells := traced(b, diskRecords/each, each, clock.now().Add(-time.Hour))
	recent := hbase.Over(client, hbase.Config{Table: table, Now: func() time.Time { return time.Unix(1, 0) }}) // nothing is old for it
	for some := range slices.Chunk(cells, 1000) {
		if errs := recent.Put(b.Context(), some); errs != nil {
			b.Fatal(errs)
		}
	}
	compact(b, table)
	live := onDisk(b, table)
	clock.pass(time.Hour)
	for u := range diskRecords / each {
		for again := time.Millisecond; again == time.Millisecond; {
			var err error
			if again, err = a.Compact(b.Context(), fmt.Sprintf("u%d", u)); err != nil {
				b.Fatal(err)
			}
		}
	}
	compactUser(b, client, table, "u0")
	compact(b, table+"_segments")
	segments := onDisk(b, table) + onDisk(b, table+"_segments")
	b.ReportMetric(float64(live)/float64(len(cells)), "live-B/record")
	b.ReportMetric(float64(segments)/float64(len(cells)), "parts-B/record")
	b.ReportMetric(float64(segments)/float64(live), "ratio")
}

// traced returns the trace's records, spread over users and shifted to end at a time. Sessions have 16 random
// digits.
func traced(b *testing.B, users, each int, end time.Time) (cells []history.Cell) {
	b.Helper()
	viewings, err := replay.ReadFile("../../testdata/kuairand/watch_events.csv.gz")
	if err != nil {
		b.Fatal(err)
	}
	p := replay.Expand(viewings, 100*users*each)
	p.EndAt(end.UnixMilli())
	type viewer struct{ uid, session string }
	records, sessions := make(map[history.Key]*history.Record), make(map[viewer]string)
	for i := range p.Len() {
		e := p.Event(i)
		by := viewer{e.Key.UID, e.Session}
		sessions[by] = cmp.Or(sessions[by], fmt.Sprintf("%016x", mathrand.Uint64()))
		e.Session = sessions[by]
		r := *history.Merge(records[e.Key], e.Record())
		r.Partial, r.CellTime, r.Revision = false, r.Version.Time(), mathrand.Uint64()
		records[e.Key] = &r
	}
	taken := make(map[history.Key]bool)
	for _, k := range slices.SortedFunc(maps.Keys(records), func(a, b history.Key) int { return cmp.Compare(a.UID, b.UID) }) {
		own := history.Key{UID: fmt.Sprintf("u%d", len(cells)/each), Object: k.Object}
		if len(cells) < users*each && !taken[own] {
			taken[own] = true
			cells = append(cells, history.Cell{Key: own, Record: records[k]})
		}
	}
	if len(cells) < users*each {
		b.Fatalf("the trace has %d records, want %d", len(cells), users*each)
	}
	return cells
}

// onDisk returns the size of a table's files once a major compaction has left one per family.
func onDisk(b *testing.B, table string) (size int64) {
	b.Helper()
	for begun, before := time.Now(), int64(-1); size == 0 || size != before || time.Since(begun) < 5*time.Second; time.Sleep(time.Second) {
		newest := make(map[string]os.FileInfo)
		for _, stat := range commands(b, "org.apache.hadoop.hbase") {
			command, err := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
			if err != nil {
				b.Fatal(err)
			}
			_, dir, _ := strings.Cut(string(command), "-Dplayhead.dir=")
			dir, _, _ = strings.Cut(dir, "\x00")
			files, err := filepath.Glob(filepath.Join(dir, "root/data/default", table, "*/*/*"))
			if err != nil {
				b.Fatal(err)
			}
			for _, file := range files {
				info, err := os.Stat(file)
				family := filepath.Dir(file)
				if err != nil || info.IsDir() || strings.ContainsAny(filepath.Base(family), ".") { // recovered.edits, .tmp
					continue
				}
				if newest[family] == nil || info.ModTime().After(newest[family].ModTime()) {
					newest[family] = info
				}
			}
		}
		before, size = size, 0
		for _, info := range newest {
			size += info.Size()
		}
	}
	return size
}

// growth returns a round of records; a fifth are of known objects.
func growth(uid string, round int, at int64) (cells []history.Cell) {
	for i := range 1000 {
		n := round*800 + i
		if i < 200 {
			n = mathrand.IntN(round*800 + 1)
		}
		r := record(at - 1_000_000 + int64(i)*1000)
		r.Session = fmt.Sprintf("%016x", mathrand.Uint64())
		cells = append(cells, history.Cell{Key: history.Key{UID: uid, Object: history.Object{ID: fmt.Sprint(n), Type: 1}}, Record: r.Successor(nil)})
	}
	return cells
}

// cpu returns the CPU time of this process and of HBase on this machine.
func cpu(b *testing.B) (ours, engine time.Duration) {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	for _, stat := range commands(b, "org.apache.hadoop.hbase") {
		text, err := os.ReadFile(stat)
		if err != nil {
			b.Fatal(err)
		}
		_, fields, _ := strings.Cut(string(text), ") ")
		for _, ticks := range strings.Fields(fields)[11:13] { // user and system time, in hundredths of a second
			n, err := strconv.Atoi(ticks)
			if err != nil {
				b.Fatal(err)
			}
			engine += time.Duration(n) * time.Second / 100
		}
	}
	if engine == 0 {
		b.Fatal("no process of HBase")
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), engine
}

// commands returns the stat files of processes whose command line contains text.
func commands(b *testing.B, text string) (found []string) {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, stat := range stats {
		if command, err := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline")); err == nil && bytes.Contains(command, []byte(text)) {
			found = append(found, stat)
		}
	}
	return found
}

// spent is CPU time used.
type spent struct{ ours, engine time.Duration }

func (s *spent) measure(b *testing.B, what func()) {
	b.Helper()
	ours, engine := cpu(b)
	what()
	o, e := cpu(b)
	s.ours, s.engine = s.ours+o-ours, s.engine+e-engine
}

// compactUser major-compacts the table until the user's deleted cells are gone.
func compactUser(b *testing.B, client gohbase.Client, table, uid string) {
	b.Helper()
	compact(b, table)
	row := history.RowKey(uid)
	for cells := 1 << 30; cells > 2100; {
		scan, err := hrpc.NewScanRangeStr(b.Context(), table, row, row+"\x00", hrpc.Attribute("_raw_", []byte{0xff}), hrpc.AllowPartialResults())
		if err != nil {
			b.Fatal(err)
		}
		cells = 0
		for rows := client.Scan(scan); ; {
			r, err := rows.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			cells += len(r.Cells)
		}
	}
}
