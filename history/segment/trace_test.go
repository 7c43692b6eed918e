package segment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

const trace = "../../testdata/kuairand/watch_events.csv.gz"

// histories groups the trace's records into users of size records, each object once. With hexadecimal sessions,
// a random one of 16 digits replaces the replay's short one.
func histories(t testing.TB, size int, hexadecimal bool) (all [][]history.Item) {
	t.Helper()
	viewings, err := replay.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	heartbeats := 200_000
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

// BenchmarkSegment encodes and decodes the trace's records. Its ratio is the bytes of the segments, with ids,
// filters and metadata, over those of the archive's values without ids.
func BenchmarkSegment(b *testing.B) {
	for _, size := range []int{1000, 100} {
		for _, hexadecimal := range []bool{false, true} {
			all := histories(b, size, hexadecimal)
			name := fmt.Sprintf("records=%d/hexadecimal=%v", size, hexadecimal)
			b.Run(name+"/encode", func(b *testing.B) {
				var stored, values int
				for i := 0; b.Loop(); i++ {
					stored += bytesOf(b, encode(b, all[i%len(all)]))
				}
				records := float64(b.N * size)
				for i := range b.N {
					values += valuesOf(all[i%len(all)])
				}
				b.ReportMetric(float64(stored)/float64(values), "ratio")
				b.ReportMetric(float64(stored)/records, "bytes/record")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/records, "ns/record")
			})
			b.Run(name+"/decode", func(b *testing.B) {
				chunks := make([][]segment.Encoded, len(all))
				for i := range all {
					chunks[i] = encode(b, all[i])
				}
				for i := 0; b.Loop(); i++ {
					decode(b, chunks[i%len(all)], nil)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/record")
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

// BenchmarkPage decodes 20 records in the middle of a full chunk.
func BenchmarkPage(b *testing.B) {
	chunk := encode(b, histories(b, 4000, true)[0])[0]
	b.ReportAllocs()
	for b.Loop() {
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
}
