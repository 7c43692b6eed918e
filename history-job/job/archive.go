package job

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
)

// archive brings keys into the archive and settles their marks. It returns only
// when all are dealt with, or ctx is done.
//
// The queue and the sweep take turns. Side by side, one could load a record, and put
// it after the other has put a newer content with the same event time and settled
// the newer mark: the archive would keep the older one.
func (j *Job) archive(ctx context.Context, keys []history.Dirty) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	keys = byBucket(newest(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(j.cfg.Workers)
	for len(keys) > 0 {
		n := min(len(keys), j.cfg.Chunk)
		part := keys[:n]
		keys = keys[n:]
		g.Go(func() error { return guard(func() error { return j.chunk(ctx, part) }) })
	}
	return g.Wait()
}

// newest leaves each key once, under its latest mark: an earlier one no longer
// stands.
func newest(keys []history.Dirty) []history.Dirty {
	at := make(map[history.Key]int, len(keys))
	out := make([]history.Dirty, 0, len(keys))
	for _, d := range keys {
		i, again := at[d.Key]
		switch {
		case !again:
			at[d.Key] = len(out)
			out = append(out, d)
		case d.Mark > out[i].Mark:
			out[i] = d
		}
	}
	return out
}

// byBucket orders keys by their buckets, because the cache settles keys of one bucket
// together.
func byBucket(keys []history.Dirty) []history.Dirty {
	var next [history.Buckets + 1]int // where the next key of a bucket goes
	for _, d := range keys {
		next[history.BucketOf(d.Key.UID)+1]++
	}
	for b := range history.Buckets {
		next[b+1] += next[b]
	}
	out := make([]history.Dirty, len(keys))
	for _, d := range keys {
		b := history.BucketOf(d.Key.UID)
		out[next[b]] = d
		next[b]++
	}
	return out
}

// chunk archives some keys: one bulk read, one bulk put, one settle. The mark of a
// key goes only after a put of what was read after the mark was set.
func (j *Job) chunk(ctx context.Context, keys []history.Dirty) error {
	entries, err := j.load(ctx, keys)
	if err != nil {
		return err
	}
	if entries, err = j.complete(ctx, keys, entries); err != nil {
		return err
	}
	if err := j.putUsers(ctx, keys, entries); err != nil {
		return err
	}
	if err := j.put(ctx, j.cells(keys, entries)); err != nil {
		return err
	}
	err = j.retry(ctx, "settle", func(ctx context.Context) error { return j.cfg.Cache.Settle(ctx, keys) })
	if err != nil {
		return err
	}
	j.trim(ctx, keys)
	return nil
}

// cells returns what is to be put. A record that the cache no longer has is counted
// and otherwise left alone: its absence says nothing about what was deleted.
func (j *Job) cells(keys []history.Dirty, entries []history.Entry) []history.Cell {
	cells := make([]history.Cell, 0, len(keys))
	for i, e := range entries {
		k := keys[i].Key
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
// refuses for good is buried and holds nobody up.
func (j *Job) putUsers(ctx context.Context, keys []history.Dirty, entries []history.Entry) error {
	for i, e := range entries {
		if !keys[i].Key.IsUser() || len(e.User.Cleared) == 0 && e.User.Pause.Since == 0 {
			continue
		}
		err := j.retry(ctx, "user", func(ctx context.Context) error {
			return j.cfg.Archive.PutUser(ctx, keys[i].Key.UID, e.User)
		})
		switch {
		case errors.Is(err, history.ErrPermanent):
			if err := j.bury(ctx, []history.Dead{j.refused(keys[i].Key, nil, err)}); err != nil {
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
func (j *Job) trim(ctx context.Context, keys []history.Dirty) {
	var uids []string
	for _, d := range keys {
		if rand.N(j.cfg.TrimOneIn) == 0 {
			uids = append(uids, d.Key.UID)
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
