package historytest

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
)

// markCleanStanding marks the cached content clean: only the clean bit changes.
func markCleanStanding(c *cacheCase) {
	uid := c.user()
	k, other := key(uid, 1, 1), key(uid, 1, 2)
	r, stays := c.put(k, c.record(0)), c.put(other, c.record(1))
	c.markClean(content(k, r))
	c.marked(uid, other)
	c.holds(k, clean(r))
	c.holds(other, stays)
	c.lists(uid, history.Query{Limit: 10},
		history.Item{Object: other.Object, Record: stays}, history.Item{Object: k.Object, Record: clean(r)})
}

// markCleanOther marks contents clean that are not cached: an older one, an invented one, and none.
func markCleanOther(c *cacheCase) {
	uid := c.user()
	k := key(uid, 1, 1)
	old := c.put(k, c.record(0))
	r := c.record(1)
	c.applied(history.Write{Key: k, Record: r, Base: old.Revision})
	for _, other := range []history.Content{content(k, old), content(k, clean(old)), {Key: k, Revision: 42}, {Key: k}} {
		c.markClean(other)
		c.marked(uid, k)
		c.holds(k, r)
	}
	c.markClean(content(key(uid, 1, 2), r))
	c.marked(uid, k)
	c.holds(key(uid, 1, 2), nil)
	c.applied(history.Write{Key: k, Record: c.record(2), Base: r.Revision})
}

// markCleanAbsent marks missing keys clean with revision 0: the archive need not have them. Other revisions
// have no effect.
func markCleanAbsent(c *cacheCase) {
	uid := c.user()
	k := key(uid, 1, 1)
	c.markClean(history.Content{Key: k}, history.Content{Key: key(uid, 1, 2), Revision: 7})
	c.marked(uid)
	c.holds(k, nil)
	r := c.put(k, c.record(0))
	c.markClean(history.Content{Key: k})
	c.marked(uid, k)
	c.holds(k, r)
}

// markCleanAgain marks a content clean twice, with both revisions, and after another write.
func markCleanAgain(c *cacheCase) {
	k := key(c.user(), 1, 1)
	r := c.archive(k, c.record(0))
	c.markClean(content(k, r), content(key(k.UID, 1, 2), r))
	c.markClean(history.Content{Key: k, Revision: r.Revision &^ history.CleanBit})
	c.holds(k, r)
	c.marked(k.UID)
	next := c.record(1)
	c.applied(history.Write{Key: k, Record: next, Base: r.Revision})
	c.markClean(content(k, r))
	c.holds(k, next)
	c.marked(k.UID, k)
}

// markCleanUser marks the user's own state clean, which has its own revision.
func markCleanUser(c *cacheCase) {
	uid := c.user()
	own := history.UserKey(uid)
	c.markClean(history.Content{Key: own})
	c.clear(uid, 9, 0)
	first := c.load(own).User.Revision
	for _, other := range []uint64{0, first + 1} {
		c.markClean(history.Content{Key: own, Revision: other})
		c.marked(uid, own)
	}
	c.pause(uid, false, 100)
	c.markClean(history.Content{Key: own, Revision: first})
	c.marked(uid, own)
	before := c.load(own).User
	c.markClean(history.Content{Key: own, Revision: before.Revision})
	c.marked(uid)
	if after := c.load(own).User; after.Pause != before.Pause || after.Revision != before.Revision || after.Cleared[9] != before.Cleared[9] {
		c.Errorf("clean: got %+v, want %+v", after, before)
	}
	c.markClean(history.Content{Key: own, Revision: before.Revision})
}

// markCleanBesideWrites marks what it has read clean during writes, some of which never request a mark. A
// record is always clean or marked, and clean records are current.
func markCleanBesideWrites(c *cacheCase) {
	k := key(c.user(), 1, 1)
	c.put(k, c.record(0))
	var done atomic.Bool
	var writers, settler sync.WaitGroup
	for w := range 3 {
		writers.Go(func() { c.writeOn(k, 60, w == 0) })
	}
	archived := map[uint64]bool{}
	settler.Go(func() {
		for !done.Load() {
			r := c.load(k).Record
			archived[r.Revision&^history.CleanBit] = true
			c.markClean(content(k, r))
			if r = c.load(k).Record; r.Clean() && !archived[r.Revision&^history.CleanBit] {
				c.Errorf("revision %x is clean, and nobody said so", r.Revision)
			}
		}
	})
	writers.Wait()
	done.Store(true)
	settler.Wait()
	if r := c.load(k).Record; r.Clean() == c.marks(k.UID)[k] {
		c.Errorf("at the end: clean %t, and a mark %t; want one of them", r.Clean(), r.Clean())
	}
	c.markClean(content(k, c.load(k).Record))
	c.marked(k.UID)
}

