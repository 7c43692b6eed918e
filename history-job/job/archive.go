package job

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// archive brings keys into the archive and settles what it put. It returns only
// when all are dealt with, or ctx is done. While the cache may be another one than the
// one that was compared, it waits, with a jitter, since the queue and the sweep often begin
// to wait at one moment.
func (j *Job) archive(ctx context.Context, keys []history.Key) error {
	for {
		err := j.archiveOnce(ctx, keys)
		if !errors.Is(err, errLife) {
			return err
		}
		j.metrics.retries.WithLabelValues("life").Inc()
		if err := sleep(ctx, j.cfg.WatchEvery/4+run.N(ctx, j.cfg.WatchEvery/8)); err != nil {
			return err
		}
	}
}

// archiveOnce fails with [errLife] where the cache has to be compared first. The queue, the
// sweep and the comparison take turns, so that a comparison finds no put under way.
func (j *Job) archiveOnce(ctx context.Context, keys []history.Key) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	life, compared := j.life.get()
	if !compared && j.cfg.Life != nil {
		return errLife
	}
	keys = byBucket(once(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(j.cfg.Workers)
	for len(keys) > 0 {
		n := min(len(keys), j.cfg.Chunk)
		part := keys[:n]
		keys = keys[n:]
		g.Go(func() error { return guard(func() error { return j.chunk(ctx, life, part) }) })
	}
	return g.Wait()
}

// once leaves each key once.
func once(keys []history.Key) []history.Key {
	seen := make(map[history.Key]struct{}, len(keys))
	out := make([]history.Key, 0, len(keys))
	for _, k := range keys {
		if _, again := seen[k]; !again {
			seen[k] = struct{}{}
			out = append(out, k)
		}
	}
	return out
}

// byBucket orders keys by their buckets, because the cache settles keys of one bucket
// together.
func byBucket(keys []history.Key) []history.Key {
	var next [history.Buckets + 1]int // where the next key of a bucket goes
	for _, k := range keys {
		next[history.BucketOf(k.UID)+1]++
	}
	for b := range history.Buckets {
		next[b+1] += next[b]
	}
	out := make([]history.Key, len(keys))
	for _, k := range keys {
		b := history.BucketOf(k.UID)
		out[next[b]] = k
		next[b]++
	}
	return out
}

// maxRounds bounds how often a chunk is begun again with the partial records that
// others wrote to meanwhile. What is left keeps its mark.
const maxRounds = 3

// chunk archives some keys: one bulk read, one bulk put, one settle of what was put. It
// fails with [errLife] unless the cache is in the life that is named.
func (j *Job) chunk(ctx context.Context, life string, keys []history.Key) error {
	for range maxRounds {
		var err error
		if keys, err = j.round(ctx, life, keys); err != nil || len(keys) == 0 {
			return err
		}
	}
	return nil
}

// round archives keys once, and returns those that have to come again.
func (j *Job) round(ctx context.Context, life string, keys []history.Key) (again []history.Key, err error) {
	keys, entries, err := j.load(ctx, keys)
	if err != nil {
		return nil, err
	}
	b, again, err := j.complete(ctx, keys, entries)
	if err != nil {
		return nil, err
	}
	if err := j.sameLife(ctx, life); err != nil {
		return nil, err
	}
	j.recent.add(b.keys, b.entries)
	if err := j.putUsers(ctx, b.keys, b.entries); err != nil {
		return nil, err
	}
	if err := j.put(ctx, j.cells(b.keys, b.entries)); err != nil {
		return nil, err
	}
	put := contents(b.keys, b.entries)
	err = j.retry(ctx, "settle", func(ctx context.Context) error { return j.cfg.Cache.Settle(ctx, put) })
	if err != nil {
		return nil, err
	}
	j.trim(ctx, b.keys)
	return again, nil
}

// contents names what was put.
func contents(keys []history.Key, entries []history.Entry) []history.Content {
	put := make([]history.Content, len(keys))
	for i, k := range keys {
		put[i].Key = k
		if k.IsUser() {
			put[i].Revision = entries[i].User.Revision
		} else if r := entries[i].Record; r != nil {
			put[i].Revision = r.Revision
		}
	}
	return put
}

// cells returns what is to be put. A record that the cache no longer has is counted
// and otherwise left alone: its absence says nothing about what was deleted.
func (j *Job) cells(keys []history.Key, entries []history.Entry) []history.Cell {
	cells := make([]history.Cell, 0, len(keys))
	for i, e := range entries {
		k := keys[i]
		if k.IsUser() {
			continue
		}
		r := e.Record.After(e.User.ClearedAt(k.Object.Type))
		if r == nil {
			j.metrics.missing.Inc()
			continue
		}
		cells = append(cells, history.Cell{Key: k, Record: r})
	}
	return cells
}

// putUsers brings the clear marks and pauses of users into the archive. A user whom it
// refuses for good goes to the dead letters and holds nobody up.
func (j *Job) putUsers(ctx context.Context, keys []history.Key, entries []history.Entry) error {
	for i, e := range entries {
		if !keys[i].IsUser() || len(e.User.Cleared) == 0 && e.User.Pause.Since == 0 {
			continue
		}
		err := j.retry(ctx, "user", func(ctx context.Context) error {
			return j.cfg.Archive.PutUser(ctx, keys[i].UID, e.User)
		})
		switch {
		case errors.Is(err, history.ErrPermanent):
			if err := j.addDead(ctx, []history.Dead{j.refused(keys[i], nil, err)}); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			j.metrics.clears.Inc()
		}
	}
	return nil
}

// trim shortens the lists of some of the users, each once, however many of the keys are
// theirs. It is housekeeping: what fails is tried another time.
func (j *Job) trim(ctx context.Context, keys []history.Key) {
	var uids []string
	for _, k := range keys {
		if run.N(ctx, j.cfg.TrimOneIn) == 0 {
			uids = append(uids, k.UID)
		}
	}
	if len(uids) == 0 {
		return
	}
	slices.Sort(uids)
	uids = slices.Compact(uids)
	err := j.try(ctx, func(ctx context.Context) error { return j.cfg.Cache.Trim(ctx, uids) })
	if err != nil && ctx.Err() == nil {
		j.metrics.retries.WithLabelValues("trim").Inc()
	}
}
