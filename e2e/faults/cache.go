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

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// storm lets Redis refuse everything for a while, with one error and another, and
// forget its scripts: what works on records must come back by itself and drain the
// backlog.
func storm(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	c := t.stack.redisClient()
	defer c.Close()
	do := func(ctx context.Context, args ...any) error { return c.Do(ctx, args...).Err() }
	err := t.underLoad(ctx, func(ctx context.Context) error {
		return errors.Join(
			pause(ctx, 2*time.Second),
			do(ctx, "CONFIG", "SET", "maxmemory", "1"), pause(ctx, 2*time.Second), do(ctx, "CONFIG", "SET", "maxmemory", "0"),
			do(ctx, "SCRIPT", "FLUSH"), pause(ctx, time.Second), do(ctx, "SCRIPT", "FLUSH"),
			do(ctx, "ACL", "SETUSER", "default", "-eval", "-evalsha"), pause(ctx, 4*time.Second), do(ctx, "ACL", "SETUSER", "default", "+@all"),
			pause(ctx, 2*time.Second),
		)
	})
	if err != nil {
		return errors.Join(err, do(context.WithoutCancel(ctx), "ACL", "SETUSER", "default", "+@all"))
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	retries, err := total(ctx, t.stack.jobs, "playhead_job_retries_total")
	t.res.note("%.0f exchanges of the jobs tried again", retries)
	if err == nil && retries == 0 {
		err = errors.New("no job has noticed")
	}
	return err
}

// eviction drops contents from Redis before a job reads them: counted, and the
// archive keeps what it has.
func eviction(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.gentle, t.load.edge = true, nil
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
	for _, d := range dirty[:len(dirty)/3] {
		content := fmt.Sprintf("{b%04d}:c:%s:%s", history.BucketOf(d.Key.UID), d.Key.UID, d.Key.Object)
		n, err := c.Del(ctx, content).Result()
		if err != nil || n != 1 {
			return nil, fmt.Errorf("evict %s: %d deleted: %w", content, n, err)
		}
		old, err := t.stack.archive.Get(ctx, []history.Key{d.Key})
		if err != nil {
			return nil, err
		}
		evicted[d.Key] = old[0]
		delete(t.book.stories, d.Key)
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
		if !same(got[i], want[k]) {
			t.res.count(k, "archive", lost("has %+v, want as before %+v", got[i], want[k]))
		}
	}
	return nil
}

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

// stampede empties Redis and lets everybody come back at once, one user's readers in
// hundreds: the archive is read once for each user.
func stampede(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 3*time.Second) })
	if err := errors.Join(err, t.stack.quiet(ctx, t.Limit), t.stack.flush(ctx)); err != nil {
		return err
	}
	users := make(map[string][]*historyv1.Object)
	for k := range t.book.stories {
		users[k.UID] = append(users[k.UID], &historyv1.Object{Id: k.Object.ID, Type: k.Object.Type})
	}
	const rows = "playhead_rpc_warmed_users_total"
	before, err := total(ctx, t.stack.services, rows)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.poll(ctx, users); err != nil {
		return err
	}
	took := time.Since(began).Round(time.Millisecond)
	after, err := total(ctx, t.stack.services, rows)
	t.res.note("%d users polled back in %v, %.0f rows read", len(users), took, after-before)
	if err == nil && after-before != float64(len(users)) {
		err = errors.New("not one row for each user")
	}
	return errors.Join(err, t.settle(ctx))
}

// poll reads every user's points, and one user's three hundred times.
func (t *trial) poll(ctx context.Context, users map[string][]*historyv1.Object) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(200)
	for i, uid := range slices.Sorted(maps.Keys(users)) {
		times := 1
		if i == 0 {
			times = 300
		}
		for range times {
			g.Go(func() error {
				door := t.stack.doors[history.BucketOf(uid)%2] // one service each, as the edge does
				_, err := again(ctx, func(ctx context.Context) (*historyv1.PointsResponse, error) {
					return door.Points(ctx, &historyv1.PointsRequest{Uid: uid, Objects: users[uid]})
				})
				return err
			})
		}
	}
	return g.Wait()
}
