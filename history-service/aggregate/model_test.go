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

// modelHold is what the model knows of a held key.
type modelHold struct {
	record *history.Record
	mark   history.Mark
	opened time.Time
	pins   int
	ended  time.Time // when it became due; zero when it has not
	lost   bool
}

// fate is what became of a mark that a release reported.
type fate string

const (
	pending  fate = "pending"  // held, waiting, or dropped
	taken    fate = "taken"    // by the queue
	replaced fate = "replaced" // by a later mark of the hold
	lost     fate = "lost"     // with a write whose answer never came
	unclear  fate = "unclear"  // dropped, or replaced: of a hold without a record the model cannot tell
)

// machine drives an aggregator at random, next to a model of it.
type machine struct {
	*world
	mu    sync.Mutex // held around each step and around each publish
	t     *rapid.T
	holds map[history.Key]*modelHold
	pins  []modelPin // on their way
	fates map[history.Mark]fate
	mode  string // of the queue: up, down, half, hanging
	roomy bool   // Max is out of reach
	wrong string // what the flusher found
}

type modelPin struct {
	aggregate.Pin
	key  history.Key
	hold *modelHold
	mark history.Mark // of a write that sets one: drawn early, so that releases come in any order
}

// Publish checks that no key is announced while it is pinned.
func (m *machine) Publish(ctx context.Context, keys []history.Dirty) (unsent []history.Dirty, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range keys {
		m.leave(d)
		if m.mode == "up" || m.mode == "half" && i%2 == 0 {
			m.take(d)
		} else {
			unsent, err = append(unsent, d), errDown
		}
	}
	if m.mode == "hanging" {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
	}
	return unsent, err
}

// leave ends the hold of an announced key.
func (m *machine) leave(d history.Dirty) {
	h := m.holds[d.Key]
	if h == nil || h.mark != d.Mark {
		return
	}
	if h.pins > 0 {
		m.wrong = "announced while pinned: " + d.Key.String()
	}
	delete(m.holds, d.Key)
}

func (m *machine) take(d history.Dirty) {
	if f := m.fates[d.Mark]; f != pending && f != unclear {
		m.wrong = "announced, but already " + string(m.fates[d.Mark]) + ": " + d.Key.String()
	}
	m.fates[d.Mark] = taken
}

// pin compares what a pin says with the model.
func (m *machine) pin() {
	k := m.key()
	h := m.holds[k]
	p := m.Pin(k)
	if h != nil && h.pins == 0 && p.Record == nil && !m.roomy {
		if h.record == nil {
			m.fates[h.mark] = unclear
		}
		h = nil // dropped to make room
	}
	if h == nil {
		h = &modelHold{}
		m.holds[k] = h
	}
	if p.Record != h.record {
		m.t.Fatalf("%s: pinned with the record %p, want %p", k, p.Record, h.record)
	}
	if want := h.record == nil || time.Since(h.opened) >= modelledHold; p.Mark != want {
		m.t.Fatalf("%s: a mark is wanted: %v, want %v", k, p.Mark, want)
	}
	h.pins++
	m.pins = append(m.pins, modelPin{p, k, h, m.next()})
}

// release gives any of the pins back, as a write might have ended.
func (m *machine) release() {
	if len(m.pins) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.pins)-1).Draw(m.t, "pin")
	p := m.pins[i]
	m.pins = slices.Delete(m.pins, i, i+1)
	r := aggregate.Result{Ended: rapid.IntRange(0, 2).Draw(m.t, "ended") == 0}
	switch rapid.SampledFrom([]string{"written", "written", "written", "conflict", "nothing", "lost"}).Draw(m.t, "write") {
	case "conflict":
		r.Written, r.Mark = new(history.Record{Revision: 1}), p.mark
	case "lost":
		r.Lost = true
	case "written":
		r.Written = new(history.Record{Revision: 1})
		if p.Mark {
			r.Mark = p.mark
		}
	}
	m.Release(p.Pin, r)
	m.released(p, r)
}

func (m *machine) released(p modelPin, r aggregate.Result) {
	h := p.hold
	h.pins--
	h.lost = h.lost || r.Lost
	over := h.mark != 0 && time.Since(h.opened) >= modelledHold
	if r.Written != nil {
		known := h.record == p.Record
		if h.record = nil; known {
			h.record = r.Written
		}
	}
	if r.Mark != 0 {
		m.marked(h, r.Mark)
	}
	if (r.Ended || over) && h.ended.IsZero() {
		h.ended = time.Now()
	}
	if h.pins == 0 && (h.lost || h.mark == 0) {
		delete(m.holds, p.key)
		if h.mark != 0 {
			m.fates[h.mark] = lost
		}
	}
}

