package aggregate_test

import (
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
)

// TestHold: one viewing, a heartbeat every 15 s, is one announcement when the hold
// is over, and needs one mark.
func TestHold(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		k := key("ann", 1)
		opened := w.write(k, false)
		for range 7 {
			pass(15 * time.Second)
			if p := w.Pin(k); p.Mark || p.Record == nil {
				t.Fatalf("a heartbeat within the hold: got %+v, want the record and no mark", p)
			} else {
				w.Release(p, aggregate.Result{Written: p.Record})
			}
		}
		pass(15*time.Second - time.Nanosecond)
		w.wantTaken(t, "just before the hold is over")
		pass(time.Nanosecond)
		w.wantTaken(t, "when the hold is over", opened)
		if p := w.Pin(k); !p.Mark || p.Record != nil {
			t.Errorf("after the announcement: got %+v, want no record and a mark", p)
		}
		pass(hold)
		w.wantTaken(t, "later")
	})
}

func TestEnded(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		pass(tick / 2)
		held, ended := w.write(key("ann", 1), false), w.write(key("ann", 2), true)
		w.wantTaken(t, "at once")
		pass(tick / 2)
		w.wantTaken(t, "at the next tick", ended)
		again := w.write(key("ann", 2), false)
		w.write(key("ann", 2), true) // covered by that mark
		w.write(key("ann", 2), true)
		pass(tick)
		w.wantTaken(t, "ended twice within one tick", again)
		pass(hold)
		w.wantTaken(t, "when the hold is over", held)
		w.wantMetrics(t, "in the end", map[string]int{"announced_keys_total": 3, "dropped_keys_total": 0, "held_keys": 0})
	})
}

// TestEndedUnchanged: a stop that repeats another one writes nothing, and is a stop.
func TestEndedUnchanged(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		d := w.write(key("ann", 1), false)
		w.Release(w.Pin(d.Key), aggregate.Result{Ended: true})
		w.Release(w.Pin(key("ann", 2)), aggregate.Result{Ended: true}) // was never written
		pass(tick)
		w.wantTaken(t, "at the next tick", d)
		if n := w.Held(); n != 0 {
			t.Errorf("%d keys are held, want none", n)
		}
	})
}

func TestFull(t *testing.T) {
	inBubble(t, aggregate.Config{Size: 3}, func(t *testing.T, w *world) {
		for range 2 { // the count starts anew with each flush
			w.write(key("dan", 9), false) // is not due
			one, two := w.write(key("ann", 1), true), w.write(key("bob", 2), true)
			w.write(two.Key, true)
			w.wantTaken(t, "two keys are due, one of them twice")
			three := w.write(key("cat", 3), true)
			w.wantTaken(t, "three keys are due", one, two, three)
		}
	})
}

// TestPinned: a pinned key is not announced, neither when its viewing has ended nor
// when its hold is over, and is due at once when it is released.
func TestPinned(t *testing.T) {
	for _, ended := range []bool{false, true} {
		inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
			d := w.write(key("ann", 1), ended)
			p := w.Pin(d.Key)
			pass(30 * time.Second)
			younger := w.write(key("ann", 2), false)
			pass(hold - 30*time.Second)
			w.wantTaken(t, "while pinned")
			w.Release(p, aggregate.Result{Written: p.Record})
			pass(tick)
			w.wantTaken(t, "a tick after its release", d)
			pass(30 * time.Second)
			w.wantTaken(t, "when the other hold is over", younger)
		})
	}
}

// TestRemark: a write after the hold is over, or after a failed compare, sets a new
// mark, and the hold starts anew.
func TestRemark(t *testing.T) {
	inBubble(t, aggregate.Config{Tick: 100 * time.Second}, func(t *testing.T, w *world) {
		late, conflict := w.write(key("ann", 1), false), w.write(key("ann", 2), false)
		pass(50 * time.Second)
		p := w.Pin(conflict.Key)
		if p.Mark {
			t.Error("50 s after the first write: a mark is wanted")
		}
		conflict.Mark = w.next()
		w.Release(p, aggregate.Result{Written: &history.Record{}, Mark: conflict.Mark})
		pass(70*time.Second - time.Nanosecond)
		if w.Pin(late.Key); w.write(late.Key, false).Mark != 0 {
			t.Error("just before the hold is over: a mark is set")
		}
		pass(time.Nanosecond)
		if late = w.write(late.Key, false); late.Mark == 0 {
			t.Error("when the hold is over: no mark is set")
		}
		w.wantTaken(t, "at 120 s")
		pass(80 * time.Second)
		w.wantTaken(t, "at 200 s: 150 s after the failed compare", conflict)
	})
}

