package historytest

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/playhead/playhead/history"
)

func applyFirst(c *cacheCase) {
	k := key(c.user(), 1, 1)
	r := c.event(history.Event{
		Kind: history.KindFinish, At: c.start, Position: 9000, Duration: 9000,
		Session: "s", Device: "tv", Meta: history.NewMeta(map[string]string{"title": "naïve"}),
	})
	out := c.applied(history.Write{Key: k, Record: r})
	if out.Err != nil {
		c.Errorf("Write: got error %v", out.Err)
	}
	c.holds(k, r)
	c.lists(k.UID, history.Query{Limit: 10}, history.Item{Object: k.Object, Record: r})
	c.marked(k.UID, k)
}

func applyOnBase(c *cacheCase) {
	k := key(c.user(), 1, 1)
	first, second := c.put(k, c.record(0)), c.record(10)
	c.applied(history.Write{Key: k, Record: second, Base: first.Revision})
	c.holds(k, second)
	c.lists(k.UID, history.Query{Limit: 10}, history.Item{Object: k.Object, Record: second})
}

func applyStale(c *cacheCase) {
	k := key(c.user(), 1, 1)
	first, second := c.put(k, c.record(0)), c.record(10)
	c.applied(history.Write{Key: k, Record: second, Base: first.Revision, BeginsHold: true})
	if err := c.Warm(c.Context(), k.UID, history.WarmSet{LowWatermark: 7, Cleared: map[uint32]int64{3: 5}}); err != nil {
		c.Fatal(err)
	}
	now := c.conflicts(history.Write{Key: k, Record: c.record(20), Base: first.Revision, BeginsHold: true})
	second = c.renumbered(k, second) // by the clear mark
	c.same("current record", now.Record, second)
	if !now.User.Warm || now.User.LowWatermark != 7 {
		c.Errorf("current user: got %+v, want warm with low watermark 7", now.User)
	}
	c.cleared(now.User, map[uint32]int64{3: 5})
	c.holds(k, second)
	c.lists(k.UID, history.Query{Limit: 10}, history.Item{Object: k.Object, Record: second})
	c.marked(k.UID, k)
}

func applyGone(c *cacheCase) {
	k := key(c.user(), 1, 1)
	now := c.conflicts(history.Write{Key: k, Record: c.record(0), Base: 42, BeginsHold: true})
	c.same("current record", now.Record, nil)
	c.holds(k, nil)
	c.lists(k.UID, history.Query{Limit: 10})
	c.marked(k.UID)
}

func applyUnbased(c *cacheCase) {
	k := key(c.user(), 1, 1)
	first := c.put(k, c.record(0))
	c.same("current record", c.conflicts(history.Write{Key: k, Record: c.record(10)}).Record, first)
	c.holds(k, first)
}

func applyCleared(c *cacheCase) {
	uid := c.user()
	c.clear(uid, 0, 100)
	c.clear(uid, 1, 200)
	for n, test := range []struct {
		typ   uint32
		known int64 // to the writer
		want  history.WriteStatus
	}{
		{1, 0, history.Conflict},
		{1, 100, history.Conflict},
		{1, 199, history.Conflict},
		{1, 200, history.Applied},
		{2, 99, history.Conflict},
		{2, 100, history.Applied},
		{2, 101, history.Applied}, // by the archive
	} {
		k := key(uid, test.typ, n)
		out := c.apply(history.Write{Key: k, Record: c.record(300), Cleared: c.start + test.known})
		if out.Status != test.want {
			c.Errorf("Write(%s) that knows of a clear %d ms after the start: got status %d, want %d", k, test.known, out.Status, test.want)
		}
		if out.Status == history.Conflict {
			c.same("current record", out.Current.Record, nil)
			c.cleared(out.Current.User, map[uint32]int64{0: c.start + 100, 1: c.start + 200})
			c.holds(k, nil)
		}
	}
}

// applyWhole makes late writes without a base, from when the user was complete. Records dropped since may
// include their key's.
func applyWhole(c *cacheCase) {
	whole := func(r *history.Record) *history.Record {
		r.Partial = false
		return r
	}
	for name, w := range map[string]struct {
		prepare  func(uid string)
		complete bool
	}{
		"cold":             {func(string) {}, false},
		"cold and trimmed": {func(uid string) { c.fill(uid, kept+1); c.trim(uid) }, false},
		"warm":             {func(uid string) { c.warm(uid, history.WarmSet{LowWatermark: 1}) }, false},
		"warm and trimmed": {func(uid string) { c.warm(uid, history.WarmSet{}); c.fill(uid, kept+1); c.trim(uid) }, false},
		"complete":         {func(uid string) { c.warm(uid, history.WarmSet{}) }, true},
	} {
		uid := c.user()
		w.prepare(uid)
		for n, r := range []*history.Record{whole(c.record(-10)), whole(c.record(1000)), whole(c.tombstone(1000))} {
			k := key(uid, 2, n)
			if w.complete {
				c.holds(k, c.put(k, r))
				continue
			}
			if now := c.conflicts(history.Write{Key: k, Record: r}); now.Record != nil || now.User.Complete() {
				c.Errorf("whole write of a %s user: got %+v", name, now)
			}
			partial := c.put(k, c.record(20))
			c.applied(history.Write{Key: k, Record: r, Base: partial.Revision}) // a base proves the content
			c.holds(k, r)
		}
	}
}

