package segment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

const trace = "../../testdata/kuairand/watch_events.csv.gz"

// histories groups the trace's records into users of size records, each object once. Long histories have longer ids,
// since the trace has fewer objects. With hexadecimal sessions, a random one of 16 digits replaces the replay's
// short one.
func histories(t testing.TB, size int, hexadecimal bool) (all [][]history.Item) {
	t.Helper()
	viewings, err := replay.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	heartbeats, long := max(200_000, 4*size), size > 5000
	if testing.Short() {
		heartbeats = 50_000
	}
	p := replay.Expand(viewings, heartbeats)
	p.EndAt(epoch)
	random := rand.New(rand.NewPCG(1, 1))
	sessions := make(map[string]string)
	users, order := make(map[string]map[history.Object]*history.Record), []string(nil)
	for i := range p.Len() {
		e := p.Event(i)
		if hexadecimal {
			name := e.Key.UID + " " + e.Session
			if sessions[name] == "" {
				sessions[name] = fmt.Sprintf("%016x", random.Uint64())
			}
			e.Session = sessions[name]
		}
		u := users[e.Key.UID]
		if u == nil {
			u = make(map[history.Object]*history.Record)
			users[e.Key.UID] = u
			order = append(order, e.Key.UID)
		}
		r := *history.Merge(u[e.Key.Object], e.Record())
		r.Partial, r.CellTime, r.Revision = false, r.Version.Time(), random.Uint64()
		u[e.Key.Object] = &r
	}
	slices.Sort(order)
	own, items := make(map[history.Object]bool), []history.Item(nil)
	for _, uid := range order {
		for o, r := range users[uid] {
			if long {
				o.ID += "-" + uid
			}
			if own[o] || len(items) == size {
				continue
			}
			own[o] = true
			items = append(items, history.Item{Object: o, Record: r})
		}
		if len(items) == size {
			slices.SortFunc(items, history.NewestFirst)
			all = append(all, items)
			own, items = make(map[history.Object]bool), nil
		}
	}
	return all
}

// TestTrace: all records of the trace survive.
func TestTrace(t *testing.T) {
	for _, items := range histories(t, 1000, true) {
		same(t, decode(t, encode(t, items), nil), items)
	}
}

// BenchmarkSegment encodes and decodes the trace's records, in users of several sizes. It reports bytes with ids,
// filters and metadata, their ratio to the archive's values without ids, and CPU time.
func BenchmarkSegment(b *testing.B) {
	for _, size := range []int{100, 1000, 100_000} {
		for _, hexadecimal := range []bool{false, true} {
			if size > 1000 && !hexadecimal {
				continue
			}
			all := histories(b, size, hexadecimal)
			if len(all) == 0 {
				continue // -short reads too few
			}
			name := fmt.Sprintf("records=%d/hexadecimal=%v", size, hexadecimal)
			b.Run(name+"/encode", func(b *testing.B) {
				var stored, values int
				began := cpu(b)
				for i := 0; b.Loop(); i++ {
					stored += bytesOf(b, encode(b, all[i%len(all)]))
				}
				used := cpu(b) - began
				for i := range b.N {
					values += valuesOf(all[i%len(all)])
				}
				b.ReportMetric(float64(stored)/float64(values), "ratio")
				b.ReportMetric(float64(stored)/float64(b.N*size), "bytes/record")
				b.ReportMetric(float64(used)/float64(b.N*size), "cpu-ns/record")
			})
			chunks := make([][]segment.Encoded, min(len(all), 20))
			for i := range chunks {
				chunks[i] = encode(b, all[i])
			}
			b.Run(name+"/decode", func(b *testing.B) {
				began := cpu(b)
				for i := 0; b.Loop(); i++ {
					decode(b, chunks[i%len(chunks)], nil)
				}
				b.ReportMetric(float64(cpu(b)-began)/float64(b.N*size), "cpu-ns/record")
			})
			b.Run(name+"/page", func(b *testing.B) {
				began := cpu(b)
				for i := 0; b.Loop(); i++ {
					of := chunks[i%len(chunks)]
					pageOf(b, of[len(of)/2])
				}
				b.ReportMetric(float64(cpu(b)-began)/float64(b.N)/1000, "cpu-us/page")
			})
		}
	}
	b.Run("records=1000/summaries", func(b *testing.B) {
		all := histories(b, 1000, true)
		var stored, values int
		for i := 0; b.Loop(); i++ {
			stored += bytesOf(b, summarized(b, all[i%len(all)]))
		}
		for i := range b.N {
			values += valuesOf(all[i%len(all)])
		}
		b.ReportMetric(float64(stored)/float64(values), "ratio")
	})
}

