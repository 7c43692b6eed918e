package historytest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"time"

	"github.com/playhead/playhead/history"
)

// user returns a user nobody knows yet. After the test the user has no records and
// no marks.
func (c *cacheCase) user() string {
	uid := fmt.Sprintf("u%016x", rand.Uint64())
	c.forget(uid)
	return uid
}

// forget takes everything of the user out of the cache at the end of the test.
func (c *cacheCase) forget(uid string) {
	ctx := context.WithoutCancel(c.Context())
	c.Cleanup(func() {
		if _, _, err := c.Pause(ctx, uid, true, 1<<43); err != nil { // a pause has no end of life
			c.Errorf("Pause(%s) after the test: %v", uid, err)
		}
		mark, err := c.Clear(ctx, uid, 0, 1<<43)
		if err != nil {
			c.Errorf("Clear(%s) after the test: %v", uid, err)
		}
		if err := c.Settle(ctx, []history.Dirty{{Key: history.UserKey(uid), Mark: mark}}); err != nil {
			c.Errorf("Settle(%s) after the test: %v", uid, err)
		}
	})
}

// key names the n-th object of a type.
func key(uid string, typ uint32, n int) history.Key {
	return history.Key{UID: uid, Object: history.Object{ID: fmt.Sprintf("%03d", n), Type: typ}}
}

// record returns new content, ms milliseconds after the start of the test.
func (c *cacheCase) record(ms int64) *history.Record {
	return c.event(history.Event{Kind: history.KindProgress, At: c.start + ms, Position: 1000 + ms, Duration: 7_200_000, Session: "s"})
}

// tombstone returns new content that says "deleted".
func (c *cacheCase) tombstone(ms int64) *history.Record {
	return c.event(history.Event{Kind: history.KindDelete, At: c.start + ms})
}

func (c *cacheCase) event(e history.Event) *history.Record { return revise(e.Record()) }

// revise returns the same content under a new revision.
func revise(r *history.Record) *history.Record {
	m := *r
	m.Revision = rand.Uint64() | 1
	return &m
}

// fill stores n settled records of a user, one millisecond apart from ms 0 on, and
// returns them, oldest first.
func (c *cacheCase) fill(uid string, n int) []history.Item {
	c.Helper()
	items, writes := make([]history.Item, n), make([]history.Write, n)
	for i := range n {
		k, r := key(uid, 1, i), c.record(int64(i))
		items[i] = history.Item{Object: k.Object, Record: r}
		writes[i] = history.Write{Key: k, Record: r}
	}
	for i, out := range c.Apply(c.Context(), writes) {
		if out.Status != history.Applied {
			c.Fatalf("Apply(%s): got status %d, error %v; want applied", writes[i].Key, out.Status, out.Err)
		}
	}
	return items
}

// same checks a record with its revision.
func (c *cacheCase) same(what string, got, want *history.Record) {
	c.Helper()
	if !history.Same(got, want) || got != nil && got.Revision != want.Revision {
		c.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// cleared checks the clear marks of a user.
func (c *cacheCase) cleared(u history.User, want map[uint32]int64) {
	c.Helper()
	if !maps.Equal(u.Cleared, want) {
		c.Errorf("clear marks: got %v, want %v", u.Cleared, want)
	}
}

// marks returns the dirty marks of a user. The age is below zero to take in a mark
// of this very microsecond.
func (c *cacheCase) marks(uid string) map[history.Key]history.Mark {
	c.Helper()
	marks := map[history.Key]history.Mark{}
	for _, d := range c.overdue([]history.Bucket{history.BucketOf(uid)}, -time.Hour, math.MaxInt32) {
		if _, twice := marks[d.Key]; twice {
			c.Errorf("Overdue: %s comes twice", d.Key)
		}
		if d.Key.UID == uid {
			marks[d.Key] = d.Mark
		}
	}
	return marks
}

// marked checks all the dirty marks of a user.
func (c *cacheCase) marked(uid string, want map[history.Key]history.Mark) {
	c.Helper()
	if got := c.marks(uid); !maps.Equal(got, want) {
		c.Errorf("dirty marks of %s: got %v, want %v", uid, got, want)
	}
}

func (c *cacheCase) overdue(buckets []history.Bucket, age time.Duration, limit int) []history.Dirty {
	c.Helper()
	dirty, err := c.Overdue(c.Context(), buckets, age, limit)
	if err != nil {
		c.Fatalf("Overdue: %v", err)
	}
	return dirty
}
