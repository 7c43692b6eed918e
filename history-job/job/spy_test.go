package job_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

// spyCache, spyArchive and spyConsumer tell the world what the job asks of the
// adapters below them.
type (
	spyCache struct {
		history.Cache
		w *world
	}
	spyArchive struct {
		history.Archive
		w *world
	}
	spyConsumer struct {
		history.Consumer
		w *world
	}
	spyClaim struct {
		history.Claim
		w *world
	}
)

func (s spyCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if err := s.w.step(ctx, "load", keys); err != nil {
		entries := make([]history.Entry, len(keys))
		entries[len(keys)-1].Err = err
		return entries
	}
	return s.Cache.Load(ctx, keys)
}

func (s spyCache) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	keys := make([]history.Key, len(writes))
	for i := range writes {
		keys[i] = writes[i].Key
	}
	if err := s.w.step(ctx, "apply", keys); err != nil {
		outcomes := make([]history.Outcome, len(writes))
		for i := range outcomes {
			outcomes[i].Err = err
		}
		return outcomes
	}
	return s.Cache.Apply(ctx, writes)
}

func (s spyCache) Settle(ctx context.Context, contents []history.Content) error {
	keys := make([]history.Key, len(contents))
	for i := range contents {
		keys[i] = contents[i].Key
	}
	if err := s.w.step(ctx, "settle", keys); err != nil {
		return err
	}
	return s.Cache.Settle(ctx, contents)
}

func (s spyCache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	if err := s.w.step(ctx, "overdue", nil); err != nil {
		return nil, err
	}
	return s.Cache.Overdue(ctx, buckets, age, limit)
}

func (s spyCache) Trim(ctx context.Context, uids []string) error {
	users := make([]history.Key, len(uids))
	for i, uid := range uids {
		users[i] = history.UserKey(uid)
	}
	if err := s.w.step(ctx, "trim", users); err != nil {
		return err
	}
	return s.Cache.Trim(ctx, uids)
}

func (s spyArchive) Put(ctx context.Context, cells []history.Cell) []error {
	keys := make([]history.Key, len(cells))
	for i := range cells {
		keys[i] = cells[i].Key
	}
	err := s.w.step(ctx, "put", keys)
	errs := make([]error, len(cells))
	var stored []history.Cell
	var at []int
	for i, cell := range cells {
		if errs[i] = err; err == nil && s.w.cell != nil {
			errs[i] = s.w.cell(cell)
		}
		if errs[i] == nil {
			stored, at = append(stored, cell), append(at, i)
		}
	}
	for i, err := range s.Archive.Put(ctx, stored) {
		errs[at[i]] = err
	}
	return errs
}

func (s spyArchive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if err := s.w.step(ctx, "get", keys); err != nil {
		return nil, err
	}
	entries, err := s.Archive.Get(ctx, keys)
	if i := slices.Index(keys, s.w.unreadable); i >= 0 && err == nil {
		entries[i].Record, entries[i].Err = nil, fmt.Errorf("get %s: %w", s.w.unreadable, history.ErrPermanent)
	}
	return entries, err
}

func (s spyArchive) PutUser(ctx context.Context, uid string, u history.User) error {
	if err := s.w.step(ctx, "clear", []history.Key{history.UserKey(uid)}); err != nil {
		return err
	}
	return s.Archive.PutUser(ctx, uid, u)
}

func (s spyConsumer) Consume(ctx context.Context, handle func(context.Context, history.Claim) error) error {
	return s.Consumer.Consume(ctx, func(ctx context.Context, c history.Claim) error {
		return handle(ctx, spyClaim{c, s.w})
	})
}

func (s spyClaim) Fetch(ctx context.Context) (history.Delivery, error) {
	d, err := s.Claim.Fetch(ctx)
	if err != nil {
		return d, err
	}
	return d, s.w.step(ctx, "fetch", keysOf(d.Keys))
}

func (s spyClaim) Commit(ctx context.Context, d history.Delivery) error {
	if err := s.w.step(ctx, "commit", keysOf(d.Keys)); err != nil {
		return err
	}
	return s.Claim.Commit(ctx, d)
}

func keysOf(announced []history.Announcement) []history.Key {
	keys := make([]history.Key, len(announced))
	for i := range announced {
		keys[i] = announced[i].Key
	}
	return keys
}
