package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
	"github.com/playhead/playhead/history/segment"
)

// compactor records the compacted users, and keeps the job's notes.
type compactor struct {
	mu      sync.Mutex
	notes   map[string]int64 // due times, Unix ms
	removed map[string]int64 // removal times, Unix ms
	did     []string
	again   time.Duration
	err     error
	deaf    error // the answer to Note

	panics bool
	takes  time.Duration // of each compaction
}

func (r *compactor) Compact(_ context.Context, uid string) (time.Duration, error) {
	time.Sleep(r.takes)
	return r.compact("roll " + uid)
}

func (r *compactor) Tidy(_ context.Context, uid string) (time.Duration, error) {
	return r.compact("tidy " + uid)
}

func (r *compactor) compact(what string) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.did = append(r.did, what); r.panics {
		panic("a roll")
	}
	again := r.again
	r.again = 0
	return again, r.err
}

func (r *compactor) Note(_ context.Context, uid string, due int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notes == nil {
		r.notes = make(map[string]int64)
	}
	if r.notes[uid] = due; due == 0 {
		delete(r.notes, uid)
	}
	return r.deaf
}

func (r *compactor) TakeNotes(_ context.Context, buckets []history.Bucket, now int64, _ int) (uids []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, due := range r.notes {
		if due <= now && slices.Contains(buckets, history.BucketOf(uid)) {
			uids, r.notes[uid] = append(uids, uid), now+history.NoteLease.Milliseconds()
		}
	}
	return uids, r.deaf
}

func (r *compactor) NoteRemoved(_ context.Context, uids []string, at int64) error {
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

func (r *compactor) Removed(_ context.Context, buckets []history.Bucket, until int64) (uids []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, at := range r.removed {
		if at <= until && slices.Contains(buckets, history.BucketOf(uid)) {
			uids = append(uids, uid)
		}
	}
	return uids, r.err
}

func (r *compactor) ForgetRemoved(_ context.Context, buckets []history.Bucket, until int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.removed, func(uid string, at int64) bool { return at <= until && slices.Contains(buckets, history.BucketOf(uid)) })
	return r.err
}

// set changes later answers.
func (r *compactor) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *compactor) want(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.did)
	if !slices.Equal(r.did, want) {
		t.Errorf("did %q, want %q", r.did, want)
	}
	r.did = nil
}

func compacting(w *world) *compactor {
	r := new(compactor)
	cfg := w.config()
	cfg.compaction.Compactor, cfg.compaction.Notes = r, r
	cfg.archive.SweepEvery, cfg.archive.SweepAge = 5*time.Second, 10*time.Second
	w.runs(cfg)
	return r
}

// TestCompactNoted compacts the noted users one at a time, and again where records remain.
func TestCompactNoted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := compacting(w)
		for i := range 3 {
			_ = r.Note(t.Context(), fmt.Sprint(i), 1)
		}
		w.wait(time.Second)
		r.want(t, "roll 0", "roll 1", "roll 2")
		w.wait(time.Minute)
		r.want(t)
		r.set(func() { r.again = time.Hour })
		_ = r.Note(t.Context(), "0", 1)
		w.wait(59 * time.Minute)
		r.want(t, "roll 0")
		w.wait(2 * time.Minute)
		r.want(t, "roll 0")
		r.set(func() { r.err = errDown })
		_ = r.Note(t.Context(), "1", 1)
		w.wait(29 * time.Minute)
		r.want(t, "roll 1")
		r.set(func() { r.err = nil })
		w.wait(2 * time.Minute)
		r.want(t, "roll 1")
		w.wait(2 * time.Hour)
		r.want(t)
		r.set(func() { r.again, r.deaf = time.Hour, errDown }) // from here the job keeps notes in memory
		_ = r.Note(t.Context(), "1", 1)
		w.wait(time.Minute)
		r.set(func() { r.notes, r.deaf = nil, nil })
		w.wait(time.Hour)
		r.want(t, "roll 1", "roll 1")
		r.set(func() { r.err = history.ErrConflict })
		_ = r.Note(t.Context(), "2", 1)
		w.wait(80 * time.Second)
		r.want(t, "roll 2", "roll 2")
		r.set(func() { r.err, r.panics = nil, true })
		w.wait(80 * time.Second)
		r.want(t, "roll 2")
		w.counted("failures_total", 0)
	})
}

// TestCompactOfAKilledJob ends a job with taken and new notes. The next job takes them again.
func TestCompactOfAKilledJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := &compactor{takes: time.Hour}
		cfg := w.config()
		cfg.compaction.Compactor, cfg.compaction.Notes = r, r
		stop := w.start(cfg)
		_ = r.Note(t.Context(), "0", 1) // running
		_ = r.Note(t.Context(), "1", 1) // waiting
		w.wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		r.set(func() { r.takes, r.did = 0, nil })
		cfg.archive.Registry = nil
		w.runs(cfg)
		w.wait(history.NoteLease + time.Minute)
		r.want(t, "roll 0", "roll 1")
		w.wait(2 * history.NoteLease)
		r.want(t)
	})
}

// TestCompactionsLeaveTime runs slow compactions for at most a quarter of the time.
func TestCompactionsLeaveTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := &compactor{takes: 2 * time.Second}
		cfg := w.config()
		cfg.compaction.Compactor, cfg.compaction.Notes = r, r
		w.runs(cfg)
		for i := range 100 {
			_ = r.Note(t.Context(), fmt.Sprintf("%03d", i), 1)
		}
		w.wait(80*time.Second + time.Second)
		r.want(t, "roll 000", "roll 001", "roll 002", "roll 003", "roll 004", "roll 005", "roll 006", "roll 007", "roll 008", "roll 009")
	})
}

