package read

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// warmCache reports every user as warm, so a warm-up is one load.
type warmCache struct{ history.Cache }

func (warmCache) Load(_ context.Context, keys []history.Key) []history.Entry {
	out := make([]history.Entry, len(keys))
	for i := range out {
		out[i].User.Warm = true
	}
	return out
}

// A user queued for a node's worker is served even if the last worker leaves at that moment.
func TestWarmersLeaveNobodyBehind(t *testing.T) {
	w := newWarmer(Config{
		Cache: warmCache{}, Deadline: time.Second, Warmers: 4, WarmRate: 1 << 30, Logger: slog.New(slog.DiscardHandler),
		NodeOf: func(string) string { return "node" },
	}, newMetrics(nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); _ = w.run(ctx) }()
	defer func() { cancel(); <-done }()
	for round := range 20_000 {
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				if err := w.wait(ctx, fmt.Sprint("u", round, "-", i)); err != nil {
					w.mu.Lock()
					t.Errorf("round %d: user %d is stuck: %v; flights %d, busy %v, backlog %v, queue %d", round, i, err, len(w.flights), w.busy, w.backlog, len(w.writers))
					w.mu.Unlock()
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// coldCache reports every user as cold, and records the order of warm-ups with their record counts.
type coldCache struct {
	history.Cache
	mu     sync.Mutex
	warmed []string
}

func (c *coldCache) Load(_ context.Context, keys []history.Key) []history.Entry {
	return make([]history.Entry, len(keys))
}

func (c *coldCache) Warm(_ context.Context, uid string, w history.WarmSet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warmed = append(c.warmed, fmt.Sprint(uid, " ", len(w.Items)))
	return nil
}

// slowArchive returns an empty page after one millisecond.
type slowArchive struct{ history.Archive }

func (slowArchive) Page(context.Context, string, history.Query) (history.Page, error) {
	time.Sleep(time.Millisecond)
	return history.Page{}, nil
}

// coldWarmer returns a one-worker warmer over cold users.
func coldWarmer(node string) (*warmer, *coldCache) {
	c := &coldCache{}
	return newWarmer(Config{
		Cache: c, Archive: slowArchive{}, Deadline: time.Second, Warmers: 1, WarmRate: 1 << 30, Keep: 10, Logger: slog.New(slog.DiscardHandler),
		NodeOf: func(string) string { return node },
	}, newMetrics(nil)), c
}

// running runs f while the warmer works, then waits until the queues are empty.
func running(t *testing.T, w *warmer, f func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.run(ctx) }()
	f()
	time.Sleep(time.Second)
	cancel()
	<-done
}

// A reader waits only for warm-ups in progress, not for queued writers, even if its user is already queued as a
// writer. Readers are warmed alone.
func TestReadersAreWarmedFirst(t *testing.T) {
	for node, along := range map[string]int{"": together, "node": 1} {
		synctest.Test(t, func(t *testing.T) {
			w, c := coldWarmer(node)
			for i := range 50 {
				w.want(fmt.Sprint("writer", i))
			}
			running(t, w, func() {
				synctest.Wait() // the first warm-ups have started
				var all sync.WaitGroup
				for _, uid := range []string{"writer30", "reader"} {
					all.Go(func() {
						if err := w.wait(t.Context(), uid); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait() // the user is queued
				}
				all.Wait()
			})
			var want []string
			for i := range along {
				want = append(want, fmt.Sprintf("writer%d 0", i))
			}
			want = append(want, "writer30 0", "reader 0", fmt.Sprintf("writer%d 0", along))
			if got := c.warmed[:len(want)]; !slices.Equal(got, want) {
				t.Errorf("node %q: warmed %q; want %q", node, got, want)
			}
			if len(c.warmed) != 51 || len(w.flights) > 0 {
				t.Errorf("node %q: warmed %d users, %d are left; want 51 once each", node, len(c.warmed), len(w.flights))
			}
		})
	}
}

// pager reads several rows at once and fails for cem.
type pager struct {
	slowArchive
	mu    sync.Mutex
	asked [][]string
}

func (p *pager) Pages(_ context.Context, uids []string, _ history.Query) ([]history.Page, []error) {
	p.mu.Lock()
	p.asked = append(p.asked, uids)
	p.mu.Unlock()
	errs := make([]error, len(uids))
	if i := slices.Index(uids, "cem"); i >= 0 {
		errs[i] = history.ErrUnavailable
	}
	return make([]history.Page, len(uids)), errs
}

// Writers are read in batches at the same pace, and one unreadable row fails alone. With several nodes, a batch
// comes from the node's backlog.
func TestWritersAreReadTogether(t *testing.T) {
	uids := []string{"ann", "bob", "cem", "dan", "eve", "fay", "gus", "hal", "ida", "jim"}
	for node, want := range map[string][][]string{"": {uids[:together], uids[together:]}, "node": {uids[1 : 1+together]}} {
		synctest.Test(t, func(t *testing.T) {
			w, c := coldWarmer(node)
			archive := new(pager)
			w.cfg.Archive, w.cfg.Warmers, w.cfg.Deadline, w.pace.every = archive, 1, time.Minute, time.Second // two workers would split the batches at random
			if node != "" {
				w.cfg.Warmers = 2 // one waits for the node
			}
			for _, uid := range uids {
				w.want(uid)
			}
			running(t, w, func() { time.Sleep(20 * time.Second) })
			if node != "" && len(archive.asked) > 0 && archive.asked[0][0] == "ann" {
				archive.asked[0][0] = "bob" // either may reach the node first
			}
			if !reflect.DeepEqual(archive.asked, want) {
				t.Errorf("node %q: asked for %q at once; want %q", node, archive.asked, want)
			}
			if len(c.warmed) != len(uids)-1 || slices.Contains(c.warmed, "cem 0") || len(w.flights) > 0 {
				t.Errorf("node %q: warmed %q, %d are left; want all but cem", node, c.warmed, len(w.flights))
			}
		})
	}
}

// A turn of n users takes the time of n turns.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := pace{every: time.Second}, time.Now()
		for _, tt := range []struct{ n, want int }{{1, 0}, {3, 1}, {1, 4}, {2, 5}, {1, 7}} {
			if err := p.wait(t.Context(), tt.n); err != nil || time.Since(began) != time.Duration(tt.want)*time.Second {
				t.Errorf("%d passed after %v, %v; want after %d s", tt.n, time.Since(began), err, tt.want)
			}
		}
	})
}

// A reader's row is not read again, even after a wait, until it is too old.
func TestRowOfAReader(t *testing.T) {
	row := history.Page{Items: []history.Item{{Object: history.Object{ID: "1", Type: 1}, Record: &history.Record{Version: 4}}}}
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{{0, "ann 1"}, {3 * time.Second, "ann 1"}, {pageTTL, "ann 0"}} {
		synctest.Test(t, func(t *testing.T) {
			w, c := coldWarmer("")
			w.give("ann", row)
			time.Sleep(tt.after)
			running(t, w, func() {})
			if !slices.Equal(c.warmed, []string{tt.want}) {
				t.Errorf("after %v: warmed %q; want %q", tt.after, c.warmed, tt.want)
			}
		})
	}
}
