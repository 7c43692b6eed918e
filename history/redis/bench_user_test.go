//go:build e2e

package redis_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// BenchmarkList reads the newest twenty of a thousand records, and twenty out of
// the middle.
func BenchmarkList(b *testing.B) {
	both(b, func(b *testing.B, config redis.Config) {
		c := open(b, config)
		uid := user(b, c)
		at := fill(b, c, uid, 1000)
		middle := history.Cursor{Version: history.VersionOf(at+500, 0), Object: key(uid, "500").Object}
		for name, after := range map[string]history.Cursor{"newest": {}, "middle": middle} {
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					if page, err := c.List(b.Context(), uid, history.Query{Limit: 20, After: after}); err != nil || len(page.Items) != 20 {
						b.Fatalf("List: %d items, %v", len(page.Items), err)
					}
				}
			})
		}
	})
}

// BenchmarkLoad reads one record, and one of each of a thousand users.
func BenchmarkLoad(b *testing.B) {
	both(b, func(b *testing.B, config redis.Config) {
		c := open(b, config)
		var keys []history.Key
		for range 1000 {
			k := key(user(b, c), "1")
			keys = append(keys, k)
			put(b, c, history.Write{Key: k, Record: record(hourAgo(), 1)})
		}
		for _, n := range []int{1, 1000} {
			b.Run(fmt.Sprint(n), func(b *testing.B) {
				for b.Loop() {
					if e := c.Load(b.Context(), keys[:n])[0]; e.Record == nil || e.Err != nil {
						b.Fatalf("Load: %+v", e)
					}
				}
			})
		}
	})
}

// BenchmarkLongUser warms, trims and clears users of two thousand records. What
// counts is how long the server does nothing else.
func BenchmarkLongUser(b *testing.B) {
	both(b, func(b *testing.B, config redis.Config) {
		c, at := open(b, config), hourAgo()
		items := make([]history.Item, 2000)
		for i := range items {
			items[i] = history.Item{Object: key("", fmt.Sprint(i)).Object, Record: record(at+int64(i), 1)}
		}
		var uids []string
		for range 50 {
			uids = append(uids, user(b, c))
		}
		for _, step := range []struct {
			name string
			call func(uid string) error
		}{
			{"warm", func(uid string) error { return c.Warm(b.Context(), uid, history.WarmSet{Items: items}) }},
			{"trim", func(uid string) error { return c.Trim(b.Context(), []string{uid}) }},
			{"clear", func(uid string) error {
				_, err := c.Clear(b.Context(), uid, history.Clear{Until: at + 2000})
				return err
			}},
		} {
			busy := serverTime(b, config)
			for _, uid := range uids {
				if err := step.call(uid); err != nil {
					b.Fatalf("%s: %v", step.name, err)
				}
			}
			b.ReportMetric((serverTime(b, config)-busy)*1e6/float64(len(uids)), "server-us/"+step.name)
		}
		b.ReportMetric(0, "ns/op")
	})
}

func both(b *testing.B, bench func(b *testing.B, config redis.Config)) {
	for name, config := range map[string]func(testing.TB) redis.Config{"Single": single, "Cluster": cluster} {
		b.Run(name, func(b *testing.B) { bench(b, config(b)) })
	}
}
