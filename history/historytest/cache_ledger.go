package historytest

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

func (c *cacheCase) settle(contents ...history.Content) {
	c.Helper()
	if err := c.Settle(c.Context(), contents); err != nil {
		c.Fatalf("Settle: %v", err)
	}
}

// overdueAge asks for marks older than an hour, of which the test has none, and
// for all.
func overdueAge(c *cacheCase) {
	k := key(c.user(), 1, 1)
	c.put(k, c.record(0))
	buckets := []history.Bucket{history.BucketOf(k.UID)}
	if slices.Contains(c.overdue(buckets, time.Hour, math.MaxInt32), k) {
		c.Errorf("%s: marked just now, got it as older than an hour", k)
	}
	if !slices.Contains(c.overdue(buckets, 0, math.MaxInt32), k) {
		c.Errorf("%s: marked just now, got nothing of any age", k)
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
	first, second := c.put(key(one, 1, 1), c.record(0)), c.put(key(one, 1, 2), c.record(0))
	after := look()
	if after[0] != before[0] || after[1].Marks != before[1].Marks+2 {
		c.Errorf("after two marks in the second bucket: %v, before %v", after, before)
	}
	if want := before[1].Oldest; want == 0 && after[1].Oldest <= 0 || want != 0 && after[1].Oldest != want {
		c.Errorf("the oldest is %d, before %d", after[1].Oldest, want)
	}
	c.settle(content(key(one, 1, 1), first), content(key(one, 1, 2), second))
	if last := look(); last[1] != before[1] {
		c.Errorf("after both are settled: %v, want %v", last[1], before[1])
	}
}

// overdueOrder marks keys of several users, asks for the buckets of some, and
// expects theirs alone, oldest first in each bucket.
func overdueOrder(c *cacheCase) {
	const users = 20
	asked := map[history.Bucket]bool{}
	uids := make([]string, users)
	for i := range uids {
		uids[i] = c.user()
		if i%2 == 0 {
			asked[history.BucketOf(uids[i])] = true
		}
	}
	want := map[history.Bucket][]history.Key{}
	for n := range 5 {
		for i := range uids {
			k := key(uids[(i+n)%users], 1, n)
			c.put(k, c.record(0))
			if b := history.BucketOf(k.UID); asked[b] {
				want[b] = append(want[b], k)
			}
		}
	}
	got := map[history.Bucket][]history.Key{}
	for _, k := range c.overdue(slices.Collect(maps.Keys(asked)), 0, math.MaxInt32) {
		b := history.BucketOf(k.UID)
		if !asked[b] {
			c.Errorf("got %s of bucket %d", k, b)
		}
		if slices.Contains(uids, k.UID) {
			got[b] = append(got[b], k)
		}
	}
	for b, keys := range want {
		if !slices.Equal(got[b], keys) {
			c.Errorf("bucket %d: got %v, want %v", b, got[b], keys)
		}
	}
}

// overdueLimit compares bounded answers with the whole: the oldest come.
func overdueLimit(c *cacheCase) {
	uid := c.user()
	for n := range 10 {
		c.put(key(uid, 1, n), c.record(0))
	}
	other := c.user()
	c.put(key(other, 1, 1), c.record(0))
	bucket, both := []history.Bucket{history.BucketOf(uid)}, []history.Bucket{history.BucketOf(uid), history.BucketOf(other)}
	all := c.overdue(bucket, 0, math.MaxInt32)
	for _, limit := range []int{1, 5, len(all), len(all) + 1} {
		if got, want := c.overdue(bucket, 0, limit), all[:min(limit, len(all))]; !slices.Equal(got, want) {
			c.Errorf("Overdue, at most %d: got %v, want %v", limit, got, want)
		}
		if got := c.overdue(both, 0, limit); len(got) > limit {
			c.Errorf("Overdue of two buckets, at most %d: got %d", limit, len(got))
		}
	}
}
