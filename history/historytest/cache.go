package historytest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// kept is the number of records per user in caches under test.
const kept = 10

type cacheCase struct {
	*testing.T
	CacheStore
	start int64 // Unix milliseconds; reference for the tests' times
}

// apply makes one write, which must get an answer.
func (c *cacheCase) apply(w history.Write) history.Outcome {
	c.Helper()
	out := c.Write(c.Context(), []history.Write{w})
	if len(out) != 1 {
		c.Fatalf("Write of one write: got %d outcomes, want 1", len(out))
	}
	if out[0].Status == history.Unknown || out[0].Err != nil {
		c.Fatalf("Write(%s): got status %d, error %v; want an answer", w.Key, out[0].Status, out[0].Err)
	}
	return out[0]
}

// applied makes one write, which must succeed.
func (c *cacheCase) applied(w history.Write) history.Outcome {
	c.Helper()
	out := c.apply(w)
	if out.Status != history.Applied {
		c.Fatalf("Write(%s, base %x): got status %d, want applied", w.Key, w.Base, out.Status)
	}
	return out
}

// conflicts makes one write, which must conflict.
func (c *cacheCase) conflicts(w history.Write) history.Entry {
	c.Helper()
	out := c.apply(w)
	if out.Status != history.Conflict {
		c.Fatalf("Write(%s, base %x): got status %d, want a conflict", w.Key, w.Base, out.Status)
	}
	return out.Current
}

// put stores a first record and returns it.
func (c *cacheCase) put(k history.Key, r *history.Record) *history.Record {
	c.Helper()
	u := c.load(k).User
	c.applied(history.WriteOn(nil, k, r, &u))
	return r
}

// archive stores a first record, marks it clean, and returns the cached form.
func (c *cacheCase) archive(k history.Key, r *history.Record) *history.Record {
	c.Helper()
	c.markClean(content(k, c.put(k, r)))
	return clean(r)
}

func (c *cacheCase) load(k history.Key) history.Entry {
	c.Helper()
	got := c.Load(c.Context(), []history.Key{k})
	if len(got) != 1 {
		c.Fatalf("Load of one key: got %d entries, want 1", len(got))
	}
	if got[0].Err != nil {
		c.Fatalf("Load(%s): %v", k, got[0].Err)
	}
	return got[0]
}

func (c *cacheCase) holds(k history.Key, want *history.Record) {
	c.Helper()
	c.same("Load("+k.String()+")", c.load(k).Record, want)
}

// user returns a new user, whose records and marks are removed after the test.
func (c *cacheCase) user() string {
	uid := fmt.Sprintf("é/%%:*?[{|%016x", rand.Uint64())
	c.forget(uid)
	return uid
}

// forget removes the user's data from the cache.
func (c *cacheCase) forget(uid string) {
	ctx := context.WithoutCancel(c.Context())
	c.Cleanup(func() {
		own := history.UserKey(uid)
		p := c.Load(ctx, []history.Key{own})[0].User.Pause
		if p != (history.Pause{}) { // a pause does not expire
			if err := c.Pause(ctx, uid, p, p.Switched(true, 1<<43, 0)); err != nil {
				c.Errorf("Pause(%s) after the test: %v", uid, err)
			}
		}
		if _, err := c.Clear(ctx, uid, history.Clear{Until: 1 << 43}); err != nil {
			c.Errorf("Clear(%s) after the test: %v", uid, err)
		}
		if err := c.MarkClean(ctx, []history.Content{{Key: own, Revision: c.Load(ctx, []history.Key{own})[0].User.Revision}}); err != nil {
			c.Errorf("Settle(%s) after the test: %v", uid, err)
		}
	})
}

func key(uid string, typ uint32, n int) history.Key {
	return history.Key{UID: uid, Object: history.Object{ID: fmt.Sprintf("/é#%03d:%%", n), Type: typ}}
}

// record returns new content, ms milliseconds after the start of the test.
func (c *cacheCase) record(ms int64) *history.Record {
	return c.event(history.Event{Kind: history.KindProgress, At: c.start + ms, Position: 1000 + ms, Duration: 7_200_000, Session: "s"})
}

// tombstone returns a new tombstone.
func (c *cacheCase) tombstone(ms int64) *history.Record {
	return c.event(history.Event{Kind: history.KindDelete, At: c.start + ms})
}

func (c *cacheCase) event(e history.Event) *history.Record { return revise(e.Record()) }

// revise returns the same content with a new revision.
func revise(r *history.Record) *history.Record {
	m := *r
	m.Revision = history.NewRevision()
	return &m
}

