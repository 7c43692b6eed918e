package pebble_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestCompactionsInAnyOrder compares two archives under puts from any base, deletes, clears and expiry. One of
// them is compacted at any moment, interrupted and reopened. Readers see the same except for revisions.
func TestCompactionsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newCompactModel(t)
		defer m.close()
		t.Repeat(map[string]func(*rapid.T){
			"put":     m.put,
			"put old": m.putOld,
			"clear":   m.clear,
			"pause":   m.pause,
			"compact": m.compact,
			"stop":    m.stop,
			"beside":  m.beside,
			"reopen":  func(*rapid.T) { m.reopen() },
			"time":    m.pass,
			"":        m.check,
		})
	})
}

const modelUser = "ann"

type compactModel struct {
	t                *rapid.T
	fs               *vfs.MemFS
	now              time.Time
	compacted, plain *pebble.DB
	made             map[history.Key][]*history.Record
	keys             []history.Key
}

func newCompactModel(t *rapid.T) *compactModel {
	m := &compactModel{t: t, fs: vfs.NewMem(), now: time.UnixMilli(1_760_000_000_000), made: make(map[history.Key][]*history.Record)}
	for i := range 14 {
		m.keys = append(m.keys, history.Key{UID: modelUser, Object: history.Object{ID: fmt.Sprint(i), Type: uint32(1 + i%2)}})
	}
	m.reopen()
	m.plain = m.open(pebble.Config{}.On(vfs.NewMem()))
	return m
}

func (m *compactModel) open(c pebble.Config) *pebble.DB {
	c.Now = func() time.Time { return m.now }
	db, err := pebble.Open("store", c)
	m.must(err)
	return db
}

func (m *compactModel) reopen() {
	if m.compacted != nil {
		m.must(m.compacted.Close())
	}
	step := rapid.IntRange(1, 20).Draw(m.t, "step")
	m.compacted = m.open(pebble.Config{}.Compacting(step).On(m.fs))
}

func (m *compactModel) close() {
	_ = m.compacted.Close()
	_ = m.plain.Close()
}

func (m *compactModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// both makes the same call on both archives.
func (m *compactModel) both(do func(a *pebble.Archive) error) {
	m.t.Helper()
	m.must(do(m.compacted.Archive()))
	m.must(do(m.plain.Archive()))
}

func (m *compactModel) putCell(c history.Cell) {
	m.both(func(a *pebble.Archive) error {
		return errors.Join(a.Put(m.t.Context(), []history.Cell{c})...)
	})
}

// put puts a new content based on any earlier content or none, as an outdated cache does. The event may be old.
func (m *compactModel) put(t *rapid.T) {
	k := rapid.SampledFrom(m.keys).Draw(t, "key")
	e := history.Event{
		Key: k, At: m.now.UnixMilli() - 1000*rapid.Int64Range(0, 40).Draw(t, "seconds ago"),
		Kind:     rapid.SampledFrom([]history.Kind{history.KindProgress, history.KindStop, history.KindDelete}).Draw(t, "kind"),
		Position: rapid.Int64Range(0, 9).Draw(t, "position"),
	}
	var base *history.Record
	if made := m.made[k]; len(made) > 0 {
		if i := rapid.IntRange(-1, len(made)-1).Draw(t, "base"); i >= 0 {
			base = made[len(made)-1-i]
		}
	}
	got, err := m.compacted.Archive().Get(t.Context(), []history.Key{k})
	m.must(err)
	u := got[0].User
	if base = base.After(u.ClearedAt(k.Object.Type)); base == nil && e.At <= u.ClearedAt(k.Object.Type) {
		return
	}
	r := history.Merge(base, e.Record()).Successor(&u)
	m.made[k] = append(m.made[k], r)
	m.putCell(history.Cell{Key: k, Record: r})
}

// putOld repeats an earlier content.
func (m *compactModel) putOld(t *rapid.T) {
	k := rapid.SampledFrom(m.keys).Draw(t, "key")
	if made := m.made[k]; len(made) > 0 {
		m.putCell(history.Cell{Key: k, Record: rapid.SampledFrom(made).Draw(t, "content")})
	}
}

func (m *compactModel) clear(t *rapid.T) {
	typ := rapid.Uint32Range(0, 2).Draw(t, "type")
	at := m.now.UnixMilli() - 1000*rapid.Int64Range(0, 60).Draw(t, "seconds ago")
	m.both(func(a *pebble.Archive) error {
		return a.PutUser(t.Context(), modelUser, history.User{Cleared: map[uint32]int64{typ: at}})
	})
}

// pause pauses or resumes recording.
func (m *compactModel) pause(t *rapid.T) {
	p := history.Pause{Since: m.now.UnixMilli()}
	if rapid.Bool().Draw(t, "over") {
		p = history.Pause{Since: p.Since - 1000, Until: p.Since}
	}
	m.both(func(a *pebble.Archive) error { return a.PutUser(t.Context(), modelUser, history.User{Pause: p}) })
}

func (m *compactModel) compact(t *rapid.T) {
	_, err := m.compacted.Archive().Compact(t.Context(), modelUser)
	m.must(err)
}

// stop ends a compaction after the segments are written and before the live segment shrinks.
func (m *compactModel) stop(*rapid.T) {
	m.must(m.compacted.Archive().CompactWhile(modelUser, func() {}, func() {}, true))
}

// beside writes during a compaction, whenever it releases its locks.
func (m *compactModel) beside(t *rapid.T) {
	some := func() {
		for range rapid.IntRange(0, 3).Draw(t, "writes") {
			rapid.SampledFrom([]func(*rapid.T){m.put, m.put, m.putOld, m.clear, m.pause}).Draw(t, "write")(t)
		}
	}
	err := m.compacted.Archive().CompactWhile(modelUser, some, some, false)
	if !errors.Is(err, history.ErrConflict) {
		m.must(err)
	}
}

// pass advances the clock by seconds, or until records begin to expire, with or without a sweep.
func (m *compactModel) pass(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second
	if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
		d += history.DefaultRetention*time.Millisecond - 30*time.Second
	}
	m.now = m.now.Add(d)
	if rapid.Bool().Draw(t, "sweep") {
		for _, db := range []*pebble.DB{m.compacted, m.plain} {
			_, err := db.Sweep(t.Context())
			m.must(err)
		}
	}
}

