package hbase_test

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// exchanges counts those of one call of an archive that knows nothing yet.
func (t *rollTest) exchanges(do func(a *hbase.Archive)) (n int) {
	t.Helper()
	s := t.client.(*store)
	count := func() int {
		s.Lock()
		defer s.Unlock()
		return s.Calls["batch history"] + s.Calls["batch history_parts"]
	}
	before := count()
	do(hbase.NewRolling(t.client, t.config))
	return count() - before
}

// long makes a user of some eight chunks and more.
func (t *rollTest) long() (cells []history.Cell) {
	t.Helper()
	t.config.RollAbove = 200
	t.Archive = hbase.NewRolling(t.client, t.config)
	for i := range 9000 {
		c := t.play(t.key(i), nil, time.Duration(9000-i)*time.Second, int64(i))
		c.Record.Session = rand.Text() + rand.Text() // so that a chunk has some 900
		cells = append(cells, c)
	}
	t.store(cells...)
	t.clock.pass(2 * time.Hour)
	for again := time.Millisecond; again > 0 && again < time.Second; {
		var err error
		again, err = t.Roll(t.Context(), t.uid)
		t.must(err)
	}
	t.compact()
	slices.Reverse(cells)
	return cells
}

// TestPagesTakeTwoExchanges reads pages at any depth, by archives that have nothing in memory, and by one that has.
func TestPagesTakeTwoExchanges(t *testing.T) {
	r := newRollTest(t)
	cells := r.long()
	i, err := r.Inspect(t.Context(), r.uid, false)
	r.must(err)
	if len(i.Parts.Chunks) < 8 {
		t.Fatalf("%d chunks, want more", len(i.Parts.Chunks))
	}
	step := 971
	if testing.Short() {
		step *= 3
	}
	seen := hbase.NewRolling(r.client, r.config)
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

// TestWholeHistoryInParallel reads all at once, and what is far between.
func TestWholeHistoryInParallel(t *testing.T) {
	r := newRollTest(t)
	cells := r.long()
	for name, q := range map[string]history.Query{"all": {Limit: 100_000}, "none of a type": {Limit: 20, Type: 9}} {
		n := r.exchanges(func(a *hbase.Archive) {
			page, err := a.Page(t.Context(), r.uid, q)
			r.must(err)
			if want := map[bool]int{true: len(cells)}[q.Type == 0]; len(page.Items) != want {
				t.Errorf("%s: %d records, want %d", name, len(page.Items), want)
			}
		})
		if n > 5 { // 8 chunks at once, or 2, 4, 8
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

// TestExport walks through all pages of a long history: eight chunks at once are read beside the live part of a page.
func TestExport(t *testing.T) {
	r := newRollTest(t)
	cells := r.long()
	i, err := r.Inspect(t.Context(), r.uid, false)
	r.must(err)
	pages := 0
	s := r.client.(*store)
	count := func() int {
		s.Lock()
		defer s.Unlock()
		return s.Calls["batch history_parts"]
	}
	before, a := count(), hbase.NewRolling(r.client, r.config)
	for q, more := (history.Query{Limit: 100}), true; more; pages++ {
		page, err := a.Page(t.Context(), r.uid, q)
		r.must(err)
		r.wantPage(page, cells[100*pages:min(100*pages+100, len(cells))]...)
		more, q.After = page.More, page.End()
	}
	if chunks := len(i.Parts.Chunks); count()-before > 3+chunks/8 {
		t.Errorf("%d exchanges for %d chunks in %d pages", count()-before, chunks, pages)
	}
}

// TestPageBesideADamagedChunk reads a page whose chunk is whole, beside one that is not and was read ahead.
func TestPageBesideADamagedChunk(t *testing.T) {
	r := newRollTest(t)
	cells := r.long()
	i, err := r.Inspect(t.Context(), r.uid, false)
	r.must(err)
	s := r.client.(*store)
	spoilt := i.Parts.Chunks[3]
	s.Lock()
	for _, stored := range s.Tables["history_parts"][history.RowKey(r.uid)+"\x00"+spoilt.Name].Cells {
		for at := range stored {
			stored[at] = []byte("spoilt")
		}
	}
	s.Unlock()
	last := slices.IndexFunc(cells, func(c history.Cell) bool { return c.Record.Version <= spoilt.Newest })
	for before, fails := range map[int]bool{100: false, 10: true} {
		for range 2 {
			page, err := hbase.NewRolling(r.client, r.config).Page(t.Context(), r.uid, history.Query{Limit: 20, Until: cells[last-before].Record.Version.Time()})
			if fails != (err != nil) || !fails && len(page.Items) != 20 {
				t.Errorf("%d records before the chunk: %d items, %v", before, len(page.Items), err)
			}
		}
	}
}
