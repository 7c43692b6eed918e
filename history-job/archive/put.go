package archive

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/run"
)

// load reads the records of keys. It drops unanswered keys, which keep their marks.
func (a *Archiver) load(ctx context.Context, keys []history.Key) (loaded batch, err error) {
	entries, err := a.Load(ctx, keys)
	if err != nil {
		return batch{}, err
	}
	for i, e := range entries {
		if e.Err == nil {
			loaded.add(keys[i], e)
		}
	}
	a.leftOut.Add(float64(len(keys) - len(loaded.keys)))
	return loaded, nil
}

// putUsers archives the clear marks and pauses of users.
func (a *Archiver) putUsers(ctx context.Context, b *batch) error {
	var users batch
	for i, k := range b.keys {
		if u := b.entries[i].User; k.IsUser() && (len(u.Cleared) > 0 || u.Pause.Since != 0) {
			users.add(k, b.entries[i])
		}
	}
	return a.putEach(ctx, b, users, kind{"user", a.metrics.clears, func(ctx context.Context, p *batch) []error {
		return a.each(len(p.keys), func(i int) error { return a.cfg.Archive.PutUser(ctx, p.keys[i].UID, p.entries[i].User) })
	}})
}

// present returns the record of an entry after the user's clear marks, nil if it has none.
func present(k history.Key, e *history.Entry) *history.Record {
	if k.IsUser() {
		return nil
	}
	return e.Record.After(e.User.ClearedAt(k.Object.Type))
}

// put archives records. A record that the cache lacks is only counted: its absence does not imply a delete.
func (a *Archiver) put(ctx context.Context, b *batch) error {
	var records batch
	for i, e := range b.entries {
		k := b.keys[i]
		if k.IsUser() {
			continue
		}
		r := present(k, &e)
		if r == nil {
			a.metrics.missing.Inc()
			continue
		}
		records.add(k, history.Entry{Record: r})
	}
	return a.putEach(ctx, b, records, kind{"put", a.metrics.puts, func(ctx context.Context, p *batch) []error {
		cells := make([]history.Cell, len(p.keys))
		for i, k := range p.keys {
			cells[i] = history.Cell{Key: k, Record: p.entries[i].Record}
		}
		return a.cfg.Archive.Put(ctx, cells)
	}})
}

// kind is how contents are put.
type kind struct {
	what string
	done prometheus.Counter
	put  func(context.Context, *batch) []error // one error per content, or nil
}

// putEach puts contents of a batch and retries only the failed ones. Permanently refused ones become dead letters.
// Unanswered ones are left to a sweep. Neither blocks the others.
func (a *Archiver) putEach(ctx context.Context, b *batch, part batch, as kind) error {
	if len(part.keys) == 0 {
		return nil
	}
	var dead []history.Dead
	err := a.RetryEach(ctx, as.what, len(part.keys), func(ctx context.Context) (_ int, last error) {
		asked, refused := part, len(dead)
		part = batch{}
		for i, err := range as.put(ctx, &asked) {
			switch k, e := asked.keys[i], asked.entries[i]; {
			case err == nil:
			case errors.Is(err, history.ErrPermanent):
				letter := a.Refused(k, e.Record, err)
				letter.User = history.User{Cleared: e.User.Cleared, Pause: e.User.Pause}
				dead = append(dead, letter)
			default:
				part.add(k, e)
				last = err
			}
		}
		as.done.Add(float64(len(asked.keys) - len(part.keys) - len(dead) + refused))
		return len(part.keys), last
	})
	if err != nil {
		a.abandon()
		return err
	}
	return a.without(ctx, b, part.keys, dead)
}

