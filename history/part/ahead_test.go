package part_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/part"
)

// chunksOf returns so many chunks of 100 records, a second apart.
func chunksOf(n int) *part.Metadata {
	m := &part.Metadata{Version: 1}
	for i := range n {
		newest := int64(1_000_000_000 - i*100_000)
		m.Chunks = append(m.Chunks, part.Info{
			Name: fmt.Sprintf("1795438823853.ABCDEFGHIJKLM.%d", i), Kind: part.Records, Count: 100,
			Newest: history.VersionOf(newest, history.RankStop), Oldest: history.VersionOf(newest-99_000, history.RankStop),
		})
	}
	return m
}

func TestIndex(t *testing.T) {
	for _, n := range []int{0, 1, 40} {
		m := chunksOf(n)
		b := m.AppendIndex([]byte("before"))[len("before"):]
		got, err := part.ParseIndex(b)
		if err != nil || len(got) != n || n > 0 && !reflect.DeepEqual(got, m.Chunks) {
			t.Errorf("%d chunks: got %+v, %v", n, got, err)
		}
		if most := 60 + 20*n; len(b) > most {
			t.Errorf("%d chunks: %d bytes, want at most %d", n, len(b), most)
		}
		for i := range b {
			if _, err := part.ParseIndex(b[:i]); !errors.Is(err, part.ErrCorrupt) {
				t.Errorf("%d of %d bytes: %v, want %v", i, len(b), err, part.ErrCorrupt)
			}
			spoilt := append([]byte(nil), b...)
			spoilt[i] ^= 1
			if _, err := part.ParseIndex(spoilt); err == nil {
				t.Errorf("byte %d of %d is changed, and nobody says so", i, len(b))
			}
		}
	}
	m := chunksOf(2)
	m.Chunks[0].Superseded = []uint16{1, 2, 3}
	m.Chunks[1].Kind = part.Summaries
	if got, err := part.ParseIndex(m.AppendIndex(nil)); err != nil || len(got) != 1 || got[0].Count != 97 {
		t.Errorf("got %+v, %v, want one chunk, of which 97 records count", got, err)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(chunksOf(3).AppendIndex(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		chunks, err := part.ParseIndex(part.Seal(b))
		if err != nil && !errors.Is(err, part.ErrCorrupt) && !errors.Is(err, part.ErrNewer) {
			t.Errorf("got %v", err)
		}
		part.Ahead(chunks, history.Query{Limit: 20})
	})
}

// TestAhead finds the chunks that a page is in.
func TestAhead(t *testing.T) {
	chunks := chunksOf(20).Chunks
	in := func(chunk, second int) int64 { return chunks[chunk].Newest.Time() - int64(second)*1000 }
	for name, tt := range map[string]struct {
		q        history.Query
		from, to int
	}{
		"nothing":               {history.Query{}, 0, 0},
		"the first":             {history.Query{Limit: 20}, 0, 1},
		"more than the first":   {history.Query{Limit: 100}, 0, 2},
		"in the middle of one":  {history.Query{Limit: 20, Until: in(5, 50)}, 5, 7},
		"at the end of one":     {history.Query{Limit: 20, Until: in(5, 99)}, 5, 7},
		"between two":           {history.Query{Limit: 20, Until: in(5, 99) - 1}, 6, 7},
		"behind a cursor":       {history.Query{Limit: 20, After: history.Cursor{Version: chunks[7].Oldest}}, 7, 9},
		"down to a time":        {history.Query{Limit: 500, Until: in(3, 50), Since: in(4, 50)}, 3, 5},
		"at the end of all":     {history.Query{Limit: 20, Until: in(19, 90)}, 19, 20},
		"behind the end of all": {history.Query{Limit: 20, Until: in(19, 99) - 1}, 20, 20},
		"very much":             {history.Query{Limit: 100_000}, 0, 8},
	} {
		if from, to := part.Ahead(chunks, tt.q); from != tt.from || to != tt.to {
			t.Errorf("%s: chunks %d to %d, want %d to %d", name, from, to, tt.from, tt.to)
		}
	}
}
