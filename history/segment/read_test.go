package segment_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// TestItemsFrom starts at each version of a chunk and between any two, with several records of one version.
func TestItemsFrom(t *testing.T) {
	items := viewings(1000)
	for i := range items {
		r := *items[i].Record
		r.Version = history.VersionOf(epoch-int64(i/7)*1000, history.RankStop)
		items[i].Object.ID, items[i].Record = fmt.Sprint(20_000-i), &r
	}
	chunk := encode(t, items)[0]
	c, err := chunk.Open(chunk.Data)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := items[rapid.IntRange(0, len(items)-1).Draw(t, "record")].Record.Version + history.Version(rapid.IntRange(-1, 1).Draw(t, "beside"))
		even := func(i int, _ history.Version, _ uint32) bool { return i%2 == 0 }
		n := 0
		for n < len(items) && items[n].Record.Version > v {
			n++
		}
		for it, err := range c.ItemsFrom(v, even) {
			if n += n % 2; err != nil || it.Object != items[n].Object || !history.Same(it.Record, items[n].Record) {
				t.Fatalf("from %d: got %v, %v; want record %d, %v", v, it, err, n, items[n])
			}
			n++
		}
		if n < len(items)-1 {
			t.Fatalf("from %d: it ends after record %d", v, n)
		}
	})
}

// TestPlaces finds records of objects.
func TestPlaces(t *testing.T) {
	chunk := encode(t, everything())[0]
	c, err := chunk.Open(chunk.Data)
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range everything() {
		places, err := c.Places(slices.Values([]history.Object{it.Object, {ID: "none", Type: 1}}))
		if err != nil || len(places) != 1 || places[0] != i {
			t.Errorf("%s: got %v, %v; want %d", it.Object, places, err, i)
		}
	}
}

// stored has a user's segments in memory.
type stored struct {
	segment.Reader
	chunks  map[string][]byte
	version uint64
	written int // chunks
}

func newStored() *stored {
	s := &stored{chunks: map[string][]byte{}}
	s.Reader = segment.Reader{Metadata: new(segment.Metadata), Chunk: func(i *segment.Info) (*segment.Chunk, error) {
		return i.Open(s.chunks[i.Name])
	}}
	return s
}

