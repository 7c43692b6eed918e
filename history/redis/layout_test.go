package redis_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestLayout checks names and formats of keys. They never change: other versions and people with redis-cli read
// them.
func TestLayout(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.TTL = time.Hour
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid, at := user(t, c), hourAgo()
		tag := fmt.Sprintf("{b%04d}:", history.BucketOf(uid))
		k := history.Key{UID: uid, Object: history.Object{ID: "a:1", Type: 7}}
		e := history.Event{Kind: history.KindStop, At: at}
		r := e.Record()
		r.Revision = 0x1122334455667788
		put(t, c, history.Write{Key: k, Record: r, BeginsHold: true})

		content := tag + "c:" + uid + ":a:1_7"
		value := client.Get(ctx, content).Val()
		if len(value) < 9 || binary.LittleEndian.Uint64([]byte(value[1:9])) != r.Revision {
			t.Errorf("GET %s: got %x, want revision %x in bytes 1 to 8", content, value, r.Revision)
		}
		if got, want := client.ZScore(ctx, tag+"h:"+uid, "a:1_7").Val(), float64(at)+0.25; got != want {
			t.Errorf("score in the list: got %v, want %v", got, want)
		}
		if mark, early := client.ZScore(ctx, tag+"dirty", uid+"/a:1_7").Val(), time.Now().Add(-time.Minute).UnixMicro(); mark < float64(early) {
			t.Errorf("score of the dirty mark: got %v, want microseconds of now, at least %d", mark, early)
		}
		if got := client.TTL(ctx, content).Val(); got != -1 {
			t.Errorf("TTL of a dirty content: got %s, want none", got)
		}
		wantTTL(t, client.TTL(ctx, tag+"h:"+uid).Val(), 25*time.Hour)

		markClean(t, c, k, r.Revision)
		if got := client.Get(ctx, content).Val(); len(got) != len(value) || got[8] != value[8]|0x80 || got[:8] != value[:8] || got[9:] != value[9:] {
			t.Errorf("clean: got %x of %x, want the highest bit of byte 8", got, value)
		}
		wantTTL(t, client.TTL(ctx, content).Val(), time.Hour)

		if err := c.Warm(ctx, uid, history.WarmSet{LowWatermark: 9, Cleared: map[uint32]int64{0: 5, 7: 6}, CutTime: 8}); err != nil {
			t.Fatal(err)
		}
		wantTTL(t, client.TTL(ctx, tag+"u:"+uid).Val(), 25*time.Hour)
		for field, want := range map[string]string{"low_watermark": "9", "cleared": "5", "cleared:7": "6", "cut": "8"} {
			if got := client.HGet(ctx, tag+"u:"+uid, field).Val(); got != want {
				t.Errorf("user's %s: got %q, want %q", field, got, want)
			}
		}
		if _, err := c.Clear(ctx, uid, history.Clear{Type: 7, Until: at}); err != nil {
			t.Fatal(err)
		}
		state := client.HGetAll(ctx, tag+"u:"+uid).Val()
		if rev := c.Load(ctx, []history.Key{k})[0].User.Revision; state["rev"] != fmt.Sprint(rev) || state["cut"] != fmt.Sprint(at) {
			t.Errorf("user's state: got %v, want revision %d and cut time %d", state, rev, at)
		}
		if n := client.Exists(ctx, content, tag+"h:"+uid).Val(); n != 0 {
			t.Errorf("after the clear %d keys are left, want none", n)
		}
		if err := client.ZScore(ctx, tag+"dirty", uid+"/*").Err(); err != nil {
			t.Errorf("dirty mark of the user: %v", err)
		}
	})
}

func wantTTL(t *testing.T, got, want time.Duration) {
	t.Helper()
	if got > want || got < want-time.Minute {
		t.Errorf("TTL: got %s, want %s", got, want)
	}
}

// TestStatesExpire checks that every way to create a user's keys sets a TTL.
func TestStatesExpire(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.TTL, config.Keep = time.Hour, 1
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		for name, call := range map[string]func(uid string) error{
			"Warm":  func(uid string) error { return c.Warm(ctx, uid, history.WarmSet{}) },
			"Clear": func(uid string) error { _, err := c.Clear(ctx, uid, history.Clear{Until: 1 << 42}); return err },
			"Trim":  func(uid string) error { return c.Trim(ctx, []string{uid}) },
		} {
			uid := user(t, c)
			fill(t, c, uid, 2)
			if err := call(uid); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := client.TTL(ctx, "{"+bucket(uid)+"}:u:"+uid).Val(); got <= 0 {
				t.Errorf("TTL of the user's state after %s: got %s", name, got)
			}
			if got := client.TTL(ctx, "{"+bucket(uid)+"}:h:"+uid).Val(); name != "Clear" && got <= 0 {
				t.Errorf("TTL of the list after %s: got %s", name, got)
			}
		}
	})
}