// BenchmarkLanguages tells what the languages of each play cost in the archive: none, the user's, in each tenth others.
func BenchmarkLanguages(b *testing.B) {
	usual := history.NewMeta(map[string]string{"audio": "de", "subtitles": "off"})
	other := history.NewMeta(map[string]string{"audio": "en", "subtitles": "de"})
	for name, of := range map[string][2]history.Meta{"none": {}, "usual": {usual, usual}, "others": {usual, other}} {
		b.Run(name, func(b *testing.B) {
			all := histories(b, 1000, true)
			values, stored := 0, 0
			for _, items := range all {
				for i, it := range items {
					if it.Record.Meta = of[0]; i%10 == 0 {
						it.Record.Meta = of[1]
					}
				}
				values += valuesOf(items)
			}
			for i := 0; b.Loop(); i++ {
				stored += bytesOf(b, encode(b, all[i%len(all)]))
			}
			b.ReportMetric(float64(stored)/float64(b.N*1000), "bytes/record")
			b.ReportMetric(float64(values)/float64(len(all)*1000), "bytes/value")
		})
	}
}

func summarized(b *testing.B, items []history.Item) []segment.Encoded {
	all := make([]history.Summary, len(items))
	for i, it := range items {
		all[i] = history.Summarize(it.Object, it.Record, (*history.Rulebook)(nil).Of(1))
	}
	slices.SortFunc(all, history.LatestFirst)
	chunks, err := segment.EncodeSummaries(all)
	if err != nil {
		b.Fatal(err)
	}
	return chunks
}

func bytesOf(b *testing.B, chunks []segment.Encoded) (total int) {
	m := segment.Metadata{Version: 1}
	for i, c := range chunks {
		c.Name = fmt.Sprintf("1-0123456789abcdef/%d", i)
		m.Chunks = append(m.Chunks, c.Info)
		total += len(c.Data)
	}
	meta, err := m.Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	return total + len(meta)
}

func valuesOf(items []history.Item) (total int) {
	for _, it := range items {
		total += len(wire.AppendRecord(nil, it.Record))
	}
	return total
}

// pageOf opens a chunk and decodes 20 records in its middle.
func pageOf(b *testing.B, chunk segment.Encoded) {
	opened, err := chunk.Open(chunk.Data)
	if err != nil {
		b.Fatal(err)
	}
	found := 0
	for _, err := range opened.Items(func(i int, _ history.Version, _ uint32) bool { return i >= chunk.Count/2 }) {
		if err != nil {
			b.Fatal(err)
		}
		if found++; found == 20 {
			break
		}
	}
}

// cpu returns the CPU time of the process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRows compresses the archive's values with their ids, the alternative to columns. Blocks have 64 records
// and a dictionary trained on other users, or 4,096 and none.
func BenchmarkRows(b *testing.B) {
	all := histories(b, 1000, true)
	rows := func(items []history.Item) (rows []byte) {
		for _, it := range items {
			rows = append(append(rows, it.Object.String()...), wire.AppendRecord(nil, it.Record)[wire.RevisionEnd:]...)
		}
		return rows
	}
	var samples [][]byte
	for _, items := range all[:len(all)/2] {
		for block := range slices.Chunk(items, 64) {
			samples = append(samples, rows(block))
		}
	}
	trained, err := dict.BuildZstdDict(samples, dict.Options{MaxDictSize: 8 << 10, HashBytes: 5, ZstdDictID: 1, ZstdLevel: zstd.SpeedBetterCompression})
	if err != nil {
		b.Fatal(err)
	}
	for block, options := range map[int][]zstd.EOption{64: {zstd.WithEncoderDict(trained)}, 4096: nil} {
		w, err := zstd.NewWriter(nil, append(options, zstd.WithEncoderLevel(zstd.SpeedBetterCompression))...)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("block=", block), func(b *testing.B) {
			size, records := 0, 0
			for b.Loop() {
				for _, items := range all[len(all)/2:] {
					for some := range slices.Chunk(items, block) {
						size += len(w.EncodeAll(rows(some), nil))
					}
					records += len(items)
				}
			}
			b.ReportMetric(float64(size)/float64(records), "bytes/record")
		})
	}
}
