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

// Open is [New] and [Cache.Prepare]. Its error is one line. The caller closes the
// cache.
func Open(ctx context.Context, config Config) (*Cache, error) {
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	if err := c.Prepare(ctx); err != nil {
		_ = c.client.Close() // the error of Prepare is the useful one
		return nil, err
	}
	return c, nil
}

// Prepare checks that the server or the cluster is fit, and hands over the scripts. A
// cluster must have more than half of its masters answer. It
// fails with [history.ErrUnavailable] when another try may succeed, as while a server loads its
// file or is a replica. It is refused for good when it is too old, of the other kind, or refuses
// this user, and with [ErrVolatile], of which only a warning is logged where the configuration
// allows it.
func (c *Cache) Prepare(ctx context.Context) error {
	err := c.check(ctx)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[goredis.Error](err); ok && refused(e.Error()) {
		err = e
	}
	return fmt.Errorf("open redis at %s: %w", strings.Join(c.config.Addrs, ","), err)
}

// refusals begin the answers that stay the same until somebody changes a setting. All others pass:
// LOADING, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, READONLY, NOREPLICAS, BUSY, MISCONF, OOM and what is to come.
var refusals = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
	"ERR AUTH",          // a password for a server that has none
	"ERR This instance", // has cluster support disabled
}

func refused(answer string) bool {
	return slices.ContainsFunc(refusals, func(r string) bool { return strings.HasPrefix(answer, r) })
}

// notYet returns why a server that answers INFO cannot serve now, if so. Such a server has its
// append-only file switched off for that while, too.
func notYet(about map[string]string) error {
	switch {
	case about["loading"] == "1":
		return errors.New("it loads its file")
	case about["role"] == "slave":
		return errors.New("it is a replica")
	}
	return nil
}

// Ping reports whether the server answers, in a cluster every master. It fails with
// [history.ErrUnavailable].
func (c *Cache) Ping(ctx context.Context) error {
	err := c.each(ctx, func(ctx context.Context, node *goredis.Client) error { return node.Ping(ctx).Err() })
	return unavailable("ping", err)
}

// check asks all masters at once. Fewer than half may leave it unanswered: [Cache.Fit] looks at
// their settings later, and they get the scripts when a call finds them missing.
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
		c.config.Log.Warn("redis may lose acknowledged writes", "error", err)
	}
	if len(away) == 0 {
		return nil
	}
	if 2*len(away) >= len(nodes) {
		return away[0]
	}
	c.config.Log.Warn("some masters do not answer, their users are refused", "masters", len(away), "error", away[0])
	return nil
}

// inspection is what a start finds out about a server.
type inspection struct {
	faults []string
	err    error
}

// inspect checks a server and loads the scripts into it.
func (c *Cache) inspect(ctx context.Context, node *goredis.Client) (g inspection) {
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
	g.err = unavailable("load scripts", c.loadScriptsInto(ctx, node))
	reserve(ctx, node)
	return g
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

// ErrVolatile means that a server is set up to lose acknowledged writes.
var ErrVolatile = errors.New("redis may lose acknowledged writes")

// Fit reports whether the servers, in a cluster every master, keep what they acknowledge:
// they evict nothing, and write an append-only file and flush it. It fails with an
// [ErrVolatile] that names each server and setting, whatever [Config.AllowVolatile] says,
// or with [history.ErrUnavailable] when it finds none and one does not answer, loads or is a replica. Settings change while a server runs, so ask again. Of
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
	about, has := fields(info), node.Options().Addr+" has "
	if err := notYet(about); err != nil {
		return nil, fmt.Errorf("%s: %w", node.Options().Addr, err)
	}
	// Some services that run Redis for others refuse CONFIG.
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

// Epoch names the epochs of the servers, of every master in a cluster: when one
// was restarted or emptied, its replica took over, it followed another server for a while, or
// its clock went far ahead, the name is another. It may also be another for no such reason when slots have moved or the
// first replica has come. It fails with [history.ErrUnavailable] when one of them does not
// answer, or is a replica.
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

// epochOf returns the run id of a server, its replication id, which is drawn anew when a replica
// becomes a master, and the nonce among its keys, which goes when it is emptied, or when its
// clock has been so far ahead that records have expired. A slot that moves takes its nonce along.
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
	nonce, err := c.nonce(ctx, string(append(appendBucket(nil, b), "life"...)))
	return epoch + "/" + nonce, err
}

// nonce returns the value of a key that never changes, and that expires before most records do:
// not as long as somebody asks, but when the server's clock goes far ahead. A key that is
// missing is set.
func (c *Cache) nonce(ctx context.Context, key string) (string, error) {
	epoch := max(c.config.TTL/2, time.Minute)
	text, err := c.client.GetEx(ctx, key, epoch).Result()
	if _, refused := errors.AsType[goredis.Error](err); refused && !errors.Is(err, goredis.Nil) {
		text, err = c.client.Get(ctx, key).Result() // a server that takes no writes has an epoch too
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
// answered.
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

// ClockAhead returns how far the clock of a server is ahead of a process's, of several masters the furthest off. Redis lets keys expire by
// that clock.
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

// saveTrusted keeps the later of two times. Only an operator sets an earlier one.
const saveTrusted = `if ARGV[2] == '1' or tonumber(ARGV[1]) > tonumber(redis.call('get', KEYS[1]) or '0') then
	redis.call('set', KEYS[1], ARGV[1])
end
return 1`

// SaveTrusted saves the latest time that a process trusted. An earlier one than is saved counts only where an operator has confirmed it.
func (c *Cache) SaveTrusted(ctx context.Context, at time.Time, confirmed bool) error {
	force := 0
	if confirmed {
		force = 1
	}
	return unavailable("save the trusted time", c.client.Eval(ctx, saveTrusted, []string{trustedKey}, at.UnixMilli(), force).Err())
}

// LoadTrusted returns the time that was saved, zero if none was.
func (c *Cache) LoadTrusted(ctx context.Context) (time.Time, error) {
	ms, err := c.client.Get(ctx, trustedKey).Int64()
	if errors.Is(err, goredis.Nil) {
		return time.Time{}, nil
	}
	return time.UnixMilli(ms), unavailable("load the trusted time", err)
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

// nodeMapEpoch is how long it is remembered which server has which bucket.
const nodeMapEpoch = time.Second

// Node names the master that has a bucket, as far as the client knows at the moment; it is
// empty without a cluster. It waits for the servers only the first time.
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

// lookUpNodes looks all buckets up. Of several callers at once one does.
func (c *Cache) lookUpNodes(cluster *goredis.ClusterClient, old *nodeMap) *nodeMap {
	known := &nodeMap{at: time.Now()}
	if old != nil {
		known.addrs = old.addrs
		if !c.nodes.CompareAndSwap(old, known) { // another call does
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

// reserve opens what is missing of the spare connections. One that cannot be opened now is
// tried again the next time.
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
		_ = c.Close() // back to the others
	}
}
