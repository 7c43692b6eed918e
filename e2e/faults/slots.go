package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// mover moves the slots of some buckets between masters of the cluster as long as it runs. It moves them key by
// key: for a while a slot has keys on both sides.
type mover struct {
	masters []*goredis.Client
	ids     []string
	buckets []history.Bucket
	rand    *rand.Rand

	moves, keys atomic.Int64
}

// movedBuckets are the buckets whose slots move. All users of the load are in them.
var movedBuckets = []history.Bucket{7, 130, 391, 502, 713, 944}

const (
	migrated  = 5 // keys per exchange
	movePause = 3 * time.Millisecond
)

func (s *stack) newMover(ctx context.Context, r *rand.Rand) (*mover, error) {
	m := &mover{buckets: movedBuckets, rand: r}
	for _, n := range s.store().Nodes {
		c := goredis.NewClient(&goredis.Options{Addr: n.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true})
		m.masters = append(m.masters, c)
		id, err := c.Do(ctx, "cluster", "myid").Text()
		if err != nil {
			return m, errors.Join(err, m.close())
		}
		m.ids = append(m.ids, id)
	}
	return m, nil
}

func (m *mover) close() error {
	var errs []error
	for _, c := range m.masters {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// run moves one slot after the other until stopped is closed. It completes the last move.
func (m *mover) run(ctx context.Context, stopped <-chan struct{}) error {
	for {
		select {
		case <-stopped:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if err := m.move(ctx, m.buckets[m.rand.IntN(len(m.buckets))]); err != nil {
			return err
		}
		m.moves.Add(1)
	}
}

// move moves the slot of a bucket to another master. If a server dies, it waits and retries the step.
func (m *mover) move(ctx context.Context, b history.Bucket) error {
	var from, to int
	var slot int64
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"find", func(ctx context.Context) (err error) {
			slot, from, err = m.owner(ctx, b)
			to = (from + 1 + m.rand.IntN(len(m.masters)-1)) % len(m.masters)
			return err
		}},
		{"import", func(ctx context.Context) error { return m.setslot(ctx, to, slot, "importing", m.ids[from]) }},
		{"migrate", func(ctx context.Context) error { return m.setslot(ctx, from, slot, "migrating", m.ids[to]) }},
		{"keys", func(ctx context.Context) error { return m.carry(ctx, slot, from, to) }},
		{"give", func(ctx context.Context) error {
			err := m.setslot(ctx, to, slot, "node", m.ids[to]) // first: the new owner announces the change
			for i := range m.masters {
				if err == nil {
					err = m.setslot(ctx, i, slot, "node", m.ids[to])
				}
			}
			return err
		}},
	}
	for _, step := range steps {
		if err := process.Await(ctx, 90*time.Second, "a slot to move: "+step.name, step.do); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) owner(ctx context.Context, b history.Bucket) (slot int64, at int, err error) {
	tag := fmt.Sprintf("{b%04d}", b)
	for i, c := range m.masters {
		if slot, err = c.ClusterKeySlot(ctx, tag).Result(); err != nil {
			return 0, 0, err
		}
		if err = c.Get(ctx, tag).Err(); errors.Is(err, goredis.Nil) {
			return slot, i, nil
		}
	}
	return 0, 0, fmt.Errorf("nobody has the slot: %w", err)
}

func (m *mover) setslot(ctx context.Context, i int, slot int64, what ...any) error {
	return m.masters[i].Do(ctx, append([]any{"cluster", "setslot", slot}, what...)...).Err()
}

// carry migrates all keys of a slot. If an interrupted exchange left a key on both sides, the source's copy wins:
// the source has served it.
func (m *mover) carry(ctx context.Context, slot int64, from, to int) error {
	host, port, err := net.SplitHostPort(m.masters[to].Options().Addr)
	if err != nil {
		return err
	}
	if err := m.masters[to].ScriptFlush(ctx).Err(); err != nil { // like a server that has just joined
		return err
	}
	for {
		keys, err := m.masters[from].ClusterGetKeysInSlot(ctx, int(slot), 100_000).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		m.rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for part := range slices.Chunk(keys, migrated) {
			args := []any{"migrate", host, port, "", 0, 2000, "replace", "keys"}
			for _, k := range part {
				args = append(args, k)
			}
			if err := m.masters[from].Do(ctx, args...).Err(); err != nil && !strings.HasPrefix(err.Error(), "NOKEY") {
				return err
			}
			m.keys.Add(int64(len(part)))
			if err := pause(ctx, movePause); err != nil {
				return err
			}
		}
	}
}

// moving takes steps while the load runs and slots move.
func (t *trial) moving(steps ...step) step {
	return func(ctx context.Context) error {
		m, err := t.stack.newMover(ctx, rand.New(rand.NewPCG(t.Seed, 1))) //nolint:gosec // repeatable
		if err != nil {
			return err
		}
		t.load.buckets = movedBuckets
		stopped, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- m.run(ctx, stopped) }()
		err = t.underLoad(steps...)(ctx)
		close(stopped)
		err = errors.Join(err, <-done, m.close())
		t.res.note("%d slots moved, with %d keys", m.moves.Load(), m.keys.Load())
		if err == nil && m.keys.Load() == 0 {
			err = errors.New("no key moved")
		}
		return err
	}
}

func slots(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{cluster: true}); err != nil {
		return err
	}
	again := func(ctx context.Context) error { return inTurn(ctx, wait(3*time.Second), t.anew) }
	return inTurn(ctx, t.moving(again, again, again, again), t.markClean)
}
