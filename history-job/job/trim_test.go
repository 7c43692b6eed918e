package job_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/job"
)

// trimming is a job that trims after every put.
func (w *world) trimming() job.Config {
	cfg := w.config()
	cfg.TrimOneIn = 1
	return cfg
}

func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start(w.trimming())() //nolint:errcheck // TestOrder looks at it
		keys := w.writes(keep + 3)
		w.announce(keys[1:]...)
		synctest.Wait()
		if got, want := w.did("settle", "trim", "commit"), []string{"settle 1 2 3 4 5 6", "trim *", "commit 1 2 3 4 5 6"}; !slices.Equal(got, want) {
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
		if want := history.VersionOf(start+2-int64(len(keys)), 0) + 1; u.Floor != want {
			t.Errorf("floor: got %d, want %d, just above the newest that was dropped", u.Floor, want)
		}
	})
}

// TestTrimFails is no reason to hold anything up: neither an error, nor a store that
// never answers.
func TestTrimFails(t *testing.T) {
	for name, trim := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errDown },
		"no answer": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.on("trim", trim)
				cfg := w.trimming()
				cfg.Deadline = 10 * time.Second
				defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
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

// TestTrimSeldom trims one user in so many puts.
func TestTrimSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config()
		cfg.TrimOneIn, cfg.Chunk = 4, 1
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
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
