package aggregate_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/internal/obs/obstest"
)

func TestNew(t *testing.T) {
	for name, cfg := range map[string]aggregate.Config{
		"no publisher":      {},
		"negative hold":     {Publisher: &queue{}, Hold: -1},
		"negative tick":     {Publisher: &queue{}, Tick: -1},
		"negative deadline": {Publisher: &queue{}, Deadline: -1},
		"negative drain":    {Publisher: &queue{}, Drain: -1},
		"negative size":     {Publisher: &queue{}, Size: -1},
		"negative max":      {Publisher: &queue{}, Max: -1},
	} {
		if _, err := aggregate.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if a, err := aggregate.New(aggregate.Config{Publisher: &queue{}}); err != nil || a.Waiting() != 0 {
		t.Errorf("only a publisher: got %v", err)
	}
}

// TestPutBack: keys refused by the queue are retried at every tick.
func TestPutBack(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		w.wantMetrics(t, "at first", map[string]int{"announced_keys_total": 0, "failed_publishes_total": 0, "dropped_keys_total": 0})
		ann, bob := w.write(key("ann", 1), true), w.write(key("bob", 1), true)
		w.queue.set(false, func(d history.Key) bool { return d == bob })
		pass(tick)
		w.wantTaken(t, "the queue takes one of two", ann)
		w.wantMetrics(t, "then", map[string]int{"announced_keys_total": 1, "failed_publishes_total": 1, "held_keys": 1})
		w.write(bob, true)
		w.queue.set(false, all)
		pass(3 * tick)
		w.wantTaken(t, "the queue takes nothing")
		w.wantMetrics(t, "then", map[string]int{"announced_keys_total": 1, "failed_publishes_total": 4, "held_keys": 1})
		w.queue.set(false, nil)
		pass(tick)
		w.wantTaken(t, "the queue takes all", bob)
		pass(hold)
		w.wantTaken(t, "once is enough")
		w.wantMetrics(t, "in the end", map[string]int{"announced_keys_total": 2, "dropped_keys_total": 0, "held_keys": 0})
	})
}

// TestReasons counts why keys are due, and for how long they were held.
func TestReasons(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		w.write(key("ann", 1), true)
		w.write(key("bob", 1), false)
		w.MakeDue("carl")
		pass(hold + tick)
		w.write(key("dan", 1), false)
		w.stop()
		for reason, want := range map[string]float64{"ended": 1, "hold": 1, "user": 1, "stop": 1} {
			if got := obstest.Sum(t, w.reg, "playhead_aggregate_flushed_keys_total", reason); got != want {
				t.Errorf("%v keys for %s, want %v", got, reason, want)
			}
		}
	})
}

// TestOutageIsQuiet: an outage causes two log lines, and one publish per tick.
func TestOutageIsQuiet(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, aggregate.Config{Size: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, w *world) {
		w.queue.set(false, all)
		for i := range 10 {
			w.write(key("ann", i), i == 0)
			pass(tick)
		}
		if n := w.queue.calls; n != 11 { // one at once, since Size is 1
			t.Errorf("%d publishes in ten ticks, want 11", n)
		}
		w.queue.set(false, nil)
		pass(10 * tick)
	})
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), errDown.Error()) {
		t.Errorf("got %d lines, want one at the begin and one at the end of the outage:\n%s", lines, log.String())
	}
}

// TestOutageIsCheap: during an outage the queue is offered one shard per tick. Once it accepts, all due keys follow
// in the same tick.
func TestOutageIsCheap(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		var offered atomic.Int64
		most := int64(0)
		w.queue.set(false, func(history.Key) bool { offered.Add(1); return true })
		for i := range 6400 {
			w.write(key(fmt.Sprint("user", i), 1), true)
		}
		pass(tick)
		for range 100 {
			offered.Store(0)
			pass(tick)
			most = max(most, offered.Load())
		}
		if most == 0 || most > 200 {
			t.Errorf("up to %d keys of 6,400 are offered at a tick of an outage, want about 100", most)
		}
		w.queue.set(false, nil)
		pass(tick)
		w.wantMetrics(t, "a tick after the outage", map[string]int{"announced_keys_total": 6400, "held_keys": 0})
	})
}

// TestOutageIsOneAnnouncement: a viewing that spans an outage of several holds is announced once afterwards.
func TestOutageIsOneAnnouncement(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		w.write(key("bob", 1), true) // its shard is offered at every tick
		w.queue.set(false, all)
		last := key("ann", 1)
		for range 40 {
			w.write(last, false)
			pass(15 * time.Second)
		}
		var taken atomic.Int64
		w.queue.set(false, func(d history.Key) bool {
			if d == last {
				taken.Add(1)
			}
			return false
		})
		pass(2 * tick)
		if n := taken.Load(); n != 1 {
			t.Errorf("announced %d times, want once", n)
		}
	})
}

// TestMax: the oldest key is dropped at once, not at the next tick. All keys belong to one user, whose shard has
// room for 3.
func TestMax(t *testing.T) {
	inBubble(t, aggregate.Config{Max: 3 * 64}, func(t *testing.T, w *world) {
		var written []history.Key
		for i := range 10 {
			written = append(written, w.write(key("ann", i), i == 8))
			if n := w.Waiting(); n > 3 {
				t.Fatalf("%d keys are held after %d writes, want at most 3", n, i+1)
			}
			pass(time.Millisecond)
		}
		w.wantMetrics(t, "ten written", map[string]int{"dropped_keys_total": 7, "held_keys": 3})
		w.stop()
		w.wantTaken(t, "drained", written[7:]...)
	})
}

