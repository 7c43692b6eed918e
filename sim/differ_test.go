package sim_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/sim"
)

// TestCachesAlike makes the same calls to all three caches and compares the answers. The simulator relies on its
// own cache to behave like the others.
func TestCachesAlike(t *testing.T) {
	fake := miniredis.RunT(t)
	db, err := pebble.Open(t.TempDir(), pebble.Config{Keep: alikeKeep})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := redis.New(redis.Config{Addrs: []string{fake.Addr()}, Keep: alikeKeep})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		m := newAlike(t, fmt.Sprint("run", runs), db.Cache(), r)
		t.Repeat(map[string]func(*rapid.T){
			"apply":      m.apply,
			"mark_clean": m.markClean,
			"clear":      m.clear,
			"pause":      m.pause,
			"warm":       m.warm,
			"trim":       m.trim,
			"changes":    m.changes,
			"note":       m.note,
			"":           m.check,
		})
	})
}

const alikeKeep = 3

type alike struct {
	caches []historytest.CacheStore
	names  []string
	uids   []string
	keys   []history.Key
	start  int64
	said   int
	// noted is the caches' entries at earlier moments.
	noted []map[history.Key][]history.Entry
}

// newAlike starts with two unknown users.
func newAlike(t *rapid.T, name string, others ...historytest.CacheStore) *alike {
	m := &alike{
		caches: append([]historytest.CacheStore{sim.NewCache(alikeKeep, time.Now)}, others...), names: []string{"sim", "pebble", "redis"},
		uids: []string{name + "a", name + "b"}, start: time.Now().UnixMilli(),
	}
	for _, uid := range m.uids {
		for o := range 6 {
			m.keys = append(m.keys, history.Key{UID: uid, Object: history.Object{ID: fmt.Sprint(o), Type: uint32(1 + o%2)}})
		}
	}
	m.note(t)
	return m
}

func (m *alike) note(t *rapid.T) {
	now := make(map[history.Key][]history.Entry)
	for i, c := range m.caches {
		for n, e := range c.Load(t.Context(), m.all()) {
			k := m.all()[n]
			if e.Err != nil {
				t.Fatalf("%s: load %s: %v", m.names[i], k, e.Err)
			}
			now[k] = append(now[k], e)
		}
	}
	m.noted = append(m.noted, now)
}

func (m *alike) all() []history.Key {
	return append(slices.Clone(m.keys), history.UserKey(m.uids[0]), history.UserKey(m.uids[1]))
}

// seen returns the caches' entries: usually the current ones, sometimes older.
func (m *alike) seen(t *rapid.T, k history.Key) []history.Entry {
	if rapid.IntRange(0, 4).Draw(t, "stale") > 0 {
		m.note(t)
		return m.noted[len(m.noted)-1][k]
	}
	return rapid.SampledFrom(m.noted).Draw(t, "moment")[k]
}

func (m *alike) at(t *rapid.T) int64 {
	return m.start + rapid.Int64Range(-20, 0).Draw(t, "at")
}

func (m *alike) event(t *rapid.T, k history.Key) *history.Record {
	m.said++
	e := history.Event{
		Key: k, At: m.at(t), Position: int64(m.said),
		Kind: rapid.SampledFrom([]history.Kind{history.KindProgress, history.KindStop, history.KindDelete}).Draw(t, "kind"),
	}
	return e.Record()
}

func (m *alike) apply(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "writes")
	keys := rapid.Permutation(m.keys).Draw(t, "keys")[:n]
	writes := make([][]history.Write, len(m.caches))
	made := keys[:0:0]
	for _, k := range keys {
		entries := m.seen(t, k)
		said, mark, blind := m.event(t, k), rapid.Bool().Draw(t, "mark"), rapid.IntRange(0, 5).Draw(t, "blind") == 0
		if said.Version.Time() <= entries[0].User.ClearedAt(k.Object.Type) {
			continue // no caller writes this
		}
		whole, revision := rapid.Bool().Draw(t, "whole"), history.NewRevision()
		made = append(made, k)
		for i, e := range entries {
			base := e.Record
			if blind {
				base = nil
			}
			u := e.User
			r := history.Merge(u.Cut(base, k.Object.Type), said).Successor(&u)
			r.Revision, r.Partial = revision, !whole
			w := history.WriteOn(base, k, r, &e.User)
			w.BeginsHold = mark
			writes[i] = append(writes[i], w)
		}
	}
	var want []history.Outcome
	for i, c := range m.caches {
		got := c.Write(t.Context(), writes[i])
		if i == 0 {
			want = got
			continue
		}
		for n := range got {
			if got[n].Status != want[n].Status || got[n].Err != nil {
				t.Fatalf("%s: apply %s: got %d, %v; want %d", m.names[i], made[n], got[n].Status, got[n].Err, want[n].Status)
			}
		}
	}
}

