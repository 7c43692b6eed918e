package backfill

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
	"github.com/playhead/playhead/internal/run"
)

// CacheReader is a cache to copy from.
type CacheReader interface {
	Users
	Load(ctx context.Context, keys []history.Key) []history.Entry
	Keys(ctx context.Context, uid string) ([]history.Key, error)
}

// FromCache is a source of everything in a cache: per user the clear marks and pause, and then the records, tombstones
// too.
type FromCache struct {
	Name  string // tells it from other caches
	Store CacheReader
	// Dirty leaves out what the archive has.
	Dirty bool
	// Live leaves the cache to others for at least as long as each read took.
	Live bool
}

// Identity implements [Source].
func (c *FromCache) Identity() (string, error) { return "cache:" + c.Name, nil }

// Items implements [Source]. A mark is a user.
func (c *FromCache) Items(ctx context.Context, after string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for uid, err := range c.Store.Users(ctx, after) {
			var items []Item
			began := time.Now()
			if err == nil {
				err = retry(ctx, func() (err error) {
					items, err = c.user(ctx, uid)
					return err
				})
			}
			if err != nil {
				yield(Item{}, fmt.Errorf("read %q from the cache: %w", uid, err))
				return
			}
			if c.Live && !run.Sleep(ctx, time.Since(began)) {
				yield(Item{}, ctx.Err())
				return
			}
			for i := range items {
				if !yield(items[i], nil) {
					return
				}
			}
		}
	}
}

func (c *FromCache) user(ctx context.Context, uid string) (items []Item, err error) {
	keys, err := c.Store.Keys(ctx, uid)
	if err != nil {
		return nil, err
	}
	entries := c.Store.Load(ctx, append([]history.Key{history.UserKey(uid)}, keys...))
	for i, e := range entries {
		switch {
		case e.Err != nil:
			return nil, e.Err
		case i == 0:
			if u := e.User; len(u.Cleared) > 0 || u.Pause.Since != 0 {
				items = append(items, Item{Key: history.UserKey(uid), User: &history.User{Cleared: u.Cleared, Pause: u.Pause}})
			}
		case e.Record == nil, c.Dirty && e.Record.Clean():
		case e.Record.State == 0:
			items = append(items, Item{Key: keys[i-1], Outcome: Rejected, Reason: "the record cannot be read"})
		default:
			if r := e.Record.After(e.User.ClearedAt(keys[i-1].Object.Type)); r != nil {
				items = append(items, Item{Key: keys[i-1], Record: r})
			}
		}
	}
	for i := range items {
		items[i].Place = imports.Place{File: items[i].Key.String()}
	}
	if n := len(items); n > 0 {
		items[n-1].Mark = uid
	}
	return items, nil
}
