package segment_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// golden reads stored bytes, which never change.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(string(bytes.Join(bytes.Fields(text), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// everything returns three records with all fields set, and a tombstone.
func everything() []history.Item {
	items := viewings(4)
	r := *items[1].Record
	r.Partial, r.Early, r.State, r.Restored, r.Original = true, true, history.StatePlaying, true, r.Version-40_000
	r.Session, r.Device = "s-1", "téléphone"
	r.ResumePoint = history.ResumePoint{Version: r.Version - 4000, Position: 70_000}
	r.DurationVersion -= 8000
	r.Meta, r.MetaVersion = history.NewMeta(map[string]string{"title": "Ä", "season": "2", "empty": ""}), r.Version-8000
	r.Peaks = []history.Peak{{At: epoch - 9_000_000, Position: 5_399_000}, {At: epoch - 8_000_000, Position: 70_000}}
	r.Completions = []history.Stay{
		{At: epoch - 9_000_000, Viewing: 1, Length: 15_000, Duration: 60_000, Position: 59_000, Reach: 65_555, Began: epoch - 9_070_000, Sure: true},
		{At: epoch - 8_000_000, Viewing: history.ViewingOf("s-1"), Duration: r.Duration, Position: 5_399_000, Reach: 5_998_888},
	}
	r.AtEnd, r.Lows = true, []history.Low{{At: epoch - 8_100_000, Viewing: history.ViewingOf("s-1"), Length: 90_000, Duration: 60_000}}
	r.Starts = []history.Start{{At: epoch - 8_200_000, Viewing: history.ViewingOf("s-1"), Position: 3, Duration: 60_000}}
	r.Watches = []history.WatchedTime{
		{At: epoch - 9_000_000, Viewing: 1, Watched: 60_000, Began: epoch - 9_070_000, Speed: 150},
		{At: epoch - 7_000_000, Viewing: 2, Watched: 1000, Began: epoch - 7_001_000},
	}
	r.PlaysBefore, r.PlaysBeforeAt = 7, epoch-20_000_000
	r.WatchedBefore, r.WatchedBeforeAt = 3_600_000, epoch-20_000_000
	r.RemovedAt, r.CellTime = epoch-30_000_000, epoch+300
	r.Unknown, r.UnknownVersion = "\xe0\x02\x07", r.Version-12_000
	items[1] = history.Item{Object: history.Object{ID: "ep_7:de", Type: 4_294_967_295}, Record: &r}
	tombstone := history.Event{Kind: history.KindDelete, At: epoch - 2000, Device: "tv"}
	items[2].Record = tombstone.Record()
	return items
}

// TestGoldenChunk pins the format of chunks. Their columns are compared, since another version of zstd may compress
// them to other bytes.
func TestGoldenChunk(t *testing.T) {
	for name, items := range map[string][]history.Item{"chunk": everything(), "viewings": viewings(100)} {
		if got, want := segment.Columns(encode(t, items)[0].Data), segment.Columns(golden(t, name)); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded:\ngot  %x\nwant %x", name, got, want)
		}
		c, err := segment.Open(golden(t, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []history.Item
		for it, err := range c.Items(nil) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, it)
		}
		same(t, got, items)
	}
}

func TestGoldenSummaries(t *testing.T) {
	var all []history.Summary
	for _, it := range everything()[:2] {
		all = append(all, history.Summarize(it.Object, it.Record, (*history.Rulebook)(nil).Of(1)))
	}
	chunks, err := segment.EncodeSummaries(all)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := segment.Columns(chunks[0].Data), segment.Columns(golden(t, "summaries")); !bytes.Equal(got, want) {
		t.Errorf("encoded:\ngot  %x\nwant %x", got, want)
	}
}

func TestGoldenMetadata(t *testing.T) {
	if got, want := metadata(t), golden(t, "metadata"); !bytes.Equal(got, want) {
		t.Errorf("encoded:\ngot  %x\nwant %x", got, want)
	}
}

