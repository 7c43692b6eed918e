package hbase_test

import (
	"cmp"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// exchanges counts the exchanges of a call with empty caches.
func (t *compactTest) exchanges(do func(a *hbase.Archive)) (n int) {
	t.Helper()
	s := t.client.(*store)
	count := func() int {
		s.Lock()
		defer s.Unlock()
		return s.Calls["batch history"] + s.Calls["batch history_segments"]
	}
	before := count()
	do(hbase.NewCompacting(t.client, t.config))
	return count() - before
}

// long makes a user with at least eight chunks.
func (t *compactTest) long() []history.Cell {
	t.Helper()
	return t.longOf(func(int) uint32 { return 1 })
}

// longOf is long with records of several types.
func (t *compactTest) longOf(typ func(i int) uint32) (cells []history.Cell) {
	t.Helper()
	t.config.CompactAbove = 200
	t.Archive = hbase.NewCompacting(t.client, t.config)
	for i := range 9000 {
		k := t.key(i)
		k.Object.Type = typ(i)
		c := t.play(k, nil, time.Duration(9000-i)*time.Second, int64(i))
		c.Record.Session = rand.Text() + rand.Text() // a chunk then has about 1,100 records
		cells = append(cells, c)
	}
	t.store(cells...)
	t.clock.pass(2 * time.Hour)
	for again := time.Millisecond; again > 0 && again < time.Second; {
		var err error
		again, err = t.Compact(t.Context(), t.uid)
		t.must(err)
	}
	t.compactTable()
	slices.Reverse(cells)
	return cells
}

// TestPagesTakeTwoExchanges reads pages at any depth, with empty and with warm caches.
func TestPagesTakeTwoExchanges(t *testing.T) {
	r := newCompactTest(t)
	cells := r.long()
	i, err := r.Inspect(t.Context(), r.uid, false)
	r.must(err)
	if len(i.Segments.Chunks) < 8 {
		t.Fatalf("%d chunks, want more", len(i.Segments.Chunks))
	}
	step := 971
	if testing.Short() {
		step *= 3
	}
	seen := hbase.NewCompacting(r.client, r.config)
	for _, limit := range []int{1, 20, 100, 1000} {
		for at := 0; at < len(cells); at += step {
			want := cells[at:min(at+limit, len(cells))]
			byTime := history.Query{Limit: limit, Until: want[0].Record.Version.Time()}
			byCursor := history.Query{Limit: limit}
			if at > 0 {
				byCursor.After = history.Cursor{Version: cells[at-1].Record.Version, Object: cells[at-1].Key.Object}
			}
			for _, q := range []history.Query{byTime, byCursor} {
				read := func(a *hbase.Archive) {
					page, err := a.Page(t.Context(), r.uid, q)
					r.must(err)
					r.wantPage(page, want...)
				}
				if n := r.exchanges(read); n > 2 {
					t.Errorf("page of %d at %d: %d exchanges, want 2", limit, at, n)
				}
				if n := r.exchanges(func(*hbase.Archive) { read(seen) }); n > 2 {
					t.Errorf("page of %d at %d, of one who has read others: %d exchanges, want 2", limit, at, n)
				}
			}
		}
	}
}

// TestPagesOfATypeTakeTwoExchanges reads pages of frequent, rare and old types. Some segment records were watched
// again and are live.
func TestPagesOfATypeTakeTwoExchanges(t *testing.T) {
	r := newCompactTest(t)
	cells := r.longOf(func(i int) uint32 {
		switch {
		case i%400 == 7:
			return 4
		case i%90 == 3:
			return 3
		case i%7 == 2:
			return 2
		case i < 300 && i%10 == 4:
			return 5
		}
		return 1
	})
	for i := 300; i < len(cells); i += 19 {
		cells[i].Record = r.play(cells[i].Key, cells[i].Record, -time.Duration(len(cells)-i)*time.Second, 1).Record
		r.store(cells[i])
	}
	r.clock.pass(time.Duration(len(cells)) * time.Second)
	slices.SortFunc(cells, func(a, b history.Cell) int { return cmp.Compare(b.Record.Version, a.Record.Version) })
	seen := hbase.NewCompacting(r.client, r.config)
	for typ := uint32(1); typ <= 6; typ++ {
		all := slices.DeleteFunc(slices.Clone(cells), func(c history.Cell) bool { return c.Key.Object.Type != typ })
		for _, limit := range []int{1, 20, 100} {
			for at := 0; at <= len(all); at += max(1, len(all)/7) {
				q, want := history.Query{Limit: limit, Type: typ}, all[at:min(at+limit, len(all))]
				if at > 0 {
					q.After = history.Cursor{Version: all[at-1].Record.Version, Object: all[at-1].Key.Object}
				}
				read := func(a *hbase.Archive) {
					page, err := a.Page(t.Context(), r.uid, q)
					r.must(err)
					if r.wantPage(page, want...); page.More != (at+limit < len(all)) {
						t.Errorf("page of %d of type %d at %d: more is %v", limit, typ, at, page.More)
					}
				}
				if n := r.exchanges(read); n > 2 {
					t.Errorf("page of %d of type %d at %d of %d: %d exchanges, want 2", limit, typ, at, len(all), n)
				}
				if n := r.exchanges(func(*hbase.Archive) { read(seen) }); n > 2 {
					t.Errorf("page of %d of type %d at %d of %d, of one who has read others: %d exchanges, want 2", limit, typ, at, len(all), n)
				}
			}
		}
	}
}

// TestPageOfAClearedType reads a type after a clear and before the next compaction. It reads no chunk from before
// the clear.
func TestPageOfAClearedType(t *testing.T) {
	r := newCompactTest(t)
	cells := r.longOf(func(i int) uint32 { return uint32(1 + i%2) })
	at := cells[20].Record.Version.Time()
	r.must(r.PutUser(t.Context(), r.uid, history.User{Cleared: map[uint32]int64{2: at}}))
	n := r.exchanges(func(a *hbase.Archive) {
		page, err := a.Page(t.Context(), r.uid, history.Query{Limit: 20, Type: 2})
		if r.must(err); len(page.Items) != 10 || page.More {
			t.Errorf("%d records, more is %v, want 10 and no more", len(page.Items), page.More)
		}
	})
	if n > 2 {
		t.Errorf("%d exchanges, want 2", n)
	}
}

// TestWholeHistoryInParallel reads everything at once, and sparse results.
func TestWholeHistoryInParallel(t *testing.T) {
	r := newCompactTest(t)
	cells := r.long()
	for name, q := range map[string]history.Query{"all": {Limit: 100_000}, "none of a type": {Limit: 20, Type: 9}} {
		n := r.exchanges(func(a *hbase.Archive) {
			page, err := a.Page(t.Context(), r.uid, q)
			r.must(err)
			if want := map[bool]int{true: len(cells)}[q.Type == 0]; len(page.Items) != want {
				t.Errorf("%s: %d records, want %d", name, len(page.Items), want)
			}
		})
		if n > 2 {
			t.Errorf("%s: %d exchanges", name, n)
		}
	}
	keys := make([]history.Key, 0, 100)
	for i := 0; i < len(cells); i += 90 {
		keys = append(keys, cells[i].Key)
	}
	n := r.exchanges(func(a *hbase.Archive) {
		entries, err := a.Get(t.Context(), keys)
		r.must(err)
		for i, e := range entries {
			if e.Record == nil || e.Record.Session != cells[90*i].Record.Session {
				t.Fatalf("get %s: got %+v", keys[i], e.Record)
			}
		}
	})
	if n > 6 {
		t.Errorf("get of 100 in all chunks: %d exchanges", n)
	}
}

// TestExport walks all pages of a long history. Each exchange reads up to eight chunks ahead.
func TestExport(t *testing.T) {
	r := newCompactTest(t)
	cells := r.long()
	i, err := r.Inspect(t.Context(), r.uid, false)
	r.must(err)
	pages := 0
	s := r.client.(*store)
	count := func() int {
		s.Lock()
		defer s.Unlock()
		return s.Calls["batch history_segments"]
	}
	before, a := count(), hbase.NewCompacting(r.client, r.config)
	for q, more := (history.Query{Limit: 100}), true; more; pages++ {
		page, err := a.Page(t.Context(), r.uid, q)
		r.must(err)
		r.wantPage(page, cells[100*pages:min(100*pages+100, len(cells))]...)
		more, q.After = page.More, page.End()
	}
	if chunks := len(i.Segments.Chunks); count()-before > 3+chunks/8 {
		t.Errorf("%d exchanges for %d chunks in %d pages", count()-before, chunks, pages)
	}
}

// TestPageBesideADamagedChunk reads an intact chunk next to a damaged one that was prefetched.
func TestPageBesideADamagedChunk(t *testing.T) {
	r := newCompactTest(t)
	cells := r.long()
	i, err := r.Inspect(t.Context(), r.uid, false)
	r.must(err)
	s := r.client.(*store)
	spoilt := i.Segments.Chunks[3]
	s.Lock()
	for _, stored := range s.Tables["history_segments"][history.RowKey(r.uid)+"\x00"+spoilt.Name].Cells {
		for at := range stored {
			stored[at] = []byte("spoilt")
		}
	}
	s.Unlock()
	last := slices.IndexFunc(cells, func(c history.Cell) bool { return c.Record.Version <= spoilt.Newest })
	for before, fails := range map[int]bool{100: false, 10: true} {
		for range 2 {
			page, err := hbase.NewCompacting(r.client, r.config).Page(t.Context(), r.uid, history.Query{Limit: 20, Until: cells[last-before].Record.Version.Time()})
			if fails != (err != nil) || !fails && len(page.Items) != 20 {
				t.Errorf("%d records before the chunk: %d items, %v", before, len(page.Items), err)
			}
		}
	}
}
