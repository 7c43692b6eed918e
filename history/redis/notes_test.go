package redis_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestNotes leaves notes and takes them, each once, of the buckets that are asked for.
func TestNotes(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, ctx := open(t, config), t.Context()
		left := make(map[string]bool)
		buckets := make(map[history.Bucket]bool)
		for range 20 {
			uid := "t" + rand.Text()
			left[uid], buckets[history.BucketOf(uid)] = true, true
			for range 2 {
				if err := c.Note(ctx, uid); err != nil {
					t.Fatal(err)
				}
			}
		}
		var all, others []history.Bucket
		for b := range history.Bucket(history.Buckets) {
			if all = append(all, b); !buckets[b] {
				others = append(others, b)
			}
		}
		if uids, err := c.TakeNotes(ctx, others, 100); err != nil || slices.ContainsFunc(uids, func(uid string) bool { return left[uid] }) {
			t.Errorf("of other buckets: %q, %v", uids, err)
		}
		for range 10 {
			uids, err := c.TakeNotes(ctx, all, 10)
			if err != nil || len(uids) > 10+32 {
				t.Fatalf("got %d, %v, want about 10", len(uids), err)
			}
			for _, uid := range uids {
				delete(left, uid)
			}
		}
		if len(left) > 0 {
			t.Errorf("%d notes are left", len(left))
		}
		if uids, err := c.TakeNotes(ctx, all, 10); err != nil || len(uids) > 0 {
			t.Errorf("again: %q, %v, want none", uids, err)
		}
	})
}

// TestNotesAreBounded leaves more notes in a bucket than it keeps.
func TestNotesAreBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		var key string
		for i, n := 0, 0; n < 120; i++ {
			uid := fmt.Sprintf("t%d", i)
			if b := history.BucketOf(uid); b != 7 {
				continue
			}
			n++
			key = "{b0007}:long"
			if err := c.Note(ctx, uid); err != nil {
				t.Fatal(err)
			}
		}
		if n := client.SCard(ctx, key).Val(); n != 100 {
			t.Errorf("%d notes, want 100", n)
		}
		lives(t, client.TTL(ctx, key).Val(), 24*60*60*1e9)
		client.Del(ctx, key)
	})
}

// TestNotesOfRemovals notes users, again and up to a time, of the buckets that are asked for, and forgets those who were not noted again.
func TestNotesOfRemovals(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uids := []string{"t" + rand.Text(), "t" + rand.Text(), "t" + rand.Text()}
		slices.Sort(uids)
		var all, others []history.Bucket
		for b := range history.Bucket(history.Buckets) {
			all = append(all, b)
			if b != history.BucketOf(uids[0]) && b != history.BucketOf(uids[1]) && b != history.BucketOf(uids[2]) {
				others = append(others, b)
			}
		}
		note := func(at int64, uids ...string) {
			t.Helper()
			if err := c.NoteRemoved(ctx, uids, at); err != nil {
				t.Fatal(err)
			}
		}
		want := func(buckets []history.Bucket, until int64, want ...string) {
			t.Helper()
			found, err := c.Removed(ctx, buckets, until)
			found = slices.DeleteFunc(found, func(uid string) bool { return !slices.Contains(uids, uid) })
			if slices.Sort(found); err != nil || !slices.Equal(found, want) {
				t.Errorf("until %d: got %q, %v, want %q", until, found, err, want)
			}
		}
		note(5, uids...)
		note(7, uids[1])
		note(6, uids[1], uids[2])
		want(all, 4)
		want(all, 5, uids[0])
		want(all, 6, uids...)
		want(others, 9)
		if err := c.ForgetRemoved(ctx, all, 5); err != nil {
			t.Fatal(err)
		}
		want(all, 9, uids[1:]...)
		lives(t, client.TTL(ctx, fmt.Sprintf("{b%04d}:removed", history.BucketOf(uids[1]))).Val(), 24*60*60*1e9)
		if err := c.ForgetRemoved(ctx, all, 9); err != nil {
			t.Fatal(err)
		}
		want(all, 9)
	})
}
