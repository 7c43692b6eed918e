package aggregate_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
)

// TestHold: a viewing with a heartbeat every 15 s is announced once, when the hold expires. Until then its hold is
// open and has the last record.
func TestHold(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		k := w.write(key("ann", 1), false)
		for range 7 {
			pass(15 * time.Second)
			held, open, ok := w.Get(k)
			if !ok || !open || held.Record.CellTime != w.cell {
				t.Fatalf("a heartbeat within the hold: got %+v, open %v, want the last record and an open hold", held, open)
			}
			w.write(k, false)
		}
		pass(15*time.Second - time.Nanosecond)
		w.wantTaken(t, "just before the hold is over")
		pass(time.Nanosecond)
		w.wantTaken(t, "when the hold is over", k)
		pass(hold)
		w.wantTaken(t, "later")
		if _, _, ok := w.Get(k); ok {
			t.Error("after the announcement: the key is still held")
		}
	})
}

func TestEnded(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		pass(tick / 2)
		held, ended := w.write(key("ann", 1), false), w.write(key("ann", 2), true)
		w.wantTaken(t, "at once")
		pass(tick / 2)
		w.wantTaken(t, "at the next tick", ended)
		w.write(ended, false)
		w.write(ended, true)
		w.write(ended, true)
		pass(tick)
		w.wantTaken(t, "ended twice within one tick", ended)
		pass(hold)
		w.wantTaken(t, "when the hold is over", held)
		w.wantMetrics(t, "in the end", map[string]int{"announced_keys_total": 3, "dropped_keys_total": 0, "held_keys": 0})
	})
}

// TestHolds: Holds counts running and due keys and returns the remaining hold times.
func TestHolds(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		w.queue.set(false, all) // refuse everything
		old := w.write(key("ann", 1), false)
		pass(30 * time.Second)
		w.write(key("ann", 2), false)
		ended := w.write(key("ann", 3), true)
		w.MakeDue("ann")
		got := w.Holds()
		if got.Running != 2 || got.Due != 2 || !slices.Equal(got.Left, []time.Duration{hold - 30*time.Second}) {
			t.Errorf("got %+v, want 2 running, 2 due, and the oldest of the shard", got)
		}
		for k, want := range map[history.Key]time.Duration{old: hold - 30*time.Second, ended: 0} {
			if left, held := w.Left(k); left != want || !held {
				t.Errorf("%v is held for %v, %v, want %v", k, left, held, want)
			}
		}
		w.queue.set(false, nil)
		pass(2 * tick) // the first tick offers one shard
		if _, held := w.Left(ended); held || w.Holds().Due != 0 {
			t.Errorf("after the announcement: held %v, %+v", held, w.Holds())
		}
	})
}

func TestFull(t *testing.T) {
	inBubble(t, aggregate.Config{Size: 3}, func(t *testing.T, w *world) {
		for range 2 { // each flush resets the count
			w.write(key("dan", 9), false) // not due
			one, two := w.write(key("ann", 1), true), w.write(key("bob", 2), true)
			w.write(two, true)
			w.wantTaken(t, "two keys are due, one of them twice")
			three := w.write(key("cat", 3), true)
			w.wantTaken(t, "three keys are due", one, two, three)
		}
	})
}

// TestCadence: a viewing whose heartbeats come just before the ticks, one of them at the hold's end, is announced
// at the next tick.
func TestCadence(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		k := key("ann", 1)
		pass(tick - time.Millisecond)
		for n := range 3 {
			w.write(k, false)
			for range 7 {
				pass(15 * time.Second)
				if _, open, _ := w.Get(k); !open {
					t.Fatalf("hold %d: it is over too early", n)
				}
				w.write(k, false)
			}
			pass(15 * time.Second)
			if _, open, _ := w.Get(k); open {
				t.Fatalf("hold %d: it is not over after %v", n, hold)
			}
			w.write(k, false)
			w.wantTaken(t, "when the hold is over")
			pass(15 * time.Second)
			w.wantTaken(t, "at the next tick", k)
		}
	})
}

func TestAnnounce(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		w.MakeDue("ann")
		w.MakeDue("ann")
		w.wantMetrics(t, "before the tick", map[string]int{"held_keys": 1})
		w.wantTaken(t, "at once")
		pass(tick)
		w.wantTaken(t, "at the next tick", history.UserKey("ann"))
	})
}

