package historytest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

func (c *cacheCase) settle(marks ...history.Dirty) {
	c.Helper()
	if err := c.Settle(c.Context(), marks); err != nil {
		c.Fatalf("Settle: %v", err)
	}
}

// overdueAge asks for marks older than an hour, of which the test has none, and
// for all.
func overdueAge(c *cacheCase) {
	k := key(c.user(), 1, 1)
	c.mark(k, c.record(0))
	buckets := []history.Bucket{history.BucketOf(k.UID)}
	for _, d := range c.overdue(buckets, time.Hour, math.MaxInt32) {
		if d.Key == k {
			c.Errorf("%s: marked just now, got it as older than an hour", k)
		}
	}
	found := func(d history.Dirty) bool { return d.Key == k }
	if !slices.ContainsFunc(c.overdue(buckets, -time.Hour, math.MaxInt32), found) {
		c.Errorf("%s: marked just now, got nothing older than an hour from now", k)
	}
}

// backlog counts the marks of two buckets, one of them again after a settle. The store
// may hold marks of others.
func backlog(c *cacheCase) {
	one, other := c.user(), c.user()
	for history.BucketOf(other) == history.BucketOf(one) {
		other = c.user()
	}
	buckets := []history.Bucket{history.BucketOf(other), history.BucketOf(one)}
	look := func() []history.Backlog {
		found, err := c.Backlog(c.Context(), buckets)
		if err != nil || len(found) != len(buckets) {
			c.Fatalf("Backlog: %v, %v; want one for each of %d buckets", found, err, len(buckets))
		}
		return found
	}
	before := look()
	first := c.mark(key(one, 1, 1), c.record(0))
	second := c.mark(key(one, 1, 2), c.record(0))
	after := look()
	if after[0] != before[0] || after[1].Marks != before[1].Marks+2 {
		c.Errorf("after two marks in the second bucket: %v, before %v", after, before)
	}
	if want := before[1].Oldest; want == 0 && after[1].Oldest != first || want != 0 && after[1].Oldest != want {
		c.Errorf("the oldest is %d, before %d, the first set is %d", after[1].Oldest, want, first)
	}
	c.settle(history.Dirty{Key: key(one, 1, 1), Mark: first}, history.Dirty{Key: key(one, 1, 2), Mark: second})
	if last := look(); last[1] != before[1] {
		c.Errorf("after both are settled: %v, want %v", last[1], before[1])
	}
}

// overdueOrder marks keys of several users, asks for the buckets of some, and
// expects theirs alone, oldest first in each bucket.
func overdueOrder(c *cacheCase) {
	const users = 20
	want, asked := map[history.Key]history.Mark{}, map[history.Bucket]bool{}
	uids := make([]string, users)
	for i := range uids {
		uids[i] = c.user()
		if i%2 == 0 {
			asked[history.BucketOf(uids[i])] = true
		}
	}
	for n := range 5 {
		for i := range uids {
			uid := uids[(i+n)%users]
			mark := c.mark(key(uid, 1, n), c.record(0))
			if asked[history.BucketOf(uid)] {
				want[key(uid, 1, n)] = mark
			}
		}
	}
	var buckets []history.Bucket
	for b := range asked {
		buckets = append(buckets, b)
	}
	last := map[history.Bucket]history.Mark{}
	for _, d := range c.overdue(buckets, -time.Hour, math.MaxInt32) {
		b := history.BucketOf(d.Key.UID)
		if !asked[b] || d.Mark < last[b] {
			c.Errorf("got %s of bucket %d with mark %d after %d", d.Key, b, d.Mark, last[b])
		}
		last[b] = d.Mark
		if want[d.Key] == d.Mark {
			delete(want, d.Key)
		}
	}
	if len(want) != 0 {
		c.Errorf("Overdue lacks %v", want)
	}
}

// overdueLimit compares bounded answers with the whole: the oldest come.
func overdueLimit(c *cacheCase) {
	uid := c.user()
	for n := range 10 {
		c.mark(key(uid, 1, n), c.record(0))
	}
	other := c.user()
	c.mark(key(other, 1, 1), c.record(0))
	bucket, both := []history.Bucket{history.BucketOf(uid)}, []history.Bucket{history.BucketOf(uid), history.BucketOf(other)}
	all := c.overdue(bucket, -time.Hour, math.MaxInt32)
	for _, limit := range []int{1, 5, len(all), len(all) + 1} {
		if got, want := c.overdue(bucket, -time.Hour, limit), all[:min(limit, len(all))]; !slices.Equal(got, want) {
			c.Errorf("Overdue, at most %d: got %v, want %v", limit, got, want)
		}
		if got := c.overdue(both, -time.Hour, limit); len(got) > limit {
			c.Errorf("Overdue of two buckets, at most %d: got %d", limit, len(got))
		}
	}
}

func settleEqual(c *cacheCase) {
	uid := c.user()
	k, other := key(uid, 1, 1), key(uid, 1, 2)
	first := c.record(0)
	old := c.mark(k, first)
	want := map[history.Key]history.Mark{
		other: c.mark(other, c.record(0)),
		k:     c.applied(history.Write{Key: k, Record: c.record(1), Base: first.Revision, Mark: true}).Mark,
	}
	want[history.UserKey(uid)] = c.clear(uid, 9, 0)
	c.settle(history.Dirty{Key: k, Mark: old}, history.Dirty{Key: k, Mark: want[k] + 1}, history.Dirty{Key: k}, history.Dirty{Key: key(uid, 1, 3), Mark: want[k]})
	c.settle(history.Dirty{Key: history.UserKey(uid), Mark: want[k]})
	c.marked(uid, want)
	c.settle(history.Dirty{Key: k, Mark: want[k]}, history.Dirty{Key: k, Mark: want[k]}, history.Dirty{Key: history.UserKey(uid), Mark: want[history.UserKey(uid)]})
	delete(want, k)
	delete(want, history.UserKey(uid))
	c.marked(uid, want)
	if c.load(k).Record == nil {
		c.Error("settling removed the record")
	}
}

// settleMany settles every other of a thousand marks in one call.
func settleMany(c *cacheCase) {
	var writes []history.Write
	for range 100 {
		uid := c.user()
		for n := range 10 {
			writes = append(writes, history.Write{Key: key(uid, 1, n), Record: c.record(0), Mark: true})
		}
	}
	want := map[history.Key]history.Mark{}
	var marks []history.Dirty
	for i, out := range c.Apply(c.Context(), writes) {
		if i%2 == 0 {
			marks = append(marks, history.Dirty{Key: writes[i].Key, Mark: out.Mark})
		} else {
			want[writes[i].Key] = out.Mark
		}
	}
	slices.SortFunc(marks, func(a, b history.Dirty) int { return cmp.Compare(a.Mark%7, b.Mark%7) })
	c.settle(marks...)
	for i := 0; i < len(writes); i += 10 {
		uid := writes[i].Key.UID
		left := map[history.Key]history.Mark{}
		for n := 1; n < 10; n += 2 {
			left[key(uid, 1, n)] = want[key(uid, 1, n)]
		}
		c.marked(uid, left)
	}
}
