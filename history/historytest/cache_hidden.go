package historytest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
)

// newestFirst is the order of a list.
func newestFirst(a, b history.Item) int {
	return cmp.Or(
		cmp.Compare(b.Record.Version, a.Record.Version),
		strings.Compare(b.Object.String(), a.Object.String()),
	)
}

// matching says, from the contract, which of the items a query without bound
// asks for.
func matching(all []history.Item, q history.Query) []history.Item {
	var got []history.Item
	for _, item := range all {
		at := item.Record.Version.Time()
		after := history.Item{Object: q.After.Object, Record: &history.Record{Version: q.After.Version}}
		switch {
		case q.Type != 0 && item.Object.Type != q.Type:
		case q.Since != 0 && at < q.Since, q.Until != 0 && at > q.Until:
		case q.After != history.Cursor{} && newestFirst(item, after) <= 0:
		default:
			got = append(got, item)
		}
	}
	slices.SortFunc(got, newestFirst)
	return got
}

// listHidden has tombstones newer than, among and older than what is visible.
func listHidden(c *cacheCase) {
	uid := c.user()
	var want []history.Item
	for i := range 60 {
		k := key(uid, 1, i)
		if i%20 == 10 {
			want = append(want, c.item(k, c.record(int64(i))))
		} else {
			c.put(k, c.tombstone(int64(i)))
		}
	}
	slices.Reverse(want)
	c.lists(uid, history.Query{Limit: 10}, want...)
	c.lists(uid, history.Query{Limit: len(want)}, want...)
	if page := c.list(uid, history.Query{Limit: 1}); len(page.Items) != 1 || !page.More {
		c.Errorf("first of %d: got %d items, more %t", len(want), len(page.Items), page.More)
	}
}

// listCleared has a fold that reaches back before the clear: of that nothing may
// show.
func listCleared(c *cacheCase) {
	uid := c.user()
	early := history.Event{Kind: history.KindFinish, At: c.start, Position: 9000, Duration: 9000, Session: "a", Meta: map[string]string{"a": "b"}}
	late := history.Event{Kind: history.KindProgress, At: c.start + 50, Position: 10, Session: "b"}
	k := key(uid, 1, 1)
	stays := c.put(k, revise(history.Merge(early.Record(), late.Record())))
	c.put(key(uid, 1, 2), c.record(20))
	c.clear(uid, 0, 20)
	page := c.list(uid, history.Query{Limit: 10})
	c.items("after the clear", page.Items, []history.Item{{Object: k.Object, Record: stays.After(c.start + 20)}})
	c.cleared(page.User, map[uint32]int64{0: c.start + 20})
}

// listRewritten moves the oldest record to the top and deletes the next.
func listRewritten(c *cacheCase) {
	uid := c.user()
	items := c.fill(uid, 4)
	top, gone := c.record(100), c.tombstone(101)
	c.applied(history.Write{Key: key(uid, 1, 0), Record: top, Base: items[0].Record.Revision})
	c.applied(history.Write{Key: key(uid, 1, 1), Record: gone, Base: items[1].Record.Revision})
	c.lists(uid, history.Query{Limit: 10}, history.Item{Object: items[0].Object, Record: top}, items[3], items[2])
	back := c.record(102)
	c.applied(history.Write{Key: key(uid, 1, 1), Record: back, Base: gone.Revision})
	c.lists(uid, history.Query{Limit: 1, Since: c.start + 102}, history.Item{Object: items[1].Object, Record: back})
}
