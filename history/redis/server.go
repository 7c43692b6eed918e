package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// each visits every server that takes writes.
func (c *Cache) each(ctx context.Context, visit func(context.Context, *goredis.Client) error) error {
	switch client := c.client.(type) {
	case *goredis.Client:
		return visit(ctx, client)
	case *goredis.ClusterClient:
		return client.ForEachMaster(ctx, visit)
	}
	panic("redis: a client of another kind") // Config.client makes these two
}

func (c *Cache) checkNode(ctx context.Context, node *goredis.Client) error {
	info, err := node.Info(ctx).Result()
	if err != nil {
		return unavailable("ask for its state", err)
	}
	about := fields(info)
	if v := about["redis_version"]; major(v) != 0 && major(v) < 7 {
		return fmt.Errorf("version %s, want 7.0 or later", v)
	}
	if about["cluster_enabled"] == "1" && !c.config.Cluster {
		return errors.New("it is a node of a cluster: configure it as one")
	}
	return nil
}

// fields parses an answer to INFO.
func fields(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m
}

// major returns 0 for a server that does not say.
func major(version string) int {
	text, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(text)
	return n
}

// ErrVolatile means that a server is set up to lose acknowledged writes.
var ErrVolatile = errors.New("redis may lose acknowledged writes")

// Fit reports whether the servers, in a cluster every master, keep what they acknowledge:
// they evict nothing, and write an append-only file and flush it. It fails with an
// [ErrVolatile] that names each server and setting, whatever [Config.AllowVolatile] says,
// or with [history.ErrUnavailable] when it finds none and one does not answer. Settings change while a server runs, so ask again. Of
// a server that does not say how a thing is set nothing is known.
func (c *Cache) Fit(ctx context.Context) error {
	var mu sync.Mutex
	var faults []string
	err := c.each(ctx, func(ctx context.Context, node *goredis.Client) error {
		found, err := faultsOf(ctx, node)
		if err == nil {
			reserve(ctx, node)
		}
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, found...)
		return err
	})
	if len(faults) > 0 {
		return volatile(faults)
	}
	return unavailable("ask for its settings", err)
}

// volatile makes an error of what endangers records, nil of nothing.
func volatile(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	return fmt.Errorf("%w: %s", ErrVolatile, strings.Join(faults, "; "))
}

// faultsOf returns the settings of a server that endanger records, with its address.
func faultsOf(ctx context.Context, node *goredis.Client) ([]string, error) {
	info, err := node.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	// Some services that run Redis for others refuse CONFIG.
	flush, err := node.ConfigGet(ctx, "appendfsync").Result()
	if _, refused := errors.AsType[goredis.Error](err); err != nil && !refused {
		return nil, err
	}
	var faults []string
	about, has := fields(info), node.Options().Addr+" has "
	if p := about["maxmemory_policy"]; p != "" && p != "noeviction" {
		faults = append(faults, has+"maxmemory-policy "+p+", want noeviction")
	}
	if about["aof_enabled"] == "0" {
		faults = append(faults, has+"appendonly no, want yes")
	}
	if flush["appendfsync"] == "no" {
		faults = append(faults, has+"appendfsync no, want everysec or always")
	}
	return faults, nil
}

// Life names the lives that the servers are in, of every master in a cluster: when one
// was restarted or emptied, or its replica took over, the name is another. It may also be
// another for no such reason when slots have moved. It fails with [history.ErrUnavailable]
// when one of them does not answer.
func (c *Cache) Life(ctx context.Context) (string, error) {
	first, err := c.firstBuckets(ctx)
	if err != nil {
		return "", unavailable("ask for its life", err)
	}
	var mu sync.Mutex
	var lives []string
	err = c.each(ctx, func(ctx context.Context, node *goredis.Client) error {
		life, err := c.lifeOf(ctx, node, first)
		mu.Lock()
		defer mu.Unlock()
		lives = append(lives, life)
		return err
	})
	slices.Sort(lives)
	return strings.Join(lives, " "), unavailable("ask for its life", err)
}

