package pebble_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestPowerLoss cuts the power in random histories of calls and checkpoints, with any part of unsynced data on
// disk. The restored state is the one after some call, not before the last durable one.
func TestPowerLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := powered{fs: vfs.NewCrashableMem(), alone: rapid.Bool().Draw(t, "alone"), possible: []state{newState()}, start: now(), whole: make(map[uint64]bool)}
		m.open(t)
		defer func() { _ = m.db.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"apply":      m.apply,
			"mark_clean": m.markClean,
			"clear":      m.clear,
			"put":        m.put,
			"promote":    m.promote,
			"compact":    m.compact,
			"checkpoint": m.checkpoint,
			"meanwhile":  m.meanwhile,
			"flush":      func(*rapid.T) { m.db.Flush() },
			"restart":    m.restart,
			"crash":      m.crash,
		})
	})
}

// powered is a store and its possible states after a crash.
type powered struct {
	fs    *vfs.MemFS
	alone bool // see pebble.Config
	db    *pebble.DB
	start int64           // Unix milliseconds
	whole map[uint64]bool // revisions of records that are not partial
	// made lists the original revisions of the records by position: segments and clears change revisions.
	made []uint64
	// possible lists the states after the last durable call and after every call since. The last one is current.
	possible []state
}

// state is the content of a store.
type state struct {
	cache, archive map[history.Key]uint64 // revisions
	dirty          map[history.Key]bool
	cleared        map[string]int64
	times          map[uint64]int64 // by revision
}

func newState() state {
	return state{
		map[history.Key]uint64{},
		map[history.Key]uint64{},
		map[history.Key]bool{},
		map[string]int64{},
		map[uint64]int64{},
	}
}

func (s state) clone() state {
	return state{maps.Clone(s.cache), maps.Clone(s.archive), maps.Clone(s.dirty), maps.Clone(s.cleared), s.times}
}

func (s state) equal(o state) bool {
	return maps.Equal(s.cache, o.cache) && maps.Equal(s.archive, o.archive) &&
		maps.Equal(s.dirty, o.dirty) && maps.Equal(s.cleared, o.cleared)
}

func (m *powered) present() state { return m.possible[len(m.possible)-1] }

// next appends the state after a call; a durable call discards the earlier ones.
func (m *powered) next(s state, durable bool) {
	if durable {
		m.possible = nil
	}
	m.possible = append(m.possible, s)
}

func drawKey(t *rapid.T) history.Key {
	return viewing(rapid.IntRange(0, 1).Draw(t, "user"), rapid.IntRange(0, 3).Draw(t, "object"))
}

func (m *powered) drawTime(t *rapid.T) int64 {
	return m.start + rapid.Int64Range(-1000, 0).Draw(t, "time")
}

func (m *powered) drawRecord(t *rapid.T) *history.Record {
	r := beat(m.drawTime(t))
	r.Position = int64(len(m.made))
	m.made = append(m.made, r.Revision)
	m.present().times[r.Revision] = r.Version.Time()
	m.present().times[r.Revision|history.CleanBit] = r.Version.Time()
	return r
}

func (m *powered) apply(t *rapid.T) {
	s := m.present().clone()
	w := history.Write{Key: drawKey(t), Record: m.drawRecord(t), BeginsHold: rapid.Bool().Draw(t, "mark")}
	w.Base = m.revision(t, w.Key)
	if rapid.Bool().Draw(t, "knows") {
		w.Cleared = s.cleared[w.Key.UID]
	}
	w.Record.Partial = w.Base == 0 || rapid.Bool().Draw(t, "partial")
	m.whole[w.Record.Revision] = !w.Record.Partial
	o := m.db.Cache().Write(t.Context(), []history.Write{w})[0]
	want := history.Applied
	if w.Base == 0 && w.Cleared < s.cleared[w.Key.UID] {
		want = history.Conflict
	}
	if o.Status != want {
		t.Fatalf("apply %s: got status %d, %v; want %d", w.Key, o.Status, o.Err, want)
	}
	if want == history.Conflict {
		return
	}
	s.cache[w.Key] = w.Record.Revision
	s.dirty[w.Key] = true
	m.next(s, true)
}

// revision returns the current revision of a key in the cache, which a clear may have changed.
func (m *powered) revision(t *rapid.T, k history.Key) uint64 {
	e := m.db.Cache().Load(t.Context(), []history.Key{k})[0]
	if e.Err != nil {
		t.Fatal(e.Err)
	}
	if e.Record == nil {
		return 0
	}
	return e.Record.Revision
}

func (m *powered) markClean(t *rapid.T) {
	s, k := m.present().clone(), drawKey(t)
	if err := m.db.Cache().MarkClean(t.Context(), []history.Content{{Key: k, Revision: m.revision(t, k)}}); err != nil {
		t.Fatal(err)
	}
	if delete(s.dirty, k); s.cache[k] != 0 {
		s.cache[k] |= history.CleanBit
	}
	m.next(s, false)
}

