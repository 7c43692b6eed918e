package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

// eviction drops contents from Redis before a job reads them: counted, and the
// archive keeps what it has.
func eviction(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.gentle, t.load.blind, t.load.edge = true, true, nil
	watch := func(ctx context.Context) error { return pause(ctx, 2*time.Second) }
	if err := errors.Join(t.underLoad(ctx, watch), t.stack.quiet(ctx, t.Limit)); err != nil {
		return err
	}
	for _, j := range t.stack.jobs {
		j.crash()
	}
	if err := t.underLoad(ctx, watch); err != nil {
		return err
	}
	evicted, err := t.evict(ctx)
	if err != nil {
		return err
	}
	for _, j := range t.stack.jobs {
		j.up()
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	missing, err := total(ctx, t.stack.jobs, "playhead_job_missing_records_total")
	t.res.note("%d records evicted, %.0f found missing", len(evicted), missing)
	if err == nil && missing < float64(len(evicted)) {
		err = errors.New("not all evicted records were counted")
	}
	return errors.Join(err, t.kept(ctx, evicted))
}

// evict drops the contents of some marked keys, which the oracle then leaves out, and
// returns what the archive holds of them.
func (t *trial) evict(ctx context.Context) (map[history.Key]*history.Record, error) {
	dirty, err := t.stack.overdue(ctx)
	if err != nil || len(dirty) == 0 {
		return nil, errors.Join(err, errors.New("no key is marked"))
	}
	c := t.stack.redisClient()
	defer c.Close()
	evicted := make(map[history.Key]*history.Record)
	for _, k := range dirty[:len(dirty)/3] {
		content := fmt.Sprintf("{b%04d}:c:%s:%s", history.BucketOf(k.UID), k.UID, k.Object)
		n, err := c.Del(ctx, content).Result()
		if err != nil || n != 1 {
			return nil, fmt.Errorf("evict %s: %d deleted: %w", content, n, err)
		}
		old, err := t.stack.archive.Get(ctx, []history.Key{k})
		if err != nil {
			return nil, err
		}
		evicted[k] = old[0].Record
		delete(t.book.stories, k)
	}
	return evicted, nil
}

// kept checks that the archive holds what it held.
func (t *trial) kept(ctx context.Context, want map[history.Key]*history.Record) error {
	keys := slices.Collect(maps.Keys(want))
	got, err := t.stack.archive.Get(ctx, keys)
	if err != nil {
		return err
	}
	for i, k := range keys {
		if !same(got[i].Record, want[k]) {
			t.res.count(k, "archive", lost("has %+v, want as before %+v", got[i].Record, want[k]))
		}
	}
	return nil
}
