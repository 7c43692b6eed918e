package historytest

import (
	"fmt"

	"github.com/playhead/playhead/history"
)

func loadInOrder(c *cacheCase) {
	one, two := c.user(), c.user()
	a, b := c.put(key(one, 1, 1), c.record(1)), c.put(key(two, 1, 1), c.tombstone(2))
	keys := []history.Key{
		key(two, 1, 1), key(one, 1, 2), history.UserKey(one), key(one, 1, 1), key(two, 2, 1), key(one, 1, 1),
	}
	want := []*history.Record{b, nil, nil, a, nil, a}
	got := c.Load(c.Context(), keys)
	if len(got) != len(want) {
		c.Fatalf("Load of %d keys: got %d entries", len(keys), len(got))
	}
	for i, e := range got {
		if e.Err != nil {
			c.Errorf("entry %d: %v", i, e.Err)
		}
		c.same(fmt.Sprintf("entry %d, %s", i, keys[i]), e.Record, want[i])
	}
}

func loadUser(c *cacheCase) {
	uid := c.user()
	k := key(uid, 1, 1)
	if u := c.load(k).User; u.Warm || u.Floor != 0 || len(u.Cleared) != 0 {
		c.Errorf("user nobody knows: got %+v", u)
	}
	c.put(k, c.record(0))
	if u := c.load(k).User; u.Warm {
		c.Errorf("user who was only written to: got %+v, want a cold one", u)
	}
	c.warm(uid, history.WarmSet{Floor: 7, Cleared: map[uint32]int64{0: 3, 2: 9}})
	for _, k := range []history.Key{k, key(uid, 5, 5), history.UserKey(uid)} {
		u := c.load(k).User
		if !u.Warm || u.Floor != 7 {
			c.Errorf("Load(%s): got user %+v, want warm with floor 7", k, u)
		}
		c.cleared(u, map[uint32]int64{0: 3, 2: 9})
	}
}

// emptyInput calls everything with nothing to do.
func emptyInput(c *cacheCase) {
	ctx, uid := c.Context(), c.user()
	if got := c.Load(ctx, nil); len(got) != 0 {
		c.Errorf("Load of no keys: got %v", got)
	}
	if got := c.Apply(ctx, nil); len(got) != 0 {
		c.Errorf("Apply of no writes: got %v", got)
	}
	c.lists(uid, history.Query{Limit: 10})
	if got := c.overdue(nil, 0, 10); len(got) != 0 {
		c.Errorf("Overdue of no buckets: got %v", got)
	}
	c.put(key(uid, 1, 1), c.record(0))
	if got := c.overdue([]history.Bucket{history.BucketOf(uid)}, 0, 0); len(got) != 0 {
		c.Errorf("Overdue, at most none: got %v", got)
	}
	c.settle()
	c.settle(history.Content{Key: key(uid, 9, 9), Revision: 1})
	c.trim()
	c.trim(c.user())
}
