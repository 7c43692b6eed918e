package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// rollback brings Redis back with its file of a while ago, dirty marks included. What
// the archive has of the time since must stay, and readers must see it.
func rollback(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.edge = nil
	watch := func(ctx context.Context) error { return pause(ctx, 2*time.Second) }
	redis := t.es["redis"]
	aof, old := filepath.Join(redis.Nodes[0].Dir, "appendonlydir"), filepath.Join(t.Dir, "older")
	if err := t.underLoad(ctx, watch); err != nil {
		return err
	}
	err := errors.Join(redis.Kill(), os.RemoveAll(old), os.CopyFS(old, os.DirFS(aof)), redis.Start(ctx))
	if err != nil {
		return fmt.Errorf("keep the file of redis: %w", err)
	}
	err = errors.Join(t.underLoad(ctx, watch), t.stack.quiet(ctx, t.Limit))
	if err != nil {
		return err
	}
	repairs, err := total(ctx, t.stack.jobs, cacheRepairs)
	if err != nil {
		return err
	}
	err = errors.Join(redis.Kill(), os.RemoveAll(aof), os.CopyFS(aof, os.DirFS(old)), redis.Start(ctx))
	if err != nil {
		return fmt.Errorf("bring the file of redis back: %w", err)
	}
	older, err := t.older(ctx)
	if err != nil {
		return err
	}
	t.res.note("%d of %d records are older in the cache than in the archive", older, len(t.book.stories))
	began := time.Now()
	err = process.Await(ctx, 30*time.Second, "a repair by each job", func(ctx context.Context) error {
		now, err := total(ctx, t.stack.jobs, cacheRepairs)
		if err == nil && now < repairs+float64(len(t.stack.jobs)) {
			err = fmt.Errorf("%.0f repairs, of %.0f before", now, repairs)
		}
		return err
	})
	if err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, "playhead_job_restored_records_total")
	t.res.note("%.0f given back to it, %v later", restored, time.Since(began).Round(100*time.Millisecond))
	return errors.Join(err, t.settle(ctx))
}

const cacheRepairs = "playhead_job_cache_repairs_total"

// older returns of how many records the cache and the archive say different things.
func (t *trial) older(ctx context.Context) (older int, err error) {
	for keys := range slices.Chunk(slices.Collect(maps.Keys(t.book.stories)), checkBatch) {
		archived, err := t.stack.archive.Get(ctx, keys)
		if err != nil {
			return 0, err
		}
		for i, e := range t.stack.cache.Load(ctx, keys) {
			cleared := t.book.clearedFor(keys[i])
			if !same(e.Record.After(cleared), archived[i].After(cleared)) {
				older++
			}
		}
	}
	return older, nil
}

// clearedFor returns the time to which an object is certainly cleared.
func (b *book) clearedFor(k history.Key) (at int64) {
	for _, c := range b.clears[k.UID] {
		if c.acked && (c.typ == 0 || c.typ == k.Object.Type) {
			at = max(at, c.until)
		}
	}
	return at
}