// metadata lists two chunks of records and one of summaries.
func metadata(t testing.TB) []byte {
	t.Helper()
	m := listed(t)
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func listed(t testing.TB) segment.Metadata {
	t.Helper()
	old, err := segment.EncodeSummaries([]history.Summary{history.Summarize(viewed(9).Object, viewed(9).Record, history.Rules{})})
	if err != nil {
		t.Fatal(err)
	}
	m := segment.Metadata{Version: 7, Cleared: map[uint32]int64{0: epoch, 300: epoch - 5}, Chunks: []segment.Info{encode(t, everything()[:2])[0].Info, encode(t, everything()[2:])[0].Info, old[0].Info}}
	for i := range m.Chunks {
		m.Chunks[i].Name = fmt.Sprintf("7-0123456789abcdef/%d", i)
		m.Chunks[i].Bytes, m.Chunks[i].Sum = 300+i, 0x0123456789abcdef
	}
	m.Chunks[1].Superseded, m.Chunks[1].Full = []uint16{1}, true
	m.Chunks[1].Types[0].Count--
	return m
}

// TestDamagedChunk truncates a chunk at every byte and changes every byte.
func TestDamagedChunk(t *testing.T) {
	for _, b := range [][]byte{encode(t, everything())[0].Data, encode(t, viewings(100))[0].Data} {
		for n := range b {
			if _, err := segment.Open(b[:n]); !errors.Is(err, segment.ErrCorrupt) {
				t.Fatalf("the first %d bytes of %d: got %v, want ErrCorrupt", n, len(b), err)
			}
			other := bytes.Clone(b)
			other[n] ^= 0x10
			if _, err := segment.Open(other); !errors.Is(err, segment.ErrCorrupt) {
				t.Fatalf("byte %d of %d changed: got %v, want ErrCorrupt", n, len(b), err)
			}
		}
	}
}

// TestForeignChunk opens chunks with another one's metadata.
func TestForeignChunk(t *testing.T) {
	own, foreign := encode(t, viewings(100))[0], encode(t, viewings(101)[1:])[0]
	if _, err := own.Open(foreign.Data); !errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("another chunk: got %v, want ErrCorrupt", err)
	}
	miscounted := own.Info
	miscounted.Count++
	if _, err := miscounted.Open(own.Data); !errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("one record more listed: got %v, want ErrCorrupt", err)
	}
	newer := bytes.Clone(own.Data)
	newer[0]++
	if _, err := segment.Open(segment.Seal(newer)); !errors.Is(err, segment.ErrNewer) || errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("a newer format: got %v, want ErrNewer", err)
	}
	c, err := segment.Open(own.Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Summaries() {
		if !errors.Is(err, segment.ErrCorrupt) {
			t.Errorf("records read as summaries: got %v, want ErrCorrupt", err)
		}
	}
}

// TestOtherColumns reads a chunk of an older version, with fewer columns, and refuses one of a newer version,
// whose extra columns would be lost.
func TestOtherColumns(t *testing.T) {
	items := viewings(3)
	c, err := segment.Open(segment.WithColumns(items, -2)) // without the columns of starts
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for it, err := range c.Items(nil) {
		if err != nil {
			t.Fatal(err)
		}
		same(t, []history.Item{it}, items[n:n+1])
		n++
	}
	if err := read(segment.WithColumns(items, 1)); !errors.Is(err, segment.ErrNewer) {
		t.Errorf("a column more: got %v, want ErrNewer", err)
	}
}

