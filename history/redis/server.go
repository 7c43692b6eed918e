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
	"github.com/playhead/playhead/internal/clock"
)

// Open is [New] followed by [Cache.Prepare]. Its error is one line. The caller closes the cache.
func Open(ctx context.Context, config Config) (*Cache, error) {
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	if err := c.Prepare(ctx); err != nil {
		_ = c.client.Close() // Prepare's error matters more
		return nil, err
	}
	return c, nil
}

// Prepare checks the servers and loads the scripts. In a cluster more than half of the masters must answer.
//
// It fails with [history.ErrUnavailable] if a retry may succeed, such as while a server is loading or is a replica.
// Other errors are final: an old version, a cluster node configured as a single server, refused credentials, or
// [ErrVolatile], or another retention. With [Config.AllowVolatile] the third is only logged.
func (c *Cache) Prepare(ctx context.Context) error {
	err := c.check(ctx)
	if err == nil {
		err = c.agree(ctx)
	}
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[goredis.Error](err); ok && refused(e.Error()) {
		if err = e; strings.HasPrefix(e.Error(), clusterDisabled) {
			err = fmt.Errorf("%w: unset --redis-cluster, or give one address", e)
		}
	}
	return fmt.Errorf("open redis at %s: %w", strings.Join(c.config.Addrs, ","), err)
}

// refusals are prefixes of errors that persist until somebody changes a setting. All other errors are transient,
// such as LOADING, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, READONLY, NOREPLICAS, BUSY, MISCONF and OOM.
var refusals = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
	"ERR AUTH", // Password for a server without one.
	clusterDisabled,
}

const clusterDisabled = "ERR This instance" // has cluster support disabled

func refused(answer string) bool {
	return slices.ContainsFunc(refusals, func(r string) bool { return strings.HasPrefix(answer, r) })
}

// notYet returns why a server that answers INFO cannot serve yet, if so. Such a server also reports its append-only
// file as off.
func notYet(about map[string]string) error {
	switch {
	case about["loading"] == "1":
		return errors.New("it loads its file")
	case about["role"] == "slave":
		return errors.New("it is a replica")
	}
	return nil
}

// Ping checks that every master answers. It fails with [history.ErrUnavailable].
func (c *Cache) Ping(ctx context.Context) error {
	err := c.each(ctx, func(ctx context.Context, node *goredis.Client) error { return node.Ping(ctx).Err() })
	return unavailable("ping", err)
}

// check inspects all masters concurrently. Fewer than half may be silent: [Cache.Fit] checks their settings later,
// and a call that misses a script loads it.
func (c *Cache) check(ctx context.Context) error {
	nodes, err := c.masters(ctx)
	if err != nil {
		return unavailable("ask who takes writes", err)
	}
	found := make([]inspection, len(nodes))
	var asking sync.WaitGroup
	for i, node := range nodes {
		asking.Go(func() { found[i] = c.inspect(ctx, node) })
	}
	asking.Wait()
	var faults []string
	var away []error
	for _, g := range found {
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
		c.config.Log.Warn("Redis settings may lose acknowledged writes", "error", err)
	}
	if len(away) == 0 {
		return nil
	}
	if 2*len(away) >= len(nodes) {
		return away[0]
	}
	c.config.Log.Warn("masters unavailable; their users are refused", "masters", len(away), "error", away[0])
	return nil
}

// inspection is the result of a server's check at start.
type inspection struct {
	faults []string
	err    error
}

// inspect checks a server and loads the scripts.
func (c *Cache) inspect(ctx context.Context, node *goredis.Client) (g inspection) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	about, err := c.checkNode(ctx, node)
	if g.err = err; err != nil {
		return g
	}
	if g.faults, g.err = faultsOf(ctx, node, about); g.err != nil {
		g.err = unavailable("ask for its settings", g.err)
		return g
	}
	c.warnOfCoverage(ctx, node)
	g.err = unavailable("load scripts", c.loadScriptsInto(ctx, node))
	reserve(ctx, node)
	return g
}

// checkNode refuses a server of no use, and returns its INFO.
func (c *Cache) checkNode(ctx context.Context, node *goredis.Client) (about map[string]string, err error) {
	info, err := node.Info(ctx).Result()
	if err != nil {
		return nil, unavailable("ask for its state", err)
	}
	about = fields(info)
	if v := about["redis_version"]; major(v) != 0 && major(v) < 7 {
		return nil, fmt.Errorf("version %s, want 7.0 or later", v)
	}
	if about["cluster_enabled"] == "1" && !c.config.Cluster {
		return nil, errors.New("it is a node of a cluster: set --redis-cluster")
	}
	return about, nil
}

// fields parses a reply to INFO.
func fields(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m
}

// major returns the major version, or 0 if unknown.
func major(version string) int {
	text, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(text)
	return n
}

