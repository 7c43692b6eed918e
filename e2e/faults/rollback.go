package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// rollback brings Redis back with its file of a while ago, dirty marks included. What
// the archive has of the time since must stay, and readers must see it.
func rollback(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.blind, t.load.edge = true, nil
	watch := func(ctx context.Context) error { return pause(ctx, 2*time.Second) }
	if err := errors.Join(t.underLoad(ctx, watch), t.keepFile(ctx), t.underLoad(ctx, watch), t.stack.quiet(ctx, t.Limit)); err != nil {
		return err
	}
	repairs, err := total(ctx, t.stack.jobs, cacheRepairs)
	if err != nil {
		return err
	}
	if err := t.backToFile(ctx); err != nil {
		return err
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

// rollbackHeld brings Redis back with its file of a while ago while nothing that was
// written since has been archived: the services still hold all of it.
func rollbackHeld(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 10 * time.Second, sweep: 22 * time.Second}); err != nil {
		return err
	}
	t.load.gentle, t.load.blind, t.load.edge = true, true, nil
	watch := func(ctx context.Context) error { return pause(ctx, time.Second) }
	if err := errors.Join(t.underLoad(ctx, watch), t.keepFile(ctx)); err != nil {
		return err
	}
	t.load.epoch.Add(1)
	if err := errors.Join(t.underLoad(ctx, watch), t.backToFile(ctx)); err != nil {
		return err
	}
	const reclaimed = "compared with what is held"
	for _, u := range t.stack.services {
		err := process.Await(ctx, 20*time.Second, u.name+" to write again what it holds", func(context.Context) error {
			if strings.Count(u.logTail(), reclaimed) < 2 { // the file was kept by a restart, too
				return errors.New("it has not")
			}
			return nil
		})
		if err != nil {
			return err
		}
		line := u.logTail()[strings.LastIndex(u.logTail(), reclaimed)+len(reclaimed)+1:]
		t.res.note("%s, of what it holds: %s", u.name, strings.TrimSpace(strings.SplitN(line, "\n", 2)[0]))
	}
	return t.settle(ctx)
}

// keepFile keeps the file of Redis as it is now, by way of a restart.
func (t *trial) keepFile(ctx context.Context) error {
	redis, aof, old := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(old), os.CopyFS(old, os.DirFS(aof)), redis.Start(ctx)); err != nil {
		return fmt.Errorf("keep the file of redis: %w", err)
	}
	return nil
}

// backToFile restarts Redis with the file that was kept.
func (t *trial) backToFile(ctx context.Context) error {
	redis, aof, old := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(aof), os.CopyFS(aof, os.DirFS(old)), redis.Start(ctx)); err != nil {
		return fmt.Errorf("bring the file of redis back: %w", err)
	}
	return nil
}

func (t *trial) redisFiles() (redis *engine.Engine, aof, old string) {
	redis = t.es["redis"]
	return redis, filepath.Join(redis.Nodes[0].Dir, "appendonlydir"), filepath.Join(t.Dir, "older")
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
			if !sameRecord(e.Record.After(cleared), archived[i].Record.After(cleared)) {
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