// lifeOf returns the run id of a server, and the nonce among its keys, which goes when it is
// emptied. A slot that moves takes its nonce along.
func (c *Cache) lifeOf(ctx context.Context, node *goredis.Client, first map[string]history.Bucket) (string, error) {
	info, err := node.Info(ctx, "server").Result()
	b, has := first[node.Options().Addr]
	if err != nil || !has {
		return fields(info)["run_id"], err
	}
	nonce, err := c.nonce(ctx, string(append(appendBucket(nil, b), "life"...)))
	return fields(info)["run_id"] + "/" + nonce, err
}

// nonce returns what a key holds, which nobody changes. One that is not there gets some.
func (c *Cache) nonce(ctx context.Context, key string) (string, error) {
	text, err := c.client.Get(ctx, key).Result()
	if !errors.Is(err, goredis.Nil) {
		return text, err
	}
	fresh := rand.Text()
	text, err = c.client.SetArgs(ctx, key, fresh, goredis.SetArgs{Mode: "NX", Get: true}).Result()
	if errors.Is(err, goredis.Nil) {
		return fresh, nil
	}
	return text, err // of somebody who was faster
}

// firstBuckets returns the first bucket of each server, by its address.
func (c *Cache) firstBuckets(ctx context.Context) (map[string]history.Bucket, error) {
	first := map[string]history.Bucket{}
	for b := range history.Bucket(history.Buckets) {
		node, err := c.master(ctx, b)
		if err != nil {
			return nil, err
		}
		addr := node.Options().Addr
		if _, has := first[addr]; !has {
			first[addr] = b
		}
		if !c.config.Cluster {
			break
		}
	}
	return first, nil
}

// timeGrace is how long the other masters are waited for once more than half of all have
// told the time.
const timeGrace = 50 * time.Millisecond

// Time returns what time it is for the servers, at the end of the call: in a cluster the
// median of the masters' clocks. Of an even number it is the earlier one, so that a clock
// which is ahead is not believed. More than half of the masters must answer; the others are
// waited for a little, so that neither a wrong clock nor a silent master matters. It fails
// with [history.ErrUnavailable].
func (c *Cache) Time(ctx context.Context) (time.Time, error) {
	nodes, err := c.masters(ctx)
	if err != nil {
		return time.Time{}, unavailable("ask for the time", err)
	}
	type answer struct {
		ahead time.Duration // of this machine
		err   error
	}
	answers := make(chan answer, len(nodes))
	for _, node := range nodes {
		go func() { // ends with the client's timeout, at the latest
			now, err := node.Time(ctx).Result()
			answers <- answer{time.Until(now), err}
		}()
	}
	var ahead []time.Duration
	var enough <-chan time.Time
	for waiting := len(nodes); waiting > 0; waiting-- {
		select {
		case a := <-answers:
			if err = cmp.Or(a.err, err); a.err != nil {
				continue
			}
			ahead = append(ahead, a.ahead)
		case <-enough:
			waiting = 1
		}
		if enough == nil && len(ahead) > len(nodes)/2 {
			enough = time.After(timeGrace)
		}
	}
	if len(ahead) <= len(nodes)/2 {
		return time.Time{}, unavailable("ask for the time", err)
	}
	slices.Sort(ahead)
	return time.Now().Add(ahead[(len(ahead)-1)/2]), nil
}

// masters returns the servers that have buckets. Unlike [Cache.each] it does not ask the
// cluster who they are, which may be a silent one's turn to say.
func (c *Cache) masters(ctx context.Context) (all []*goredis.Client, err error) {
	for b := range history.Bucket(history.Buckets) {
		node, err := c.master(ctx, b)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, node) {
			all = append(all, node)
		}
		if !c.config.Cluster {
			break
		}
	}
	return all, nil
}
