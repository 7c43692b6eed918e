package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

func TestOpenUnreachable(t *testing.T) {
	gone := miniredis.RunT(t)
	addr := gone.Addr()
	gone.Close()
	for _, config := range []redis.Config{{Addrs: []string{addr}}, {Addrs: []string{addr}, Cluster: true}} {
		_, err := redis.Open(t.Context(), config)
		if !errors.Is(err, history.ErrUnavailable) {
			t.Fatalf("Open(%+v): got error %v, want unavailable", config, err)
		}
		if text := err.Error(); !strings.Contains(text, "open redis at "+addr) || !strings.Contains(text, "connection refused") || strings.Contains(text, "\n") {
			t.Errorf("Open: got %q, want one line with the address and the reason", text)
		}
	}
}

// TestOpenRefused: refused credentials are final, unlike a server that is down.
func TestOpenRefused(t *testing.T) {
	locked := miniredis.RunT(t)
	locked.RequireAuth("secret")
	for _, password := range []string{"", "guess"} {
		_, err := redis.Open(t.Context(), redis.Config{Addrs: []string{locked.Addr()}, Password: password})
		if err == nil || errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), locked.Addr()) {
			t.Errorf("Open with password %q = %v, want an error that no waiting cures", password, err)
		}
	}
}

// TestChangedPassword: a new connection has the password of that moment.
func TestChangedPassword(t *testing.T) {
	server, password := miniredis.RunT(t), "old"
	server.RequireAuth(password)
	c, err := redis.Open(t.Context(), redis.Config{Addrs: []string{server.Addr()}, Secret: func() (string, error) { return password, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	password = "new"
	server.RequireAuth(password)
	server.Close()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAnswersAtStart checks which replies are final.
func TestAnswersAtStart(t *testing.T) {
	for _, test := range []struct {
		to, answer string // an error if it begins with -
		refused    bool
	}{
		{to: "INFO", answer: "-LOADING Redis is loading the dataset in memory"},
		{to: "INFO", answer: "redis_version:7.0.15\r\nloading:1\r\naof_enabled:0\r\n"},
		{to: "INFO", answer: "loading:1\r\nmaxmemory_policy:allkeys-lru\r\n"},
		{to: "INFO", answer: "role:slave\r\naof_enabled:1\r\n"},
		{to: "INFO", answer: "role:slave\r\nmaster_sync_in_progress:1\r\naof_enabled:0\r\n"},
		{to: "SCRIPT", answer: "-LOADING Redis is loading the dataset in memory"},
		{to: "SCRIPT", answer: "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."},
		{to: "SCRIPT", answer: "-READONLY You can't write against a read only replica."},
		{to: "SCRIPT", answer: "-NOREPLICAS Not enough good replicas to write."},
		{to: "SCRIPT", answer: "-MISCONF Errors writing to the AOF file: No space left on device"},
		{to: "SCRIPT", answer: "-OOM command not allowed when used memory > 'maxmemory'."},
		{to: "INFO", answer: "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."},
		{to: "INFO", answer: "-CLUSTERDOWN The cluster is down"},
		{to: "INFO", answer: "-CLUSTERDOWN Hash slot not served"},
		{to: "INFO", answer: "-TRYAGAIN Multiple keys request during rehashing of slot"},
		{to: "INFO", answer: "-ERR max number of clients reached"},
		{to: "INFO", answer: "-NOAUTH Authentication required.", refused: true},
		{to: "INFO", answer: "-WRONGPASS invalid username-password pair or user is disabled.", refused: true},
		{to: "INFO", answer: "-NOPERM User job has no permissions to run the 'info' command", refused: true},
		{to: "SCRIPT", answer: "-NOPERM User job has no permissions to run the 'script|load' command", refused: true},
		{to: "INFO", answer: "-DENIED Redis is running in protected mode because protected mode is enabled", refused: true},
		{to: "INFO", answer: "-ERR AUTH <password> called without any password configured for the default user.", refused: true},
		{to: "INFO", answer: "redis_version:6.2.14\r\nloading:1\r\n", refused: true},
		{to: "INFO", answer: "loading:0\r\nrole:master\r\naof_enabled:0\r\n", refused: true},
	} {
		fake := miniredis.RunT(t)
		var passed atomic.Bool
		fake.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd != test.to || passed.Load() {
				return false
			}
			if text, isError := strings.CutPrefix(test.answer, "-"); isError {
				c.WriteError(text)
			} else {
				c.WriteBulk(test.answer)
			}
			return true
		})
		c, err := redis.New(redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Prepare(t.Context())
		if err == nil || errors.Is(err, history.ErrUnavailable) == test.refused || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %s: Prepare = %v, want one line, refused %v", test.to, test.answer, err, test.refused)
		}
		if err := c.Fit(t.Context()); !test.refused && errors.Is(err, redis.ErrVolatile) {
			t.Errorf("%s: %s: Fit = %v, want nothing said of its settings", test.to, test.answer, err)
		}
		if passed.Store(true); !test.refused {
			if err := c.Prepare(t.Context()); err != nil {
				t.Errorf("after %s: %s: Prepare = %v", test.to, test.answer, err)
			}
		}
		_ = c.Close()
	}
}

func TestOpenChecksConfig(t *testing.T) {
	for _, config := range []redis.Config{
		{Addrs: []string{"a:1", "b:2"}},
		{Keep: -1},
		{TTL: time.Millisecond},
		{Timeout: -1},
	} {
		if c, err := redis.Open(t.Context(), config); err == nil {
			_ = c.Close()
			t.Errorf("Open(%+v): got no error", config)
		}
	}
}

// TestOpenChecksServer has servers that describe themselves.
func TestOpenChecksServer(t *testing.T) {
	for _, test := range []struct{ info, fsync, err string }{
		{info: "redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n", fsync: "everysec"},
		{info: "redis_version:8.2.0\r\n"},
		{info: "redis_version:6.2.14\r\n", err: "version 6.2.14, want 7.0 or later"},
		{info: "redis_version:7.2.4\r\ncluster_enabled:1\r\n", err: "node of a cluster: set --redis-cluster"},
	} {
		c, err := redis.Open(t.Context(), redis.Config{Addrs: []string{saying(t, test.info, test.fsync)}, Timeout: patience})
		if err == nil {
			_ = c.Close()
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("a server that says %q: got error %v, want %q", test.info, err, test.err)
		}
	}
}

// TestVolatile has servers that may lose acknowledged writes. They are refused by name, unless the configuration
// allows them.
func TestVolatile(t *testing.T) {
	for _, test := range []struct{ info, fsync, want string }{
		{info: "maxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n", fsync: "always", want: "maxmemory-policy allkeys-lru, want noeviction"},
		{info: "aof_enabled:0\r\n", want: "appendonly no, want yes"},
		{info: "aof_enabled:1\r\n", fsync: "no", want: "appendfsync no, want everysec or always"},
	} {
		var log bytes.Buffer
		config := redis.Config{Addrs: []string{saying(t, test.info, test.fsync)}, Timeout: patience, Log: slog.New(slog.NewTextHandler(&log, nil))}
		_, err := redis.Open(t.Context(), config)
		if !errors.Is(err, redis.ErrVolatile) || errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), config.Addrs[0]+" has "+test.want) {
			t.Errorf("a server that says %q: got error %v, want %q", test.info, err, test.want)
		}
		config.AllowVolatile = true
		c := open(t, config)
		if !strings.Contains(log.String(), test.want) {
			t.Errorf("a server that says %q, allowed: got log %q, want %q", test.info, log.String(), test.want)
		}
		if err := c.Fit(t.Context()); !errors.Is(err, redis.ErrVolatile) {
			t.Errorf("Fit of a server that says %q: %v", test.info, err)
		}
	}
	gone := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{gone.Addr()}, Timeout: patience})
	if err := c.Fit(t.Context()); err != nil {
		t.Errorf("Fit of a server that says nothing: %v", err)
	}
	gone.Close()
	if err := c.Fit(t.Context()); !errors.Is(err, history.ErrUnavailable) || errors.Is(err, redis.ErrVolatile) {
		t.Errorf("Fit without a server: %v, want unavailable", err)
	}
}