// warnOfCoverage warns of Redis's default that makes all masters refuse writes while one is down.
func (c *Cache) warnOfCoverage(ctx context.Context, node *goredis.Client) {
	const setting = "cluster-require-full-coverage"
	if !c.config.Cluster {
		return
	}
	if set, err := node.ConfigGet(ctx, setting).Result(); err == nil && set[setting] == "yes" {
		c.config.Log.Warn("one failed master blocks all users", "node", node.Options().Addr, "setting", setting+" yes", "want", "no")
	}
}

// ErrVolatile means that a server's settings may lose acknowledged writes.
var ErrVolatile = errors.New("redis may lose acknowledged writes")

// Fit checks that every master keeps acknowledged writes: no eviction, and an append-only file that is flushed.
// Settings can change at runtime, so call it regularly. Servers that hide a setting pass.
//
// It fails with an [ErrVolatile] that names each server and setting, regardless of [Config.AllowVolatile], or if
// another retention was set meanwhile. Otherwise it fails with [history.ErrUnavailable] if a server does not answer, is loading or is a replica.
func (c *Cache) Fit(ctx context.Context) error {
	var mu sync.Mutex
	var faults []string
	sizes := map[string]size{}
	err := c.each(ctx, func(ctx context.Context, node *goredis.Client) error {
		info, err := node.Info(ctx).Result()
		if err != nil {
			return err
		}
		about := fields(info)
		found, err := faultsOf(ctx, node, about)
		if err == nil {
			reserve(ctx, node)
		}
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, found...)
		sizes[node.Options().Addr] = sizeOf(about)
		return err
	})
	c.memory.set(sizes, err == nil)
	if len(faults) > 0 {
		return volatile(faults)
	}
	if err != nil {
		return unavailable("ask for its settings", err)
	}
	return c.agree(ctx)
}

// volatile makes an error of faults; nil without any.
func volatile(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	return fmt.Errorf("%w: %s", ErrVolatile, strings.Join(faults, "; "))
}

