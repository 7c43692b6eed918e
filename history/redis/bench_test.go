//go:build e2e

package redis_test

import (
	"context"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// BenchmarkApply stores heartbeats of 20,000 viewers, a thousand per call, each on the viewer's previous one. Every
// eighth sets a dirty mark, like heartbeats every 15 s under a hold of 120 s. If redis-benchmark is installed, the
// rate on one server is compared with the bare commands.
func BenchmarkApply(b *testing.B) {
	for _, share := range []int{0, 8, 1} {
		b.Run(fmt.Sprintf("Single/marks=%d", share), func(b *testing.B) {
			config := noRetry(b)
			plain := plainly(b, config)
			ours := beat(b, config, share)
			if plain.rate > 0 {
				b.ReportMetric(ours.rate/plain.rate, "of-plain")
				b.ReportMetric(plain.server/ours.server, "of-plain-server")
			}
		})
		b.Run(fmt.Sprintf("Cluster/marks=%d", share), func(b *testing.B) {
			beat(b, cluster(b), share)
		})
	}
}

const viewers = 20_000

// cost is writes per second, and microseconds of server CPU time per write.
type cost struct{ rate, server float64 }

// beat has four callers store heartbeats concurrently.
func beat(b *testing.B, config redis.Config, share int) cost {
	c, all := open(b, config), firstBeats()
	b.Cleanup(func() { leave(b, config, all) })
	apply(b, c, all)
	var turns atomic.Int64
	b.SetParallelism(2) // times the processors
	b.ReportAllocs()
	b.ResetTimer()
	busy := serverTime(b, config)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := int(turns.Add(1))
			writes := all[n*batch%viewers:][:batch]
			next(writes, n, share)
			apply(b, c, writes)
		}
	})
	n := float64(turns.Load() * batch)
	rate := n / b.Elapsed().Seconds()
	b.ReportMetric(1e6/rate, "us/write")
	b.ReportMetric(rate, "writes/s")
	server := (serverTime(b, config) - busy) / n * 1e6
	b.ReportMetric(server, "server-us/write")
	return cost{rate: rate, server: server}
}

// next makes the viewers' next heartbeats.
func next(writes []history.Write, n, share int) {
	now := time.Now().UnixMilli()
	for i := range writes {
		w := &writes[i]
		w.Base = w.Record.Revision
		r := *w.Record
		r.Revision, r.Version, r.Position = history.NewRevision(), history.VersionOf(now, 0), r.Position+15_000
		w.Record = &r
		w.BeginsHold = share > 0 && (i+n)%share == 0
	}
}

const batch = 1000

func firstBeats() []history.Write {
	run := rand.Uint32()
	all := make([]history.Write, viewers)
	for i := range all {
		k := history.Key{UID: fmt.Sprintf("bench%08x.%d", run, i), Object: history.Object{ID: strconv.Itoa(1000 + i%37), Type: 1}}
		all[i] = history.Write{Key: k, Record: heartbeat(time.Now().UnixMilli(), i)}
	}
	return all
}

// heartbeat is a record of about 110 bytes.
func heartbeat(at int64, i int) *history.Record {
	e := history.Event{
		Kind: history.KindProgress, At: at, Position: int64(i) * 100, Duration: 7_200_000,
		Session: "5f2b7c1e-9d0a-4f6b-8e3c-1a2b3c4d5e6f", Device: "living-room-tv-0001", Meta: history.NewMeta(map[string]string{"season": "2", "episode": "11"}),
	}
	r := e.Record()
	r.Revision = history.NewRevision()
	return r
}

func apply(b *testing.B, c *redis.Cache, writes []history.Write) {
	for from := 0; from < len(writes); from += batch {
		part := writes[from:min(from+batch, len(writes))]
		for i, out := range c.Write(b.Context(), part) {
			if out.Status != history.Applied {
				b.Fatalf("Write(%s): status %d, %v", part[i].Key, out.Status, out.Err)
			}
		}
	}
}

// leave removes the viewers.
func leave(b *testing.B, config redis.Config, all []history.Write) {
	client, ctx := raw(b, config), context.WithoutCancel(b.Context())
	_, err := client.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
		for _, w := range all {
			tag := fmt.Sprintf("{b%04d}:", history.BucketOf(w.Key.UID))
			pipe.Del(ctx, tag+"h:"+w.Key.UID, tag+"c:"+w.Key.UID+":"+w.Key.Object.String())
			pipe.ZRem(ctx, tag+"dirty", w.Key.String())
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
}

// serverTime returns the CPU seconds used by the servers' main threads.
func serverTime(b *testing.B, config redis.Config) float64 {
	total := 0.0
	for _, addr := range config.Addrs {
		config := redis.Config{Addrs: []string{addr}}
		info, err := raw(b, config).Info(b.Context(), "cpu").Result()
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if strings.HasSuffix(name, "_main_thread") {
				seconds, _ := strconv.ParseFloat(value, 64)
				total += seconds
			}
		}
	}
	return total
}

// plainly runs ZADD and SET EX with redis-benchmark. It returns zero without that program.
func plainly(b *testing.B, config redis.Config) cost {
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		return cost{}
	}
	zadd := benchmark(b, config, "ZADD", "{b0000}:bench:h:__rand_int__", "__rand_int__", "1000_1")
	set := benchmark(b, config, "SET", "{b0000}:bench:c:__rand_int__:1000_1", strings.Repeat("x", 140), "EX", "60")
	b.Cleanup(func() { leavePlain(b, config) })
	return cost{rate: 1 / (1/zadd.rate + 1/set.rate), server: zadd.server + set.server}
}

// benchmark measures one command.
func benchmark(b *testing.B, config redis.Config, command ...string) cost {
	const n = 1_000_000
	host, port, err := net.SplitHostPort(config.Addrs[0])
	if err != nil {
		b.Fatal(err)
	}
	args := append([]string{"-h", host, "-p", port, "-P", "256", "-n", strconv.Itoa(n), "-r", strconv.Itoa(viewers), "--csv"}, command...)
	busy := serverTime(b, config)
	out, err := exec.CommandContext(b.Context(), "redis-benchmark", args...).Output()
	if err != nil {
		b.Fatalf("redis-benchmark: %v", err)
	}
	server := (serverTime(b, config) - busy) / n * 1e6
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) == 0 {
		b.Fatalf("redis-benchmark answered %q: %v", out, err)
	}
	rate, err := strconv.ParseFloat(rows[len(rows)-1][1], 64)
	if err != nil {
		b.Fatalf("redis-benchmark answered %q: %v", out, err)
	}
	return cost{rate: rate, server: server}
}

func leavePlain(b *testing.B, config redis.Config) {
	client, ctx := raw(b, config), context.WithoutCancel(b.Context())
	_, err := client.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
		for i := range viewers {
			pipe.Del(ctx, fmt.Sprintf("{b0000}:bench:h:%012d", i), fmt.Sprintf("{b0000}:bench:c:%012d:1000_1", i))
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkList reads twenty of a thousand records, at the top and in the middle.
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

// BenchmarkLongUser warms, trims and clears users of two thousand records. It measures how long the server is
// blocked.
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
	for name, config := range map[string]func(testing.TB) redis.Config{"Single": noRetry, "Cluster": cluster} {
		b.Run(name, func(b *testing.B) { bench(b, config(b)) })
	}
}