// TestLaterWriteIsHeld: if two writes are put out of order, the later one is held.
func TestLaterWriteIsHeld(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		k, earlier, later := key("ann", 1), w.record(), w.record()
		w.Put(k, aggregate.Held{Record: later}, false)
		w.Put(k, aggregate.Held{Record: earlier, Pause: history.Pause{Since: 1}}, false)
		if held, _, _ := w.Get(k); held.Record != later || held.Pause != (history.Pause{}) {
			t.Errorf("got %+v, want the later write and its pause", held)
		}
		if keys := w.Keys(); len(keys) != 1 || keys[0] != k {
			t.Errorf("keys %v, want the one", keys)
		}
	})
}

// TestRetain: if the cache may lose writes, an announced record is retained with an expired hold. A write to it
// starts a new hold.
func TestRetain(t *testing.T) {
	confirm := func(context.Context) error { return nil }
	inBubble(t, aggregate.Config{Confirm: confirm, Retain: 5 * tick}, func(t *testing.T, w *world) {
		k, again := w.write(key("ann", 1), true), w.write(key("ann", 2), true)
		pass(tick)
		w.wantTaken(t, "at the next tick", k, again)
		if held, open, ok := w.Get(k); !ok || open || held.Record == nil {
			t.Fatalf("announced just now: got %+v, open %v, want the record and a hold that is over", held, open)
		}
		w.write(again, false)
		if _, open, _ := w.Get(again); !open {
			t.Error("written after it was announced: no new hold")
		}
		w.wantMetrics(t, "one announced, one held again", map[string]int{"held_keys": 1})
		pass(5 * tick)
		if _, _, ok := w.Get(k); ok {
			t.Error("the announced key is kept for longer than it should")
		}
		pass(hold)
		w.wantTaken(t, "when the second hold is over", again)
	})
}

// TestConfirm: while the cache is unconfirmed, nothing is announced and no announced record is forgotten.
func TestConfirm(t *testing.T) {
	var away atomic.Bool
	confirm := func(context.Context) error {
		if away.Load() {
			return errors.New("away")
		}
		return nil
	}
	inBubble(t, aggregate.Config{Confirm: confirm, Retain: 5 * tick}, func(t *testing.T, w *world) {
		announced := w.write(key("ann", 1), true)
		pass(tick)
		w.wantTaken(t, "before", announced)
		away.Store(true)
		due := w.write(key("bob", 1), true)
		pass(100 * tick)
		w.wantTaken(t, "while the cache is away")
		w.wantMetrics(t, "while the cache is away", map[string]int{"unconfirmed_ticks_total": 100})
		if _, _, ok := w.Get(announced); !ok {
			t.Error("what was announced before is forgotten")
		}
		away.Store(false)
		pass(tick)
		w.wantTaken(t, "when it is back", due)
		pass(4 * tick)
		if _, _, ok := w.Get(announced); !ok {
			t.Error("the time in which the cache was away counts")
		}
		pass(2 * tick)
		if _, _, ok := w.Get(announced); ok {
			t.Error("what was announced is never forgotten")
		}
	})
}

// TestPutLateAfterACacheCameBack: two requests start from one record. The cache stores the first result, loses it
// in a restart, and stores the second. Both are acknowledged, so both must be held in either order of Put, to
// restore the first.
func TestPutLateAfterACacheCameBack(t *testing.T) {
	for _, inOrder := range []bool{true, false} {
		inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
			k := w.write(key("ann", 1), false)
			one, _, _ := w.Get(k)
			other, _, _ := w.Get(k)
			first := one.Next(said(2, 2000, "one"), &history.User{}, false)
			second := other.Next(said(3, 3000, "other"), &history.User{}, false)
			if inOrder {
				w.Put(k, first, false)
				w.Put(k, second, false)
			} else {
				w.Put(k, second, false)
				w.Put(k, first, false)
			}
			held, _, _ := w.Get(k)
			if all := history.Merge(held.Record, held.Concurrent); all.Plays() != 2 {
				t.Errorf("in order %t: what is held has %d plays, want the two that were acknowledged", inOrder, all.Plays())
			}
		})
	}
}

// said returns a record with one completed play.
func said(cell, at int64, session string) *history.Record {
	e := history.Event{Kind: history.KindFinish, At: at, Session: session}
	r := e.Record()
	r.CellTime, r.Revision = cell, uint64(cell)
	return r
}
