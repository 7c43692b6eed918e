package historytest

import (
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
)

// walk reads all pages. Every page but the last must be full and say that there
// are more, and all must go down the list; between calls step runs, if any.
func (c *cacheCase) walk(uid string, q history.Query, step func(page int)) []history.Item {
	c.Helper()
	var all []history.Item
	for n := 0; ; n++ {
		page := c.list(uid, q)
		for _, item := range page.Items {
			if len(all) > 0 && newestFirst(all[len(all)-1], item) >= 0 {
				c.Fatalf("page %d of %s, %+v: got %s after %s", n, uid, q, item.Object, all[len(all)-1].Object)
			}
			all = append(all, item)
		}
		if !page.More {
			return all
		}
		if len(page.Items) != q.Limit {
			c.Fatalf("page %d of %s, %+v: got %d items and more", n, uid, q, len(page.Items))
		}
		q.After = cursor(all[len(all)-1])
		if step != nil {
			step(n)
		}
	}
}

// pages checks all pages of several sizes.
func (c *cacheCase) pages(uid string, q history.Query, want []history.Item) {
	c.Helper()
	for _, q.Limit = range []int{1, 7, 20, 100} {
		if q.Limit == 1 && len(want) > 50 {
			continue // as good, and slow
		}
		c.items(fmt.Sprintf("pages of %d, %+v", q.Limit, q), c.walk(uid, q, nil), want)
	}
}

// ties stores records of one millisecond.
func (c *cacheCase) ties(uid string, n int) []history.Item {
	c.Helper()
	var all []history.Item
	var writes []history.Write
	for i := range n {
		w := history.Write{Key: key(uid, uint32(1+i%2), i), Record: c.record(0)}
		writes = append(writes, w)
		all = append(all, history.Item{Object: w.Key.Object, Record: w.Record})
	}
	c.Apply(c.Context(), writes)
	slices.SortFunc(all, newestFirst)
	return all
}

func pageTies(c *cacheCase) {
	uid := c.user()
	all := c.ties(uid, 500)
	c.pages(uid, history.Query{}, all)
	c.pages(uid, history.Query{Since: c.start, Until: c.start}, all)
	last := all[len(all)-1]
	c.lists(uid, history.Query{Limit: 20, After: cursor(last)})
}

func pageFiltered(c *cacheCase) {
	uid := c.user()
	all := c.ties(uid, 100)
	older := c.item(key(uid, 1, 999), c.record(-5))
	all = append(all, older, c.item(key(uid, 2, 999), c.record(-6)))
	for _, q := range []history.Query{{Type: 1}, {Type: 2}, {Until: c.start - 1}, {Type: 1, Since: c.start - 5}} {
		c.pages(uid, q, matching(all, q))
	}
}

// pageHoles leaves every tenth of many records visible: no page may be short for
// that, and none after the last visible one may be promised.
func pageHoles(c *cacheCase) {
	uid := c.user()
	var want []history.Item
	for i := range 300 {
		if k := key(uid, 1, i); i%10 == 9 {
			want = append(want, c.item(k, c.record(int64(i/50))))
		} else {
			c.put(k, c.tombstone(int64(i/50)))
		}
	}
	slices.SortFunc(want, newestFirst)
	c.pages(uid, history.Query{}, want)
	c.pages(uid, history.Query{Since: c.start + 2, Until: c.start + 4}, matching(want, history.Query{Since: c.start + 2, Until: c.start + 4}))
}

// pageWhileWriting inserts newer records and deletes items already given between
// the pages: what is left is neither skipped nor repeated.
func pageWhileWriting(c *cacheCase) {
	uid := c.user()
	all := c.ties(uid, 60)
	got := c.walk(uid, history.Query{Limit: 7}, func(page int) {
		c.put(key(uid, 3, page), c.record(int64(100+page)))
		given := all[page*7]
		k := history.Key{UID: uid, Object: given.Object}
		c.applied(history.Write{Key: k, Record: c.tombstone(200), Base: given.Record.Revision})
	})
	c.items("pages", got, all)
}