func (m *alike) markClean(t *rapid.T) {
	k := rapid.SampledFrom(m.all()).Draw(t, "key")
	for i, e := range m.seen(t, k) {
		content := history.Content{Key: k, Revision: e.User.Revision}
		if !k.IsUser() {
			if content.Revision = 0; e.Record != nil {
				content.Revision = e.Record.Revision
			}
		}
		if err := m.caches[i].MarkClean(t.Context(), []history.Content{content}); err != nil {
			t.Fatalf("%s: mark clean %s: %v", m.names[i], k, err)
		}
	}
}

func (m *alike) uid(t *rapid.T) string { return rapid.SampledFrom(m.uids).Draw(t, "user") }

func (m *alike) clear(t *rapid.T) {
	uid, cl := m.uid(t), history.Clear{Type: rapid.Uint32Range(0, 2).Draw(t, "type"), Until: m.at(t) - 5}
	var want int64
	for i, c := range m.caches {
		got, err := c.Clear(t.Context(), uid, cl)
		if i == 0 {
			want = got
		}
		if err != nil || got != want {
			t.Fatalf("%s: clear %s %+v: got %d, %v; want %d", m.names[i], uid, cl, got, err, want)
		}
	}
}

func (m *alike) pause(t *rapid.T) {
	uid := m.uid(t)
	entries := m.seen(t, history.UserKey(uid))
	from := entries[0].User.Pause
	to := from.Switched(rapid.Bool().Draw(t, "recording"), m.at(t), 0)
	var want error
	for i, c := range m.caches {
		err := c.Pause(t.Context(), uid, from, to)
		if i == 0 {
			want = err
		}
		if (err == nil) != (want == nil) {
			t.Fatalf("%s: pause %s from %+v to %+v: got %v, want %v", m.names[i], uid, from, to, err, want)
		}
	}
}

func (m *alike) warm(t *rapid.T) {
	uid, set := m.uid(t), history.WarmSet{}
	for _, k := range m.keys {
		if k.UID == uid && rapid.Bool().Draw(t, "archived") {
			r := m.event(t, k).Successor(nil)
			r.Partial = false
			set.Items = append(set.Items, history.Item{Object: k.Object, Record: r})
		}
	}
	slices.SortFunc(set.Items, history.NewestFirst)
	if n := len(set.Items); n > 0 && rapid.Bool().Draw(t, "more") {
		set.LowWatermark = set.Items[n-1].Record.Version + 1
	}
	if rapid.IntRange(0, 3).Draw(t, "cleared") == 0 {
		set.Cleared = map[uint32]int64{rapid.Uint32Range(0, 2).Draw(t, "type"): m.at(t) - 5}
	}
	if rapid.IntRange(0, 3).Draw(t, "paused") == 0 {
		set.Pause = history.Pause{Since: m.at(t), Until: m.at(t)}
	}
	u := &history.User{Cleared: set.Cleared}
	set.Items = slices.DeleteFunc(set.Items, func(it history.Item) bool { return u.Cut(it.Record, it.Object.Type) == nil })
	set.CutTime = u.CutTime
	if m.hides(t, uid, u) {
		return
	}
	for i, c := range m.caches {
		own := set
		own.Items = slices.Clone(set.Items)
		if err := c.Warm(t.Context(), uid, own); err != nil {
			t.Fatalf("%s: warm %s: %v", m.names[i], uid, err)
		}
	}
}

