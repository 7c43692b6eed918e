package hbase_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// TestCompactionsInAnyOrder interleaves two compactors, which may stall or die at any call, with delayed puts, slow
// readers and major compactions. Readers see every put, delete and clear.
func TestCompactionsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &compactModel{t: t, now: time.Now().Add(-time.Hour)}
		s := newStore(func() time.Time { return m.now })
		m.run(s, s.Compact)
	})
}

type compactModel struct {
	t            *rapid.T
	now          time.Time
	client       gohbase.Client
	compactTable func()
	table        string
	uid          string
	archive      *hbase.Archive // of a process that never dies
	keys         []history.Key
	made         map[history.Key][]*history.Record
	bases        map[history.Key]*history.Record             // the last content
	stored       map[history.Key]map[int64][]*history.Record // puts by cell time, in order
	cleared      history.User
	compactors   []*process
	stood        map[*process]time.Time // when each compactor stopped
}

const (
	modelAfter  = 20 * time.Second
	modelMargin = 10 * time.Second
	modelPut    = 3 * time.Second // longest delay of a put or a read
	modelSkew   = 2 * time.Second // clock error in either direction
)

func (m *compactModel) run(client gohbase.Client, compact func()) {
	m.client, m.compactTable, m.uid = client, compact, fmt.Sprintf("u%x", rand.Uint64())
	m.bases, m.stood = map[history.Key]*history.Record{}, map[*process]time.Time{}
	m.made, m.stored = map[history.Key][]*history.Record{}, map[history.Key]map[int64][]*history.Record{}
	m.archive = hbase.NewCompacting(client, m.config(0))
	for i := range 14 {
		m.keys = append(m.keys, history.Key{UID: m.uid, Object: history.Object{ID: fmt.Sprint(i), Type: uint32(1 + i%2)}})
	}
	defer func() {
		for _, p := range m.compactors {
			p.next(lost)
			_ = p.finish()
		}
	}()
	m.t.Repeat(map[string]func(*rapid.T){
		"put":           m.put,
		"put old":       m.putOld,
		"put twin":      m.putTwin,
		"put beside":    m.putBeside,
		"clear":         m.clear,
		"compact":       m.compact,
		"start":         m.start,
		"advance":       m.advance,
		"advance far":   m.advanceFar,
		"read beside":   m.readBeside,
		"compact table": m.compactSeldom,
		"time":          func(t *rapid.T) { m.pass(t, 15) },
		"":              m.check,
	})
}

func (m *compactModel) config(skew time.Duration) hbase.Config {
	return hbase.Config{
		Table: m.table, CompactAbove: 3, CompactAfter: modelAfter, CompactMargin: modelMargin, Deadline: time.Minute,
		Now: func() time.Time { return m.now.Add(skew) },
	}.Stepping(8)
}