// TestOpenBesideAMasterThatIsAway needs more than half of the masters. A missing master does not hide another's
// fault.
func TestOpenBesideAMasterThatIsAway(t *testing.T) {
	config, nodes := fakeNodes(t, 4)
	var log bytes.Buffer
	config.Log = slog.New(slog.NewTextHandler(&log, nil))
	nodes[2].Close()
	c := open(t, config)
	if !strings.Contains(log.String(), "masters unavailable") || !strings.Contains(log.String(), "masters=1") {
		t.Errorf("log %q, want what is missing", log.String())
	}
	if epoch, err := c.Epoch(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Epoch = %q, %v, want unavailable", epoch, err)
	}
	nodes[1].Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk("aof_enabled:0\r\n")
		}
		return cmd == "INFO"
	})
	if err := c.Fit(t.Context()); !errors.Is(err, redis.ErrVolatile) {
		t.Errorf("Fit = %v, want what one of those says that are there", err)
	}
	if _, err := redis.Open(t.Context(), config); !errors.Is(err, redis.ErrVolatile) {
		t.Errorf("Open = %v, want it refused", err)
	}
	nodes[1].Close()
	if _, err := redis.Open(t.Context(), config); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Open with half of the masters = %v, want unavailable", err)
	}
}

// TestOpenWarnsOfCoverage: with that setting one lost master blocks all users.
func TestOpenWarnsOfCoverage(t *testing.T) {
	for _, set := range []string{"yes", "no"} {
		var log bytes.Buffer
		config, nodes := fakeNodes(t, 2)
		config.Log = slog.New(slog.NewTextHandler(&log, nil))
		nodes[1].Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
			asked := cmd == "CONFIG" && args[1] == "cluster-require-full-coverage"
			if asked {
				c.WriteStrings([]string{args[1], set})
			}
			return asked
		})
		open(t, config)
		if warned := strings.Count(log.String(), "cluster-require-full-coverage"); (warned == 1) != (set == "yes") {
			t.Errorf("set to %s: warned %d times: %q", set, warned, log.String())
		}
	}
}