// compact compacts, and checks that the metadata is valid and lists all chunks.
func (s *stored) compact(t testing.TB, r segment.Compact) segment.Plan {
	t.Helper()
	s.version++
	r.Version, r.Name = s.version, func(n int) string { return fmt.Sprintf("%d.%d", s.version, n) }
	plan, err := s.Compact(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range plan.New {
		s.chunks[c.Name] = c.Data
		s.written++
	}
	for _, name := range plan.Gone {
		delete(s.chunks, name)
	}
	b, err := plan.Metadata.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Metadata, err = segment.ParseMetadata(b); err != nil {
		t.Fatal(err)
	}
	if len(s.Chunks) != len(s.chunks) {
		t.Fatalf("%d chunks are listed and %d stored", len(s.Chunks), len(s.chunks))
	}
	return plan
}

func (s *stored) all(t testing.TB) (items []history.Item) {
	t.Helper()
	for it, err := range s.Items(history.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		it.Record.Revision = 0
		items = append(items, it)
	}
	return items
}

// TestCompactInSteps compacts a long history in steps, oldest first: a record is written about twice, and most
// chunks are full.
func TestCompactInSteps(t *testing.T) {
	const size, step = 15_000, 500
	s, items := newStored(), viewings(size)
	for n := size - step; n >= 0; n -= step {
		s.compact(t, segment.Compact{Items: append([]history.Item(nil), items[n:n+step]...)})
	}
	same(t, s.all(t), items)
	records := 0
	for _, c := range s.Chunks {
		records += c.Count
	}
	if full := size / s.Chunks[len(s.Chunks)-1].Count; records != size || len(s.Chunks) > 2*full || s.written > 4*full+size/step {
		t.Errorf("%d records in %d chunks, %d written; %d would be full", records, len(s.Chunks), s.written, full)
	}
}

// TestCompactAllOver compacts records of all times: every chunk is rewritten.
func TestCompactAllOver(t *testing.T) {
	s, items := newStored(), viewings(20_000)
	var old, late []history.Item
	for i, it := range items {
		if i%500 == 250 {
			late = append(late, it)
		} else {
			old = append(old, it)
		}
	}
	s.compact(t, segment.Compact{Items: old})
	before := len(s.Chunks)
	if plan := s.compact(t, segment.Compact{Items: late}); len(plan.Gone) != before || len(s.Chunks) > before+4 {
		t.Errorf("%d of %d chunks are gone, and there are %d", len(plan.Gone), before, len(s.Chunks))
	}
	same(t, s.all(t), items)
}

// TestCompactNothing: without new records nothing changes.
func TestCompactNothing(t *testing.T) {
	s, items := newStored(), viewings(5000)
	s.compact(t, segment.Compact{Items: append([]history.Item(nil), items...)})
	for name, r := range map[string]segment.Compact{"nothing": {}, "what is there": {Items: append([]history.Item(nil), items[10:20]...)}} {
		if plan := s.compact(t, r); plan.Changed || len(plan.New)+len(plan.Gone) > 0 {
			t.Errorf("%s: %d new chunks, %d gone, changed %v", name, len(plan.New), len(plan.Gone), plan.Changed)
		}
	}
}

// TestCompactRewritesHalves supersedes records of a full chunk, which is kept until half is superseded.
func TestCompactRewritesHalves(t *testing.T) {
	s, items := newStored(), viewings(5000)
	s.compact(t, segment.Compact{Items: append([]history.Item(nil), items...)})
	first := s.Chunks[0]
	again := func(from, to int) (some []history.Item) {
		for i := from; i < to; i++ {
			it := viewed(i - 10_000)
			it.Object = items[i].Object
			some = append(some, it)
		}
		return some
	}
	listed := func() bool {
		return slices.ContainsFunc(s.Chunks, func(i segment.Info) bool { return i.Name == first.Name })
	}
	half := first.Count / 2
	if s.compact(t, segment.Compact{Items: again(0, half)}); !listed() {
		t.Errorf("%d of %d superseded: the chunk was written again", half, first.Count)
	}
	if s.compact(t, segment.Compact{Items: again(half, half+2)}); listed() {
		t.Errorf("%d of %d superseded: the chunk is still listed", half+2, first.Count)
	}
	if all := s.all(t); len(all) != len(items) {
		t.Errorf("%d records, want %d", len(all), len(items))
	}
}

// TestCompactRemoves deletes objects with several records in segments: the delete stays live, is compacted, or
// precedes another viewing. No chunk keeps anything from before it.
func TestCompactRemoves(t *testing.T) {
	gone := func(it history.Item, after bool) history.Item {
		e := history.Event{Kind: history.KindDelete, At: epoch + 10_000_000}
		r := history.Merge(it.Record, e.Record()).Successor(nil)
		if after {
			play := history.Event{Kind: history.KindStop, At: e.At + 1000, Position: 7}
			r = history.Merge(r, play.Record()).Successor(nil)
		}
		return history.Item{Object: it.Object, Record: r}
	}
	for _, after := range []bool{false, true} {
		for _, stays := range []bool{false, true} {
			s, items := newStored(), viewings(5000)
			s.compact(t, segment.Compact{Items: append([]history.Item(nil), items...)})
			again := viewed(-10_000)
			again.Object = items[7].Object
			s.compact(t, segment.Compact{Items: []history.Item{again}}) // the first chunk now has a superseded record of it
			deleted := []history.Item{gone(again, after), gone(items[9], after)}
			slices.SortFunc(deleted, history.NewestFirst)
			r := segment.Compact{Items: deleted}
			if stays {
				r = segment.Compact{Staying: deleted}
			}
			if plan := s.compact(t, r); !plan.Removed {
				t.Errorf("played after: %v, stays: %v: nothing is removed", after, stays)
			}
			for _, c := range s.Chunks {
				opened, err := c.Open(s.chunks[c.Name])
				if err != nil {
					t.Fatal(err)
				}
				for it, err := range opened.Items(nil) {
					if err != nil {
						t.Fatal(err)
					}
					if (it.Object == items[7].Object || it.Object == items[9].Object) && it.Record.RemovedAt == 0 {
						t.Errorf("played after: %v, stays: %v: a record of %s from before is in a chunk", after, stays, it.Object)
					}
				}
			}
		}
	}
}

// TestCompactOfOneMillisecond compacts 17,000 records of one millisecond in any order.
func TestCompactOfOneMillisecond(t *testing.T) {
	s, items := newStored(), viewings(17_000)
	for i := range items {
		r := *items[i].Record
		r.Version = history.VersionOf(epoch, history.RankStop)
		items[i].Object.ID, items[i].Record = fmt.Sprint(90_000-i), &r
	}
	for from := range 3 {
		var some []history.Item
		for i := from; i < len(items); i += 3 {
			some = append(some, items[i])
		}
		s.compact(t, segment.Compact{Items: some})
	}
	same(t, s.all(t), items)
	middle := items[5000]
	n := 0
	for it, err := range s.Items(history.Query{After: middle.Place()}) {
		if err != nil || it.Object != items[5001+n].Object {
			t.Fatalf("after %v: record %d is %v, %v", middle.Place(), n, it, err)
		}
		n++
	}
	if n != 11_999 {
		t.Errorf("%d records after the middle", n)
	}
}

// TestStitch has an object both live and compacted, with every order of cell times and versions: it comes once,
// at its place, and Find agrees.
func TestStitch(t *testing.T) {
	around := viewings(9) // places 0 to 8, without 2 and 6
	at := func(place int, cellTime int64, position int64) *history.Record {
		r := *around[place].Record
		r.CellTime, r.Position = epoch+cellTime, position
		return &r
	}
	o := history.Object{ID: "own", Type: 1}
	for name, tt := range map[string]struct {
		live, compacted *history.Record
		want            *history.Record // nil for the fold
		place           int
	}{
		"live is later":                {at(2, 2, 5), at(6, 1, 7), at(2, 2, 5), 2},
		"live is later, of before":     {at(6, 2, 5), at(2, 1, 7), at(6, 2, 5), 6},
		"part is later":                {at(6, 1, 5), at(2, 2, 7), at(2, 2, 7), 2},
		"part is later, of before":     {at(2, 1, 5), at(6, 2, 7), at(6, 2, 7), 6},
		"one cell time":                {at(2, 1, 5), at(6, 1, 7), nil, 2},
		"one cell time, part is newer": {at(6, 1, 5), at(2, 1, 7), nil, 2},
		"one cell time, one version":   {at(2, 1, 5), at(2, 1, 7), nil, 2},
		"the same":                     {at(2, 1, 5), at(2, 1, 5), at(2, 1, 5), 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStored()
			var segments, live []history.Item
			for i, it := range around {
				switch {
				case i%4 == 2:
				case i%2 == 0:
					segments = append(segments, it)
				default:
					live = append(live, it)
				}
			}
			segments, live = append(segments, history.Item{Object: o, Record: tt.compacted}), append(live, history.Item{Object: o, Record: tt.live})
			slices.SortFunc(segments, history.NewestFirst)
			slices.SortFunc(live, history.NewestFirst)
			s.compact(t, segment.Compact{Items: segments})
			want := tt.want
			if want == nil {
				want = history.Merge(tt.live, tt.compacted)
			}
			row := segment.Live{
				Items: func(yield func(history.Item, error) bool) {
					for _, it := range live {
						if !yield(it, nil) {
							return
						}
					}
				},
				Get: func(o history.Object) (*history.Record, error) {
					for _, it := range live {
						if it.Object == o {
							return it.Record, nil
						}
					}
					return nil, nil
				},
			}
			n := 0
			for it, err := range segment.Stitch(row, &s.Reader, history.Query{}) {
				expect := around[n]
				if n == tt.place {
					expect = history.Item{Object: o, Record: want}
				}
				if err != nil || it.Object != expect.Object || !history.Same(it.Record, expect.Record) || it.Record.CellTime != expect.Record.CellTime {
					t.Fatalf("place %d: got %v %+v, %v; want %v %+v", n, it.Object, it.Record, err, expect.Object, expect.Record)
				}
				if n++; around[min(n, 8)].Object.ID == fmt.Sprint(8-tt.place) {
					n++ // it appears at no other place
				}
			}
			if n != len(around) {
				t.Errorf("it ends at place %d", n)
			}
			found, err := s.Find([]history.Object{o}, []*history.Record{tt.live})
			if got := segment.Resolve(tt.live, found[0]); err != nil || !history.Same(got, want) {
				t.Errorf("find: got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}