func (m *compactModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// process starts a process with a skewed clock.
func (m *compactModel) process(t *rapid.T, do func(a *hbase.Archive) error) *process {
	skew := time.Duration(rapid.Int64Range(-int64(modelSkew), int64(modelSkew)).Draw(t, "skew"))
	return begin(m.client, m.config(skew), do)
}

// cell makes a content from the newest base, an older one or none, like a cache that restored old data. The event
// may have any time.
func (m *compactModel) cell(t *rapid.T) (c history.Cell, ok bool) {
	k := rapid.SampledFrom(m.keys).Draw(t, "key")
	e := history.Event{
		Key: k, At: m.now.UnixMilli() - 1000*rapid.Int64Range(0, 40).Draw(t, "seconds ago"),
		Kind:     rapid.SampledFrom([]history.Kind{history.KindProgress, history.KindStop, history.KindDelete}).Draw(t, "kind"),
		Position: rapid.Int64Range(0, 9).Draw(t, "position"),
	}
	var base *history.Record
	if made := m.made[k]; len(made) > 0 {
		if i := rapid.IntRange(-1, min(3, len(made)-1)).Draw(t, "base"); i >= 0 {
			base = made[len(made)-1-i]
		}
	}
	got, err := m.archive.Get(t.Context(), []history.Key{k})
	m.must(err)
	u := got[0].User
	if base = base.After(u.ClearedAt(k.Object.Type)); base == nil && e.At <= u.ClearedAt(k.Object.Type) {
		return c, false
	}
	m.bases[k] = base
	return history.Cell{Key: k, Record: history.Merge(base, e.Record()).Successor(&u)}, true
}

// putTwin puts two late plays of an old record from one base, which gives them the same cell time.
func (m *compactModel) putTwin(t *rapid.T) {
	k := rapid.SampledFrom(m.keys).Draw(t, "key")
	base := m.bases[k].After(m.cleared.ClearedAt(k.Object.Type))
	if base == nil {
		return
	}
	e := history.Event{Key: k, At: base.Version.Time() - 1, Kind: history.KindProgress, Position: rapid.Int64Range(10, 99).Draw(t, "position")}
	c := history.Cell{Key: k, Record: history.Merge(base, e.Record()).Successor(nil)}
	m.must(m.putCell(m.archive, c))
	m.applied(c)
}

func (m *compactModel) putCell(a *hbase.Archive, c history.Cell) error {
	return errors.Join(a.Put(m.t.Context(), []history.Cell{c})...)
}

// applied records a put.
func (m *compactModel) applied(c history.Cell) {
	if m.stored[c.Key] == nil {
		m.stored[c.Key] = map[int64][]*history.Record{}
	}
	m.stored[c.Key][c.Record.CellTime] = append(m.stored[c.Key][c.Record.CellTime], c.Record)
	m.made[c.Key] = append(m.made[c.Key], c.Record)
}

func (m *compactModel) put(t *rapid.T) {
	for range rapid.IntRange(1, 8).Draw(t, "puts") {
		if c, ok := m.cell(t); ok {
			m.must(m.putCell(m.archive, c))
			m.applied(c)
		}
	}
}

// putOld repeats a put.
func (m *compactModel) putOld(t *rapid.T) {
	k := rapid.SampledFrom(m.keys).Draw(t, "key")
	if made := m.made[k]; len(made) > 0 {
		c := history.Cell{Key: k, Record: rapid.SampledFrom(made).Draw(t, "content")}
		m.must(m.putCell(m.archive, c))
		m.applied(c)
	}
}

// putBeside makes a slow put with concurrent actions.
func (m *compactModel) putBeside(t *rapid.T) {
	c, ok := m.cell(t)
	if !ok {
		return
	}
	p := m.process(t, func(a *hbase.Archive) error { return m.putCell(a, c) })
	began := m.now
	for range rapid.IntRange(0, 6).Draw(t, "beside") {
		m.beside(t)
		if m.now.Sub(began) < modelPut {
			m.pass(t, 1)
		}
	}
	f := rapid.SampledFrom([]fate{made, made, made, lost, forgotten}).Draw(t, "fate")
	if p.next(f); f != lost {
		m.applied(c)
	}
	if err := p.finish(); f == made {
		m.must(err)
	}
}

func (m *compactModel) clear(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
		return
	}
	typ := rapid.Uint32Range(0, 2).Draw(t, "type")
	at := m.now.UnixMilli() - 1000*rapid.Int64Range(0, 60).Draw(t, "seconds ago")
	u := history.User{Cleared: map[uint32]int64{typ: at}}
	m.must(m.archive.PutUser(t.Context(), m.uid, u))
	m.cleared.MergeCleared(u.Cleared)
}

func (m *compactModel) compact(t *rapid.T) {
	_, err := m.archive.Compact(t.Context(), m.uid)
	m.must(err)
}

// start starts a step-by-step compaction.
func (m *compactModel) start(t *rapid.T) {
	if m.compactors = slices.DeleteFunc(m.compactors, func(p *process) bool { return p.ended }); len(m.compactors) < 2 {
		p := m.process(t, func(a *hbase.Archive) error {
			_, err := a.Compact(m.t.Context(), m.uid)
			return err
		})
		m.compactors, m.stood[p] = append(m.compactors, p), m.now
	}
}

// advance lets a compactor make a call, or kills it there. A switch has a deadline.
func (m *compactModel) advance(t *rapid.T) {
	if len(m.compactors) > 0 {
		p := rapid.SampledFrom(m.compactors).Draw(t, "roller")
		f := rapid.SampledFrom([]fate{made, made, made, made, made, made, made, made, lost, forgotten}).Draw(t, "fate")
		if p.switches && m.now.Sub(m.stood[p]) > modelPut {
			f = lost
		}
		p.next(f)
		m.stood[p] = m.now
		if p.ended && !p.killed && !errors.Is(p.result, history.ErrConflict) {
			m.must(p.result)
		}
	}
}

func (m *compactModel) advanceFar(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "calls") {
		m.advance(t)
	}
}

// beside takes one action while another process is stopped.
func (m *compactModel) beside(t *rapid.T) {
	rapid.SampledFrom([]func(*rapid.T){m.start, m.advance, m.advanceFar, m.advanceFar, m.compact, m.compactSeldom}).Draw(t, "beside")(t)
}

func (m *compactModel) compactSeldom(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") == 0 {
		m.compactTable()
	}
}

// readBeside reads all pages, with compactions between calls.
func (m *compactModel) readBeside(t *rapid.T) {
	var got history.Page
	p := m.process(t, func(a *hbase.Archive) (err error) {
		got, err = a.Page(m.t.Context(), m.uid, history.Query{Limit: 100})
		return err
	})
	for began := m.now; !p.ended; p.next(made) {
		for range rapid.IntRange(0, 3).Draw(t, "between") {
			m.beside(t)
			if m.now.Sub(began) < modelPut {
				m.pass(t, 1)
			}
		}
	}
	m.must(p.result)
	m.comparePage(t, got)
}

