package job_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// all are the steps of a key on its way into the archive.
var all = []string{"fetch", "load", "put", "settle", "commit"}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.start(w.config())
		w.announce(w.writes(3)...)
		synctest.Wait()
		want := []string{"fetch 0 1 2", "load 0 1 2", "put 0 1 2", "settle 0 1 2", "commit 0 1 2"}
		if got := w.did(all...); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.settled(object(0), object(1), object(2))
		w.counted("puts_total", 3)
		w.counted("messages_total", 1)
		w.counted("owned_buckets", history.Buckets)
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		w.counted("owned_buckets", 0)
	})
}

// TestOrderInOutage has one store fail for a while: nothing that comes after it
// happens before it is back.
func TestOrderInOutage(t *testing.T) {
	for _, tt := range []struct {
		step string
		want []string
	}{
		{"load", []string{"fetch 0", "load 0", "load 0", "load 0", "put 0", "settle 0", "commit 0"}},
		{"put", []string{"fetch 0", "load 0", "put 0", "put 0", "put 0", "settle 0", "commit 0"}},
		{"settle", []string{"fetch 0", "load 0", "put 0", "settle 0", "settle 0", "settle 0", "commit 0"}},
	} {
		t.Run(tt.step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
				w.fails(tt.step, 2)
				w.announce(w.writes(1)...)
				w.wait(time.Minute)
				if got := w.did(all...); !slices.Equal(got, tt.want) {
					t.Errorf("the job did %q, want %q", got, tt.want)
				}
				w.settled(object(0))
				w.counted("retries_total", 2)
			})
		})
	}
}

// TestChunks divides a delivery: none of it is committed before all of it is settled.
func TestChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config()
		cfg.Chunk, cfg.Workers = 2, 2
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		var up atomic.Bool
		w.cell = func(c history.Cell) error {
			if c.Key == object(4) && !up.Load() {
				return errDown
			}
			return nil
		}
		w.announce(w.writes(5)...)
		w.wait(time.Minute)
		did := w.did("settle", "commit")
		if slices.Sort(did); !slices.Equal(did, []string{"settle 0 1", "settle 2 3"}) {
			t.Errorf("while the last chunk fails the job did %q", did)
		}
		up.Store(true)
		w.wait(time.Minute)
		if got, want := w.did("settle", "commit"), []string{"settle 4", "commit 0 1 2 3 4"}; !slices.Equal(got, want) {
			t.Errorf("afterwards the job did %q, want %q", got, want)
		}
	})
}

// TestKeyTwice announces one key under two marks in one delivery: it is put once,
// under the one that stands.
func TestKeyTwice(t *testing.T) {
	for name, late := range map[string]bool{"in order": false, "the older one late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				first := w.write(progress(1, -2000))
				second := w.write(progress(1, -1000))
				if late {
					first, second = second, first
				}
				w.announce(first)
				w.announce(second)
				defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
				synctest.Wait()
				if got := w.did("put"); !slices.Equal(got, []string{"put 1"}) {
					t.Errorf("the job did %q, want one put", got)
				}
				w.settled(object(1))
			})
		})
	}
}

func TestNothingAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.start(w.config())
		w.wait(time.Hour)
		if got := w.did(all...); len(got) > 0 {
			t.Errorf("without keys the job did %q", got)
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}