// TestDamagedMetadata: invalid lists are neither written nor read.
func TestDamagedMetadata(t *testing.T) {
	tests := map[string]struct {
		change func(m *segment.Metadata)
		reason string
	}{
		"listed twice":     {func(m *segment.Metadata) { m.Chunks[1].Name = m.Chunks[0].Name }, "twice"},
		"overlap":          {func(m *segment.Metadata) { m.Chunks[1].Newest = m.Chunks[0].Oldest + 1 }, "overlaps"},
		"swapped":          {func(m *segment.Metadata) { m.Chunks[0], m.Chunks[1] = m.Chunks[1], m.Chunks[0] }, "overlaps"},
		"upside down":      {func(m *segment.Metadata) { m.Chunks[1].Oldest = m.Chunks[1].Newest + 1 }, "newer than"},
		"no records":       {func(m *segment.Metadata) { m.Chunks[0].Count = 0 }, "0 records"},
		"too many records": {func(m *segment.Metadata) { m.Chunks[0].Count = segment.MaxRecords + 1 }, "4097 records"},
		"no bytes":         {func(m *segment.Metadata) { m.Chunks[0].Bytes = 0 }, "0 bytes"},
		"no name":          {func(m *segment.Metadata) { m.Chunks[0].Name = "" }, "name"},
		"all superseded":   {func(m *segment.Metadata) { m.Chunks[0].Superseded = []uint16{0, 1} }, "superseded"},
		"twice":            {func(m *segment.Metadata) { m.Chunks[0].Count, m.Chunks[0].Superseded = 3, []uint16{1, 1} }, "superseded"},
		"one beyond":       {func(m *segment.Metadata) { m.Chunks[0].Superseded = []uint16{2} }, "superseded"},
		"half a filter":    {func(m *segment.Metadata) { m.Chunks[0].Filter = m.Chunks[0].Filter[:5] }, "filter"},
		"too many types":   {func(m *segment.Metadata) { m.Chunks[0].Types[0].Count++ }, "types"},
		"none of a type":   {func(m *segment.Metadata) { m.Chunks[0].Types[0].Count = 0 }, "types"},
		"types twice":      {func(m *segment.Metadata) { m.Chunks[0].Types[1].Type = 1 }, "types"},
		"kind":             {func(m *segment.Metadata) { m.Chunks[2].Kind = 3 }, "kind 3"},
		"summaries first":  {func(m *segment.Metadata) { m.Chunks[0], m.Chunks[2] = m.Chunks[2], m.Chunks[0] }, "after summaries"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := listed(t)
			tt.change(&m)
			if _, err := m.Append(nil); !errors.Is(err, history.ErrInvalid) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("append: got %v, want ErrInvalid with %q", err, tt.reason)
			}
			if _, err := segment.ParseMetadata(segment.Unchecked(&m)); !errors.Is(err, segment.ErrCorrupt) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("parse: got %v, want ErrCorrupt with %q", err, tt.reason)
			}
		})
	}
	b := metadata(t)
	for n := range b {
		if _, err := segment.ParseMetadata(b[:n]); !errors.Is(err, segment.ErrCorrupt) {
			t.Fatalf("the first %d bytes of %d: got %v, want ErrCorrupt", n, len(b), err)
		}
	}
	b[0]++
	if _, err := segment.ParseMetadata(segment.Seal(b)); !errors.Is(err, segment.ErrNewer) {
		t.Errorf("a newer format: got %v, want ErrNewer", err)
	}
}

// TestHostileLengths: lengths beyond the input cause no allocation.
func TestHostileLengths(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}
	full := encode(t, viewings(2000))[0].Data
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := 1; n < 60; n++ {
		b := append(append(bytes.Clone(full[:n]), huge...), full[n+len(huge):]...)
		if err := read(segment.Seal(b)); err != nil {
			known(t, err)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 200<<20 {
		t.Errorf("59 chunks that assignment too much took %d MiB, want a few each", took>>20)
	}
}

// read opens and reads any bytes.
func read(b []byte) error {
	c, err := segment.Open(b)
	if err != nil {
		return err
	}
	for _, err := range c.Items(nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

// FuzzChunk reads any bytes with a valid checksum. Decoded items can be encoded again.
func FuzzChunk(f *testing.F) {
	f.Add(encode(f, everything())[0].Data)
	f.Add(encode(f, viewings(50))[0].Data)
	f.Add([]byte{1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := segment.Open(segment.Seal(b))
		if err != nil {
			known(t, err)
			return
		}
		var items []history.Item
		for it, err := range c.Items(nil) {
			if err != nil {
				known(t, err)
				break
			}
			items = append(items, it)
		}
		i := 0
		for it, err := range c.Items(func(i int, _ history.Version, _ uint32) bool { return i%2 == 0 }) {
			if err != nil {
				known(t, err)
				break
			}
			if i < len(items) {
				same(t, []history.Item{it}, items[i:i+1])
			}
			i += 2
		}
		for _, it := range items {
			same(t, decode(t, encode(t, []history.Item{it}), nil), []history.Item{it})
		}
		for _, err := range c.Summaries() {
			known(t, err)
		}
	})
}

// FuzzMetadata does the same for metadata.
func FuzzMetadata(f *testing.F) {
	f.Add(metadata(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := segment.ParseMetadata(segment.Seal(b))
		if err != nil {
			known(t, err)
			return
		}
		if _, err := m.Append(nil); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}

func known(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, segment.ErrCorrupt) && !errors.Is(err, segment.ErrNewer) {
		t.Fatalf("got %v, want ErrCorrupt or ErrNewer", err)
	}
}
