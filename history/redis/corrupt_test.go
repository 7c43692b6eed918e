package redis_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/redis"
)

// TestDamage runs the contract's rules for unreadable records.
func TestDamage(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client := open(t, config), raw(t, config)
		historytest.CacheDamage(t, c, func(k history.Key, value []byte) {
			content := fmt.Sprintf("{%s}:c:%s:%s", bucket(k.UID), history.AppendUID(nil, k.UID), k.Object)
			if err := client.SetXX(t.Context(), content, value, goredis.KeepTTL).Err(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestDamagedTombstone: an unreadable tombstone is not listed, because its place in the list identifies it.
func TestDamagedTombstone(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client := open(t, config), raw(t, config)
		k := key(user(t, c), "gone")
		e := history.Event{Key: k, Kind: history.KindDelete, At: hourAgo()}
		put(t, c, history.Write{Key: k, Record: e.Record().Successor(nil)})
		if err := client.Set(t.Context(), fmt.Sprintf("{%s}:c:%s:%s", bucket(k.UID), k.UID, k.Object), "x", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if page, err := c.List(t.Context(), k.UID, history.Query{Limit: 1}); err != nil || len(page.Items) != 0 {
			t.Errorf("List: got %v, error %v; want nothing", page, err)
		}
	})
}

// TestCorruptContent has contents edited by hand. Readers see no record, and the next write replaces them.
func TestCorruptContent(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		var log bytes.Buffer
		config.Log, config.TTL = slog.New(slog.NewTextHandler(&log, nil)), time.Hour
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid, at := user(t, c), hourAgo()
		tag := fmt.Sprintf("{b%04d}:", history.BucketOf(uid))
		for i, value := range []string{
			"x", "\x08\x01", "by hand", "\t12345678", "\t12345678\xff", strings.Repeat("\xff", 200), strings.Repeat("\x00", 20),
		} {
			k := key(uid, fmt.Sprint(i))
			put(t, c, history.Write{Key: k, Record: record(at+1, 7)})
			if err := client.Set(ctx, tag+"c:"+uid+":"+k.Object.String(), value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			heals(t, c, k, at)
		}
		k := key(uid, "dropped")
		put(t, c, history.Write{Key: k, Record: record(at, 7)})
		if err := client.Set(ctx, tag+"c:"+uid+":dropped_1", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		markClean(t, c, k, 0) // no archive can have it
		wantTTL(t, client.TTL(ctx, tag+"c:"+uid+":dropped_1").Val(), config.TTL)
		if !strings.Contains(log.String(), "not decoded") || !strings.Contains(log.String(), history.Pseudonym(uid)+"/2_1") {
			t.Errorf("log: got %q, want a warning with the key", log.String())
		}
	})
}

// heals checks that Load finds no visible record, and that a write on its result replaces the content. The write is
// older than everything else.
func heals(t *testing.T, c *redis.Cache, k history.Key, at int64) {
	t.Helper()
	e := c.Load(t.Context(), []history.Key{k})[0]
	if e.Err != nil || e.Record.Visible(k.Object, &e.User) != nil {
		t.Errorf("Load(%s): got %+v, want no visible record and no error", k, e)
	}
	w := history.Write{Key: k, Record: history.Merge(e.Record, record(at-1, 0))}
	if e.Record != nil {
		w.Base = e.Record.Revision
	}
	if !w.Record.Partial {
		t.Errorf("fold of %s: got %+v, want it partial, for the archive may know more", k, w.Record)
	}
	w.Record.Revision = 8
	put(t, c, w)
}

// TestWrongType has a content that is not a string. Only its own write fails.
func TestWrongType(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid, at := user(t, c), hourAgo()
		tag := fmt.Sprintf("{b%04d}:", history.BucketOf(uid))
		if err := client.RPush(ctx, tag+"c:"+uid+":2_1", "x").Err(); err != nil {
			t.Fatal(err)
		}
		client.Expire(ctx, tag+"c:"+uid+":2_1", time.Minute)
		var writes []history.Write
		for n := range 5 {
			writes = append(writes, history.Write{Key: key(uid, fmt.Sprint(n)), Record: record(at, 1)})
		}
		for n, out := range c.Write(ctx, writes) {
			if n == 2 && (out.Status != history.Unknown || !errors.Is(out.Err, history.ErrUnavailable)) {
				t.Errorf("write %d: got status %d, error %v; want unknown, unavailable", n, out.Status, out.Err)
			}
			if n != 2 && out.Status != history.Applied {
				t.Errorf("write %d: got status %d, error %v; want applied", n, out.Status, out.Err)
			}
		}
		out := c.Write(ctx, []history.Write{{Key: key(uid, "2"), Record: record(at, 2), Base: 1}})[0]
		if !errors.Is(out.Err, history.ErrUnavailable) {
			t.Errorf("write on a base: got status %d, error %v; want unavailable", out.Status, out.Err)
		}
	})
}
