package redis

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/playhead/playhead/history"
)

// Config says where the cache is and what it keeps. The zero value is a server
// without password on this machine.
type Config struct {
	// Addrs are the server, or some nodes of the cluster. Default 127.0.0.1:6379.
	Addrs   []string
	Cluster bool

	Username string
	Password string
	TLS      *tls.Config // nil for plain connections

	// Keep is how many records of a user Trim leaves. Default 1,000.
	Keep int
	// TTL is how long a record lives after the write that set its last mark, which is
	// its last write or at most a hold older. Below the longest outage of the archive,
	// records get lost. Below [history.ArchiveLife], users are warmed again after nine
	// tenths of it. Default 90 days.
	TTL time.Duration
	// AllowVolatile accepts servers that may lose acknowledged writes, see [Cache.Fit].
	AllowVolatile bool
	// Timeout bounds the wait for one answer; a context may bound it further.
	// Default 2 s.
	Timeout time.Duration
	// Log gets warnings about the server's configuration and about contents that
	// cannot be read. Default none.
	Log *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{"127.0.0.1:6379"}
	}
	if c.Keep == 0 {
		c.Keep = 1000
	}
	if c.TTL == 0 {
		c.TTL = 90 * 24 * time.Hour
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case !c.Cluster && len(c.Addrs) > 1:
		return c, fmt.Errorf("redis: %d addresses, want one or a cluster", len(c.Addrs))
	case c.Keep < 0:
		return c, fmt.Errorf("redis: keep %d records, want at least 1", c.Keep)
	case c.TTL < time.Second:
		return c, fmt.Errorf("redis: TTL %s, want at least 1s", c.TTL)
	case c.Timeout < 0:
		return c, fmt.Errorf("redis: timeout %s, want a positive one", c.Timeout)
	}
	return c, nil
}

// warmth returns how long a user is warm after a warm-up, 0 for ever. Where records expire
// before the archive forgets them, a user must be cold again before the first one does.
func (c Config) warmth() time.Duration {
	if c.TTL >= history.ArchiveLife*time.Millisecond {
		return 0
	}
	return c.TTL * 9 / 10
}

// client does no I/O. go-redis would write a line to standard error for each dial
// that fails; its errors reach the caller anyway. It tries again once, because a pooled connection may have
// died unnoticed; whoever waits for an answer knows better than the client how
// long an outage may last.
func (c Config) client() goredis.UniversalClient {
	logging.Disable()
	return goredis.NewUniversalClient(&goredis.UniversalOptions{
		Addrs: c.Addrs, IsClusterMode: c.Cluster,
		Username: c.Username, Password: c.Password, TLSConfig: c.TLS,
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               1, DialerRetries: 1,
		DialTimeout: c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, ContextTimeoutEnabled: true,
		// One pool for all calls, so that the spare connections are for all.
		PoolSize: poolSize(), PipelinePoolSize: -1, ConnMaxIdleTime: -1,
	})
}