// applyLate folds an event that is not the latest: the content changes, the place in the list does not.
func applyLate(c *cacheCase) {
	uid := c.user()
	first := c.put(key(uid, 1, 1), c.record(50))
	newer := c.put(key(uid, 1, 2), c.record(60))
	play := history.Event{Kind: history.KindFinish, At: c.start + 10, Position: 9000, Duration: 9000, Session: "early"}
	late := revise(history.Merge(first, play.Record()))
	c.applied(history.Write{Key: key(uid, 1, 1), Record: late, Base: first.Revision})
	c.lists(uid, history.Query{Limit: 10},
		history.Item{Object: key(uid, 1, 2).Object, Record: newer}, history.Item{Object: key(uid, 1, 1).Object, Record: late})
}

// applyMany writes a thousand keys of many users in one call, every third with a wrong base.
func applyMany(c *cacheCase) {
	const users, objects = 200, 5
	writes := make([]history.Write, 0, users*objects)
	for range users {
		uid := c.user()
		for n := range objects {
			writes = append(writes, history.Write{Key: key(uid, uint32(1+n%2), n), Record: c.record(int64(n)), BeginsHold: n == 0})
		}
	}
	for i := 0; i < len(writes); i += 3 {
		writes[i].Base = 42
	}
	out := c.Write(c.Context(), writes)
	if len(out) != len(writes) {
		c.Fatalf("Write of %d writes: got %d outcomes", len(writes), len(out))
	}
	keys := make([]history.Key, len(writes))
	for i, w := range writes {
		keys[i] = w.Key
		want := history.Applied
		if i%3 == 0 {
			want = history.Conflict
		}
		if out[i].Status != want || out[i].Err != nil {
			c.Errorf("write %d of %s: got status %d, error %v; want status %d", i, w.Key, out[i].Status, out[i].Err, want)
		}
	}
	for i, e := range c.Load(c.Context(), keys) {
		want := writes[i].Record
		if i%3 == 0 {
			want = nil
		}
		c.same(fmt.Sprintf("key %d, %s", i, keys[i]), e.Record, want)
	}
}

// applyConcurrently has several writers fold events into one key, each from its last read. No event is lost.
func applyConcurrently(c *cacheCase) {
	const writers, events = 8, 25
	k := key(c.user(), 1, 1)
	var want *history.Record
	var wg sync.WaitGroup
	for w := range writers {
		deltas := make([]*history.Record, events)
		for i := range deltas {
			e := history.Event{
				Kind: history.KindFinish, At: c.start + int64(i*writers+w), Position: int64(6000 + (i*writers+w)%150),
				Duration: 7000, Session: fmt.Sprintf("s%d", w), Device: fmt.Sprintf("d%d", w),
			}
			deltas[i] = e.Record()
			want = history.Merge(want, deltas[i])
		}
		wg.Go(func() { c.foldAll(k, deltas) })
	}
	wg.Wait()
	if got := c.load(k).Record; !history.Same(got, want) {
		c.Errorf("after %d writers:\ngot  %+v\nwant %+v", writers, got, want)
	}
}

func (c *cacheCase) foldAll(k history.Key, deltas []*history.Record) {
	var seen *history.Record
	for _, r := range deltas {
		for {
			w := history.Write{Key: k, Record: revise(history.Merge(seen, r))}
			if seen != nil {
				w.Base = seen.Revision
			}
			out := c.Write(c.Context(), []history.Write{w})[0]
			if out.Status == history.Unknown {
				c.Errorf("Write(%s): %v", k, out.Err)
				return
			}
			if out.Status == history.Applied {
				seen = w.Record
				break
			}
			seen = out.Current.Record
		}
	}
}

// markForced writes without requesting a mark where one is needed: a first record, and one based on a clean one.
func markForced(c *cacheCase) {
	k := key(c.user(), 1, 1)
	first := c.put(k, c.record(0))
	c.marked(k.UID, k)
	c.markClean(content(k, first))
	c.marked(k.UID)
	c.applied(history.Write{Key: k, Record: c.record(1), Base: clean(first).Revision})
	c.marked(k.UID, k)
}

// markKept checks that a write based on a dirty record keeps its mark.
func markKept(c *cacheCase) {
	k := key(c.user(), 1, 1)
	base := c.put(k, c.record(0))
	for ms := range int64(3) {
		next := c.record(ms)
		c.applied(history.Write{Key: k, Record: next, Base: base.Revision})
		c.marked(k.UID, k)
		base = next
	}
	c.markClean(content(k, base))
	c.marked(k.UID)
}

