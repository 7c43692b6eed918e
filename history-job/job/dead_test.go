package job_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// deadLetters remembers the letters that are added to it, after some failures.
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

// TestDead: what the archive refuses for good goes to the dead letters with its record, before its
// mark is settled, and others flow.
func TestDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := &deadLetters{world: w}
		w.cell = func(c history.Cell) error {
			if c.Key == object(2) {
				return history.ErrPermanent
			}
			return nil
		}
		w.fails("dead_letter", 3)
		cfg := w.config()
		cfg.Dead = g
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.announce(w.writes(3)...)
		synctest.Wait()
		if got := w.did("settle", "commit"); len(got) > 0 {
			t.Errorf("done before the letter was added: %v", got)
		}
		w.wait(time.Minute)
		if len(g.letters) != 1 || g.letters[0].Key != object(2) || g.letters[0].Record == nil || g.letters[0].Reason == "" || g.letters[0].At == 0 {
			t.Errorf("dead letters: %+v, want object 2 with its record, a reason and a time", g.letters)
		}
		w.settled(object(1))
		w.settled(object(3))
	})
}

// TestDeadMessage buries a message that nobody can decode.
func TestDeadMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := &deadLetters{world: w}
		cfg := w.config()
		cfg.Dead = g
		cfg.Consumer = poisoned{Consumer: cfg.Consumer, payload: []byte("not a batch")}
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.announce(w.writes(1)...)
		synctest.Wait()
		if len(g.letters) != 1 || !slices.Equal(g.letters[0].Payload, []byte("not a batch")) || g.letters[0].Origin != "partition 3 offset 17" {
			t.Errorf("dead letters: %+v, want the payload from partition 3 offset 17", g.letters)
		}
		w.settled(object(1))
	})
}

// poisoned puts a poisonous message beside every delivery.
type poisoned struct {
	history.Consumer
	payload []byte
}

func (p poisoned) Consume(ctx context.Context, handle func(context.Context, history.Claim) error) error {
	return p.Consumer.Consume(ctx, func(ctx context.Context, c history.Claim) error {
		return handle(ctx, poisonedClaim{c, p.payload})
	})
}

type poisonedClaim struct {
	history.Claim
	payload []byte
}

func (c poisonedClaim) Fetch(ctx context.Context) (history.Delivery, error) {
	d, err := c.Claim.Fetch(ctx)
	d.Poison = append(d.Poison, history.Poison{Payload: c.payload, Partition: 3, Offset: 17, Err: errDown})
	return d, err
}
