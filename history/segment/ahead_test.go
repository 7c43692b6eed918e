package segment_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// chunksOf returns n chunks of 100 records, a second apart.
func chunksOf(n int) *segment.Metadata {
	m := &segment.Metadata{Version: 1}
	for i := range n {
		newest := int64(1_000_000_000 - i*100_000)
		m.Chunks = append(m.Chunks, segment.Info{
			Name: fmt.Sprintf("1795438823853.ABCDEFGHIJKLM.%d", i), Kind: segment.Records, Count: 100,
			Newest: history.VersionOf(newest, history.RankStop), Oldest: history.VersionOf(newest-99_000, history.RankStop),
			Types: []segment.TypeCount{{Type: 1, Count: 80}, {Type: 2, Count: 20}},
		})
	}
	return m
}

func TestIndex(t *testing.T) {
	for _, n := range []int{0, 1, 40} {
		m := chunksOf(n)
		b := m.AppendIndex([]byte("before"))[len("before"):]
		got, err := segment.ParseIndex(b)
		if err != nil || len(got) != n || n > 0 && !reflect.DeepEqual(got, m.Chunks) {
			t.Errorf("%d chunks: got %+v, %v", n, got, err)
		}
		if most := 60 + 25*n; len(b) > most {
			t.Errorf("%d chunks: %d bytes, want at most %d", n, len(b), most)
		}
		for i := range b {
			if _, err := segment.ParseIndex(b[:i]); !errors.Is(err, segment.ErrCorrupt) {
				t.Errorf("%d of %d bytes: %v, want %v", i, len(b), err, segment.ErrCorrupt)
			}
			spoilt := append([]byte(nil), b...)
			spoilt[i] ^= 1
			if _, err := segment.ParseIndex(spoilt); err == nil {
				t.Errorf("byte %d of %d is changed, and nobody says so", i, len(b))
			}
		}
	}
	m := chunksOf(2)
	m.Chunks[0].Superseded, m.Chunks[0].Types = []uint16{1, 2, 3}, []segment.TypeCount{{Type: math.MaxUint32, Count: 97}}
	m.Chunks[1].Kind = segment.Summaries
	if got, err := segment.ParseIndex(m.AppendIndex(nil)); err != nil || len(got) != 1 || got[0].Count != 97 || !slices.Equal(got[0].Types, m.Chunks[0].Types) {
		t.Errorf("got %+v, %v, want one chunk, of which 97 records count", got, err)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(chunksOf(3).AppendIndex(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		chunks, err := segment.ParseIndex(segment.Seal(b))
		if err != nil && !errors.Is(err, segment.ErrCorrupt) && !errors.Is(err, segment.ErrNewer) {
			t.Errorf("got %v", err)
		}
		segment.Ahead(chunks, history.Query{Limit: 20, Type: 1}, 10)
	})
}

// TestAhead finds the chunks of a page.
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
		"very much":             {history.Query{Limit: 100_000}, 0, 20},
	} {
		may, n := segment.Ahead(chunks, tt.q, 0)
		if n != tt.to-tt.from || n > 0 && may[0] != &chunks[tt.from] {
			t.Errorf("%s: %d chunks of %v, want %d to %d", name, n, may, tt.from, tt.to)
		}
	}
}

