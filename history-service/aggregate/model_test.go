package aggregate_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
)

const (
	modelHold     = 10 * time.Second
	modelRetain   = 4 * time.Second
	modelDeadline = 3 * time.Second
	modelShare    = 3 // keys per user if Max is small
)

// modelUsers are in different shards.
var modelUsers = []string{"ann", "bob"}

// acknowledged is the model's state of a key.
type acknowledged struct {
	cell    int64         // of the latest record
	pending bool          // written since the last announcement
	due     time.Time     // latest announcement time, if the queue accepts
	at      time.Duration // last announcement in confirmed time; negative if none
}

// machine drives an aggregator at random and compares it with a model.
type machine struct {
	*world
	t     *rapid.T
	roomy bool // Max is never reached

	mu        sync.Mutex
	keys      map[history.Key]*acknowledged
	users     map[history.Key]bool // due own states
	mode      string               // state of the queue: up, down, half, hanging
	away      bool                 // the cache is unconfirmed
	confirmed time.Duration
	last      time.Time                    // last confirmation; zero after a failure
	flying    map[history.Key]acknowledged // keys of the publish in progress
	lost      int                          // dropped keys
	wrong     string
}

func (m *machine) confirm(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		m.last = time.Time{}
		return errDown
	}
	now := time.Now()
	if !m.last.IsZero() {
		m.confirmed += now.Sub(m.last)
	}
	m.last = now
	return nil
}

// Publish checks that nothing is announced while the cache is unconfirmed.
func (m *machine) Publish(ctx context.Context, keys []history.Announcement) (unsent []history.Announcement, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.IsZero() {
		m.wrong = "announced while the cache was not confirmed"
	}
	mode := m.mode
	m.flying = make(map[history.Key]acknowledged)
	for _, d := range keys {
		if k := m.keys[d.Key]; k != nil {
			k.at, m.flying[d.Key] = m.confirmed, *k
		}
	}
	defer func() { m.flying = nil }()
	if mode == "hanging" {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
	}
	for i, d := range keys {
		if mode == "up" || mode == "half" && i%2 == 0 {
			m.take(d.Key, m.flying[d.Key].cell)
		} else {
			unsent, err = append(unsent, d), errDown
		}
	}
	return unsent, err
}

func (m *machine) take(k history.Key, cell int64) {
	if delete(m.users, k); m.keys[k] != nil && m.keys[k].cell == cell {
		m.keys[k].pending = false
	}
}

// put puts a record, sometimes out of order.
func (m *machine) put() {
	k := key(rapid.SampledFrom(modelUsers).Draw(m.t, "uid"), rapid.IntRange(0, 4).Draw(m.t, "object"))
	r, ended := m.record(), rapid.IntRange(0, 2).Draw(m.t, "ended") == 0
	if rapid.IntRange(0, 4).Draw(m.t, "late") == 0 {
		r.CellTime = max(1, r.CellTime-int64(rapid.IntRange(1, 5).Draw(m.t, "by")))
	}
	m.mu.Lock() // no announcement between the put and its entry in the model
	defer m.mu.Unlock()
	_, _, held := m.Get(k)
	m.Put(k, aggregate.Held{Record: r}, ended)
	was := m.keys[k]
	if was == nil || !held {
		was = &acknowledged{at: -1}
		m.keys[k] = was
	}
	if _, flying := m.flying[k]; flying || !was.pending { // starts a new hold
		was.pending, was.due = true, time.Now().Add(modelHold)
	}
	if was.cell = max(was.cell, r.CellTime); ended && was.due.After(time.Now()) {
		was.due = time.Now()
	}
}

// check compares the held keys with the model.
func (m *machine) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wrong != "" {
		m.t.Fatal(m.wrong)
	}
	for k, want := range m.keys {
		held, _, ok := m.Get(k)
		switch {
		case ok && held.Record.CellTime != want.cell:
			m.t.Fatalf("%s is held with the content %d, want %d", k, held.Record.CellTime, want.cell)
		case ok:
		case m.roomy && (want.pending || want.at >= 0 && m.confirmed-want.at < modelRetain):
			m.t.Fatalf("%s was dropped before it was announced and confirmed: %+v at %v", k, want, m.confirmed)
		default:
			if _, flying := m.flying[k]; want.pending && !flying {
				m.lost++
			}
			delete(m.keys, k)
		}
	}
	if dropped := m.metric(m.t, "dropped_keys_total"); m.lost > dropped || m.roomy && dropped > 0 {
		m.t.Fatalf("%d keys are counted as dropped, want at least %d", dropped, m.lost)
	}
	if n := len(m.Keys()); !m.roomy && n > modelShare*len(modelUsers) {
		m.t.Fatalf("%d keys are held, want at most %d", n, modelShare*len(modelUsers))
	}
}

// calm restores the queue and the cache, then checks that all due keys are announced.
func (m *machine) calm() {
	m.set("up", false)
	pass(modelDeadline + 3*tick)
	m.check()
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, a := range m.keys {
		if a.pending && time.Since(a.due) > 2*tick {
			m.t.Fatalf("%s was due %v ago", k, time.Since(a.due))
		}
	}
	if m.roomy && len(m.users) > 0 {
		m.t.Fatalf("not announced: %v", m.users)
	}
}

func (m *machine) set(mode string, away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mode, m.away = mode, away
}

func (m *machine) step() {
	switch rapid.SampledFrom([]string{"put", "put", "put", "put", "user", "pass", "pass", "world", "calm"}).Draw(m.t, "step") {
	case "put":
		m.put()
	case "user":
		k := history.UserKey(rapid.SampledFrom(modelUsers).Draw(m.t, "uid"))
		m.mu.Lock()
		m.users[k] = true
		m.MakeDue(k.UID)
		m.mu.Unlock()
	case "pass":
		pass(rapid.SampledFrom([]time.Duration{tick / 3, tick, modelRetain, modelHold / 2}).Draw(m.t, "time"))
	case "world":
		modes := []string{"up", "up", "down", "half", "hanging"}
		m.set(rapid.SampledFrom(modes).Draw(m.t, "queue"), rapid.IntRange(0, 3).Draw(m.t, "cache") == 0)
	case "calm":
		m.calm()
	}
}

// TestModel takes random steps. No acknowledged record may be dropped before it is announced and confirmed, unless
// Max is reached. Due keys are announced, and limits hold.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) { // hides the deadline of t, which rapid asks for and a bubble lacks
			m := &machine{t: t, keys: map[history.Key]*acknowledged{}, users: map[history.Key]bool{}, mode: "up"}
			m.roomy = rapid.Bool().Draw(t, "roomy")
			m.run(rapid.IntRange(1, 8).Draw(t, "size"))
		})
	})
}

func (m *machine) run(size int) {
	cfg := aggregate.Config{Publisher: m, Confirm: m.confirm, Retain: modelRetain, Hold: modelHold, Deadline: modelDeadline, Size: size}
	if !m.roomy {
		cfg.Max = modelShare * 64
	}
	m.world = newWorld(m.t, cfg)
	defer func() { m.stop() }()
	for range 150 {
		m.step()
		synctest.Wait()
		m.check()
	}
	m.calm()
	pass(modelHold + modelRetain + 3*tick)
	if left := m.Keys(); len(left) > 0 || m.Waiting() > 0 {
		m.t.Fatalf("still held: %v, %d wait", left, m.Waiting())
	}
	m.put()
	m.stop()
	if slices.ContainsFunc(m.Keys(), func(k history.Key) bool { return m.keys[k] == nil || m.keys[k].pending }) {
		m.t.Fatal("what was held at the end was not announced")
	}
}