// TestEpoch detects a restart by the run id. It detects an emptied server, and one that followed another, despite
// the same run id.
func TestEpoch(t *testing.T) {
	var run, promoted atomic.Int64
	fake := miniredis.RunT(t)
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "INFO" {
			return false
		}
		c.WriteBulk(fmt.Sprintf("run_id:%d\r\nrole:master\r\nmaster_replid:%d\r\n", run.Load(), promoted.Load()))
		return true
	})
	one, other := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience}), open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	var epochs []string
	for _, change := range []func(){func() {}, func() { run.Add(1) }, fake.FlushAll, fake.FlushAll, func() { promoted.Add(1) }} {
		change()
		epoch, err := one.Epoch(t.Context())
		if err != nil || slices.Contains(epochs, epoch) {
			t.Errorf("Epoch = %q, %v; want another than %q", epoch, err, epochs)
		}
		for _, c := range []*redis.Cache{one, other} {
			if again, err := c.Epoch(t.Context()); err != nil || again != epoch {
				t.Errorf("Epoch = %q, %v; want %q again", again, err, epoch)
			}
		}
		epochs = append(epochs, epoch)
	}
	fake.Close()
	if got, err := one.Epoch(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Life without a server = %q, %v, want unavailable", got, err)
	}
}

// TestEpochOfAWrongClock: the epoch changes when the server's clock jumps so far ahead that unarchived records
// expire. Passing time does not change it.
func TestEpochOfAWrongClock(t *testing.T) {
	fake := miniredis.RunT(t)
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk("run_id:1\r\n")
		}
		return cmd == "INFO"
	})
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience, TTL: 24 * time.Hour})
	epoch := func() string {
		t.Helper()
		epoch, err := c.Epoch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return epoch
	}
	first := epoch()
	for range 30 {
		fake.FastForward(time.Hour)
		if again := epoch(); again != first {
			t.Fatalf("Epoch = %q, want %q as long as somebody asks", again, first)
		}
	}
	fake.FastForward(23 * time.Hour)
	if again := epoch(); again == first {
		t.Errorf("Epoch = %q as before, although most records have expired", again)
	}
}