// markConflict marks clean a record that a writer uses as its base: the write conflicts, and the retry has a mark.
func markConflict(c *cacheCase) {
	k := key(c.user(), 1, 1)
	held := c.put(k, c.record(0))
	c.markClean(content(k, held))
	for _, mark := range []bool{false, true} {
		now := c.conflicts(history.Write{Key: k, Record: c.record(1), Base: held.Revision, BeginsHold: mark})
		c.same("current record", now.Record, clean(held))
		c.marked(k.UID)
	}
	c.applied(history.Write{Key: k, Record: c.record(1), Base: clean(held).Revision})
	c.marked(k.UID, k)
}

// markStands writes over a marked record. Its mark keeps its time, before that of a key marked in between.
func markStands(c *cacheCase) {
	uid := c.user()
	k, other := key(uid, 1, 1), key(uid, 1, 2)
	first := c.put(k, c.record(0))
	c.put(other, c.record(0))
	c.ordered(uid, k, other)
	second := c.record(1)
	c.applied(history.Write{Key: k, Record: second, Base: first.Revision, BeginsHold: true})
	c.ordered(uid, k, other)
	c.markClean(content(k, second))
	c.applied(history.Write{Key: k, Record: c.record(2), Base: clean(second).Revision})
	c.ordered(uid, other, k)
}

// ordered checks the order of a user's marks.
func (c *cacheCase) ordered(uid string, want ...history.Key) {
	c.Helper()
	n := 0
	for _, k := range c.overdue([]history.Bucket{history.BucketOf(uid)}, 0, 1<<30) {
		if k.UID != uid {
			continue
		}
		if n >= len(want) || k != want[n] {
			c.Errorf("mark %d of %s: got %s, want %v", n, uid, k, want)
		}
		n++
	}
}

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
	if u := c.load(k).User; u.Warm || u.LowWatermark != 0 || len(u.Cleared) != 0 {
		c.Errorf("user nobody knows: got %+v", u)
	}
	c.put(k, c.record(0))
	if u := c.load(k).User; u.Warm {
		c.Errorf("user who was only written to: got %+v, want a cold one", u)
	}
	c.warm(uid, history.WarmSet{LowWatermark: 7, Cleared: map[uint32]int64{0: 3, 2: 9}})
	for _, k := range []history.Key{k, key(uid, 5, 5), history.UserKey(uid)} {
		u := c.load(k).User
		if !u.Warm || u.LowWatermark != 7 {
			c.Errorf("Load(%s): got user %+v, want warm with low watermark 7", k, u)
		}
		c.cleared(u, map[uint32]int64{0: 3, 2: 9})
	}
}

// emptyInput makes all calls with empty input.
func emptyInput(c *cacheCase) {
	ctx, uid := c.Context(), c.user()
	if got := c.Load(ctx, nil); len(got) != 0 {
		c.Errorf("Load of no keys: got %v", got)
	}
	if got := c.Write(ctx, nil); len(got) != 0 {
		c.Errorf("Write of no writes: got %v", got)
	}
	c.lists(uid, history.Query{Limit: 10})
	if got := c.overdue(nil, 0, 10); len(got) != 0 {
		c.Errorf("Overdue of no buckets: got %v", got)
	}
	c.put(key(uid, 1, 1), c.record(0))
	if got := c.overdue([]history.Bucket{history.BucketOf(uid)}, 0, 0); len(got) != 0 {
		c.Errorf("Overdue, at most none: got %v", got)
	}
	c.markClean()
	c.markClean(history.Content{Key: key(uid, 9, 9), Revision: 1})
	c.trim()
	c.trim(c.user())
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~@-"

// legalObjects uses ids with every valid letter, of maximal length, or easily split wrongly.
func legalObjects(c *cacheCase) {
	uid := c.user()
	want := map[history.Object]*history.Record{}
	for _, id := range []string{
		"_", ":", "~", "@", "-", "...", ".:", "1_1", "_1", "1_", "a:b:c", letters + ":", " ", "%", "%2F", "//", "*", "#cleared", "#cleared:1",
		"https://example.org/a b/../é?q=1&r=%C3%A9#t", "{00000000-0000-4000-8000-000000000000}", `C:\a\b.mp4`, "\u2028", "e\u0301", "é", "🎬",
		strings.Repeat(":", history.MaxID), strings.Repeat("_", history.MaxID), strings.Repeat("%", history.MaxID), strings.Repeat("é", history.MaxID/2),
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

// neighbouringNames uses users and namespaces with common prefixes, which stay separate.
func neighbouringNames(c *cacheCase) {
	prefix := c.user()
	var uids []string
	for _, tail := range []string{
		"", ".", "~", "@-", "_1", "1", "0", "_", "\x01a", "\x01ab", "*", "?", "/", "/1_1", ":", "%", "%2F", "%01a", "é", "e\u0301",
		strings.Repeat("@", history.MaxID-len(prefix)), strings.Repeat("%", history.MaxID-len(prefix)),
	} {
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

// roundTrip writes, reads and marks clean a key.
func (c *cacheCase) roundTrip(k history.Key) *history.Record {
	c.Helper()
	r := c.record(0)
	c.put(k, r)
	c.holds(k, r)
	c.marked(k.UID, k)
	c.markClean(content(k, r))
	c.marked(k.UID)
	c.holds(k, clean(r))
	return clean(r)
}
