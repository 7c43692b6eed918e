package job_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// roller notes who is rolled, and has notes for the job.
type roller struct {
	mu      sync.Mutex
	notes   []string
	removed map[string]int64 // when
	did     []string
	again   time.Duration
	err     error

	panics bool
	takes  time.Duration // each roll
}

func (r *roller) Roll(_ context.Context, uid string) (time.Duration, error) {
	time.Sleep(r.takes)
	return r.roll("roll " + uid)
}

func (r *roller) Tidy(_ context.Context, uid string) (time.Duration, error) {
	return r.roll("tidy " + uid)
}

func (r *roller) roll(what string) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.did = append(r.did, what); r.panics {
		panic("a roll")
	}
	again := r.again
	r.again = 0
	return again, r.err
}

func (r *roller) Note(_ context.Context, uid string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, uid)
	return nil
}

func (r *roller) TakeNotes(context.Context, []history.Bucket, int) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	notes := r.notes
	r.notes = nil
	return notes, r.err
}

func (r *roller) NoteRemoved(_ context.Context, uids []string, at int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed == nil {
		r.removed = make(map[string]int64)
	}
	for _, uid := range uids {
		r.removed[uid] = at
	}
	return r.err
}

func (r *roller) Removed(_ context.Context, buckets []history.Bucket, until int64) (uids []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, at := range r.removed {
		if at <= until && slices.Contains(buckets, history.BucketOf(uid)) {
			uids = append(uids, uid)
		}
	}
	return uids, r.err
}

func (r *roller) ForgetRemoved(_ context.Context, buckets []history.Bucket, until int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.removed, func(uid string, at int64) bool { return at <= until && slices.Contains(buckets, history.BucketOf(uid)) })
	return r.err
}

// set changes how it answers from now on.
func (r *roller) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *roller) want(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.did)
	if !slices.Equal(r.did, want) {
		t.Errorf("did %q, want %q", r.did, want)
	}
	r.did = nil
}

func rolling(w *world) *roller {
	r := new(roller)
	cfg := w.config()
	cfg.Roller, cfg.Notes = r, r
	cfg.SweepEvery, cfg.SweepAge = 5*time.Second, 10*time.Second
	w.runs(cfg)
	return r
}

// TestRollNoted rolls those who are noted, one after the other, and again when there is more.
func TestRollNoted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := rolling(w)
		for i := range 3 {
			_ = r.Note(t.Context(), fmt.Sprint(i))
		}
		w.wait(time.Second)
		r.want(t, "roll 0", "roll 1", "roll 2")
		w.wait(time.Minute)
		r.want(t)
		r.set(func() { r.again = time.Hour })
		_ = r.Note(t.Context(), "0")
		w.wait(59 * time.Minute)
		r.want(t, "roll 0")
		w.wait(2 * time.Minute)
		r.want(t, "roll 0")
		r.set(func() { r.err = errDown }) // the next note tells again
		_ = r.Note(t.Context(), "1")
		w.wait(time.Minute)
		r.want(t, "roll 1")
		r.set(func() { r.err = history.ErrConflict })
		_ = r.Note(t.Context(), "2")
		w.wait(70 * time.Second)
		r.want(t, "roll 2", "roll 2")
		r.set(func() { r.err, r.panics = nil, true })
		w.wait(time.Minute)
		r.want(t, "roll 2")
		w.counted("failures_total", 0)
	})
}

// TestRollsLeaveTime has rolls that take long: they are under way for a quarter of the time.
func TestRollsLeaveTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := &roller{takes: 2 * time.Second}
		cfg := w.config()
		cfg.Roller, cfg.Notes = r, r
		w.runs(cfg)
		for i := range 100 {
			_ = r.Note(t.Context(), fmt.Sprintf("%03d", i))
		}
		w.wait(80*time.Second + time.Second)
		r.want(t, "roll 000", "roll 001", "roll 002", "roll 003", "roll 004", "roll 005", "roll 006", "roll 007", "roll 008", "roll 009")
	})
}