// TestEpochWithoutWrites: the epoch stays while a server refuses writes, so its records can be archived.
func TestEpochWithoutWrites(t *testing.T) {
	fake := miniredis.RunT(t)
	var refuses atomic.Bool
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		switch {
		case cmd == "INFO":
			c.WriteBulk("run_id:1\r\n")
		case refuses.Load() && cmd != "GET":
			c.WriteError("NOREPLICAS Not enough good replicas to write.")
		default:
			return false
		}
		return true
	})
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	first, err := c.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refuses.Store(true)
	if again, err := c.Epoch(t.Context()); again != first || err != nil {
		t.Errorf("Epoch = %q, %v, want %q", again, err, first)
	}
	fake.FlushAll()
	if epoch, err := c.Epoch(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Epoch = %q, %v, want unavailable without a nonce", epoch, err)
	}
}

// TestEpochOfAReplica is unknown: its data is another server's, perhaps older.
func TestEpochOfAReplica(t *testing.T) {
	c, err := redis.New(redis.Config{Addrs: []string{saying(t, "run_id:1\r\nrole:slave\r\nmaster_replid:2\r\n", "")}, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Epoch(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Epoch = %q, %v, want unavailable", got, err)
	}
}

// TestBacklogBesideASilentServer returns the other servers' backlog.
func TestBacklogBesideASilentServer(t *testing.T) {
	config, nodes := fakeNodes(t, 4)
	config.Timeout = patience
	c, silent := open(t, config), make(chan struct{})
	buckets := history.AllBuckets()
	const users = 40
	for n := range users {
		put(t, c, history.Write{Key: key(fmt.Sprint("viewer", n), "1"), Record: record(hourAgo(), 1)})
	}
	nodes[2].Server().SetPreHook(func(*server.Peer, string, ...string) bool { <-silent; return false })
	defer close(silent)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	found, err := c.Backlog(ctx, buckets)
	if !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("beside a silent server: error %v, want unavailable", err)
	}
	marks := 0
	for _, b := range found {
		marks += b.Marks
	}
	if marks == 0 || marks == users {
		t.Errorf("%d of %d marks are known, want those of the three servers that answer", marks, users)
	}
}

// TestFirstsBesideASilentServer returns the other servers' firsts without waiting once per bucket.
func TestFirstsBesideASilentServer(t *testing.T) {
	config, nodes := fakeNodes(t, 4)
	c, silent := open(t, config), make(chan struct{})
	buckets := history.AllBuckets()
	const users = 40
	for n := range users {
		if s := c.See(t.Context(), []history.Sighting{{UID: fmt.Sprint("viewer", n), Day: 20_778}})[0]; s.Err != nil {
			t.Fatal(s.Err)
		}
	}
	config.Timeout = time.Second
	c = open(t, config)
	nodes[2].Server().SetPreHook(func(*server.Peer, string, ...string) bool { <-silent; return false })
	defer close(silent)
	found, err := c.PendingFirsts(t.Context(), buckets, -time.Hour, 1000)
	if !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("beside a silent server: error %v, want unavailable", err)
	}
	if len(found) < users/2 || len(found) == users {
		t.Errorf("%d of %d sightings are known, want those of the three servers that answer", len(found), users)
	}
}

// TestTime is the median of the servers' clocks, whatever the own clock or any single server says.
func TestTime(t *testing.T) {
	config, nodes := fakeNodes(t, 4)
	at := time.UnixMicro(1_700_000_000_123_456)
	for _, n := range nodes {
		n.SetTime(at)
	}
	want := func(what string) {
		t.Helper()
		began := time.Now()
		got, err := open(t, config).Time(t.Context())
		if took := time.Since(began); err != nil || got.Sub(at).Abs() > 10*time.Second || took > patience/2 {
			t.Errorf("%s: Time = %s, %v after %v; want %s", what, got, err, took, at)
		}
	}
	want("four servers")
	for i := range nodes {
		nodes[i].SetTime(at.Add(-time.Hour))
		want(fmt.Sprint("a wrong clock of server ", i))
		nodes[i].SetTime(at)
	}
	c, silent := open(t, config), make(chan struct{})
	nodes[2].Server().SetPreHook(func(*server.Peer, string, ...string) bool { <-silent; return false })
	began := time.Now()
	got, err := c.Time(t.Context())
	if took := time.Since(began); err != nil || got.Sub(at).Abs() > 10*time.Second || took > patience/2 {
		t.Errorf("beside a silent server: Time = %s, %v after %v; want %s", got, err, took, at)
	}
	close(silent)
	for _, n := range nodes[:2] {
		n.Close()
	}
	if got, err := c.Time(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Time of half of the servers = %s, %v; want unavailable", got, err)
	}
}