// TestPausedStatesStay checks that a state gets no TTL while recording is off, and gets one afterwards.
func TestPausedStatesStay(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.TTL, config.Keep = time.Hour, 1
		c, client, ctx, uid := open(t, config), raw(t, config), t.Context(), ""
		switched := func(recording bool) error { return switchTo(c, uid, recording, hourAgo()) }
		cleared := func() error { _, err := c.Clear(ctx, uid, history.Clear{Until: 1}); return err }
		for name, call := range map[string]func() error{
			"Pause": func() error { return nil },
			"Warm":  func() error { return c.Warm(ctx, uid, history.WarmSet{}) },
			"Clear": cleared,
			"Trim":  func() error { return c.Trim(ctx, []string{uid}) },
			"Write": func() error {
				off := c.Load(ctx, []history.Key{history.UserKey(uid)})[0].User.Pause
				return c.Write(ctx, []history.Write{{Key: key(uid, "9"), Record: record(hourAgo()-1000, 1), Pause: off, BeginsHold: true}})[0].Err
			},
		} {
			uid = user(t, c)
			fill(t, c, uid, 2)
			client.Expire(ctx, "{"+bucket(uid)+"}:h:"+uid, time.Minute) // due for renewal
			if err := errors.Join(cleared(), switched(false), call()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := client.TTL(ctx, "{"+bucket(uid)+"}:u:"+uid).Val(); got != -1 {
				t.Errorf("TTL of a paused user's state after %s: got %s, want none", name, got)
			}
			if err := switched(true); err != nil {
				t.Fatal(err)
			}
			wantTTL(t, client.TTL(ctx, "{"+bucket(uid)+"}:u:"+uid).Val(), 25*time.Hour)
		}
	})
}

// switchTo switches recording off or on at a time.
func switchTo(c *redis.Cache, uid string, recording bool, at int64) error {
	ctx := context.Background()
	p := c.Load(ctx, []history.Key{history.UserKey(uid)})[0].User.Pause
	return c.Pause(ctx, uid, p, p.Switched(recording, at, 0))
}

// TestPauseInTheHash checks the pause's fields.
func TestPauseInTheHash(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, uid, at := open(t, config), raw(t, config), "", hourAgo()
		uid = user(t, c)
		for _, tt := range []struct {
			recording bool
			at        int64
			want      map[string]string
		}{
			{true, at, map[string]string{}},
			{false, at, map[string]string{"paused": fmt.Sprint(at)}},
			{true, at + 5, map[string]string{"paused": fmt.Sprint(at), "resumed": fmt.Sprint(at + 5)}},
			{false, at + 9, map[string]string{"paused": fmt.Sprint(at + 9), "pauses": fmt.Sprint(at, " ", at+5)}},
			{true, at + 10, map[string]string{"paused": fmt.Sprint(at + 9), "resumed": fmt.Sprint(at + 10), "pauses": fmt.Sprint(at, " ", at+5)}},
		} {
			if err := switchTo(c, uid, tt.recording, tt.at); err != nil {
				t.Fatal(err)
			}
			got := client.HGetAll(t.Context(), "{"+bucket(uid)+"}:u:"+uid).Val()
			if delete(got, "rev"); !maps.Equal(got, tt.want) {
				t.Errorf("recording %t at %d: got %v, want %v", tt.recording, tt.at, got, tt.want)
			}
		}
	})
}

// TestContentsExpire checks that a content has a TTL exactly while it is clean, and expires before its list.
func TestContentsExpire(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.TTL = time.Hour
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		for name, test := range map[string]struct {
			change func(list string) // before the content is marked clean
			want   time.Duration
		}{
			"at once":            {func(string) {}, time.Hour},
			"after half a day":   {func(list string) { client.Expire(ctx, list, 12*time.Hour+30*time.Minute) }, 30 * time.Minute},
			"list without a TTL": {func(list string) { client.Persist(ctx, list) }, time.Hour},
			"list about to end":  {func(list string) { client.Expire(ctx, list, time.Hour) }, time.Second},
		} {
			uid := user(t, c)
			content, k, at := "{"+bucket(uid)+"}:c:"+uid+":1_1", key(uid, "1"), hourAgo()
			wantNone := func(after string) {
				t.Helper()
				if got := client.TTL(ctx, content).Val(); got != -1 {
					t.Errorf("%s: TTL after %s: got %s, want none", name, after, got)
				}
			}
			put(t, c, history.Write{Key: k, Record: record(at, 1)})
			wantNone("a first write")
			put(t, c, history.Write{Key: k, Record: record(at, 2), Base: 1, BeginsHold: true})
			if err := c.Warm(ctx, uid, history.WarmSet{}); err != nil {
				t.Fatal(err)
			}
			wantNone("a warm-up")
			test.change("{" + bucket(uid) + "}:h:" + uid)
			markClean(t, c, k, 2)
			wantTTL(t, client.TTL(ctx, content).Val(), test.want)
		}
	})
}

// TestTTLIsRenewed writes occasionally: lists and states must outlive contents.
func TestTTLIsRenewed(t *testing.T) {
	const day = 24 * time.Hour
	fake := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience, TTL: 10 * day})
	uid := user(t, c)
	if err := c.Warm(t.Context(), uid, history.WarmSet{}); err != nil {
		t.Fatal(err)
	}
	k, at := key(uid, "1"), hourAgo()
	tag := fmt.Sprintf("{b%04d}:", history.BucketOf(uid))
	base := uint64(0)
	for n := range uint64(10) {
		put(t, c, history.Write{Key: k, Record: record(at, n+1), Base: base})
		if got := fake.TTL(tag + "c:" + uid + ":1_1"); got != 0 {
			t.Errorf("write %d: dirty content lives %s, want no TTL", n, got)
		}
		markClean(t, c, k, n+1)
		base = n + 1 | history.CleanBit
		content := fake.TTL(tag + "c:" + uid + ":1_1")
		if content != 10*day {
			t.Errorf("write %d: content lives %s, want 10 days", n, content)
		}
		for _, key := range []string{tag + "h:" + uid, tag + "u:" + uid} {
			if got := fake.TTL(key); got < content+day/2 || got > content+day {
				t.Errorf("write %d: %s lives %s, want half a day to a day more than %s", n, key, got, content)
			}
		}
		fake.FastForward(7 * time.Hour)
	}
}
