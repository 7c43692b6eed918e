package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// sweeping runs a job that sweeps every 10 s for marks older than four minutes.
func (w *world) sweeping() {
	cfg := w.config()
	cfg.archive.SweepEvery, cfg.archive.SweepAge = 10*time.Second, 4*time.Minute
	w.runs(cfg)
}

func TestSweepByAge(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(progress(1, 0))
		w.sweeping()
		w.wait(2 * time.Minute)
		young := w.write(progress(2, 0))
		w.wait(2*time.Minute - time.Second)
		if got := w.did("load", "put"); len(got) > 0 {
			t.Errorf("just before four minutes after the first write the job did %q", got)
		}
		w.wait(11 * time.Second)
		if got, want := w.did("load", "put", "mark_clean"), []string{"load 1", "put 1", "mark_clean 1"}; !slices.Equal(got, want) {
			t.Errorf("later the job did %q, want %q", got, want)
		}
		w.marked(young)
		w.counted("swept_keys_total", 1)
		w.wait(2 * time.Minute)
		w.clean(object(1), object(2))
	})
}

// TestSweepOfALivingHold sweeps a key that a service keeps writing. The service's next write fails its
// compare, is retried, and is archived in its turn.
func TestSweepOfALivingHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := w.write(progress(1, 0))
		held := w.load(k)
		w.sweeping()
		w.wait(5 * time.Minute)
		w.clean(k)
		late := completed(1, 1, "late")
		next := history.Write{Key: k, Base: held.Revision, Record: history.Merge(held, late.Record()).Successor(nil)}
		if out := w.cache.Write(t.Context(), []history.Write{next})[0]; out.Status != history.Conflict {
			t.Fatalf("a write from what was held: status %d, want a conflict", out.Status)
		}
		w.marked(w.store(late, false, false))
		w.wait(5 * time.Minute)
		w.clean(k)
	})
}

// TestSweepWrittenMeanwhile writes a key between the search for overdue marks and the mark clean. The mark
// remains, and the next sweep finds it.
func TestSweepWrittenMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(progress(1, 0))
		var late history.Key
		w.on("put", func(context.Context) error {
			if late == (history.Key{}) {
				late = w.write(completed(1, 0, "late"))
			}
			return nil
		})
		w.sweeping()
		w.wait(4*time.Minute + 5*time.Second)
		w.marked(late)
		w.wait(10 * time.Second)
		w.clean(object(1))
	})
}

// TestSweepAll starts a process: earlier marks belong to no live hold, even after the clock was set back.
func TestSweepAll(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(progress(1, 0))
		cfg := w.config()
		cfg.archive.SweepEvery, cfg.archive.SweepAge, cfg.archive.SweepAll = 5*time.Second, 4*time.Minute, true
		w.runs(cfg)
		synctest.Wait()
		w.clean(object(1))
		living := w.write(progress(2, 0))
		w.wait(2 * time.Minute)
		w.marked(living)
		w.wait(3 * time.Minute)
		w.clean(object(1), object(2))
	})
}

// TestSweepEnds has keys that are written faster than they can be marked clean. The sweep visits them once
// and then waits.
func TestSweepEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		writes := make([]history.Write, 5000)
		for i := range writes {
			writes[i] = history.Write{Key: object(i), Record: record(progress(i, 0))}
		}
		w.cache.Write(t.Context(), writes)
		w.on("mark_clean", func(context.Context) error { // each key has another content by then
			for i := range writes {
				writes[i].Base, writes[i].Record = writes[i].Record.Revision, writes[i].Record.Successor(nil)
			}
			w.cache.Write(t.Context(), writes)
			return nil
		})
		cfg := w.config()
		cfg.archive.SweepAll, cfg.archive.Workers, cfg.archive.Batch = true, 1, 5000
		w.runs(cfg)
		synctest.Wait() // would never return
		if n := len(w.did("overdue")); n > 3 {
			t.Errorf("the sweep looked %d times for the same keys", n)
		}
	})
}

