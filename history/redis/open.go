package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

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
	warmth  string // milliseconds, 0 for ever
	places  atomic.Pointer[places]
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
		warmth: strconv.FormatInt(config.warmth().Milliseconds(), 10),
	}, nil
}

// Prepare checks that the server or the cluster is fit, and hands over the scripts. A
// cluster must have more than half of its masters answer. It
// fails with [history.ErrUnavailable] when another try may succeed: not for a server that
// is too old, of the other kind, or refuses this user, and not with [ErrVolatile], of which
// only a warning is logged where the configuration allows it.
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

// check asks all masters at once. Fewer than half may leave it unanswered: [Cache.Fit] looks at
// their settings later, and they get the scripts when they have forgotten them.
func (c *Cache) check(ctx context.Context) error {
	nodes, err := c.masters(ctx)
	if err != nil {
		return unavailable("ask who takes writes", err)
	}
	greeted := make([]greeting, len(nodes))
	var asking sync.WaitGroup
	for i, node := range nodes {
		asking.Go(func() { greeted[i] = c.greet(ctx, node) })
	}
	asking.Wait()
	var faults []string
	var away []error
	for _, g := range greeted {
		faults = append(faults, g.faults...)
		switch {
		case errors.Is(g.err, history.ErrUnavailable):
			away = append(away, g.err)
		case g.err != nil:
			return g.err
		}
	}
	if err := volatile(faults); err != nil {
		if !c.config.AllowVolatile {
			return err
		}
		c.config.Log.Warn("redis may lose acknowledged writes", "err", err)
	}
	if len(away) == 0 {
		return nil
	}
	if 2*len(away) >= len(nodes) {
		return away[0]
	}
	c.config.Log.Warn("some masters do not answer, their users are refused", "masters", len(away), "err", away[0])
	return nil
}

// greeting is what a server says at the start.
type greeting struct {
	faults []string
	err    error
}

// greet checks a server and hands it the scripts.
func (c *Cache) greet(ctx context.Context, node *goredis.Client) (g greeting) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	if g.err = c.checkNode(ctx, node); g.err != nil {
		return g
	}
	if g.faults, g.err = faultsOf(ctx, node); g.err != nil {
		g.err = unavailable("ask for its settings", g.err)
		return g
	}
	c.warnOfCoverage(ctx, node)
	g.err = unavailable("load scripts", c.teachNode(ctx, node))
	reserve(ctx, node)
	return g
}

// warnOfCoverage tells of a setting, which is the default of Redis, with which all masters
// refuse writes while one of them is down.
func (c *Cache) warnOfCoverage(ctx context.Context, node *goredis.Client) {
	const setting = "cluster-require-full-coverage"
	if !c.config.Cluster {
		return
	}
	if set, err := node.ConfigGet(ctx, setting).Result(); err == nil && set[setting] == "yes" {
		c.config.Log.Warn("one master that is down stops the users of all", "node", node.Options().Addr, "setting", setting+" yes", "want", "no")
	}
}