// faultsOf returns a server's unsafe settings, with its address. about is its INFO.
func faultsOf(ctx context.Context, node *goredis.Client, about map[string]string) ([]string, error) {
	has := node.Options().Addr + " has "
	if err := notYet(about); err != nil {
		return nil, fmt.Errorf("%s: %w", node.Options().Addr, err)
	}
	// Some hosted services refuse CONFIG.
	flush, err := node.ConfigGet(ctx, "appendfsync").Result()
	if _, refused := errors.AsType[goredis.Error](err); err != nil && !refused {
		return nil, err
	}
	var faults []string
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

// Epoch identifies the data of all masters. It changes when a master restarts, loses its data, fails over, follows
// another server for a while, or its clock jumps far ahead. It may also change without data loss, after a slot
// migration or the first replica. It fails with [history.ErrUnavailable] if a master does not answer or is a
// replica.
func (c *Cache) Epoch(ctx context.Context) (string, error) {
	first, err := c.firstBuckets(ctx)
	if err != nil {
		return "", unavailable("ask for its epoch", err)
	}
	var mu sync.Mutex
	var epochs []string
	err = c.each(ctx, func(ctx context.Context, node *goredis.Client) error {
		epoch, err := c.epochOf(ctx, node, first)
		mu.Lock()
		defer mu.Unlock()
		epochs = append(epochs, epoch)
		return err
	})
	slices.Sort(epochs)
	return strings.Join(epochs, " "), unavailable("ask for its epoch", err)
}

// epochOf returns a server's run id, replication id and nonce. The replication id changes when a replica becomes a
// master. The nonce is lost with the data, and expires before the records if the clock jumps ahead. A moved slot
// takes its nonce along.
func (c *Cache) epochOf(ctx context.Context, node *goredis.Client, first map[string]history.Bucket) (string, error) {
	info, err := node.Info(ctx, "server", "replication").Result()
	if err != nil {
		return "", err
	}
	about, addr := fields(info), node.Options().Addr
	if about["role"] == "slave" {
		return "", fmt.Errorf("%s is a replica", addr)
	}
	epoch := about["run_id"] + "/" + about["master_replid"]
	b, has := first[addr]
	if !has {
		return epoch, nil
	}
	nonce, err := c.nonce(ctx, string(append(appendBucket(nil, b), "epoch"...)))
	return epoch + "/" + nonce, err
}

// nonce returns the value of a key with half the records' TTL, extended by each call. It expires only when the
// server's clock jumps far ahead. A missing key is set.
func (c *Cache) nonce(ctx context.Context, key string) (string, error) {
	epoch := max(c.config.TTL/2, time.Minute)
	text, err := c.client.GetEx(ctx, key, epoch).Result()
	if _, refused := errors.AsType[goredis.Error](err); refused && !errors.Is(err, goredis.Nil) {
		text, err = c.client.Get(ctx, key).Result() // read-only servers have an epoch too
	}
	if !errors.Is(err, goredis.Nil) {
		return text, err
	}
	fresh := rand.Text()
	text, err = c.client.SetArgs(ctx, key, fresh, goredis.SetArgs{Mode: "NX", Get: true, TTL: epoch}).Result()
	if errors.Is(err, goredis.Nil) {
		return fresh, nil
	}
	return text, err // another process was faster
}

// firstBuckets returns the first bucket of each server, by address.
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

// timeGrace is how long Time waits for the remaining masters after more than half have answered.
const timeGrace = 50 * time.Millisecond

// Time returns the servers' time: in a cluster the median of the masters' clocks, the earlier of two middle ones.
// It needs more than half of the masters, so neither a wrong clock nor a silent master matters. It fails with
// [history.ErrUnavailable].
func (c *Cache) Time(ctx context.Context) (time.Time, error) {
	nodes, err := c.masters(ctx)
	if err != nil {
		return time.Time{}, unavailable("ask for the time", err)
	}
	type answer struct {
		ahead time.Duration // relative to this machine
		err   error
	}
	answers := make(chan answer, len(nodes))
	for _, node := range nodes {
		go func() { // ends with the client's timeout at the latest
			now, err := node.Time(ctx).Result()
			answers <- answer{time.Until(now), err}
		}()
	}
	var ahead []time.Duration
	var enough <-chan time.Time
	for left := len(nodes); left > 0; left-- {
		select {
		case a := <-answers:
			if err = cmp.Or(a.err, err); a.err != nil {
				continue
			}
			ahead = append(ahead, a.ahead)
		case <-enough:
			left = 1
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

// ClockAhead returns the largest difference between a master's clock and now; positive if the master is ahead.
// Redis expires keys by that clock.
func (c *Cache) ClockAhead(ctx context.Context, now func() time.Time) (furthest time.Duration, err error) {
	var mu sync.Mutex
	err = c.each(ctx, func(ctx context.Context, node *goredis.Client) error {
		began := now()
		at, err := node.Time(ctx).Result()
		if err != nil {
			return err
		}
		ahead := clock.Outside(at, began, now())
		mu.Lock()
		defer mu.Unlock()
		if ahead.Abs() > furthest.Abs() {
			furthest = ahead
		}
		return nil
	})
	return furthest, unavailable("compare clocks", err)
}

const trustedKey = "playhead:trusted"

// saveTrusted keeps the later of two times, unless forced.
const saveTrusted = `if ARGV[2] == '1' or tonumber(ARGV[1]) > tonumber(redis.call('get', KEYS[1]) or '0') then
	redis.call('set', KEYS[1], ARGV[1])
end
return 1`

// SaveTrusted saves the latest time that a process trusted. An earlier time replaces a saved one only if an
// operator confirmed it.
func (c *Cache) SaveTrusted(ctx context.Context, at time.Time, confirmed bool) error {
	force := 0
	if confirmed {
		force = 1
	}
	return unavailable("save the trusted time", c.client.Eval(ctx, saveTrusted, []string{trustedKey}, at.UnixMilli(), force).Err())
}

// LoadTrusted returns the saved time, zero if none.
func (c *Cache) LoadTrusted(ctx context.Context) (time.Time, error) {
	ms, err := c.client.Get(ctx, trustedKey).Int64()
	if errors.Is(err, goredis.Nil) {
		return time.Time{}, nil
	}
	return time.UnixMilli(ms), unavailable("load the trusted time", err)
}

// masters returns the servers with buckets. Unlike [Cache.each] it uses the known slot map, so a silent master
// cannot block it.
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

// nodeMapEpoch is the maximum age of a nodeMap.
const nodeMapEpoch = time.Second

// Node returns the address of a bucket's master as the client knows it, or "" without a cluster. Only the first
// call waits for the servers.
func (c *Cache) Node(b history.Bucket) string {
	cluster, ok := c.client.(*goredis.ClusterClient)
	if !ok {
		return ""
	}
	p := c.nodes.Load()
	if p == nil || time.Since(p.at) > nodeMapEpoch {
		p = c.lookUpNodes(cluster, p)
	}
	return p.addrs[b]
}

// lookUpNodes looks up all buckets. Of concurrent callers only one does.
func (c *Cache) lookUpNodes(cluster *goredis.ClusterClient, old *nodeMap) *nodeMap {
	known := &nodeMap{at: time.Now()}
	if old != nil {
		known.addrs = old.addrs
		if !c.nodes.CompareAndSwap(old, known) { // another call does it
			return old
		}
	}
	found := &nodeMap{at: known.at}
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Timeout)
	defer cancel()
	for b := range found.addrs {
		master, err := cluster.MasterForKey(ctx, channel(history.Bucket(b))) //nolint:gosec // there are as many
		if err != nil {                                                      // keep the old map
			return known
		}
		found.addrs[b] = master.Options().Addr
	}
	c.nodes.Store(found)
	return found
}

// reserve opens missing spare connections. Failed ones are retried by the next call.
func reserve(ctx context.Context, node *goredis.Client) {
	if node.PoolStats().TotalConns >= spare {
		return
	}
	var conns [spare]*goredis.Conn
	var opening sync.WaitGroup
	for i := range conns {
		conns[i] = node.Conn()
		opening.Go(func() { _ = conns[i].Ping(ctx).Err() })
	}
	opening.Wait()
	for _, c := range conns {
		_ = c.Close() // return it to the pool
	}
}
