package historytest

import (
	"sync"

	"github.com/playhead/playhead/history"
)

// moments is how often a change is raced against reads of it.
const moments = 50

// loadWhileWarming: an entry is of one moment. A record that the archive brings must
// not be missing from an entry that says that the user is warm.
func loadWhileWarming(c *cacheCase) {
	for range moments {
		k := key(c.user(), 1, 1)
		item := history.Item{Object: k.Object, Record: c.record(0)}
		c.race(func() {
			if err := c.Warm(c.Context(), k.UID, history.WarmSet{Items: []history.Item{item}}); err != nil {
				c.Errorf("Warm(%s): %v", k.UID, err)
			}
		}, func() bool {
			e := c.Load(c.Context(), []history.Key{k})[0]
			return c.was("Load", e, e.Err == nil && (e.Record != nil || !e.User.Warm))
		})
	}
}

// loadWhileTrimming: nor may a record be gone while the floor is still below it.
func loadWhileTrimming(c *cacheCase) {
	for range moments {
		k, oldest := c.trimmable()
		c.race(c.trims(k.UID), func() bool {
			e := c.Load(c.Context(), []history.Key{k})[0]
			return c.was("Load", e, e.Err == nil && (e.Record != nil || e.User.Floor > oldest.Version))
		})
	}
}

// listWhileWarming: the same of a page.
func listWhileWarming(c *cacheCase) {
	for range moments {
		uid := c.user()
		items := []history.Item{c.archived(1, c.record(0)), c.archived(2, c.record(1))}
		c.race(func() {
			if err := c.Warm(c.Context(), uid, history.WarmSet{Items: items}); err != nil {
				c.Errorf("Warm(%s): %v", uid, err)
			}
		}, func() bool {
			page, err := c.List(c.Context(), uid, history.Query{Limit: 10})
			return c.was("List", page, err == nil && (len(page.Items) == len(items) || !page.User.Warm))
		})
	}
}

// listWhileTrimming: a page that lacks a record says that there is more, here or
// below the floor.
func listWhileTrimming(c *cacheCase) {
	for range moments {
		k, oldest := c.trimmable()
		c.race(c.trims(k.UID), func() bool {
			page, err := c.List(c.Context(), k.UID, history.Query{Limit: 100})
			return c.was("List", page, err == nil && (len(page.Items) > kept || page.More || page.User.Floor > oldest.Version))
		})
	}
}

// trimmable makes a warm user with one record too many and returns the oldest.
func (c *cacheCase) trimmable() (history.Key, *history.Record) {
	c.Helper()
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	oldest := c.fill(uid, kept+1)[0]
	return history.Key{UID: uid, Object: oldest.Object}, oldest.Record
}

func (c *cacheCase) trims(uid string) func() {
	return func() {
		if err := c.Trim(c.Context(), []string{uid}); err != nil {
			c.Errorf("Trim(%s): %v", uid, err)
		}
	}
}

// was fails the test when an answer is of no moment that ever was.
func (c *cacheCase) was(what string, got any, ok bool) bool {
	c.Helper()
	if !ok {
		c.Errorf("%s while it changed: got %+v", what, got)
	}
	return ok
}

// race looks over and over while change happens, until a look says no.
func (c *cacheCase) race(change func(), look func() bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for look() {
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	change()
	close(done)
}
