package redis_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestNotes adds notes and takes each once, from the given buckets.
func TestNotes(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, ctx := open(t, config), t.Context()
		left, taken := make(map[string]bool), make(map[string]bool)
		buckets := make(map[history.Bucket]bool)
		for range 20 {
			uid := "t" + rand.Text()
			left[uid], buckets[history.BucketOf(uid)] = true, true
			for range 2 {
				if err := c.Note(ctx, uid, 5); err != nil {
					t.Fatal(err)
				}
			}
		}
		later, gone := "t"+rand.Text(), "t"+rand.Text()
		for _, n := range []struct {
			uid string
			due int64
		}{{later, 4}, {later, 7}, {gone, 4}, {gone, 0}} {
			if err := c.Note(ctx, n.uid, n.due); err != nil {
				t.Fatal(err)
			}
		}
		var all, others []history.Bucket
		for b := range history.Bucket(history.Buckets) {
			if all = append(all, b); !buckets[b] {
				others = append(others, b)
			}
		}
		if uids, err := c.TakeNotes(ctx, all, 4, 100); err != nil || len(uids) > 0 {
			t.Errorf("before any is due: %q, %v", uids, err)
		}
		if uids, err := c.TakeNotes(ctx, others, 5, 100); err != nil || slices.ContainsFunc(uids, func(uid string) bool { return left[uid] }) {
			t.Errorf("of other buckets: %q, %v", uids, err)
		}
		for range 10 {
			uids, err := c.TakeNotes(ctx, all, 6, 10)
			if err != nil || len(uids) > 10+32 {
				t.Fatalf("got %d, %v, want about 10", len(uids), err)
			}
			for _, uid := range uids {
				taken[uid] = true
				delete(left, uid)
			}
		}
		if len(left) > 0 {
			t.Errorf("%d notes are left", len(left))
		}
		if taken[later] || taken[gone] {
			t.Error("taken too early, or although it is no more")
		}
		if uids, err := c.TakeNotes(ctx, all, 6+history.NoteLease.Milliseconds()-1, 10); err != nil || !slices.Equal(uids, []string{later}) {
			t.Errorf("again: %q, %v, want the later one", uids, err)
		}
		// A job that took a note may die. A living one notes the user again, or removes the note.
		again := slices.Collect(maps.Keys(taken))[0]
		for uid := range taken {
			if uid != again {
				if err := c.Note(ctx, uid, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		if uids, err := c.TakeNotes(ctx, all, 6+history.NoteLease.Milliseconds(), 10); err != nil || !slices.Equal(uids, []string{again}) {
			t.Errorf("after the lease: %q, %v, want %q", uids, err, again)
		}
		for _, uid := range []string{again, later} {
			if err := c.Note(ctx, uid, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestNotesAreBounded adds more notes to a bucket than it keeps.
func TestNotesAreBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		var key, first string
		for i, n := 0, 0; n < 1020; i++ {
			uid := fmt.Sprintf("t%d", i)
			if b := history.BucketOf(uid); b != 7 {
				continue
			}
			n++
			key = "{b0007}:long"
			if n == 1 {
				first = uid
			}
			if err := c.Note(ctx, uid, int64(n)); err != nil {
				t.Fatal(err)
			}
		}
		if all := client.ZRange(ctx, key, 0, -1).Val(); len(all) != 1000 || all[0] != first {
			t.Errorf("%d notes, want 1000 with the one that is due first", len(all))
		}
		wantTTL(t, client.TTL(ctx, key).Val(), 90*24*60*60*1e9)
		client.Del(ctx, key)
	})
}

// TestNotesOfRemovals notes users, some of them twice, reads by bucket and time, and forgets users without a later
// note.
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
		wantTTL(t, client.TTL(ctx, fmt.Sprintf("{b%04d}:removed", history.BucketOf(uids[1]))).Val(), 24*60*60*1e9)
		if err := c.ForgetRemoved(ctx, all, 9); err != nil {
			t.Fatal(err)
		}
		want(all, 9)
	})
}