// TestCadence: a viewing whose heartbeats come just before the ticks, and one of them
// when the hold is over, is announced at the next tick, under the mark of that one.
func TestCadence(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		k := key("ann", 1)
		pass(tick - time.Millisecond)
		for n := range 3 {
			w.write(k, false)
			for range 7 {
				pass(15 * time.Second)
				if w.write(k, false).Mark != 0 {
					t.Fatalf("hold %d: a mark within it", n)
				}
			}
			pass(15 * time.Second)
			again := w.write(k, false)
			w.wantTaken(t, "when the hold is over")
			pass(15 * time.Second)
			w.wantTaken(t, "at the next tick", again)
		}
	})
}

func TestAnnounce(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		d := history.Dirty{Key: history.UserKey("ann"), Mark: w.next()}
		w.Announce(d)
		w.wantMetrics(t, "before the tick", map[string]int{"held_keys": 1})
		w.wantTaken(t, "at once")
		pass(tick)
		w.wantTaken(t, "at the next tick", d)
	})
}

// TestLost: a key whose write got no answer is forgotten, not announced, and so is
// the key of a write that did not happen.
func TestLost(t *testing.T) {
	written := aggregate.Result{Written: &history.Record{}, Mark: 7, Ended: true}
	lost, nothing := aggregate.Result{Lost: true, Ended: true}, aggregate.Result{}
	for _, test := range []struct {
		name   string
		first  aggregate.Result
		second aggregate.Result
		want   bool // announced
	}{
		{"both written", written, written, true},
		{"one did nothing, then one written", nothing, written, true},
		{"one written, then one did nothing", written, nothing, true},
		{"one lost, then one written", lost, written, false},
		{"one written, then one lost", written, lost, false},
		{"both did nothing", nothing, nothing, false},
		{"both lost", lost, lost, false},
	} {
		inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
			k := key("ann", 1)
			first, second := w.Pin(k), w.Pin(k)
			w.Release(first, test.first)
			pass(tick)
			w.wantTaken(t, test.name+", one of two pins released")
			w.Release(second, test.second)
			if p := w.Pin(k); (p.Record != nil || !p.Mark) && !test.want {
				t.Errorf("%s: the next pin got %+v, want no record and a mark", test.name, p)
			} else {
				w.Release(p, nothing)
			}
			pass(tick)
			if test.want {
				w.wantTaken(t, test.name, history.Dirty{Key: k, Mark: 7})
			} else {
				w.wantTaken(t, test.name)
			}
			if n := w.Held(); n != 0 {
				t.Errorf("%s: %d keys are held, want none", test.name, n)
			}
		})
	}
}

// TestTwoMarks: of two marks that are released in either order, the later counts.
func TestTwoMarks(t *testing.T) {
	for _, marks := range [][]history.Mark{{7, 8}, {8, 7}} {
		inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
			k := key("ann", 1)
			for i, p := range []aggregate.Pin{w.Pin(k), w.Pin(k)} {
				w.Release(p, aggregate.Result{Written: &history.Record{}, Mark: marks[i], Ended: true})
			}
			pass(tick)
			w.wantTaken(t, "at the next tick", history.Dirty{Key: k, Mark: 8})
		})
	}
}

// TestTwoPins: two writes of one key at once. Whichever is released first, the
// later mark is announced and the record counts as unknown.
func TestTwoPins(t *testing.T) {
	for _, swap := range []bool{false, true} {
		inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
			k := key("ann", 1)
			w.write(k, false)
			pins := []aggregate.Pin{w.Pin(k), w.Pin(k)}
			results := []aggregate.Result{
				{Written: &history.Record{Revision: 1}},                     // covered
				{Written: &history.Record{Revision: 2}, Mark: w.next() + 5}, // after a failed compare
			}
			order := []int{0, 1}
			if swap {
				order = []int{1, 0}
			}
			pass(60 * time.Second)
			for _, i := range order {
				w.Release(pins[i], results[i])
			}
			p := w.Pin(k)
			if p.Record != nil || !p.Mark {
				t.Errorf("released in the order %v: got %+v, want no record and a mark", order, p)
			}
			w.Release(p, aggregate.Result{})
			pass(60 * time.Second)
			w.wantTaken(t, "the first hold would be over")
			pass(60 * time.Second)
			w.wantTaken(t, "the second hold is over", history.Dirty{Key: k, Mark: 7})
		})
	}
}