// fill stores n clean records of a user, one per millisecond from ms 0, and returns them, oldest first.
func (c *cacheCase) fill(uid string, n int) []history.Item {
	c.Helper()
	items, writes := make([]history.Item, n), make([]history.Write, n)
	for i := range n {
		k, r := key(uid, 1, i), c.record(int64(i))
		items[i] = history.Item{Object: k.Object, Record: r}
		writes[i] = history.Write{Key: k, Record: r}
	}
	contents := make([]history.Content, n)
	for i, out := range c.Write(c.Context(), writes) {
		if out.Status != history.Applied {
			c.Fatalf("Write(%s): got status %d, error %v; want applied", writes[i].Key, out.Status, out.Err)
		}
		contents[i], items[i].Record = content(writes[i].Key, items[i].Record), clean(items[i].Record)
	}
	c.markClean(contents...)
	return items
}

func content(k history.Key, r *history.Record) history.Content {
	return history.Content{Key: k, Revision: r.Revision}
}

// clean returns the clean form of a record.
func clean(r *history.Record) *history.Record {
	m := *r
	m.Revision |= history.CleanBit
	return &m
}

func (c *cacheCase) same(what string, got, want *history.Record) {
	c.Helper()
	if !history.Same(got, want) || got != nil && got.Revision != want.Revision {
		c.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

func (c *cacheCase) cleared(u history.User, want map[uint32]int64) {
	c.Helper()
	if !maps.Equal(u.Cleared, want) {
		c.Errorf("clear marks: got %v, want %v", u.Cleared, want)
	}
}

// marks returns a user's dirty keys.
func (c *cacheCase) marks(uid string) map[history.Key]bool {
	c.Helper()
	marks := map[history.Key]bool{}
	for _, k := range c.overdue([]history.Bucket{history.BucketOf(uid)}, 0, math.MaxInt32) {
		if marks[k] {
			c.Errorf("Overdue: %s comes twice", k)
		}
		if k.UID == uid {
			marks[k] = true
		}
	}
	return marks
}

func (c *cacheCase) marked(uid string, want ...history.Key) {
	c.Helper()
	keys := map[history.Key]bool{}
	for _, k := range want {
		keys[k] = true
	}
	if got := c.marks(uid); !maps.Equal(got, keys) {
		c.Errorf("dirty marks of %s: got %v, want %v", uid, got, want)
	}
}

func (c *cacheCase) overdue(buckets []history.Bucket, age time.Duration, limit int) []history.Key {
	c.Helper()
	keys, err := c.Overdue(c.Context(), buckets, age, limit)
	if err != nil {
		c.Fatalf("Overdue: %v", err)
	}
	return keys
}

func (c *cacheCase) markClean(contents ...history.Content) {
	c.Helper()
	if err := c.MarkClean(c.Context(), contents); err != nil {
		c.Fatalf("Settle: %v", err)
	}
}

func (c *cacheCase) trim(uids ...string) {
	c.Helper()
	if err := c.Trim(c.Context(), uids); err != nil {
		c.Fatalf("Trim(%v): %v", uids, err)
	}
}

// clear sets a clear mark, ms milliseconds after the start of the test, with a new revision of the user's state.
func (c *cacheCase) clear(uid string, typ uint32, ms int64) {
	c.Helper()
	before := c.load(history.UserKey(uid)).User
	until, err := c.Clear(c.Context(), uid, history.Clear{Type: typ, Until: c.start + ms})
	if err != nil {
		c.Fatalf("Clear(%s, %d): %v", uid, typ, err)
	}
	if want := max(c.start+ms, before.Cleared[typ]); until != want {
		c.Errorf("Clear(%s, %d) up to %d: got %d, want %d", uid, typ, c.start+ms, until, want)
	}
	if after := c.load(history.UserKey(uid)).User; after.Revision == before.Revision || after.Revision == 0 {
		c.Errorf("Clear(%s, %d): the revision of the state is %d, before %d; want a new one", uid, typ, after.Revision, before.Revision)
	}
}

// renumbered checks that the remainder of a cleared record has a new revision, clean if the old one was. A
// writer with the old revision then conflicts. It returns the record.
func (c *cacheCase) renumbered(k history.Key, was *history.Record) *history.Record {
	c.Helper()
	e := c.load(k)
	now, cleared := e.Record, e.User.ClearedAt(k.Object.Type)
	if !history.Same(now.After(cleared), was.After(cleared)) || history.SameContent(now.Revision, was.Revision) || now.Clean() != was.Clean() {
		c.Fatalf("Load(%s):\ngot  %+v\nwant %+v, under another revision", k, now, was)
	}
	return now
}

// archived returns an item of the archive. A warm-up makes it clean.
func (c *cacheCase) archived(n int, r *history.Record) history.Item {
	return history.Item{Object: key("", 1, n).Object, Record: clean(r)}
}

func (c *cacheCase) warm(uid string, w history.WarmSet) {
	c.Helper()
	if err := c.Warm(c.Context(), uid, w); err != nil {
		c.Fatalf("Warm(%s): %v", uid, err)
	}
}
