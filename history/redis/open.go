package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// Prepare checks that the server or the cluster is fit, and hands over the scripts. It
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

func (c *Cache) check(ctx context.Context) error {
	if err := c.Ping(ctx); err != nil {
		return err
	}
	if err := c.each(ctx, c.checkNode); err != nil {
		return err
	}
	if err := c.Fit(ctx); err != nil {
		if !c.config.AllowVolatile || !errors.Is(err, ErrVolatile) {
			return err
		}
		c.config.Log.Warn("redis may lose acknowledged writes", "err", err)
	}
	return unavailable("load scripts", c.teach(ctx))
}
