package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// deadLetters records the added letters, after some failures.
type deadLetters struct {
	world *world

	mu      sync.Mutex
	letters []history.Dead
}

func (g *deadLetters) Add(ctx context.Context, letters []history.Dead) error {
	if err := g.world.step(ctx, "dead_letter", nil); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.letters = append(g.letters, letters...)
	return nil
}

// TestDead: a permanently rejected cell goes to the dead letters with its record, before its mark is clean.
// Other records are archived.
func TestDead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		g := &deadLetters{world: w}
		w.cell = func(c history.Cell) error {
			if c.Key == object(2) {
				return history.ErrPermanent
			}
			return nil
		}
		w.fails("dead_letter", 2)
		cfg := w.config()
		cfg.archive.Dead = g
		w.runs(cfg)
		w.announce(w.writes(3)...)
		synctest.Wait()
		if got := w.did("mark_clean", "commit"); len(got) > 0 {
			t.Errorf("done before the letter was added: %v", got)
		}
		w.wait(time.Minute)
		if len(g.letters) != 1 || g.letters[0].Key != object(2) || g.letters[0].Record == nil || g.letters[0].Reason == "" || g.letters[0].At == 0 {
			t.Errorf("dead letters: %+v, want object 2 with its record, a reason and a time", g.letters)
		}
		w.clean(object(1))
		w.clean(object(3))
	})
}

// TestDeadUser: a permanently rejected user setting goes to the dead letters with everything needed to
// apply it again.
func TestDeadUser(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		g := &deadLetters{world: w}
		w.on("clear", func(context.Context) error { return history.ErrPermanent })
		cfg := w.config()
		cfg.archive.Dead = g
		if _, err := w.cache.Clear(t.Context(), uid, history.Clear{Type: 1, Until: 100}); err != nil {
			t.Fatal(err)
		}
		pause := history.Pause{Since: 200}
		if err := w.cache.Pause(t.Context(), uid, history.Pause{}, pause); err != nil {
			t.Fatal(err)
		}
		w.runs(cfg)
		w.announce(history.UserKey(uid))
		w.wait(time.Minute)
		if len(g.letters) != 1 || g.letters[0].Key != history.UserKey(uid) || g.letters[0].User.Cleared[1] != 100 || g.letters[0].User.Pause != pause {
			t.Errorf("dead letters: %+v, want the clear mark and the pause", g.letters)
		}
	})
}

// TestDeadMessage adds an undecodable message to the dead letters.
func TestDeadMessage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		g := &deadLetters{world: w}
		cfg := w.config()
		cfg.archive.Dead = g
		cfg.recovery.Consumer = poisoned{Consumer: cfg.recovery.Consumer, payload: []byte("not a batch")}
		w.runs(cfg)
		w.announce(w.writes(1)...)
		synctest.Wait()
		if len(g.letters) != 1 || !slices.Equal(g.letters[0].Payload, []byte("not a batch")) || g.letters[0].Origin != "partition 3 offset 17" {
			t.Errorf("dead letters: %+v, want the payload from partition 3 offset 17", g.letters)
		}
		w.clean(object(1))
	})
}

// poisoned adds an undecodable message to every delivery.
type poisoned struct {
	history.Consumer
	payload []byte
}

func (p poisoned) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	return p.Consumer.Consume(ctx, func(ctx context.Context, c history.Assignment) error {
		return handle(ctx, poisonedAssignment{c, p.payload})
	})
}

type poisonedAssignment struct {
	history.Assignment
	payload []byte
}

func (c poisonedAssignment) Fetch(ctx context.Context) (history.Delivery, error) {
	d, err := c.Assignment.Fetch(ctx)
	d.Poison = append(d.Poison, history.Poison{Payload: c.payload, Partition: 3, Offset: 17, Err: errDown})
	return d, err
}

// damaged is a cache with one unreadable content, without even a revision, until the next write.
type damaged struct {
	Cache
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

func (d *damaged) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	outcomes := d.Cache.Write(ctx, writes)
	for i, w := range writes {
		d.healed = d.healed || w.Key == d.key && outcomes[i].Status == history.Applied
	}
	return outcomes
}

// TestDamagedWithoutARevision replaces a damaged content with the archived one, whether or not the cache
// knows the user.
func TestDamagedWithoutARevision(t *testing.T) {
	for name, known := range map[string]struct {
		cold   bool
		warmth history.WarmSet
	}{
		"complete user":             {},
		"cold user":                 {cold: true},
		"user who once paused":      {warmth: history.WarmSet{Pause: history.Pause{Since: start - 9000, Until: start - 8000}}},
		"user who is paused":        {warmth: history.WarmSet{Pause: history.Pause{Since: start - 4000}}},
		"user with a low watermark": {warmth: history.WarmSet{LowWatermark: history.VersionOf(start-3600_000, 0)}},
		"user with both of it":      {warmth: history.WarmSet{LowWatermark: history.VersionOf(start-3600_000, 0), Pause: history.Pause{Since: start - 9000, Until: start - 8000}}},
		"user who once cleared":     {warmth: history.WarmSet{Cleared: map[uint32]int64{0: start - 9000}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				want := record(completed(1, -5000, "a"))
				w.put(object(1), want)
				if !known.cold {
					if err := w.cache.Warm(t.Context(), uid, known.warmth); err != nil {
						t.Fatal(err)
					}
				}
				d := &damaged{Cache: w.cache, key: object(1)}
				w.cache = d
				w.runs(w.config())
				w.announce(object(1))
				w.wait(time.Minute)
				if !d.healed {
					t.Fatal("the damaged content was not replaced")
				}
				if got, want := w.load(object(1)), want.After(known.warmth.Cleared[0]); !history.Same(got, want) {
					t.Errorf("cache:\ngot  %+v\nwant %+v", got, want)
				}
				w.clean(object(1))
			})
		})
	}
}
