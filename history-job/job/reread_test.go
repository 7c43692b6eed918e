package job_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/job"
)

// TestRereadAfterAnOutage loses the cache in an outage of the archive that is longer than two
// sweep ages: what was queued is read again from before the outage.
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
				w.announce(w.write(progress(2, 0))) // of somebody else: the job is stuck with it
				w.wait(tt.before)
				if got := w.did("commit"); !slices.Contains(got, "commit 1") {
					t.Fatalf("the job did %q, want the content committed", got)
				}
				m.restart(true) // as empty as on its first day
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

// TestRereadAfterASecondLoss loses the cache twice in one outage of the archive, the second time before what it was given back is
// overdue: sweeps between the two have found nothing, and prove nothing.
func TestRereadAfterASecondLoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg, queue := w.rereading()
		var down atomic.Bool
		w.on("put", func(context.Context) error { // as where memory for writes is short: reads are answered
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

// rereading returns a cache that may begin another epoch, and the configuration of a job that then reads the queue again.
func (w *world) rereading() (m *mortal, cfg job.Config, queue *sinceJournal) {
	w.Helper()
	m, cfg = w.mortal()
	queue = new(sinceJournal)
	cfg.Reread, cfg.SweepAge, cfg.SweepEvery = queue, 4*time.Minute, 30*time.Second
	return m, cfg, queue
}

// acknowledges has a completed play in the cache, and in the queue with its content.
func (w *world) acknowledges(queue *sinceJournal) {
	w.Helper()
	said := completed(1, 0, "a")
	w.write(said)
	w.queued(object(1), said.Record())
	queue.add(object(1), said.Record())
}

// sinceJournal is a queue that can be read again from a time on.
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

// TestRereadAfterARestart loses the cache in an outage of the archive that is longer than two sweep ages, and all jobs with it: what was
// queued before comes back to the next one, because the commits of the others say how far to look back.
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
		cfg.Registry = nil
		stop = w.start(cfg) // gives it back, and dies before it is archived
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

// TestStartWithAnOlderCache starts a job when the cache has just come back older, and before the job that has archived what it lacks
// has given that back: what is made of the older content is not put without it. So it is for as long as that job may take, and not in a
// epoch that the jobs before have known for longer, or of a queue of which nothing was ever committed.
func TestStartWithAnOlderCache(t *testing.T) {
	for name, tt := range map[string]struct {
		epochs, noticed int // of the cache, the noticed ones before the last commit
		commitMetadata  bool
		after           time.Duration // from that to the start
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
				cfg.Registry = nil
				w.runs(cfg)
				w.wait(time.Second)
				w.announce(w.write(progress(1, -5000))) // onto what the cache had before
				w.wait(time.Second)
				if got := w.archived(object(1)).Plays(); got != tt.want {
					t.Errorf("archive: %d plays, want %d", got, tt.want)
				}
			})
		})
	}
}