// saying returns the address of a server with the given replies to INFO and CONFIG.
func saying(t *testing.T, info, fsync string) string {
	fake := miniredis.RunT(t)
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		switch {
		case cmd == "INFO":
			c.WriteBulk(info)
		case cmd == "CONFIG" && fsync != "":
			c.WriteStrings([]string{"appendfsync", fsync})
		case cmd == "CONFIG":
			c.WriteError("NOPERM this user has no permissions to run the 'config|get' command")
		default:
			return false
		}
		return true
	})
	return fake.Addr()
}

// TestNodeDown stops one of two nodes: only its own keys are unknown.
func TestNodeDown(t *testing.T) {
	config, nodes := fakeCluster(t)
	c, at := open(t, config), hourAgo()
	var writes []history.Write
	var keys []history.Key
	for n := range 100 {
		k := key(fmt.Sprintf("u%d", n), "1")
		keys, writes = append(keys, k), append(writes, history.Write{Key: k, Record: record(at, 1)})
	}
	put(t, c, writes...)
	nodes[1].Close()
	for i := range writes {
		writes[i].Record, writes[i].Base = record(at+1, 2), 1
	}
	entries := c.Load(t.Context(), keys)
	for i, out := range c.Write(t.Context(), writes) {
		up := nodes[0].Exists(fmt.Sprintf("{b%04d}:h:%s", history.BucketOf(keys[i].UID), keys[i].UID))
		if up && (out.Status != history.Applied || entries[i].Record == nil) {
			t.Errorf("%s on the node that is up: got %+v, entry %+v", keys[i], out, entries[i])
		}
		if !up && (out.Status != history.Unknown || !errors.Is(out.Err, history.ErrUnavailable) || !errors.Is(entries[i].Err, history.ErrUnavailable)) {
			t.Errorf("%s on the node that is down: got %+v, entry %+v", keys[i], out, entries[i])
		}
	}
	if err := c.Ping(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Ping: got %v, want unavailable", err)
	}
}

// TestClosed calls every method after Close.
func TestClosed(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, ctx := open(t, config), t.Context()
		if err := c.Ping(ctx); err != nil {
			t.Errorf("Ping before Close: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		k := key("u", "1")
		_, clearErr := c.Clear(ctx, "u", history.Clear{Until: 1})
		_, listErr := c.List(ctx, "u", history.Query{Limit: 1})
		_, overdueErr := c.Overdue(ctx, []history.Bucket{1}, 0, 1)
		for name, err := range map[string]error{
			"Load":  c.Load(ctx, []history.Key{k})[0].Err,
			"Write": c.Write(ctx, []history.Write{{Key: k, Record: record(1, 1)}})[0].Err,
			"Clear": clearErr, "List": listErr, "Overdue": overdueErr,
			"Warm":   c.Warm(ctx, "u", history.WarmSet{}),
			"Settle": c.MarkClean(ctx, []history.Content{{Key: k}}),
			"Trim":   c.Trim(ctx, []string{"u"}),
			"Ping":   c.Ping(ctx),
		} {
			if !errors.Is(err, history.ErrUnavailable) || !errors.Is(err, history.ErrClosed) {
				t.Errorf("%s after Close: got %v, want unavailable and closed", name, err)
			}
		}
	})
}

// TestTimeOfThreeMasters sets one of three clocks ten minutes ahead. All answer, and that clock is never used.
func TestTimeOfThreeMasters(t *testing.T) {
	config, nodes := fakeNodes(t, 3)
	at := time.Unix(1_790_000_000, 0)
	for _, n := range nodes {
		n.SetTime(at)
	}
	nodes[1].SetTime(at.Add(10 * time.Minute))
	c := open(t, config)
	wrong := 0
	const n = 50
	for range n {
		got, err := c.Time(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Sub(at).Abs() > time.Minute {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d answers are those of the one wrong master of three", wrong, n)
	}
}
