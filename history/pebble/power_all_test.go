package pebble_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestPowerLossOfAll cuts the power in random histories of all calls. The restored state is the one after some
// call, not before the last durable one. Clean records of followed users stay clean.
func TestPowerLossOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &observed{fs: vfs.NewCrashableMem(), alone: rapid.Bool().Draw(t, "alone"), now: time.UnixMilli(1_760_000_000_000)}
		m.open(t)
		defer func() { _ = m.db.Close() }()
		m.done(t, true)
		t.Repeat(map[string]func(*rapid.T){
			"apply":      m.apply,
			"mark_clean": m.markClean,
			"clear":      m.clear,
			"pause":      m.pause,
			"warm":       m.warm,
			"trim":       m.trim,
			"changes":    m.changes,
			"put":        m.put,
			"put user":   m.putUser,
			"promote":    m.promote,
			"compact":    m.compact,
			"see":        m.see,
			"announced":  m.announced,
			"sweep":      m.sweep,
			"checkpoint": func(*rapid.T) { m.db.Checkpoint() },
			"flush":      func(*rapid.T) { m.db.Flush() },
			"restart":    m.restart,
			"crash":      m.crash,
		})
	})
}

type observed struct {
	fs    *vfs.MemFS
	alone bool
	now   time.Time
	db    *pebble.DB
	said  int64
	// possible lists the states after the last durable call and after every call since.
	possible []string
	logged   map[string]bool
	clean    map[history.Key]bool // as last read, for users with a log
}

func (m *observed) open(t *rapid.T) {
	db, err := pebble.Open("store", pebble.Config{Alone: m.alone, Keep: 2, Now: func() time.Time { return m.now }}.Compacting(3).On(m.fs))
	if err != nil {
		t.Fatal(err)
	}
	<-db.Learned()
	m.db = db
}

func (m *observed) done(t *rapid.T, durable bool) {
	if durable {
		m.possible = nil
	}
	m.possible = append(m.possible, m.read(t, true))
}

func (m *observed) all() (keys []history.Key) {
	for user := range 2 {
		for object := range 4 {
			keys = append(keys, viewing(user, object))
		}
	}
	return keys
}

// read returns everything readers see.
func (m *observed) read(t *rapid.T, note bool) string {
	var b strings.Builder
	keys := m.all()
	if note {
		m.clean = make(map[history.Key]bool)
	}
	for i, e := range m.db.Cache().Load(t.Context(), keys) {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		u := e.User
		warm := u.Warm && !m.alone // the key filter may be unsure that the archive is empty
		fmt.Fprintln(&b, keys[i], warm, u.LowWatermark, u.CutTime, u.Pause, u.Revision, slices.Sorted(maps.Keys(u.Cleared)), u.Cleared)
		if e.Record != nil {
			fmt.Fprintln(&b, "  ", e.Record.Revision, e.Record.Partial, e.Record.Version, e.Record.Position, e.Record.CellTime)
		}
		if note && m.logged[keys[i].UID] && e.Record.Clean() {
			m.clean[keys[i]] = true
		}
	}
	old, err := m.db.Archive().Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range old {
		if e.Record != nil {
			fmt.Fprintln(&b, "archive", keys[i], e.Record.Version, e.Record.Position, e.Record.CellTime)
		}
	}
	for _, uid := range []string{keys[0].UID, keys[4].UID} {
		page, err := m.db.Archive().Page(t.Context(), uid, history.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, "page", uid, page.User.Pause, page.User.Cleared)
		for _, it := range page.Items {
			fmt.Fprintln(&b, "  ", it.Object, it.Record.Version, it.Record.Position)
		}
		if m.logged[uid] {
			log, err := m.db.Cache().Changes(t.Context(), uid, 0, 1000)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&b, "log", uid, log)
		}
	}
	fmt.Fprintln(&b, slices.SortedFunc(maps.Keys(allDirty(t, m.db)), func(x, y history.Key) int { return strings.Compare(x.String(), y.String()) }))
	firsts, err := m.db.Days().PendingFirsts(t.Context(), history.AllBuckets(), -time.Hour, 1000)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b, firsts)
	return b.String()
}

func (m *observed) at(t *rapid.T) int64 {
	return m.now.UnixMilli() - rapid.Int64Range(0, 1000).Draw(t, "ago")
}

func (m *observed) record(t *rapid.T, k history.Key, base *history.Record, u *history.User) *history.Record {
	m.said++
	e := history.Event{Key: k, At: m.at(t), Position: m.said, Kind: rapid.SampledFrom([]history.Kind{history.KindProgress, history.KindStop, history.KindDelete}).Draw(t, "kind")}
	return history.Merge(u.Cut(base, k.Object.Type), e.Record()).Successor(u)
}

func (m *observed) entry(t *rapid.T, k history.Key) history.Entry {
	e := m.db.Cache().Load(t.Context(), []history.Key{k})[0]
	if e.Err != nil {
		t.Fatal(e.Err)
	}
	return e
}

func (m *observed) apply(t *rapid.T) {
	k := drawKey(t)
	e := m.entry(t, k)
	w := history.WriteOn(e.Record, k, m.record(t, k, e.Record, &e.User), &e.User)
	w.Record.Partial = !e.User.Complete() && e.Record == nil || rapid.Bool().Draw(t, "partial")
	w.BeginsHold = rapid.Bool().Draw(t, "mark")
	out := m.db.Cache().Write(t.Context(), []history.Write{w})[0]
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	m.done(t, out.Status == history.Applied)
}