// writeOn updates the current content n times.
func (c *cacheCase) writeOn(k history.Key, n int, mark bool) {
	base := c.load(k).Record
	for i := 0; i < n; {
		w := history.Write{Key: k, Record: c.record(int64(i)), Base: base.Revision, BeginsHold: mark}
		out := c.Write(c.Context(), []history.Write{w})[0]
		switch out.Status {
		case history.Applied:
			base = w.Record
			i++
		case history.Conflict:
			base = out.Current.Record
		default:
			c.Errorf("Write(%s): %v", k, out.Err)
			return
		}
	}
}

// markCleanBesidePause marks clean while recording is switched off and on.
func markCleanBesidePause(c *cacheCase) {
	uid := c.user()
	keys := []history.Key{key(uid, 1, 1), key(uid, 1, 2), key(uid, 1, 3)}
	for _, k := range keys {
		c.put(k, c.record(0))
	}
	c.race(func() {
		var p history.Pause
		for n := range 20 {
			next := p.Switched(n%2 == 1, c.start+int64(n), 0)
			if err := c.Pause(c.Context(), uid, p, next); err != nil {
				c.Errorf("Pause(%s): %v", uid, err)
			}
			p = next
		}
	}, func() bool {
		for _, k := range keys[:2] {
			e := c.Load(c.Context(), []history.Key{k})[0]
			if e.Err != nil || e.Record == nil || c.MarkClean(c.Context(), []history.Content{content(k, e.Record)}) != nil {
				return c.was("Load and Settle", e, false)
			}
		}
		return true
	})
	marks := c.marks(uid)
	for _, k := range keys {
		if r := c.load(k).Record; r.Clean() == marks[k] || k == keys[2] && !marks[k] {
			c.Errorf("%s: clean %t, has a mark %t", k, r.Clean(), marks[k])
		}
	}
}

// markCleanMany marks every other of a thousand records clean in one call.
func markCleanMany(c *cacheCase) {
	var writes []history.Write
	for range 100 {
		uid := c.user()
		for n := range 10 {
			writes = append(writes, history.Write{Key: key(uid, 1, n), Record: c.record(0)})
		}
	}
	var contents []history.Content
	for i, out := range c.Write(c.Context(), writes) {
		if out.Status != history.Applied {
			c.Fatalf("Write(%s): got %+v", writes[i].Key, out)
		}
		if i%2 == 0 {
			contents = append(contents, content(writes[i].Key, writes[i].Record))
		}
	}
	slices.SortFunc(contents, func(a, b history.Content) int { return int(a.Revision%7) - int(b.Revision%7) })
	c.markClean(contents...)
	for i := 0; i < len(writes); i += 10 {
		uid := writes[i].Key.UID
		var left []history.Key
		for n := range 10 {
			want := clean(writes[i+n].Record)
			if n%2 == 1 {
				left, want = append(left, key(uid, 1, n)), writes[i+n].Record
			}
			c.holds(key(uid, 1, n), want)
		}
		c.marked(uid, left...)
	}
}

// overdueAge asks for marks older than an hour, which do not exist, and for all.
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

// backlog counts the marks of two buckets, again after a mark clean. The store may have other users' marks.
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
	c.markClean(content(key(one, 1, 1), first), content(key(one, 1, 2), second))
	if last := look(); last[1] != before[1] {
		c.Errorf("after both are clean: %v, want %v", last[1], before[1])
	}
}

// overdueOrder marks keys of several users and asks for some buckets: it gets only theirs, oldest first in each.
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

// overdueLimit compares limited answers with the whole: the oldest come first.
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