// marked gives a hold the later of two marks.
func (m *machine) marked(h *modelHold, mark history.Mark) {
	m.fates[min(h.mark, mark)] = replaced
	m.fates[max(h.mark, mark)] = pending
	if mark > h.mark {
		h.mark, h.opened = mark, time.Now()
	}
}

// calm lets the queue come back and checks that what is due has gone.
func (m *machine) calm() {
	m.mode = "up"
	m.unlocked(func() { pass(modelledDeadline + 2*tick) })
	for k, h := range m.holds {
		if m.roomy && h.pins == 0 && (!h.ended.IsZero() || time.Since(h.opened) >= modelledHold+2*tick) {
			m.t.Fatalf("%s is still held: %+v", k, h)
		}
	}
}

// bounded checks that no share of the users has more than its part of Max, but for
// pinned keys.
func (m *machine) bounded() {
	pinned := make(map[string]map[history.Key]bool)
	for _, p := range m.pins {
		if pinned[p.key.UID] == nil {
			pinned[p.key.UID] = make(map[history.Key]bool)
		}
		pinned[p.key.UID][p.key] = true
	}
	limit := 0
	for _, uid := range modelledUsers {
		limit += max(modelledShare, len(pinned[uid]))
	}
	if n := m.Held(); n > limit && !m.roomy {
		m.t.Fatalf("%d keys are held, want at most %d", n, limit)
	}
}

// accounted checks that every mark was taken, replaced, lost, or is counted as
// dropped.
func (m *machine) accounted() {
	count := make(map[fate]int)
	for _, f := range m.fates {
		count[f]++
	}
	n := m.metric(m.t, "dropped_keys_total")
	if n < count[pending] || n > count[pending]+count[unclear] || m.roomy && n > 0 {
		m.t.Fatalf("%d keys are counted as dropped; the marks: %v", n, count)
	}
	if n := m.Held(); n > 0 {
		m.t.Fatalf("%d keys are held after the drain", n)
	}
}

func (m *machine) unlocked(f func()) {
	m.mu.Unlock()
	defer m.mu.Lock()
	f()
}

func (m *machine) key() history.Key {
	return key(rapid.SampledFrom(modelledUsers).Draw(m.t, "uid"), rapid.IntRange(0, 3).Draw(m.t, "object"))
}

const (
	modelledHold     = 10 * time.Second
	modelledDeadline = 3 * time.Second
	modelledShare    = 2
)

// modelledUsers are of different shares.
var modelledUsers = []string{"ann", "bob"}

// TestModel takes random steps: 150 of them for each of a hundred machines.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) { // as it is, rapid asks t for its deadline, which a bubble has not
			m := &machine{t: t, holds: make(map[history.Key]*modelHold), fates: make(map[history.Mark]fate), mode: "up"}
			m.roomy = rapid.Bool().Draw(t, "roomy")
			m.run(rapid.IntRange(1, 8).Draw(t, "size"))
		})
	})
}

func (m *machine) run(size int) {
	cfg := aggregate.Config{Publisher: m, Hold: modelledHold, Deadline: modelledDeadline, Size: size}
	if !m.roomy {
		cfg.Max = modelledShare * 64
	}
	m.world = newWorld(m.t, cfg)
	m.mu.Lock()
	defer func() {
		m.mu.Unlock()
		m.stop()
	}()
	for range 150 {
		m.step()
		m.unlocked(synctest.Wait)
		if m.wrong != "" {
			m.t.Fatal(m.wrong)
		}
		m.bounded()
	}
	for len(m.pins) > 0 {
		m.release()
	}
	m.calm()
	m.unlocked(m.stop)
	m.accounted()
}

func (m *machine) step() {
	switch rapid.SampledFrom([]string{"pin", "pin", "pin", "release", "release", "release", "announce", "pass", "queue", "calm"}).Draw(m.t, "step") {
	case "pin":
		m.pin()
	case "release":
		m.release()
	case "announce":
		d := history.Dirty{Key: history.UserKey(rapid.SampledFrom(modelledUsers).Draw(m.t, "uid")), Mark: m.next()}
		m.fates[d.Mark] = pending
		m.Announce(d)
	case "pass":
		d := rapid.SampledFrom([]time.Duration{tick / 3, tick, modelledHold / 2}).Draw(m.t, "time")
		m.unlocked(func() { pass(d) })
	case "queue":
		m.mode = rapid.SampledFrom([]string{"up", "up", "down", "half", "hanging"}).Draw(m.t, "mode")
	case "calm":
		m.calm()
	}
}