func (m *observed) markClean(t *rapid.T) {
	k := drawKey(t)
	e := m.entry(t, k)
	c := history.Content{Key: k}
	if e.Record != nil {
		c.Revision = e.Record.Revision
	}
	if rapid.Bool().Draw(t, "user") {
		c = history.Content{Key: history.UserKey(k.UID), Revision: e.User.Revision}
	}
	if err := m.db.Cache().MarkClean(t.Context(), []history.Content{c}); err != nil {
		t.Fatal(err)
	}
	m.done(t, false)
}

func (m *observed) clear(t *rapid.T) {
	uid := drawKey(t).UID
	if _, err := m.db.Cache().Clear(t.Context(), uid, history.Clear{Until: m.at(t), Type: rapid.Uint32Range(0, 1).Draw(t, "type")}); err != nil {
		t.Fatal(err)
	}
	delete(m.logged, uid)
	m.done(t, true)
}

func (m *observed) pause(t *rapid.T) {
	k := drawKey(t)
	from := m.entry(t, k).User.Pause
	if err := m.db.Cache().Pause(t.Context(), k.UID, from, from.Switched(rapid.Bool().Draw(t, "recording"), m.at(t), 0)); err != nil {
		t.Fatal(err)
	}
	m.done(t, true)
}

func (m *observed) warm(t *rapid.T) {
	uid := drawKey(t).UID
	page, err := m.db.Archive().Page(t.Context(), uid, history.Query{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	w := history.WarmSet{Items: page.Items, Cleared: page.User.Cleared, CutTime: page.User.CutTime, Pause: page.User.Pause}
	if page.More {
		w.LowWatermark = page.End().Version + 1
	}
	if err := m.db.Cache().Warm(t.Context(), uid, w); err != nil {
		t.Fatal(err)
	}
	m.done(t, false)
}

func (m *observed) trim(t *rapid.T) {
	if err := m.db.Cache().Trim(t.Context(), []string{drawKey(t).UID}); err != nil {
		t.Fatal(err)
	}
	m.done(t, false)
}

func (m *observed) changes(t *rapid.T) {
	uid := drawKey(t).UID
	if _, err := m.db.Cache().Changes(t.Context(), uid, 0, 10); err != nil {
		t.Fatal(err)
	}
	if m.logged == nil {
		m.logged = make(map[string]bool)
	}
	begins := !m.logged[uid]
	m.logged[uid] = true
	m.done(t, begins)
}

func (m *observed) put(t *rapid.T) {
	k := drawKey(t)
	e, err := m.db.Archive().Get(t.Context(), []history.Key{k})
	if err != nil {
		t.Fatal(err)
	}
	if errs := m.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: m.record(t, k, e[0].Record, &e[0].User)}}); errs != nil {
		t.Fatal(errs[0])
	}
	m.done(t, true)
}

func (m *observed) putUser(t *rapid.T) {
	k := drawKey(t)
	if err := m.db.Archive().PutUser(t.Context(), k.UID, m.entry(t, k).User); err != nil {
		t.Fatal(err)
	}
	m.done(t, true)
}

func (m *observed) promote(t *rapid.T) {
	if _, _, err := m.db.Promote(t.Context(), m.all()); err != nil {
		t.Fatal(err)
	}
	m.done(t, false)
}

func (m *observed) compact(t *rapid.T) {
	if _, err := m.db.Archive().Compact(t.Context(), drawKey(t).UID); err != nil {
		t.Fatal(err)
	}
	m.done(t, false)
}

func (m *observed) see(t *rapid.T) {
	s := m.db.Days().See(t.Context(), []history.Sighting{{UID: drawKey(t).UID, Day: history.Day(20_000 + rapid.IntRange(0, 9).Draw(t, "day"))}})[0]
	if s.Err != nil {
		t.Fatal(s.Err)
	}
	m.done(t, s.First)
}

func (m *observed) announced(t *rapid.T) {
	firsts, err := m.db.Days().PendingFirsts(t.Context(), history.AllBuckets(), -time.Hour, 1)
	if err == nil {
		err = m.db.Days().Announced(t.Context(), firsts)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.done(t, false)
}

func (m *observed) sweep(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "weeks")) * 7 * 24 * time.Hour)
	if _, err := m.db.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.db.Checkpoint() // hides expired records, whatever is on disk
	m.done(t, true)
}

func (m *observed) restart(t *rapid.T) {
	before := m.read(t, true)
	if err := m.db.Close(); err != nil {
		t.Fatal(err)
	}
	m.open(t)
	if got := m.read(t, true); got != before {
		t.Fatalf("after a restart: got\n%s\nwant\n%s", got, before)
	}
}

func (m *observed) crash(t *rapid.T) {
	seed := rapid.Uint64().Draw(t, "seed")
	fs := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rapid.IntRange(0, 100).Draw(t, "percent"), RNG: rand.New(rand.NewPCG(seed, seed))})
	_ = m.db.Close() // the old store is abandoned
	m.fs = fs
	m.open(t)
	told := m.clean
	got := m.read(t, false)
	if !slices.Contains(m.possible, got) {
		t.Fatalf("after a crash:\n%s", unlike(got, m.possible))
	}
	for _, e := range m.all() {
		if r := m.entry(t, e).Record; told[e] && r != nil && !r.Clean() {
			t.Fatalf("after a crash %s is not clean, and was told to be: %+v", e, r)
		}
	}
	m.done(t, true)
}

// unlike returns the lines in which a state differs from each possible state.
func unlike(got string, possible []string) string {
	var b strings.Builder
	lines := strings.Split(got, "\n")
	for i, p := range possible {
		want := strings.Split(p, "\n")
		fmt.Fprintln(&b, "not state", i, "of", len(possible))
		for _, l := range lines {
			if !slices.Contains(want, l) {
				fmt.Fprintln(&b, "  got ", l)
			}
		}
		for _, l := range want {
			if !slices.Contains(lines, l) {
				fmt.Fprintln(&b, "  want", l)
			}
		}
	}
	return b.String()
}
