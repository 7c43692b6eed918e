// Package redis is a [history.Cache] in Redis 7.0 or later, on one server or a cluster.
//
// A user's keys share the hash tag of the user's bucket, so one script can touch all of them, in a cluster too.
// [history.AppendUID] escapes the uids in keys; object members are unescaped.
//
//	{b0007}:c:<uid>:100_1  string  the record, encoded by package wire
//	{b0007}:h:<uid>        zset    the list: members "100_1", scores ms + rank/4
//	{b0007}:u:<uid>        hash    the state: low_watermark, warmed (ms), cleared, cleared:<type>, cut, paused, resumed,
//	                               pauses, rev (of clear marks and pause), seen, log; trimmed, of a cold user
//	{b0007}:l:<uid>        zset    the change log: members "100_1", scores their places; first its name, a member
//	                               without underscore, scored with the last dropped place. The log counts only
//	                               while the state names it.
//	{b0007}:dirty          zset    dirty marks: members "<uid>/100_1" and "<uid>/*", scores microseconds
//	{b0007}:firsts         zset    unannounced first sightings: members "<uid>/20261121", scores microseconds
//	{b0007}:long           zset    users with many live records in the archive, by due time; up to 1,000, for 90 days
//	{b0007}:removed        zset    users with deleted or cleared records, by time; for an hour, or a day without jobs
//	{b0007}:epoch          string  a nonce in the first bucket of each server. It is lost with the server's data, and
//	                               expires before them if the clock jumps ahead.
//	playhead:trusted       string  latest time that a process trusted, Unix ms; never expires
//	playhead:retention     string  a copy of the archive's retention, as JSON; never expires
//
// A dirty content has no TTL; marking it clean sets one. Lists and states expire half a day later, or up to a day,
// and writes that set a mark renew them. States do not expire while recording is off. Readers skip list members
// whose content has expired. If the TTL is shorter than the archive's, a user is cold again after nine tenths of it.
// So no record of a warm user expires.
//
// The highest bit of byte 8 of a content is the clean bit: the archive has the record. A dirty content has a dirty
// mark, written before the content and removed after the bit is set.
//
// Every write is a script, hence atomic. Scripts are called by digest, in pipelines, and reloaded if a server
// forgot them. A script takes many writes: any on one server, those of one bucket in a cluster. In a cluster it
// declares every key it may touch, so it never runs while a moving slot splits its keys. Scripts over a user's list
// get its keys from an earlier read, and refuse if the list has grown.
package redis

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/playhead/playhead/history"
)

// Cache is a [history.Cache] in Redis.
type Cache struct {
	config   Config
	client   goredis.UniversalClient
	scripts  scripts
	ttl      string // seconds
	stateTTL string // seconds
	nodes    atomic.Pointer[nodeMap]
	memory   memory
}

// New returns a cache in a server or a cluster, without any I/O. The caller closes it.
func New(config Config) (*Cache, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	seconds := int64(config.TTL.Seconds())
	return &Cache{
		config: config, client: config.client(), scripts: newScripts(),
		ttl: strconv.FormatInt(seconds, 10), stateTTL: strconv.FormatInt(seconds+24*3600, 10),
		memory: newMemory(config.Registry),
	}, nil
}

// ttls returns the TTL of contents, and of list and state, in seconds, for a user or namespace.
func (c *Cache) ttls(uid string) (content, state string) {
	ms := c.config.Rules.NamespaceTTL(uid)
	if ms >= c.config.TTL.Milliseconds() {
		return c.ttl, c.stateTTL
	}
	seconds := ms/1000 + namespaceMargin
	return strconv.FormatInt(seconds, 10), strconv.FormatInt(seconds+24*3600, 10)
}

// namespaceMargin is the extra TTL in seconds of a class's contents. After a late archiving the TTL counts from the
// write that set the dirty mark, which may be a hold older than the last write.
const namespaceMargin = 3600

// keep returns how many records of a user or namespace Trim keeps.
func (c *Cache) keep(uid string) int { return c.config.Rules.NamespaceList(uid, c.config.Keep) }

// logged returns how many change log entries Trim keeps.
func (c *Cache) logged(uid string) int { return c.config.Rules.NamespaceLog(uid, c.config.Keep) }

// Close closes the connections. Later calls fail with [history.ErrClosed].
func (c *Cache) Close() error { return c.client.Close() }