// TestSweepBehindWhatStays has more than one batch of keys that can never be clean, with the oldest marks.
// The keys behind them are archived in the same sweep.
func TestSweepBehindWhatStays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		stay := map[history.Key]bool{}
		for i := range 5000 {
			stay[w.write(progress(i+10, 0))] = true
		}
		w.write(progress(1, 0))
		w.cache = mute{w.cache, stay}
		cfg := w.config()
		cfg.archive.SweepAll = true
		w.runs(cfg)
		w.wait(10 * time.Minute)
		if w.archived(object(1)) == nil {
			t.Error("the archive lacks what is behind 5,000 keys that the cache does not answer for")
		}
		w.counted("swept_keys_total", 5001)
	})
}

// mute is a cache that never answers for some keys.
type mute struct {
	Cache
	keys map[history.Key]bool
}

func (c mute) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := c.Cache.Load(ctx, keys)
	for i, k := range keys {
		if c.keys[k] {
			entries[i] = history.Entry{Err: errDown}
		}
	}
	return entries
}

// TestSweepMany sweeps more than one batch of keys, of several users, in one pass.
func TestSweepMany(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const n = 5000
		writes := make([]history.Write, n)
		for i := range writes {
			e := progress(i, 0)
			e.Key.UID = fmt.Sprint("user", i%10)
			w.complete(e.Key.UID)
			r := e.Record()
			r.Revision, r.Partial = uint64(i+1), false
			writes[i] = history.Write{Key: e.Key, Record: r, BeginsHold: true}
		}
		w.cache.Write(t.Context(), writes)
		before := w.marks()
		if len(before) != n {
			t.Fatalf("%d marks, want %d", len(before), n)
		}
		w.wait(5 * time.Minute)
		cfg := w.config()
		cfg.archive.SweepAge = 4 * time.Minute
		w.runs(cfg)
		synctest.Wait()
		w.clean(before...)
		w.counted("swept_keys_total", n)
		w.counted("puts_total", n)
	})
}

func TestSweepInOutage(t *testing.T) {
	for _, step := range []string{"overdue", "load", "put", "mark_clean"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.write(progress(1, 0))
				w.wait(5 * time.Minute)
				w.fails(step, 2)
				w.sweeping()
				w.wait(time.Minute)
				w.clean(object(1))
				w.counted("retries_total", 2)
			})
		})
	}
}

// TestSweepBesideQueue delays a put of the sweep until the queue has delivered a newer content of the same
// event time. The archive keeps the newer one.
func TestSweepBesideQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(progress(1, 0))
		w.wait(5 * time.Minute)
		slow, first := make(chan struct{}), true
		w.on("put", func(context.Context) error {
			if first {
				first = false
				<-slow
			}
			return nil
		})
		w.sweeping()
		synctest.Wait()
		w.announce(w.write(completed(1, -6*60_000, "another")))
		synctest.Wait()
		close(slow)
		w.wait(time.Minute)
		w.clean(object(1))
	})
}

// The backlog is measured even while the sweep waits for the archive.
func TestBacklogIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(progress(1, 0))
		w.write(progress(2, 0))
		began := time.Now()
		w.on("put", func(context.Context) error {
			if time.Since(began) < 10*time.Minute {
				return errDown
			}
			return nil
		})
		w.sweeping()
		w.wait(9 * time.Minute)
		w.counted("dirty_marks", 2)
		if age := w.counter("oldest_mark_age_seconds"); age < 530 || age > 541 {
			t.Errorf("after nine minutes the oldest mark is %v s old", age)
		}
		w.wait(2 * time.Minute)
		w.counted("dirty_marks", 0)
		w.counted("oldest_mark_age_seconds", 0)
	})
}

// TestBacklogOfAPart reports the known backlog while a cache shard is silent, and the last known one of that shard.
func TestBacklogOfAPart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(progress(1, 0))
		part := &silentPart{Cache: w.cache}
		w.cache = part
		w.on("put", func(context.Context) error { return errDown })
		w.sweeping()
		for _, minutes := range []float64{9, 18} {
			w.wait(9 * time.Minute)
			w.counted("dirty_marks", 1)
			if age := w.counter("oldest_mark_age_seconds"); age < 60*minutes-10 || age > 60*minutes+1 {
				t.Errorf("after %v minutes the oldest mark is %v s old", minutes, age)
			}
			part.none.Store(true)
		}
	})
}

