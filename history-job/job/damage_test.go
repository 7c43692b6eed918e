package job_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// damaged is a cache that can read nothing of one content, not even its revision, until it
// is written again.
type damaged struct {
	history.Cache
	key    history.Key
	healed bool
}

func (d *damaged) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := d.Cache.Load(ctx, keys)
	for i, k := range keys {
		if k == d.key && !d.healed {
			entries[i].Record = &history.Record{Partial: true}
		}
	}
	return entries
}

func (d *damaged) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	outcomes := d.Cache.Apply(ctx, writes)
	for i, w := range writes {
		d.healed = d.healed || w.Key == d.key && outcomes[i].Status == history.Applied
	}
	return outcomes
}

// TestDamagedWithoutARevision has the job replace a damaged content by what the archive has,
// whatever the cache knows of the user.
func TestDamagedWithoutARevision(t *testing.T) {
	for name, known := range map[string]struct {
		cold   bool
		warmth history.WarmSet
	}{
		"complete user":         {},
		"cold user":             {cold: true},
		"user who once paused":  {warmth: history.WarmSet{Pause: history.Pause{Since: start - 9000, Until: start - 8000}}},
		"user who is paused":    {warmth: history.WarmSet{Pause: history.Pause{Since: start - 4000}}},
		"user with a floor":     {warmth: history.WarmSet{Floor: history.VersionOf(start-3600_000, 0)}},
		"user with both of it":  {warmth: history.WarmSet{Floor: history.VersionOf(start-3600_000, 0), Pause: history.Pause{Since: start - 9000, Until: start - 8000}}},
		"user who once cleared": {warmth: history.WarmSet{Cleared: map[uint32]int64{0: start - 9000}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				want := record(completed(1, -5000, "a"))
				w.put(object(1), want)
				if !known.cold {
					if err := w.cache.Warm(t.Context(), uid, known.warmth); err != nil {
						t.Fatal(err)
					}
				}
				d := &damaged{Cache: w.cache, key: object(1)}
				w.cache = d
				defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
				w.announce(object(1))
				w.wait(time.Minute)
				if !d.healed {
					t.Fatal("the damaged content was not replaced")
				}
				if got, want := w.load(object(1)), want.After(known.warmth.Cleared[0]); !history.Same(got, want) {
					t.Errorf("cache:\ngot  %+v\nwant %+v", got, want)
				}
				w.settled(object(1))
			})
		})
	}
}
