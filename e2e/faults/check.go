package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
)

// checker compares what the stores hold and readers see with the book.
type checker struct {
	book    *book
	cache   history.Cache
	archive history.Archive
	doors   []rpcDoor
	res     *Result
	// pagesOnly leaves points out: there are none of what the cache has dropped.
	pagesOnly bool

	visible map[string]map[history.Object]*history.Record // by user
}

// checkBatch is how many keys are read at once.
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

// key judges one key. A clear that was not acknowledged may have happened: the
// user's own state tells.
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

// compare counts what is wrong with a key in one store, or between the two.
func (c *checker) compare(k history.Key, inCache, inArchive *fault, cached, archived *history.Record) { //nolint:revive // both of both
	switch {
	case inCache != nil:
		c.res.count(k, "cache", inCache)
	case inArchive != nil:
		c.res.count(k, "archive", inArchive)
	case same(cached, archived):
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

// clears judges the time to which an object was cleared.
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

// same compares contents; whether a record was once partial is no content.
func same(a, b *history.Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Partial, y.Partial = false, false
	return history.Same(&x, &y)
}