// publishCounts publishes what archived records of counted types say. Unsent ones are left dirty: a clean record is
// never sent again.
func (a *Archiver) publishCounts(ctx context.Context, b *batch) error {
	var keys []history.Key
	var unsent []count.Statement
	for i, e := range b.entries {
		k := b.keys[i]
		if !a.cfg.Counted.Has(k.Object.Type) {
			continue
		}
		if r := present(k, &e); r != nil {
			if s, ok := count.Of(k, r); ok {
				keys, unsent = append(keys, k), append(unsent, s)
			}
		}
	}
	if len(unsent) == 0 {
		return nil
	}
	err := a.RetryEach(Brief(ctx), "count", len(unsent), func(ctx context.Context) (_ int, err error) {
		unsent, err = a.cfg.Counts.Publish(ctx, unsent)
		return len(unsent), err
	})
	if err != nil {
		return err
	}
	left := make(map[history.Key]bool, len(unsent))
	for i := range unsent {
		left[unsent[i].Key()] = true
	}
	keys = slices.DeleteFunc(keys, func(k history.Key) bool {
		return !left[k]
	})
	return a.without(ctx, b, keys, nil)
}

// without removes from a batch the unanswered keys, and the dead letters' keys if those could not be stored. They
// stay dirty for a sweep.
func (a *Archiver) without(ctx context.Context, b *batch, unanswered []history.Key, dead []history.Dead) error {
	left := make(map[history.Key]bool, len(unanswered))
	for _, k := range unanswered {
		left[k] = true
	}
	kept, err := a.KeepDead(ctx, dead)
	if err != nil {
		return err
	}
	if !kept {
		for _, l := range dead {
			left[l.Key] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	a.leave(len(left))
	b.remove(left)
	return nil
}

// leave counts keys left to a later sweep. An abandoned put of them may still take effect.
func (a *Archiver) leave(keys int) {
	a.leftOut.Add(float64(keys))
	a.left.Add(int64(keys))
	a.abandon()
}

// abandon notes that an abandoned put may be in flight, for up to one deadline.
func (a *Archiver) abandon() { a.abandoned.Store(time.Now().Add(a.cfg.Deadline).UnixMilli()) }

// markClean marks the archived contents clean. The last tries proceed bucket by bucket, because a migrating slot
// may fail a part of them. The failed ones keep their marks.
func (a *Archiver) markClean(ctx context.Context, put []history.Content) error {
	tries, all := 0, len(put)
	err := a.RetryEach(ctx, "mark_clean", all, func(ctx context.Context) (_ int, err error) {
		if tries++; tries < maxTries {
			if err = a.cfg.Cache.MarkClean(ctx, put); err == nil {
				put = nil
			}
		} else {
			put, err = a.markCleanEach(ctx, put)
		}
		return len(put), err
	})
	if err == nil && len(put) > 0 {
		a.leave(len(put))
	}
	return err
}

// markCleanEach marks clean bucket by bucket. It returns the failed contents and the last error.
func (a *Archiver) markCleanEach(ctx context.Context, put []history.Content) (left []history.Content, last error) {
	byBucket := make(map[history.Bucket][]history.Content)
	for _, c := range put {
		b := history.BucketOf(c.Key.UID)
		byBucket[b] = append(byBucket[b], c)
	}
	buckets := slices.Sorted(maps.Keys(byBucket))
	for i, err := range a.each(len(buckets), func(i int) error { return a.cfg.Cache.MarkClean(ctx, byBucket[buckets[i]]) }) {
		if err != nil {
			left, last = append(left, byBucket[buckets[i]]...), err
		}
	}
	return left, last
}

// trim trims the lists of a random sample of users. A failure is only counted: a later put tries again.
func (a *Archiver) trim(ctx context.Context, keys []history.Key) {
	var uids []string
	for _, k := range keys {
		if run.N(ctx, a.cfg.TrimOneIn) == 0 {
			uids = append(uids, k.UID)
		}
	}
	if len(uids) == 0 {
		return
	}
	slices.Sort(uids)
	uids = slices.Compact(uids)
	if a.Try(ctx, func(ctx context.Context) error { return a.cfg.Cache.Trim(ctx, uids) }) != nil {
		a.Failed(ctx, "trim")
	}
}