// TestAheadOfAType finds the chunks of a frequent, rare, clustered or unlisted type, and more if live records
// may hide some.
func TestAheadOfAType(t *testing.T) {
	chunks := chunksOf(300).Chunks
	for i := range chunks {
		c := &chunks[i]
		c.Superseded = []uint16{7}
		c.Types = []segment.TypeCount{{Type: 1, Count: 90}, {Type: 2, Count: 3}, {Type: 3, Count: 1}}
		switch i {
		case 50, 100:
			c.Types = append(c.Types, segment.TypeCount{Type: 4, Count: 5})
		case 150:
			c.Types = c.Types[:2] // another type exists
		default:
			c.Types[0].Count += 5
		}
	}
	for name, tt := range map[string]struct {
		q             history.Query
		hidden        int
		begin, n, may int
	}{
		"often":                     {history.Query{Limit: 20, Type: 1}, 0, 0, 1, 300},
		"often, some hidden":        {history.Query{Limit: 20, Type: 1}, 80, 0, 2, 300},
		"rare":                      {history.Query{Limit: 20, Type: 2}, 0, 0, 7, 300},
		"rare, some hidden":         {history.Query{Limit: 20, Type: 2}, 6, 0, 9, 300},
		"rare, very much hidden":    {history.Query{Limit: 20, Type: 2}, 1500, 0, 15, 300},
		"very rare":                 {history.Query{Limit: 100, Type: 3}, 0, 0, 101, 300},
		"very rare, much is wanted": {history.Query{Limit: 200, Type: 3}, 0, 0, 128, 300},
		"in a few":                  {history.Query{Limit: 20, Type: 4}, 0, 50, 3, 3},
		"enough in a few":           {history.Query{Limit: 4, Type: 4}, 0, 50, 1, 3},
		"perhaps in one":            {history.Query{Limit: 20, Type: 5}, 0, 150, 1, 1},
		"behind a cursor":           {history.Query{Limit: 20, Type: 2, After: history.Cursor{Version: chunks[30].Oldest}}, 0, 30, 8, 270},
		"down to a time":            {history.Query{Limit: 20, Type: 2, Since: chunks[3].Newest.Time()}, 0, 0, 4, 4},
		"all, much hidden":          {history.Query{Limit: 20}, 1500, 0, 9, 300},
	} {
		may, n := segment.Ahead(chunks, tt.q, tt.hidden)
		if n != tt.n || len(may) != tt.may || n > 0 && may[0] != &chunks[tt.begin] {
			t.Errorf("%s: %d chunks of %d from %s on, want %d of %d from %s on", name, n, len(may), may[0].Name, tt.n, tt.may, chunks[tt.begin].Name)
		}
	}
}

// TestTypesOfChunks counts records by type: at first, after repeated viewings, and with more types than listed.
func TestTypesOfChunks(t *testing.T) {
	s, items := newStored(), viewings(200)
	for i := range items {
		items[i].Object.Type = uint32(1 + i/100 + i%3)
	}
	want := func(types ...segment.TypeCount) {
		t.Helper()
		if got := s.Chunks[len(s.Chunks)-1].Types; !slices.Equal(got, types) {
			t.Errorf("got %v, want %v", got, types)
		}
		if _, wrong := s.Verify(); len(wrong) > 0 {
			t.Error(wrong)
		}
	}
	s.compact(t, segment.Compact{Items: slices.Clone(items)})
	want(segment.TypeCount{Type: 1, Count: 34}, segment.TypeCount{Type: 2, Count: 66}, segment.TypeCount{Type: 3, Count: 67}, segment.TypeCount{Type: 4, Count: 33})
	again := func(typ uint32) (some []history.Item) {
		for i, it := range items {
			if it.Object.Type == typ {
				one := viewed(i - 10_000)
				one.Object = it.Object
				some = append(some, one)
			}
		}
		return some
	}
	s.compact(t, segment.Compact{Items: again(1)})
	want(segment.TypeCount{Type: 2, Count: 66}, segment.TypeCount{Type: 3, Count: 67}, segment.TypeCount{Type: 4, Count: 33})
	s.Chunks[len(s.Chunks)-1].Types[1].Count--
	if _, wrong := s.Verify(); len(wrong) != 1 || !errors.Is(wrong[0], segment.ErrCorrupt) {
		t.Errorf("a type has one record more than is listed: got %v", wrong)
	}

	s, items = newStored(), viewings(400)
	for i := range items {
		items[i].Object.Type = uint32(1 + i%100)
		if i > 200 {
			items[i].Object.Type = uint32(2 * (1 + i%20))
		}
	}
	s.compact(t, segment.Compact{Items: items})
	types := s.Chunks[0].Types
	frequent := slices.DeleteFunc(slices.Clone(types), func(c segment.TypeCount) bool { return c.Type%2 == 1 || c.Type > 40 || c.Count < 11 })
	if len(types) != 32 || len(frequent) != 20 {
		t.Errorf("got %v, want the 32 types that are most frequent", types)
	}
	for typ := uint32(1); typ <= 101; typ++ {
		n := 0
		for it, err := range s.Items(history.Query{Type: typ}) {
			if err != nil || it.Object.Type != typ {
				t.Fatalf("type %d: got %v, %v", typ, it, err)
			}
			n++
		}
		want := 0
		for _, it := range items {
			if it.Object.Type == typ {
				want++
			}
		}
		if n != want {
			t.Errorf("type %d: %d records, want %d", typ, n, want)
		}
	}
}
