package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Cache is a [history.Cache] in Redis.
type Cache struct {
	config  Config
	client  goredis.UniversalClient
	scripts scripts
	ttl     string // seconds
	life    string // seconds
}

var _ history.Cache = (*Cache)(nil)

// Open is [New] and [Cache.Prepare]. Its error is one line. The caller closes the
// cache.
func Open(ctx context.Context, config Config) (*Cache, error) {
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	if err := c.Prepare(ctx); err != nil {
		_ = c.client.Close() // the reason to close it says more
		return nil, err
	}
	return c, nil
}

// New returns a cache in a server or a cluster that nobody has asked anything yet. The
// caller closes it.
func New(config Config) (*Cache, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	seconds := int64(config.TTL.Seconds())
	return &Cache{
		config: config, client: config.client(), scripts: newScripts(),
		ttl: strconv.FormatInt(seconds, 10), life: strconv.FormatInt(seconds+24*3600, 10),
	}, nil
}

// Prepare checks that the server or the cluster is fit, logs a warning for each
// setting that endangers records, and hands over the scripts. It fails with
// [history.ErrUnavailable] when another try may succeed: not for a server that is
// too old, of the other kind, or refuses this user.
func (c *Cache) Prepare(ctx context.Context) error {
	err := c.check(ctx)
	if err == nil {
		return nil
	}
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "NOPERM"} {
		if e, ok := errors.AsType[goredis.Error](err); ok && strings.HasPrefix(e.Error(), prefix) {
			err = e
		}
	}
	return fmt.Errorf("open redis at %s: %w", strings.Join(c.config.Addrs, ","), err)
}

// Close ends the connections. Calls after it fail with [history.ErrClosed].
func (c *Cache) Close() error { return c.client.Close() }

// Ping asks for a sign of life, of every master in a cluster. It fails with
// [history.ErrUnavailable].
func (c *Cache) Ping(ctx context.Context) error {
	err := c.each(ctx, func(ctx context.Context, node *goredis.Client) error { return node.Ping(ctx).Err() })
	return unavailable("ping", err)
}

// Life names the lives that the servers are in, of every master in a cluster: when one
// was restarted, or its replica took over, the name is another. It fails with
// [history.ErrUnavailable].
func (c *Cache) Life(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var lives []string
	err := c.each(ctx, func(ctx context.Context, node *goredis.Client) error {
		info, err := node.Info(ctx, "server").Result()
		mu.Lock()
		defer mu.Unlock()
		lives = append(lives, fields(info)["run_id"])
		return err
	})
	slices.Sort(lives)
	return strings.Join(lives, " "), unavailable("ask for its life", err)
}

func (c *Cache) check(ctx context.Context) error {
	if err := c.Ping(ctx); err != nil {
		return err
	}
	if err := c.each(ctx, c.checkNode); err != nil {
		return err
	}
	return unavailable("load scripts", c.teach(ctx))
}

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
	addr := node.Options().Addr
	if p := about["maxmemory_policy"]; p != "" && p != "noeviction" {
		c.config.Log.Warn("redis may evict records that are not archived yet", "addr", addr, "maxmemory_policy", p, "want", "noeviction")
	}
	if about["aof_enabled"] == "0" {
		c.config.Log.Warn("redis keeps no append-only file: acknowledged writes are lost when it stops", "addr", addr)
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
