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

// keeps checks the remaining items and the low watermark: above every dropped record, not above any other clean one.
func (c *cacheCase) keeps(uid string, items []history.Item, kept func(n int) bool) {
	c.Helper()
	lowWatermark := c.load(history.UserKey(uid)).User.LowWatermark
	var want []history.Item
	for n, item := range items {
		k := history.Key{UID: uid, Object: item.Object}
		v := item.Record.Version
		switch {
		case !kept(n):
			c.holds(k, nil)
			if lowWatermark <= v {
				c.Errorf("low watermark %d is not above dropped %s at %d", lowWatermark, k, v)
			}
		case item.Record.Clean() && lowWatermark > v:
			c.Errorf("low watermark %d is above kept %s at %d", lowWatermark, k, v)
			fallthrough
		default:
			c.holds(k, item.Record)
			want = append(want, item)
		}
	}
	slices.SortFunc(want, newestFirst)
	c.lists(uid, history.Query{Limit: 100}, want...)
}

func trimOldest(c *cacheCase) {
	uid, other := c.user(), c.user()
	c.warm(uid, history.WarmSet{})
	c.warm(other, history.WarmSet{})
	items, others := c.fill(uid, 25), c.fill(other, 12)
	c.trim(uid, other)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept })
	c.keeps(other, others, func(n int) bool { return n >= 12-kept })
}

// trimDirty rewrites some of the oldest and newest records: the newest count among the kept ones, the oldest
// stay in addition.
func trimDirty(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	items := c.fill(uid, 25)
	dirty := []int{0, 3, 14, 20, 24}
	var contents []history.Content
	for _, n := range dirty {
		k, r := history.Key{UID: uid, Object: items[n].Object}, revise(items[n].Record)
		c.applied(history.Write{Key: k, Record: r, Base: items[n].Record.Revision})
		items[n].Record, contents = r, append(contents, content(k, r))
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept || slices.Contains(dirty, n) })
	c.markClean(contents...)
	for _, n := range dirty {
		items[n].Record = clean(items[n].Record)
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 25-kept })
}

// trimAllDirty drops no dirty record, however many there are.
func trimAllDirty(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	var items []history.Item
	for n := range 25 {
		items = append(items, c.item(key(uid, 1, n), c.record(int64(n))))
	}
	c.trim(uid)
	c.keeps(uid, items, func(int) bool { return true })
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("nothing was dropped: got user %+v, want complete", u)
	}
}

// trimTombstones has tombstones newer than the records, each fewer than the limit. All stay, although their sum
// exceeds it.
func trimTombstones(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	items := c.fill(uid, kept-1)
	for n := range kept {
		c.archive(key(uid, 2, n), c.tombstone(int64(100+n)))
	}
	c.trim(uid)
	c.keeps(uid, items, func(int) bool { return true })
	for n := range kept {
		if c.load(key(uid, 2, n)).Record == nil {
			c.Errorf("tombstone %d of %d was dropped", n, kept)
		}
	}
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("nothing was dropped: got user %+v, want complete", u)
	}
}

// trimManyTombstones deletes more objects than the limit. The oldest tombstones are dropped below the low
// watermark, and no record is, then or later.
func trimManyTombstones(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	live := c.fill(uid, kept)
	var tombs []*history.Record
	for n := range 2*kept + 5 {
		tombs = append(tombs, c.archive(key(uid, 2, n), c.tombstone(int64(100+n))))
	}
	for range 2 {
		c.trim(uid)
		lowWatermark := c.load(history.UserKey(uid)).User.LowWatermark
		for n, r := range tombs {
			dropped := n < kept+5
			if dropped {
				r = nil
			}
			c.holds(key(uid, 2, n), r)
			if above := lowWatermark > tombs[n].Version; above != dropped {
				c.Errorf("tombstone %d, dropped %t: the low watermark above it: %t", n, dropped, above)
			}
		}
		want := slices.Clone(live)
		slices.SortFunc(want, newestFirst)
		c.lists(uid, history.Query{Limit: 100}, want...)
	}
	c.archive(key(uid, 1, 900), c.record(1000))
	c.trim(uid)
	c.holds(history.Key{UID: uid, Object: live[0].Object}, nil)
	c.holds(history.Key{UID: uid, Object: live[1].Object}, live[1].Record)
	c.holds(key(uid, 2, kept+5), tombs[kept+5])
}

// trimTies has records of one version on both sides of the bound. A low watermark cannot separate them, so all stay.
func trimTies(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	var items []history.Item
	for n := range 25 {
		k := key(uid, 1, n)
		items = append(items, history.Item{Object: k.Object, Record: c.archive(k, c.record(int64(n/4*4)))}) // 0 0 0 0 4 4 4 4 ... 24
	}
	c.trim(uid)
	c.keeps(uid, items, func(n int) bool { return n >= 12 }) // the tenth newest is number 15
}

func trimFew(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	items := c.fill(uid, kept)
	c.trim(uid)
	c.keeps(uid, items, func(int) bool { return true })
	if u := c.load(history.UserKey(uid)).User; !u.Complete() {
		c.Errorf("nothing was dropped: got user %+v, want complete", u)
	}
}

// trimAgain trims twice with writes between, and never lowers the low watermark.
func trimAgain(c *cacheCase) {
	uid := c.user()
	high := history.VersionOf(c.start-1, 0)
	c.warm(uid, history.WarmSet{LowWatermark: high})
	items := c.fill(uid, kept+1)
	below := key(uid, 1, 900) // already below the low watermark
	old := history.Item{Object: below.Object, Record: c.archive(below, c.record(-100))}
	c.trim(uid)
	all := append([]history.Item{old}, items...)
	c.keeps(uid, all, func(n int) bool { return n >= 2 })
	lowWatermark := c.load(history.UserKey(uid)).User.LowWatermark
	late := key(uid, 1, 901)
	c.archive(late, c.record(-50))
	c.trim(uid)
	c.holds(late, nil)
	if got := c.load(history.UserKey(uid)).User.LowWatermark; got != lowWatermark {
		c.Errorf("low watermark after an older record was dropped: got %d, want %d as before", got, lowWatermark)
	}
}

// trimCold trims a cold user with some cached records.
func trimCold(c *cacheCase) {
	uid := c.user()
	items := c.fill(uid, 25)
	c.trim(uid)
	for n, item := range items {
		want := item.Record
		if n < 25-kept {
			want = nil
		}
		c.holds(history.Key{UID: uid, Object: item.Object}, want)
	}
	if u := c.load(history.UserKey(uid)).User; u.Warm {
		c.Errorf("trimming warmed the user: %+v", u)
	}
}