// hides reports whether an archive's clear mark, new to the caches, covers a cached record. The simulator's cache
// drops such a record, the others keep it.
func (m *alike) hides(t *rapid.T, uid string, u *history.User) bool {
	m.note(t)
	return slices.ContainsFunc(m.keys, func(k history.Key) bool {
		e := m.noted[len(m.noted)-1][k][0]
		return k.UID == uid && e.Record != nil && e.Record.Version.Time() <= u.ClearedAt(k.Object.Type)
	})
}

func (m *alike) trim(t *rapid.T) {
	uid := m.uid(t)
	for i, c := range m.caches {
		if err := c.Trim(t.Context(), []string{uid}); err != nil {
			t.Fatalf("%s: trim %s: %v", m.names[i], uid, err)
		}
	}
}

// changes checks that every record with further changes is in the log. The order of the others, and when they are
// dropped, differs between caches.
func (m *alike) changes(t *rapid.T) {
	uid := m.uid(t)
	for i, c := range m.caches {
		log, err := c.Changes(t.Context(), uid, 0, 1000)
		if err != nil {
			t.Fatalf("%s: changes of %s: %v", m.names[i], uid, err)
		}
		for n, e := range c.Load(t.Context(), m.keys) {
			k := m.keys[n]
			told := slices.ContainsFunc(log.Entries, func(e history.LogEntry) bool { return e.Object == k.Object })
			if k.UID == uid && e.Record != nil && !e.Record.Clean() && !told {
				t.Fatalf("%s: changes of %s: got %v, without %s, which is not clean", m.names[i], uid, log.Entries, k)
			}
		}
	}
}

// check compares the caches' answers to readers, writers and the sweep.
func (m *alike) check(t *rapid.T) {
	var want []told
	for i := range m.caches {
		got := m.tell(t, i)
		if i == 0 {
			want = got
			continue
		}
		for n := range got {
			if a, b := got[n].String(), want[n].String(); a != b {
				t.Fatalf("%s: %s:\ngot  %s\nwant %s", m.names[i], got[n].what, a, b)
			}
		}
	}
}

type told struct {
	what string
	says []any
}

func (s told) String() string { return fmt.Sprintf("%+v", s.says) }

// lowWatermarkOf returns the low watermark of a warm user. A cold user's is undefined: a cache may keep it
// elsewhere until the warm-up.
func lowWatermarkOf(u *history.User) history.Version {
	if !u.Warm {
		return 0
	}
	return u.LowWatermark
}

func (m *alike) tell(t *rapid.T, n int) (all []told) {
	c := m.caches[n]
	visible := make(map[history.Key]bool)
	for i, e := range c.Load(t.Context(), m.all()) {
		k, u := m.all()[i], e.User
		r := u.Cut(e.Record, k.Object.Type)
		visible[k] = r != nil || k.IsUser()
		s := told{what: k.String(), says: []any{u.Warm, lowWatermarkOf(&u), u.Pause, marksOf(u.Cleared)}}
		if r != nil {
			s.says = append(s.says, r.Clean(), r.CellTime, r.Partial, r.Version, r.Position, r.State)
		} else if !k.IsUser() {
			s.says = append(s.says, "none")
		}
		all = append(all, s)
	}
	for _, uid := range m.uids {
		page, err := c.List(t.Context(), uid, history.Query{Limit: 4})
		if err != nil {
			t.Fatalf("%s: list: %v", m.names[n], err)
		}
		s := told{what: "list of " + uid, says: []any{page.More, lowWatermarkOf(&page.User)}}
		for _, it := range page.Items {
			s.says = append(s.says, it.Object, it.Record.Version, it.Record.Position)
		}
		all = append(all, s)
	}
	keys, err := c.Overdue(t.Context(), []history.Bucket{history.BucketOf(m.uids[0]), history.BucketOf(m.uids[1])}, 0, 1_000_000)
	if err != nil {
		t.Fatalf("%s: overdue: %v", m.names[n], err)
	}
	keys = slices.DeleteFunc(keys, func(k history.Key) bool { return !visible[k] })
	slices.SortFunc(keys, func(a, b history.Key) int { return cmp.Compare(a.String(), b.String()) })
	return append(all, told{what: "marks", says: []any{keys}})
}

func marksOf(cleared map[uint32]int64) string {
	return fmt.Sprint(slices.Sorted(maps.Keys(cleared)), cleared)
}
