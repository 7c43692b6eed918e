// Package redis keeps records in Redis 7.0 or later, one server or a cluster. It
// is a [history.Cache].
//
// A user's keys share the hash tag of the user's bucket, so that one script may
// touch all of them in a cluster too. Of a uid, unlike of a member, [history.AppendUID] has what is no plain letter:
//
//	{b0007}:c:<uid>:100_1  string  the record, as package wire encodes it
//	{b0007}:h:<uid>        zset    the list: members "100_1", scores ms + rank/4
//	{b0007}:u:<uid>        hash    low watermark, warmed (ms), cleared, cleared:<type>, cut, paused, resumed, pauses,
//	                               rev (of the clear marks and the pause), seen, log; trimmed of a cold user
//	{b0007}:l:<uid>        zset    the log of changes: members "100_1", scores their places; before them its name, a
//	                               member without an underscore, whose score is the last place that was dropped;
//	                               while the state names it too, there is a log
//	{b0007}:dirty          zset    members "<uid>/100_1" and "<uid>/*", scores microseconds
//	{b0007}:firsts         zset    members "<uid>/20261121" that are not announced, scores microseconds
//	{b0007}:long           zset    users of whom the archive has a long live part, by when they are due, up to 1,000, for 90 days
//	{b0007}:removed        zset    users of whom something was deleted or cleared, by when, for an hour, or a day without jobs
//	{b0007}:life           string  random, in the first bucket of each server: it goes with its data,
//	                               and expires before them when the clock goes far ahead
//	playhead:trusted       string  the latest time that a process trusted, in Unix milliseconds, for ever
//
// Contents expire after the configured TTL, lists and users' states a day later:
// a state only while recording is on:
// every write starts the former anew, a new dirty mark the latter when half of that
// day is over. A content that expired before its place in the list leaves a hole,
// which readers skip. Where contents live shorter than in the archive, a user is cold again
// after nine tenths of that, so that no record expires while its user is warm.
//
// Byte 8 of a content has the highest bit set once the archive has it. Until then the key
// has a dirty mark, which is written before the content and removed after the bit is set.
//
// All writes are scripts, so that each is one step. Scripts travel by digest, in
// pipelines; a server that forgot them gets them again. On one server a script
// takes many writes, in a cluster those of one bucket. There all keys that a script may
// touch are declared, so that none runs on a part of them while a slot moves; for what only
// the list knows, the list is read first, and the script refuses when it has grown.
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
	warmFor  string // milliseconds, 0 for ever
	nodes    atomic.Pointer[nodeMap]
}

var _ history.Cache = (*Cache)(nil)

// New returns a cache in a server or a cluster, without any I/O. The
// caller closes it.
func New(config Config) (*Cache, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	seconds := int64(config.TTL.Seconds())
	return &Cache{
		config: config, client: config.client(), scripts: newScripts(),
		ttl: strconv.FormatInt(seconds, 10), stateTTL: strconv.FormatInt(seconds+24*3600, 10),
		warmFor: strconv.FormatInt(config.warmFor().Milliseconds(), 10),
	}, nil
}

// ttls returns how long, in seconds, contents of a user or of a user's namespace live, and the list and the state.
func (c *Cache) ttls(uid string) (content, state string) {
	ms := c.config.Rules.NamespaceTTL(uid)
	if ms >= c.config.TTL.Milliseconds() || ms >= history.ArchiveTTL {
		return c.ttl, c.stateTTL
	}
	seconds := ms/1000 + namespaceMargin
	return strconv.FormatInt(seconds, 10), strconv.FormatInt(seconds+24*3600, 10)
}

// namespaceMargin is for how many seconds more than they are shown contents of a class live: one is as old as its mark, which may be a
// hold older than its last write.
const namespaceMargin = 3600

// keep is how many records of a user, or of a user's namespace, Trim leaves.
func (c *Cache) keep(uid string) int { return c.config.Rules.NamespaceList(uid, c.config.Keep) }

// logged is how many entries of their log of changes it leaves.
func (c *Cache) logged(uid string) int { return c.config.Rules.NamespaceLog(uid, c.config.Keep) }

// Close ends the connections. Calls after it fail with [history.ErrClosed].
func (c *Cache) Close() error { return c.client.Close() }

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
	// Rules say how many of a class it leaves, and for how long a record of one lives.
	Rules *history.Rulebook
	// TTL is how long a record lives after the write that set its last mark, which is
	// its last write or at most a hold older. Below the longest outage of the archive,
	// records get lost. Below [history.ArchiveTTL], users are warmed again after nine
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

// warmFor returns how long a user is warm after a warm-up, 0 for ever. Where records expire
// before the archive forgets them, a user must be cold again before the first one does.
func (c Config) warmFor() time.Duration {
	if c.TTL >= history.ArchiveTTL*time.Millisecond {
		return 0
	}
	return c.TTL * 9 / 10
}

// client does no I/O. go-redis would write a line to standard error for each dial
// that fails; its errors reach the caller anyway. Single commands it tries again once, because a pooled connection may
// have died unnoticed, and pipelines as [pipeline] says; the caller knows better than the client how long an outage may last.
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

// script is a Lua program and the digest that servers know it by.
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

// call is the call of a script. All of its keys belong to one slot, or the cache to
// one server.
func (s script) call(ctx context.Context, keys []string, args ...any) *goredis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.digest, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return goredis.NewCmd(ctx, append(all, args...)...)
}

// nodeMap has the servers of the buckets at a time.
type nodeMap struct {
	at    time.Time
	addrs [history.Buckets]string
}

// A call that finds no free connection opens one, which costs an exchange of its own. A
// server that has become slow needs more of them, and takes as long over each. So some are
// kept open while it is quick.
const (
	spare     = 32 // at least, to each server
	mostConns = 64 // at most on a small machine; more wait for each other
)

// poolSize is how many connections there may be to one server.
func poolSize() int { return max(mostConns, 10*runtime.GOMAXPROCS(0)) }