// Config locates the cache and sets its limits. The zero value is a local server without password.
type Config struct {
	// Addrs are the server, or some nodes of the cluster. Default 127.0.0.1:6379.
	Addrs   []string
	Cluster bool

	Username string
	Password string
	// Secret returns the password for a new connection, instead of Password, when it may change.
	Secret func() (string, error)
	TLS    *tls.Config // nil for plain connections

	// Keep is how many records per user Trim keeps. Default 1,000.
	Keep int
	// Rules set limits and TTLs by class, and the retention; nil means that of the server, see [Cache.Prepare].
	Rules *history.Rulebook
	// TTL of a record once it is archived. Users' lists, clear marks and pauses live a day longer than that after
	// the last change: an archive outage longer than TTL loses clears. Below the retention, users are warmed
	// again after nine tenths of it. Default 90 days.
	TTL time.Duration
	// AllowVolatile accepts servers that may lose acknowledged writes, see [Cache.Fit].
	AllowVolatile bool
	// Timeout bounds the wait for one answer; a context may shorten it. Default 2 s.
	Timeout time.Duration
	// Registry receives the servers' memory; nil disables it.
	Registry prometheus.Registerer
	// Log gets warnings about server settings and unreadable contents. Default none.
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
	if c.Rules == nil {
		c.Rules = new(history.Rulebook)
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
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

// warmFor returns how long a warm-up lasts in milliseconds, 0 for forever. If records expire before the archive's do,
// a user must turn cold before the first one expires. Warm-ups before records began to live longer, up to the time
// that follows, are over: their records may have a shorter TTL.
func (c *Cache) warmFor() string {
	ttl, warm := c.config.TTL.Milliseconds(), int64(0)
	if ttl < c.config.Rules.TTL(0) {
		warm = ttl * 9 / 10
	}
	text := strconv.FormatInt(warm, 10)
	if changed := c.config.Rules.Changed(); changed > 0 {
		text += " " + strconv.FormatInt(changed+changeMargin.Milliseconds(), 10)
	}
	return text
}

// changeMargin is how long a process with another retention may go on after a change.
const changeMargin = 2 * time.Minute

// client does no I/O. It mutes go-redis, which logs failed dials to standard error. Single commands are retried
// once, because a pooled connection may be dead; [pipeline] retries pipelines. Longer retries are up to the caller.
func (c Config) client() goredis.UniversalClient {
	logging.Disable()
	return goredis.NewUniversalClient(&goredis.UniversalOptions{
		Addrs: c.Addrs, IsClusterMode: c.Cluster,
		Username: c.Username, Password: c.Password, CredentialsProviderContext: c.credentials(), TLSConfig: c.TLS,
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               1, DialerRetries: 1,
		DialTimeout: c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, ContextTimeoutEnabled: true,
		// One pool for all calls shares the spare connections.
		PoolSize: poolSize(), PipelinePoolSize: -1, ConnMaxIdleTime: -1,
	})
}

// credentials returns nil for a fixed password.
func (c Config) credentials() func(context.Context) (name, password string, err error) {
	if c.Secret == nil {
		return nil
	}
	return func(context.Context) (name, password string, err error) {
		password, err = c.Secret()
		return c.Username, password, err
	}
}

var (
	//go:embed lua/user.lua
	userLua string
	//go:embed lua/apply.lua
	applyLua string
	//go:embed lua/load.lua
	loadLua string
	//go:embed lua/clear.lua
	clearLua string
	//go:embed lua/pause.lua
	pauseLua string
	//go:embed lua/warm.lua
	warmLua string
	//go:embed lua/excess.lua
	excessLua string
	//go:embed lua/trim.lua
	trimLua string
	//go:embed lua/mark_clean.lua
	markCleanLua string
	//go:embed lua/see.lua
	seeLua string
	//go:embed lua/overdue.lua
	overdueLua string
	//go:embed lua/changes.lua
	changesLua string
	//go:embed lua/beginlog.lua
	beginLogLua string
	//go:embed lua/trimlog.lua
	trimLogLua string
)

// script is a Lua program and its digest.
type script struct{ text, digest string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, digest: hex.EncodeToString(sum[:])}
}

type scripts struct {
	apply, load, clear, pause, warm, excess, trim, markClean, overdue, see, changes, beginLog, trimLog script
}

func newScripts() scripts {
	return scripts{
		apply: newScript(userLua + applyLua), load: newScript(userLua + loadLua), clear: newScript(userLua + clearLua),
		pause: newScript(userLua + pauseLua), warm: newScript(userLua + warmLua),
		excess: newScript(excessLua), trim: newScript(userLua + trimLua),
		markClean: newScript(markCleanLua), overdue: newScript(overdueLua), see: newScript(userLua + seeLua),
		changes: newScript(changesLua), beginLog: newScript(userLua + beginLogLua), trimLog: newScript(trimLogLua),
	}
}

func (s scripts) all() []script {
	return []script{s.apply, s.load, s.clear, s.pause, s.warm, s.excess, s.trim, s.markClean, s.overdue, s.see, s.changes, s.beginLog, s.trimLog}
}

// call returns a call of the script. In a cluster all keys must be in one slot.
func (s script) call(ctx context.Context, keys []string, args ...any) *goredis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.digest, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return goredis.NewCmd(ctx, append(all, args...)...)
}

// nodeMap maps buckets to servers at a time.
type nodeMap struct {
	at    time.Time
	addrs [history.Buckets]string
}

// Opening a connection costs a round trip. A slow server needs more connections and opens them slowly, so some are
// opened in advance.
const (
	spare     = 32 // minimum per server
	mostConns = 64 // maximum per server on a small machine
)

// poolSize returns the maximum number of connections per server.
func poolSize() int { return max(mostConns, 10*runtime.GOMAXPROCS(0)) }