// TestManyHeld: above half of the room the oldest running viewing is due at once, and nothing is dropped.
func TestManyHeld(t *testing.T) {
	inBubble(t, aggregate.Config{Max: 8 * 64}, func(t *testing.T, w *world) {
		var written []history.Key
		for i := range 6 {
			written = append(written, w.write(key("ann", i), false))
		}
		pass(tick)
		w.wantTaken(t, "at the next tick", written[:2]...)
		w.wantMetrics(t, "six written", map[string]int{"dropped_keys_total": 0, "held_keys": 4})
		pass(hold)
		w.wantTaken(t, "when the holds are over", written[2:]...)
	})
}

// TestMaxOfFewest: the smallest Max leaves one key per shard.
func TestMaxOfFewest(t *testing.T) {
	inBubble(t, aggregate.Config{Max: 1}, func(t *testing.T, w *world) {
		d := w.write(key("ann", 0), false)
		pass(hold)
		w.wantTaken(t, "when the hold is over", d)
	})
}

// TestOutageIsBounded: while the queue hangs or refuses, at most Max keys are kept, and the oldest are dropped.
func TestOutageIsBounded(t *testing.T) {
	inBubble(t, aggregate.Config{Max: 3 * 64}, func(t *testing.T, w *world) {
		w.queue.set(true, nil)
		var written []history.Key
		for i := range 40 {
			written = append(written, w.write(key("ann", i), true))
			if n := w.Waiting(); n > 3 {
				t.Fatalf("%d keys are held or wait after %d writes, want at most 3", n, i+1)
			}
			pass(tick)
		}
		w.queue.set(false, all)
		pass(20 * tick)
		w.wantMetrics(t, "after the outage", map[string]int{"dropped_keys_total": 37, "held_keys": 3})
		w.queue.set(false, nil)
		pass(tick)
		w.wantTaken(t, "after the outage", written[37:]...)
	})
}

// TestOldestWaitingDropped: among refused keys the oldest are dropped, whatever their order by name.
func TestOldestWaitingDropped(t *testing.T) {
	inBubble(t, aggregate.Config{Max: 2 * 64}, func(t *testing.T, w *world) {
		w.queue.set(false, all)
		w.write(key("ann", 3), true)
		second := w.write(key("ann", 2), true)
		pass(tick)
		third := history.UserKey("ann")
		w.MakeDue("ann")
		w.queue.set(false, nil)
		pass(tick)
		w.wantTaken(t, "the newest two", second, third)
	})
}

// TestAnnouncedIsLetGo: an announced key's record is freed, even while older keys are held.
func TestAnnouncedIsLetGo(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		w.write(key("ann", 1), false)
		record := new(history.Record)
		w.Put(key("ann", 2), aggregate.Held{Record: record}, true)
		left := weak.Make(record)
		pass(2 * tick)
		runtime.GC()
		if left.Value() != nil {
			t.Error("the record of an announced key is still in memory")
		}
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, aggregate.Config{}, func(t *testing.T, w *world) {
		held, ended := w.write(key("ann", 1), false), w.write(key("bob", 1), true)
		waiting := history.UserKey("ann")
		w.MakeDue("ann")
		w.stop()
		w.wantTaken(t, "drained", held, ended, waiting)
		w.wantMetrics(t, "drained", map[string]int{"announced_keys_total": 3, "held_keys": 0})
	})
}

// TestDrainDeadline: a hanging queue does not delay the shutdown, whether it hung before or not.
func TestDrainDeadline(t *testing.T) {
	for _, deadline := range []time.Duration{3 * time.Second, time.Minute} {
		for _, busy := range []bool{false, true} {
			inBubble(t, aggregate.Config{Drain: 5 * time.Second, Deadline: deadline}, func(t *testing.T, w *world) {
				w.queue.set(true, nil)
				w.write(key("ann", 1), busy)
				pass(tick + tick/2)
				begun := time.Now()
				w.stop()
				if got, want := time.Since(begun), 5*time.Second; got != want {
					t.Errorf("deadline %v, publishing %v: the stop took %v, want %v", deadline, busy, got, want)
				}
				w.wantMetrics(t, "stopped", map[string]int{"announced_keys_total": 0, "dropped_keys_total": 0, "held_keys": 1})
			})
		}
	}
}

// TestDeadline: a hanging publish is canceled, and its keys are retried.
func TestDeadline(t *testing.T) {
	inBubble(t, aggregate.Config{Deadline: 4 * time.Second}, func(t *testing.T, w *world) {
		w.queue.set(true, nil)
		d := w.write(key("ann", 1), true)
		pass(tick + tick/2)
		w.queue.set(false, nil)
		w.wantTaken(t, "while it hangs")
		pass(4 * time.Second)
		w.wantTaken(t, "at the tick after the deadline", d)
		w.wantMetrics(t, "then", map[string]int{"failed_publishes_total": 1, "announced_keys_total": 1})
	})
}
