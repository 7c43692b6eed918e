package historytest

import (
	"math"
	"strings"

	"github.com/playhead/playhead/history"
)

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~@-"

// legalNames uses objects of every legal letter, of full length, and such as could
// be taken apart wrongly.
func legalNames(c *cacheCase) {
	uid := c.user()
	want := map[history.Object]*history.Record{}
	for _, id := range []string{
		"_", ":", "~", "@", "-", ".", "..", "1_1", "_1", "1_", "a:b:c", letters + ":",
		strings.Repeat(":", history.MaxObjectID), strings.Repeat("_", history.MaxObjectID),
	} {
		for _, typ := range []uint32{1, math.MaxUint32} {
			o := history.Object{ID: id, Type: typ}
			want[o] = c.roundTrip(history.Key{UID: uid, Object: o})
		}
	}
	page := c.list(uid, history.Query{Limit: 100})
	if len(page.Items) != len(want) {
		c.Errorf("List(%s): got %d records, want %d", uid, len(page.Items), len(want))
	}
	for _, item := range page.Items {
		c.same("List: "+item.Object.String(), item.Record, want[item.Object])
	}
}

// neighbouringNames uses users whose names begin alike: none may see the other's.
func neighbouringNames(c *cacheCase) {
	prefix := c.user()
	var uids []string
	for _, tail := range []string{"", ".", "~", "@-", "_1", "1", "0", "_", strings.Repeat("@", history.MaxUID-len(prefix))} {
		uids = append(uids, prefix+tail)
	}
	items := map[string]history.Item{}
	for i, uid := range uids {
		c.forget(uid)
		k := key(uid, 1, i)
		items[uid] = history.Item{Object: k.Object, Record: c.roundTrip(k)}
	}
	for _, uid := range uids {
		c.lists(uid, history.Query{Limit: 10}, items[uid])
	}
	c.clear(prefix, 0, 1000)
	for _, uid := range uids[1:] {
		c.lists(uid, history.Query{Limit: 10}, items[uid])
		c.cleared(c.load(history.UserKey(uid)).User, nil)
	}
}

// roundTrip takes a key through a write, a read and the ledger.
func (c *cacheCase) roundTrip(k history.Key) *history.Record {
	c.Helper()
	r := c.record(0)
	c.put(k, r)
	c.holds(k, r)
	c.marked(k.UID, k)
	c.settle(content(k, r))
	c.marked(k.UID)
	c.holds(k, settled(r))
	return settled(r)
}
