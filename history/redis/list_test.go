package redis_test

import (
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

func bucket(uid string) string { return fmt.Sprintf("b%04d", history.BucketOf(uid)) }

// fill stores n clean records, one per millisecond.
func fill(t testing.TB, c *redis.Cache, uid string, n int) int64 {
	t.Helper()
	at := hourAgo()
	var writes []history.Write
	var contents []history.Content
	for i := range n {
		w := history.Write{Key: key(uid, fmt.Sprint(i)), Record: record(at+int64(i), uint64(i+1))}
		writes, contents = append(writes, w), append(contents, history.Content{Key: w.Key, Revision: w.Record.Revision})
	}
	put(t, c, writes...)
	if err := c.MarkClean(t.Context(), contents); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestListOverExpired removes contents under a list: no page is short.
func TestListOverExpired(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid := user(t, c)
		fill(t, c, uid, 200)
		for n := range 200 {
			if n%20 != 0 {
				client.Del(ctx, fmt.Sprintf("{%s}:c:%s:%d_1", bucket(uid), uid, n))
			}
		}
		var got []string
		q := history.Query{Limit: 3}
		for more := true; more; {
			page, err := c.List(ctx, uid, q)
			if err != nil || len(page.Items) == 0 || page.More && len(page.Items) != 3 {
				t.Fatalf("List(%+v): got %d items, more %t, error %v", q, len(page.Items), page.More, err)
			}
			for _, item := range page.Items {
				got = append(got, item.Object.ID)
				q.After = history.Cursor{Version: item.Record.Version, Object: item.Object}
			}
			more = page.More
		}
		if want := "[180 160 140 120 100 80 60 40 20 0]"; fmt.Sprint(got) != want {
			t.Errorf("pages: got %v, want %s", got, want)
		}
	})
}

// TestListWhileWritten writes a record between a list's two exchanges.
func TestListWhileWritten(t *testing.T) {
	for _, test := range []struct {
		name  string
		query history.Query
		want  string
	}{
		{"first page", history.Query{Limit: 3}, "[5 9 8] true"},
		{"whole list", history.Query{Limit: 10}, "[5 9 8 7 6 4 3 2 1 0] false"},
		{"later page", history.Query{Limit: 3, After: cursorOf(6)}, "[4 3 2] true"},
		{"bounded", history.Query{Limit: 5, Until: 6}, "[6 4 3 2 1] true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := miniredis.RunT(t)
			c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
			uid := user(t, c)
			at := fill(t, c, uid, 10)
			fake.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
				if cmd == "MGET" {
					fake.Server().SetPreHook(nil)
					put(t, c, history.Write{Key: key(uid, "5"), Record: record(at+100, 99), Base: 6 | history.CleanBit})
				}
				return false
			})
			q := test.query
			if q.Until != 0 {
				q.Until += at
			}
			if q.After != (history.Cursor{}) {
				q.After.Version += history.VersionOf(at, 0)
			}
			page, err := c.List(t.Context(), uid, q)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, item := range page.Items {
				ids = append(ids, item.Object.ID)
			}
			if got := fmt.Sprint(ids, page.More); got != test.want {
				t.Errorf("List: got %s, want %s", got, test.want)
			}
		})
	}
}

// cursorOf returns the cursor of the n-th record, relative to the first one's time.
func cursorOf(n int64) history.Cursor {
	return history.Cursor{Version: history.VersionOf(n, 0), Object: history.Object{ID: fmt.Sprint(n), Type: 1}}
}

// TestListExchanges: the newest twenty of a thousand take two exchanges.
func TestListExchanges(t *testing.T) {
	fake := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	uid := user(t, c)
	fill(t, c, uid, 1000)
	before := fake.CommandCount()
	page, err := c.List(t.Context(), uid, history.Query{Limit: 20})
	if err != nil || len(page.Items) != 20 || !page.More {
		t.Fatalf("List: got %d items, more %t, error %v", len(page.Items), page.More, err)
	}
	if got := fake.CommandCount() - before; got != 6 { // a script and its command count as two
		t.Errorf("commands: got %d, want the state and ZREVRANGEBYSCORE, then MGET and the state", got)
	}
}