// silentPart is a cache that returns the rest of its backlog, or none of it, together with a shard's error.
type silentPart struct {
	Cache
	none atomic.Bool
}

func (c *silentPart) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	found, err := c.Cache.Backlog(ctx, buckets)
	if c.none.Load() {
		clear(found)
	}
	return found, errors.Join(err, history.ErrUnavailable)
}

// TestSweepAlone assigns the job no buckets. It sweeps all of them.
func TestSweepAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(progress(1, 0))
		cfg := w.config()
		cfg.archive.SweepEvery, cfg.archive.SweepAge = 10*time.Second, 4*time.Minute
		cfg.recovery.Consumer = idle{}
		w.runs(cfg)
		w.wait(4 * time.Minute)
		w.counted("dirty_marks", 1) // measured without an assignment
		if age := w.counter("oldest_mark_age_seconds"); age < 235 || age > 240 {
			t.Errorf("after four minutes the oldest mark is %v s old", age)
		}
		w.wait(20 * time.Second)
		w.clean(object(1))
		w.wait(5 * time.Second)
		w.counted("dirty_marks", 0)
	})
}

// idle is a queue that is down.
type idle struct{}

func (idle) Consume(ctx context.Context, _ func(context.Context, history.Assignment) error) error {
	<-ctx.Done()
	return nil
}

// trimming configures a job that trims after every put.
func (w *world) trimming() config {
	cfg := w.config()
	cfg.archive.TrimOneIn = 1
	return cfg
}

func TestTrim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.trimming())
		keys := w.writes(keep + 3)
		w.announce(keys[1:]...)
		synctest.Wait()
		if got, want := w.did("mark_clean", "trim", "commit"), []string{"mark_clean 1 2 3 4 5 6", "trim *", "commit 1 2 3 4 5 6"}; !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.marked(keys[0])
		for i, d := range keys {
			cached, want := w.load(d) != nil, i == 0 || i >= 3 // the marked one, and the newest
			if cached != want {
				t.Errorf("object %d of %d in the cache: got %v, want %v", i, len(keys), cached, want)
			}
			if archived := w.archived(d) != nil; archived != (i > 0) {
				t.Errorf("object %d of %d in the archive: got %v", i, len(keys), archived)
			}
		}
		u := w.cache.Load(t.Context(), []history.Key{history.UserKey(uid)})[0].User
		if want := history.VersionOf(start+2-int64(len(keys)), 0) + 1; u.LowWatermark != want {
			t.Errorf("low watermark: got %d, want %d, just above the newest that was dropped", u.LowWatermark, want)
		}
	})
}

// TestTrimFails: neither a failed nor an unanswered trim delays a commit.
func TestTrimFails(t *testing.T) {
	for name, trim := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errDown },
		"no answer": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.on("trim", trim)
				cfg := w.trimming()
				cfg.archive.Deadline = 10 * time.Second
				w.runs(cfg)
				w.announce(w.writes(1)...)
				w.wait(11 * time.Second)
				if got := w.did("commit"); len(got) != 1 {
					t.Errorf("eleven seconds later the job did %q, want one commit", got)
				}
				w.counted("retries_total", 1)
			})
		})
	}
}

// TestTrimSeldom trims one user per TrimOneIn puts.
func TestTrimSeldom(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.archive.TrimOneIn, cfg.archive.Batch = 4, 1
		w.runs(cfg)
		keys := make([]history.Key, 1000)
		for i := range keys {
			keys[i] = object(i)
		}
		w.announce(keys...)
		synctest.Wait()
		if n := len(w.did("trim")); n < 150 || n > 350 {
			t.Errorf("%d trims after 1,000 keys, want about 250", n)
		}
	})
}