// check compares all reads.
func (m *compactModel) check(t *rapid.T) {
	got, err := m.compacted.Archive().Get(t.Context(), m.keys)
	m.must(err)
	want, err := m.plain.Archive().Get(t.Context(), m.keys)
	m.must(err)
	expired := m.now.UnixMilli() - history.DefaultRetention // compactions drop such records, whose cell times no longer matter
	for i, k := range m.keys {
		if !sameButRevision(got[i].Record, want[i].Record) || max(got[i].User.CutTime, expired) < want[i].User.CutTime || !maps.Equal(got[i].User.Cleared, want[i].User.Cleared) {
			t.Fatalf("get %s:\ngot  %+v %+v\nwant %+v %+v", k, got[i].Record, got[i].User, want[i].Record, want[i].User)
		}
	}
	if i, err := m.compacted.Archive().Inspect(t.Context(), modelUser, true); err != nil || len(i.Wrong) > 0 || len(i.Unlisted) > 0 {
		t.Fatalf("parts: %+v, %v", i, err)
	}
	whole, err := m.plain.Archive().Page(t.Context(), modelUser, history.Query{Limit: 100})
	m.must(err)
	q := history.Query{Limit: rapid.IntRange(1, 20).Draw(t, "limit"), Type: rapid.Uint32Range(0, 2).Draw(t, "type")}
	if len(whole.Items) > 0 {
		pick := func(what string) history.Item { return rapid.SampledFrom(whole.Items).Draw(t, what) }
		switch rapid.IntRange(0, 3).Draw(t, "bounds") {
		case 1:
			q.After = pick("after").Place()
		case 2:
			q.Until = pick("until").Record.Version.Time()
		case 3:
			q.Since, q.Until = pick("since").Record.Version.Time(), pick("until").Record.Version.Time()
		}
	}
	for _, q := range []history.Query{q, {Limit: 100}} {
		m.comparePages(t, q)
	}
}

func (m *compactModel) comparePages(t *rapid.T, q history.Query) {
	got, err := m.compacted.Archive().Page(t.Context(), modelUser, q)
	m.must(err)
	want, err := m.plain.Archive().Page(t.Context(), modelUser, q)
	m.must(err)
	if !slices.EqualFunc(got.Items, want.Items, func(a, b history.Item) bool {
		return a.Object == b.Object && sameButRevision(a.Record, b.Record)
	}) || got.More != want.More || got.User.Pause != want.User.Pause {
		t.Fatalf("page %+v:\ngot  %s\nwant %s", q, texts(got), texts(want))
	}
}

func texts(p history.Page) (s string) {
	for _, it := range p.Items {
		s += fmt.Sprintf("%s %+v; ", it.Object, *it.Record)
	}
	return s + fmt.Sprint(p.More)
}

func sameButRevision(a, b *history.Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	r := *a
	r.Revision = b.Revision
	return (a.Revision != 0 || b.Revision == 0) && reflect.DeepEqual(&r, b)
}
