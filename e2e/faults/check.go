package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// checker compares stores and readers with the book.
type checker struct {
	book    *book
	cache   history.Cache
	archive history.Archive
	rpcs    []rpcClient
	res     *Result
	// pagesOnly skips points: they omit records that the cache has dropped.
	pagesOnly bool

	visible map[string]map[history.Object]*history.Record // by user
}

const checkBatch = 500

// check judges every key in both stores, and reads every user's pages and points.
func (c *checker) check(ctx context.Context) error {
	if err := c.records(ctx); err != nil {
		return err
	}
	return c.readers(ctx)
}

func (c *checker) records(ctx context.Context) error {
	c.visible = make(map[string]map[history.Object]*history.Record)
	keys := slices.SortedFunc(maps.Keys(c.book.stories), func(a, b history.Key) int { return strings.Compare(a.String(), b.String()) })
	c.res.Keys = len(keys)
	for batch := range slices.Chunk(keys, checkBatch) {
		if err := c.stores(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) stores(ctx context.Context, keys []history.Key) error {
	archived, err := c.archive.Get(ctx, keys)
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	for i, e := range c.cache.Load(ctx, keys) {
		if e.Err != nil {
			return fmt.Errorf("read cache: %w", e.Err)
		}
		c.key(keys[i], e, archived[i].Record)
	}
	return nil
}

// key judges one key. The user's own state tells whether an unacknowledged clear happened.
func (c *checker) key(k history.Key, e history.Entry, archived *history.Record) {
	s := c.book.stories[k]
	cleared := e.User.ClearedAt(k.Object.Type)
	if err := c.clears(k, cleared); err != nil {
		c.res.count(k, "cache", err)
		return
	}
	cached, archived := e.Record.After(cleared), archived.After(cleared)
	if cached == nil && archived != nil && !e.User.Complete() {
		cached = archived // the cache has dropped it
	}
	c.compare(k, s.judge(cached, cleared), s.judge(archived, cleared), cached, archived)
	c.show(k, visible(cached))
}

// compare counts what is wrong with a key in a store, or between the two.
func (c *checker) compare(k history.Key, inCache, inArchive *fault, cached, archived *history.Record) { //nolint:revive // both of both
	switch {
	case inCache != nil:
		c.res.count(k, "cache", inCache)
	case inArchive != nil:
		c.res.count(k, "archive", inArchive)
	case sameRecord(cached, archived):
	case archived == nil:
		c.res.count(k, "archive", lost("has nothing, the cache has %+v", *cached))
	case cached == nil:
		c.res.count(k, "cache", lost("has nothing, the archive has %+v", *archived))
	default:
		c.res.count(k, "archive", lost("is %+v, the cache has %+v", *archived, *cached))
	}
}

func visible(r *history.Record) *history.Record {
	if r == nil || r.Deleted() {
		return nil
	}
	return r
}

// clears judges the time of an object's clear mark.
func (c *checker) clears(k history.Key, got int64) *fault {
	known := got == 0
	for _, cl := range c.book.clears[k.UID] {
		if cl.typ != 0 && cl.typ != k.Object.Type {
			continue
		}
		if cl.acked && got < cl.until {
			return risen("does not know that it was cleared to %d", cl.until)
		}
		known = known || cl.until == got
	}
	if !known {
		return lost("cleared to %d, which nobody asked for", got)
	}
	return nil
}

// sameRecord compares records, except for Partial.
func sameRecord(a, b *history.Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Partial, y.Partial = false, false
	return history.Same(&x, &y)
}

func (c *checker) readers(ctx context.Context) error {
	for _, uid := range slices.Sorted(maps.Keys(c.visible)) {
		if err := c.pages(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) show(k history.Key, r *history.Record) {
	if c.visible[k.UID] == nil {
		c.visible[k.UID] = make(map[history.Object]*history.Record)
	}
	c.visible[k.UID][k.Object] = r
}

// pageSize splits most users' lists into several pages.
const pageSize = 4

// pages reads a user's whole list and points and compares them with the records. At rest an unlisted object is a
// gap, and an object listed twice a repeat.
func (c *checker) pages(ctx context.Context, uid string) error {
	target := c.rpcs[len(uid)%len(c.rpcs)]
	want, seen := c.visible[uid], make(map[history.Object]bool)
	for cursor, more := "", true; more; {
		resp, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.ListResponse, error) {
			return target.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: pageSize, Cursor: cursor})
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", uid, err)
		}
		for _, it := range resp.GetItems() {
			o := history.Object{ID: it.GetObject().GetId(), Type: it.GetObject().GetType()}
			if c.item(history.Key{UID: uid, Object: o}, it, "page"); seen[o] {
				c.res.count(history.Key{UID: uid, Object: o}, "page", lost("is listed twice"))
			}
			seen[o] = true
		}
		cursor, more = resp.GetCursor(), resp.GetHasMore()
	}
	for o, r := range want {
		if r != nil && !seen[o] {
			c.res.count(history.Key{UID: uid, Object: o}, "page", lost("is not listed"))
		}
	}
	if c.pagesOnly {
		return nil
	}
	return c.points(ctx, target, uid)
}

func (c *checker) points(ctx context.Context, target rpcClient, uid string) error {
	for objects := range slices.Chunk(slices.Collect(maps.Keys(c.visible[uid])), 100) {
		req := pointsOf(uid, objects)
		resp, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.PointsResponse, error) { return target.Points(ctx, req) })
		if err != nil {
			return fmt.Errorf("points %s: %w", uid, err)
		}
		for i, it := range resp.GetItems() {
			c.item(history.Key{UID: uid, Object: objects[i]}, it, "point")
		}
	}
	return nil
}

// untilAnswered retries a read like a player, because a busy machine may exceed the services' short deadline.
func untilAnswered[T any](ctx context.Context, read func(context.Context) (T, error)) (answer T, err error) {
	err = process.Await(ctx, 20*time.Second, "an answer", func(ctx context.Context) (err error) {
		answer, err = read(ctx)
		return err
	})
	return answer, err
}

// item judges an item in an answer.
func (c *checker) item(k history.Key, it *historyv1.Item, where string) {
	want := c.visible[k.UID][k.Object]
	switch {
	case want == nil && it.GetObject() == nil:
	case want == nil:
		c.res.count(k, where, risen("shows %v", it))
	case it.GetObject() == nil || it.GetIncomplete() || !viewOfItem(it).equal(viewOf(want)):
		c.res.count(k, where, lost("shows %v, want %+v", it, *want))
	}
}