// TestTidyAfterRemovals tidies users after deletes and clears.
func TestTidyAfterRemovals(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := compacting(w)
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

		// The delete may be archived together with the later record.
		e := history.Event{Key: object(3), Kind: history.KindDelete, At: time.Now().UnixMilli()}
		again := progress(3, 0)
		again.At = e.At + 1
		r.set(func() { r.err = errDown }) // no reader notes the user
		w.write(e)
		w.write(again)
		w.wait(150 * time.Second)
		r.set(func() { r.err = nil })
		w.wait(5 * time.Minute)
		r.want(t, "tidy "+k.UID, "tidy "+k.UID, "tidy "+k.UID)
	})
}

// TestRemovalsOfAKilledJob ends a job within the minute after a delete, and so loses it from memory. The
// next job processes the user within the hour and retries after a failure. Summaries run with and without
// compaction.
func TestRemovalsOfAKilledJob(t *testing.T) {
	for _, compactions := range []bool{true, false} {
		bubble(t, func(t *testing.T, w *world) {
			r, s := new(compactor), new(summarizer)
			start := func() (stop func() error) {
				cfg := w.config()
				cfg.archive.SweepEvery, cfg.archive.SweepAge = 5*time.Second, 10*time.Second
				if cfg.compaction.Notes, cfg.compaction.Summarizer = r, s; compactions {
					cfg.compaction.Compactor = r
				}
				return w.start(cfg)
			}
			wait := func(d time.Duration, times int) {
				t.Helper()
				w.wait(d)
				s.want(t, slices.Repeat([]string{uid + " true"}, times)...)
				r.set(func() { r.did = slices.DeleteFunc(r.did, func(text string) bool { return text != "tidy "+uid }) })
				if !compactions {
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
			wait(time.Hour, 1) // another job may have removed it
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

// TestCompactAfterManyPuts checks only the written users, after about a thousand puts.
func TestCompactAfterManyPuts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := new(compactor)
		cfg := w.config()
		cfg.compaction.Compactor, cfg.compaction.Notes, cfg.compaction.CountOneIn = r, r, 1
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
		w.wait(11 * time.Second)
		r.want(t, "roll "+uid)
	})
}

// compressed starts the compressor of segments outside any bubble: a bubble owns the channels made inside
// it.
var compressed = sync.OnceFunc(func() {
	items := make([]history.Item, 100)
	for i := range items {
		e := progress(i, int64(-i))
		items[i] = history.Item{Object: e.Key.Object, Record: e.Record()}
	}
	all, err := segment.Encode(items)
	if err != nil {
		panic(err)
	}
	for i := range all {
		if _, err := all[i].Open(all[i].Data); err != nil {
			panic(err)
		}
	}
})

// TestImportIsCompacted archives a long old history without readers, before and after compaction is
// allowed, and with a killed job. All old records end up in segments.
func TestImportIsCompacted(t *testing.T) {
	compressed()
	const records, above = 6000, 2000
	for since, killed := range map[time.Duration]bool{0: false, 5 * time.Hour: true} {
		t.Run(fmt.Sprintf("%v after rolls are allowed, killed %v", since, killed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				r, a := new(compactor), hbase.Over(hbasefake.New(time.Now), hbase.Config{CompactAbove: above})
				if err := a.BeginCompacting(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.wait(since)
				cfg := w.config()
				cfg.archive.Archive, cfg.compaction.Compactor, cfg.compaction.Notes, cfg.archive.TrimOneIn, cfg.compaction.CountOneIn = a, a, r, 1, 1
				stop := w.start(cfg)
				for from := 0; from < records; from += 100 {
					var keys []history.Key
					for n := from; n < from+100; n++ {
						keys = append(keys, w.store(progress(n, -int64(30*24*time.Hour/time.Millisecond)+int64(n)*1000), true, true))
					}
					w.announce(keys...)
					w.wait(time.Second)
				}
				if killed {
					w.wait(10 * time.Minute)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					cfg.archive.Registry = nil
					stop = w.start(cfg)
				}
				w.wait(4 * time.Hour) // three until compaction is allowed, or about two until late puts are clean, plus a lease
				i, err := a.Inspect(t.Context(), uid, true)
				if err != nil || len(i.Wrong) > 0 {
					t.Fatal(err, i.Wrong)
				}
				if i.Live > above {
					t.Errorf("%d of %d records are live, want %d", i.Live, records, above)
				}
				r.set(func() {
					if len(r.notes) > 1 || r.notes[uid] > 0 && r.notes[uid] < time.Now().UnixMilli() {
						t.Errorf("notes %v, want none that is due", r.notes)
					}
				})
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestTidyOnceADay tidies users with segments after a killed job forgot them.
func TestTidyOnceADay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := new(compactor)
		cfg := w.config()
		cfg.compaction.Compactor, cfg.compaction.Notes, cfg.compaction.Summarizer = r, r, new(summarizer)
		w.runs(cfg)
		w.wait(24 * time.Hour)
		r.set(func() { slices.Sort(r.did); r.did = slices.Compact(r.did) }) // the rounds of two days
		r.want(t, "tidy other 0", "tidy other 128", "tidy user 0", "tidy user 128")
	})
}