// pass advances the clock.
func (m *compactModel) pass(t *rapid.T, most int) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, most).Draw(t, "seconds")) * time.Second)
}

// check compares everything that readers can see.
func (m *compactModel) check(t *rapid.T) {
	got, err := m.archive.Get(t.Context(), m.keys)
	m.must(err)
	for i, k := range m.keys {
		m.compare(k, got[i].Record, "get")
		if cut := m.cut(k); got[i].User.CutTime < cut {
			t.Fatalf("get %s: cut time %d, want %d or later", k, got[i].User.CutTime, cut)
		}
	}
	if i, err := m.archive.Inspect(t.Context(), m.uid, true); err != nil || len(i.Wrong) > 0 {
		t.Fatalf("parts: %+v, %v", i, err)
	}
	whole, err := m.archive.Page(t.Context(), m.uid, history.Query{Limit: 100})
	m.must(err)
	m.comparePage(t, whole)
	q := history.Query{Limit: rapid.IntRange(1, 5).Draw(t, "limit"), Type: rapid.Uint32Range(0, 2).Draw(t, "type")}
	want := slices.DeleteFunc(slices.Clone(whole.Items), func(it history.Item) bool { return !q.Wants(it.Place()) })
	for more := true; more; {
		page, err := m.archive.Page(t.Context(), m.uid, q)
		m.must(err)
		for i, it := range page.Items {
			if i >= len(want) || it.Object != want[i].Object || !history.Same(it.Record, want[i].Record) {
				t.Fatalf("page %+v:\ngot  %s\nwant %s", q, texts(page.Items), texts(want))
			}
		}
		if want, more = want[len(page.Items):], page.More; more != (len(want) > 0) {
			t.Fatalf("page %+v: got more %v, with %d left", q, more, len(want))
		}
		q.After = page.End()
	}
}

// comparePage compares a page of all records.
func (m *compactModel) comparePage(t *rapid.T, page history.Page) {
	found := make(map[history.Object]*history.Record)
	for i, it := range page.Items {
		if found[it.Object] != nil || i > 0 && history.NewestFirst(page.Items[i-1], it) >= 0 {
			t.Fatalf("page: %s comes twice, or in no order: %s", it.Object, texts(page.Items))
		}
		found[it.Object] = it.Record
	}
	for _, k := range m.keys {
		m.compare(k, found[k.Object], "page")
	}
}

// compare rejects a record that no reader may see.
func (m *compactModel) compare(k history.Key, got *history.Record, what string) {
	m.t.Helper()
	want := m.candidates(k)
	if !slices.ContainsFunc(want, func(r *history.Record) bool {
		return r == nil && got == nil || r != nil && got != nil && got.Revision != 0 && history.Same(r, got) && r.CellTime == got.CellTime
	}) {
		s := ""
		for _, r := range want {
			s += fmt.Sprintf("%+v\n", r)
		}
		m.t.Fatalf("%s %s:\ngot  %+v\nwant one of %s", what, k, got, s)
	}
}

// candidates returns the permitted records of a key: the last put of the latest cell time, perhaps folded with
// others of that time. If clear marks cover it, HBase may have forgotten it, and earlier cell times are permitted.
func (m *compactModel) candidates(k history.Key) (all []*history.Record) {
	byTime := m.stored[k]
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(byTime))) {
		puts := byTime[at]
		var others []*history.Record
		for _, r := range puts[:len(puts)-1] {
			if r != puts[len(puts)-1] && !slices.Contains(others, r) {
				others = append(others, r)
			}
		}
		gone := false
		for set := range 1 << len(others) {
			fold := puts[len(puts)-1]
			for i, o := range others {
				if set&(1<<i) != 0 {
					fold = history.Merge(fold, o)
				}
			}
			r := fold.After(m.cleared.ClearedAt(k.Object.Type))
			all, gone = append(all, r), gone || r == nil
		}
		if !gone {
			return all
		}
	}
	return append(all, nil)
}

// cut returns the cell time that the key's next content must exceed, or 0.
func (m *compactModel) cut(k history.Key) int64 {
	if byTime := m.stored[k]; len(byTime) > 0 {
		at := slices.Max(slices.Collect(maps.Keys(byTime)))
		until := m.cleared.ClearedAt(k.Object.Type)
		if at > until && !slices.ContainsFunc(byTime[at], func(r *history.Record) bool { return r.After(until) != nil }) {
			return at
		}
	}
	return 0
}

func texts(items []history.Item) (s string) {
	for _, it := range items {
		s += fmt.Sprintf("%s %+v; ", it.Object, *it.Record)
	}
	return s
}
