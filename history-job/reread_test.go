package main

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// TestRereadAfterAnOutage loses the cache in an archive outage longer than two sweep ages. The job rereads
// the queue from before the outage.
func TestRereadAfterAnOutage(t *testing.T) {
	for name, tt := range map[string]struct{ before, after time.Duration }{
		"lost at the end of the outage":         {15 * time.Minute, time.Minute},
		"lost one minute after it was queued":   {time.Minute, 15 * time.Minute},
		"an outage shorter than two sweep ages": {time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m, cfg, queue := w.rereading()
				var down atomic.Bool
				away := func(context.Context) error {
					if down.Load() {
						return errDown
					}
					return nil
				}
				w.on("put", away)
				w.on("get", away)
				w.runs(cfg)
				w.wait(time.Second)

				down.Store(true)
				w.acknowledges(queue)
				w.wait(time.Second)
				w.announce(w.write(progress(2, 0))) // of another user, and blocks the job
				w.wait(tt.before)
				if got := w.did("commit"); !slices.Contains(got, "commit") {
					t.Fatalf("the job did %q, want the content committed", got)
				}
				m.restart(true) // empty
				w.wait(tt.after)
				down.Store(false)
				w.wait(10 * time.Minute)
				if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
					t.Errorf("archive: got %+v, cache: got %+v, want what was queued", got, w.load(object(1)))
				}
			})
		})
	}
}

// TestRereadAfterASecondLoss loses the cache twice in one archive outage, the second time before the
// restored records are overdue. Sweeps between the two losses find nothing and prove nothing.
func TestRereadAfterASecondLoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg, queue := w.rereading()
		var down atomic.Bool
		w.on("put", func(context.Context) error { // as with low memory for writes: reads succeed
			if down.Load() {
				return errDown
			}
			return nil
		})
		w.runs(cfg)
		w.wait(time.Second)

		down.Store(true)
		w.acknowledges(queue)
		w.wait(15 * time.Minute)
		m.restart(true)
		w.wait(3 * time.Minute)
		m.older = w.emptyCache()
		m.restart(true)
		w.wait(time.Minute)
		down.Store(false)
		w.wait(10 * time.Minute)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, cache: got %+v, want what was queued", got, w.load(object(1)))
		}
	})
}

// rereading returns a cache that can start a new epoch, and the configuration of a job that then rereads
// the queue.
func (w *world) rereading() (m *mortal, cfg config, queue *sinceJournal) {
	w.Helper()
	m, cfg = w.mortal()
	queue = new(sinceJournal)
	cfg.recovery.Queue, cfg.archive.SweepAge, cfg.archive.SweepEvery = queue, 4*time.Minute, 30*time.Second
	return m, cfg, queue
}

// acknowledges writes a completed play to the cache, and its content to the queue.
func (w *world) acknowledges(queue *sinceJournal) {
	w.Helper()
	said := completed(1, 0, "a")
	w.write(said)
	w.queued(object(1), said.Record())
	queue.add(object(1), said.Record())
}

// sinceJournal is a queue that can be reread from a given time.
type sinceJournal struct {
	journal
	at []time.Time
}

func (j *sinceJournal) add(k history.Key, r *history.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all, j.at = append(j.all, history.Announcement{Key: k, Record: r}), append(j.at, time.Now())
}

func (j *sinceJournal) Reread(ctx context.Context, _ []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	j.mu.Lock()
	var found []history.Announcement
	for i, a := range j.all {
		if !j.at[i].Before(since) {
			found = append(found, a)
		}
	}
	j.mu.Unlock()
	return use(ctx, found)
}

// TestRereadAfterARestart loses the cache, and then all jobs, in an archive outage longer than two sweep
// ages. The next job rereads the earlier announcements: the last commit's metadata says how far back to
// start.
func TestRereadAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg, queue := w.rereading()
		var down atomic.Bool
		w.on("put", func(context.Context) error {
			if down.Load() {
				return errDown
			}
			return nil
		})
		stop := w.start(cfg)
		w.wait(time.Second)
		down.Store(true)
		w.acknowledges(queue)
		w.wait(15 * time.Minute)
		if got := w.did("commit"); len(got) != 1 {
			t.Fatalf("the job did %q, want the content committed", got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		m.restart(true)
		w.wait(15 * time.Minute)
		queue.commitMetadata = []string{"", w.commitMetadata, "of another version"}
		cfg.archive.Registry = nil
		stop = w.start(cfg) // restores it, and crashes before archiving it
		w.wait(15 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		m.older = w.emptyCache()
		m.restart(true)
		w.runs(cfg)
		w.wait(time.Minute)
		down.Store(false)
		w.wait(10 * time.Minute)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// TestStartWithAnOlderCache starts a job on a cache that has just come back older, before the previous job
// restored the archived records. The job puts no record made from the older content before it is merged
// with the archived one. This lasts as long as a repair may take. It does not apply in an epoch that
// earlier jobs have known for longer, nor to a queue without commits.
func TestStartWithAnOlderCache(t *testing.T) {
	for name, tt := range map[string]struct {
		epochs, noticed int // epochs of the cache, and those noticed before the last commit
		commitMetadata  bool
		after           time.Duration // from that commit to the start
		want            uint64
	}{
		"at once":          {1, 0, true, 0, 1},
		"soon":             {1, 1, true, 5 * time.Minute, 1},
		"later":            {1, 1, true, 15 * time.Minute, 0},
		"in the same life": {0, 0, true, 0, 0},
		"in the first one": {1, 0, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m, cfg, queue := w.rereading()
				stop := w.start(cfg)
				w.wait(time.Second)
				for range tt.noticed {
					m.restart(false)
					w.wait(time.Minute)
				}
				w.announce(w.write(progress(2, 0)))
				w.wait(time.Second)
				if tt.commitMetadata {
					queue.commitMetadata = []string{w.commitMetadata}
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				for range tt.epochs - tt.noticed {
					m.restart(false)
				}
				w.wait(tt.after)
				w.put(object(1), record(completed(1, -9000, "a")))
				cfg.archive.Registry = nil
				w.runs(cfg)
				w.wait(time.Second)
				w.announce(w.write(progress(1, -5000))) // onto the older content
				w.wait(time.Second)
				if got := w.archived(object(1)).Plays(); got != tt.want {
					t.Errorf("archive: %d plays, want %d", got, tt.want)
				}
			})
		})
	}
}
