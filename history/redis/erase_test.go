package redis_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestErase erases a user and scans the keys. Only the state with the clear mark and the pause remains.
func TestErase(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid, at := "t"+rand.Text(), time.Now().UnixMilli()
		if _, err := c.Changes(ctx, uid, 0, 10); err != nil {
			t.Fatal(err)
		}
		write := func(i int, at int64) {
			t.Helper()
			k := history.Key{UID: uid, Object: history.Object{ID: fmt.Sprintf("secret%d", i), Type: 1}}
			e := history.Event{Kind: history.KindProgress, At: at, Position: 1}
			r := e.Record().Successor(nil)
			r.Partial = true
			u := c.Load(ctx, []history.Key{k})[0].User
			if out := c.Write(ctx, []history.Write{history.WriteOn(nil, k, r, &u)})[0]; out.Status != history.Applied {
				t.Fatal(out)
			}
		}
		for i := range 5 {
			write(i, at-int64(i))
		}
		pause := history.Pause{Since: at + 1, Until: at + 2}
		if err := c.Pause(ctx, uid, history.Pause{}, pause); err != nil {
			t.Fatal(err)
		}
		c.See(ctx, []history.Sighting{{UID: uid, Day: 20_000}})
		if err := c.Note(ctx, uid, 1); err != nil {
			t.Fatal(err)
		}
		wantHeld := func(until int64, want map[string]int) {
			t.Helper()
			held, err := c.Held(ctx, uid, until)
			if err != nil {
				t.Fatal(err)
			}
			for place, n := range held {
				if n != want[place] {
					t.Errorf("%s: %d, want %d", place, n, want[place])
				}
			}
		}
		wantHeld(0, map[string]int{"cache: records": 5, "cache: dirty marks": 5, "cache: changes": 5, "cache: days": 1, "cache: notes": 1, history.StatePlace: 1})
		wantHeld(at-3, map[string]int{"cache: records": 2, "cache: dirty marks": 2, history.StatePlace: 1})
		for range 2 {
			until, err := c.Clear(ctx, uid, history.Clear{Until: at + 5})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Erase(ctx, uid, until); err != nil {
				t.Fatal(err)
			}
			wantHeld(0, map[string]int{history.StatePlace: 1})
			state := history.Content{Key: history.UserKey(uid), Revision: c.Load(ctx, []history.Key{history.UserKey(uid)})[0].User.Revision}
			if err := c.MarkClean(ctx, []history.Content{state}); err != nil {
				t.Fatal(err)
			}
			wantHeld(0, nil)
		}
		bucket := fmt.Sprintf("{b%04d}:", history.BucketOf(uid))
		for _, key := range []string{"h:" + uid, "l:" + uid, "c:" + uid + ":secret1_1"} {
			if n, err := client.Exists(ctx, bucket+key).Result(); err != nil || n != 0 {
				t.Errorf("%s is there, %v", key, err)
			}
		}
		state, err := client.HGetAll(ctx, bucket+"u:"+uid).Result()
		if err != nil || state["cleared"] == "" || state["paused"] == "" || state["seen"] != "" || state["log"] != "" {
			t.Errorf("the state is %v, %v, want the clear mark and the pause without days and log", state, err)
		}
		dirty, err := client.ZRange(ctx, bucket+"dirty", 0, -1).Result()
		if err != nil || strings.Contains(strings.Join(dirty, " "), "secret") {
			t.Errorf("marks %q, %v", dirty, err)
		}

		// Later records count again, and so does a log that begins later.
		if _, err := c.Changes(ctx, uid, 0, 10); err != nil {
			t.Fatal(err)
		}
		write(9, at+10)
		wantHeld(at+5, nil)
		wantHeld(0, map[string]int{"cache: records": 1, "cache: dirty marks": 1, "cache: changes": 1})
	})
}