// TestTidyAfterRemovals tidies users of whom something was deleted or cleared.
func TestTidyAfterRemovals(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := rolling(w)
		k := w.write(progress(1, 0))
		w.wait(5 * time.Minute)
		r.want(t)
		w.write(history.Event{Key: object(2), Kind: history.KindDelete, At: time.Now().UnixMilli()})
		w.wait(5 * time.Minute)
		r.want(t, "tidy "+k.UID)
		if _, err := w.cache.Clear(t.Context(), k.UID, history.Clear{Until: time.Now().UnixMilli()}); err != nil {
			t.Fatal(err)
		}
		w.wait(5 * time.Minute)
		r.want(t, "tidy "+k.UID)

		// The delete may be archived together with what came after it.
		e := history.Event{Key: object(3), Kind: history.KindDelete, At: time.Now().UnixMilli()}
		again := progress(3, 0)
		again.At = e.At + 1
		r.set(func() { r.err = errDown }) // no reader tells of it
		w.write(e)
		w.write(again)
		w.wait(150 * time.Second)
		r.set(func() { r.err = nil })
		w.wait(5 * time.Minute)
		r.want(t, "tidy "+k.UID, "tidy "+k.UID, "tidy "+k.UID)
	})
}

// TestRemovalsOfAKilledJob ends a job within the minute after a delete, which it forgets. The next one looks after the user within the hour,
// again where that fails, and then no more. Summaries are kept with and without parts.
func TestRemovalsOfAKilledJob(t *testing.T) {
	for _, rolls := range []bool{true, false} {
		bubble(t, func(t *testing.T, w *world) {
			r, s := new(roller), new(summarizer)
			start := func() (stop func() error) {
				cfg := w.config()
				cfg.SweepEvery, cfg.SweepAge = 5*time.Second, 10*time.Second
				if cfg.Notes, cfg.Summarizer = r, s; rolls {
					cfg.Roller = r
				}
				return w.start(cfg)
			}
			wait := func(d time.Duration, times int) {
				t.Helper()
				w.wait(d)
				s.want(t, slices.Repeat([]string{uid + " true"}, times)...)
				r.set(func() { r.did = slices.DeleteFunc(r.did, func(text string) bool { return text != "tidy "+uid }) })
				if !rolls {
					times = 0
				}
				r.want(t, slices.Repeat([]string{"tidy " + uid}, times)...)
			}
			remove := func(n int) {
				t.Helper()
				w.write(history.Event{Key: object(n), Kind: history.KindDelete, At: time.Now().UnixMilli()})
			}
			stop := start()
			remove(1)
			wait(2*time.Minute, 1)
			wait(time.Hour, 1) // it may have been another job
			remove(2)
			wait(30*time.Second, 0)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			stop = start()
			wait(45*time.Minute, 1)
			wait(2*time.Hour, 0)

			if _, err := w.cache.Clear(t.Context(), uid, history.Clear{Until: time.Now().UnixMilli()}); err != nil {
				t.Fatal(err)
			}
			wait(30*time.Second, 0)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			s.set(func() { s.err = errDown })
			stop = start()
			w.wait(45 * time.Minute)
			s.set(func() { s.err, s.did = nil, nil })
			r.set(func() { r.did = nil })
			wait(45*time.Minute, 1)
			wait(2*time.Hour, 0)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRollAfterManyPuts looks at who only writes after about a thousand puts, and at nobody else.
func TestRollAfterManyPuts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := new(roller)
		cfg := w.config()
		cfg.Roller, cfg.Notes, cfg.TrimOneIn = r, r, 1
		w.runs(cfg)
		put := func(from, to int) {
			var keys []history.Key
			for n := from; n < to; n++ {
				keys = append(keys, w.store(progress(n, int64(n)), true, true))
				if len(keys) == 100 || n == to-1 {
					w.announce(keys...)
					w.wait(time.Second)
					keys = nil
				}
			}
		}
		put(0, 999)
		w.wait(time.Minute)
		r.want(t)
		put(999, 1000)
		r.want(t, "roll "+uid)
	})
}

// TestTidyOnceADay tidies users with parts whom a job has forgotten that was killed.
func TestTidyOnceADay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := new(roller)
		cfg := w.config()
		cfg.Roller, cfg.Notes, cfg.Summarizer = r, r, new(summarizer)
		w.runs(cfg)
		w.wait(24 * time.Hour)
		r.set(func() { slices.Sort(r.did); r.did = slices.Compact(r.did) }) // the turns of two days
		r.want(t, "tidy other 0", "tidy other 128", "tidy user 0", "tidy user 128")
	})
}