func (m *powered) clear(t *rapid.T) {
	s, uid, until := m.present().clone(), drawKey(t).UID, m.drawTime(t)
	_, err := m.db.Cache().Clear(t.Context(), uid, history.Clear{Until: until})
	if err != nil {
		t.Fatal(err)
	}
	s.cleared[uid] = max(s.cleared[uid], until)
	s.dirty[history.UserKey(uid)] = true
	for k, revision := range s.cache {
		if k.UID == uid && s.times[revision] <= s.cleared[uid] {
			delete(s.cache, k)
			delete(s.dirty, k)
		}
	}
	m.next(s, true)
}

func (m *powered) put(t *rapid.T) {
	s, cell := m.present().clone(), history.Cell{Key: drawKey(t), Record: m.drawRecord(t)}
	if cell.Record.Version.Time() == s.times[s.archive[cell.Key]] {
		return // equal cell times would be folded
	}
	if errs := m.db.Archive().Put(t.Context(), []history.Cell{cell}); errs != nil {
		t.Fatal(errs[0])
	}
	if r := cell.Record; r.Version.Time() > s.times[s.archive[cell.Key]] {
		s.archive[cell.Key] = r.Revision
		m.next(s, true)
	}
}

// promote promotes only whole records, of users without clears, that are later than the archived ones.
func (m *powered) promote(t *rapid.T) {
	s, k := m.present().clone(), drawKey(t)
	put, left, err := m.db.Promote(t.Context(), []history.Key{k})
	if err != nil {
		t.Fatal(err)
	}
	r := s.cache[k]
	clean := r&history.CleanBit != 0
	promoted := m.whole[r] && s.cleared[k.UID] == 0 && s.times[r] > s.times[s.archive[k]]
	if done := len(left) == 0; done != (promoted || clean && s.cleared[k.UID] == 0) || (put == 1) != promoted {
		t.Fatalf("carry %s: put %d, left %v; carried %v, clean %v", k, put, left, promoted, clean)
	}
	if promoted {
		s.archive[k], s.cache[k] = r, r|history.CleanBit
		delete(s.dirty, k)
		m.next(s, false)
	}
}

// compact leaves the state unchanged.
func (m *powered) compact(t *rapid.T) {
	uid := drawKey(t).UID
	if rapid.Bool().Draw(t, "stop") {
		if err := m.db.Archive().CompactWhile(uid, func() {}, func() {}, true); err != nil {
			t.Fatal(err)
		}
	} else if _, err := m.db.Archive().Compact(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	m.look(t)
}

func (m *powered) open(t *rapid.T) {
	db, err := pebble.Open("store", pebble.Config{Alone: m.alone}.Compacting(3).On(m.fs))
	if err != nil {
		t.Fatal(err)
	}
	m.db = db
}

func (m *powered) checkpoint(t *rapid.T) {
	m.look(t)
	m.db.Checkpoint()
	m.look(t)
}

// meanwhile makes calls during a checkpoint.
func (m *powered) meanwhile(t *rapid.T) {
	err := m.db.CheckpointWhile(func() {
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			rapid.SampledFrom([]func(*rapid.T){m.apply, m.markClean, m.clear, m.promote}).Draw(t, "call")(t)
			m.look(t)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *powered) restart(t *rapid.T) {
	if err := m.db.Close(); err != nil {
		t.Fatal(err)
	}
	m.open(t)
	m.look(t)
}

func (m *powered) crash(t *rapid.T) {
	seed := rapid.Uint64().Draw(t, "seed")
	fs := m.fs.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: rapid.IntRange(0, 100).Draw(t, "percent"),
		RNG:                 rand.New(rand.NewPCG(seed, seed)),
	})
	_ = m.db.Close() // the old store is abandoned
	m.fs = fs
	m.open(t)
	got := m.read(t)
	for _, s := range m.possible {
		if s.equal(got) {
			m.possible = []state{s}
			return
		}
	}
	t.Fatalf("after a crash: got\n%v, want one of\n%v", got, m.possible)
}

// look compares the current state with the reads.
func (m *powered) look(t *rapid.T) {
	if got, want := m.read(t), m.present(); !got.equal(want) {
		t.Fatalf("got\n%v, want\n%v", got, want)
	}
}

func (m *powered) read(t *rapid.T) state {
	s := newState()
	for user := range 2 {
		for object := range 4 {
			m.readKey(t, s, viewing(user, object))
		}
	}
	s.dirty = allDirty(t, m.db)
	return s
}

func (m *powered) readKey(t *rapid.T, s state, k history.Key) {
	e := m.db.Cache().Load(t.Context(), []history.Key{k})[0]
	stored, err := m.db.Archive().Get(t.Context(), []history.Key{k})
	if err != nil || e.Err != nil {
		t.Fatal(err, e.Err)
	}
	if e.Record != nil {
		s.cache[k] = m.made[e.Record.Position] | e.Record.Revision&history.CleanBit
	}
	if at := e.User.ClearedAt(k.Object.Type); at > 0 {
		s.cleared[k.UID] = at
	}
	if r := stored[0].Record; r != nil {
		s.archive[k] = m.made[r.Position]
	}
}
