//go:build e2e

package pipeline_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs/obstest"
)

// lines is a log that several goroutines write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// clustered is a judged cache of four Redis masters under load.
type clustered struct {
	*connect.Engines
	masters *engine.Engine
	log     lines
	reg     *prometheus.Registry
}

func startCluster(t *testing.T) *clustered {
	t.Helper()
	c := &clustered{reg: prometheus.NewRegistry()}
	var err error
	if c.masters, err = engine.Open("redis_cluster", engine.Config{Dir: t.TempDir(), PortBase: 21150}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.masters.Kill(); err != nil {
			t.Error(err)
		}
	})
	if err := c.masters.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&c.log, nil))
	c.Engines = &connect.Engines{Log: log, Registry: c.reg}
	cache, err := (&connect.Redis{Addrs: strings.Split(c.masters.Addr(), ","), Cluster: true, Keep: 1000, TTL: time.Hour}).Connect(c.Engines)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cache.Close() })
	c.Register(c.reg)
	if err := c.First(t.Context()); err != nil {
		t.Fatal(err)
	}
	judged := c.Cache(cache)
	nodes := stores.NewNodes(judged, judged, log, c.reg)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Judge(ctx) }) // returns nil
	for w := range 4 {
		running.Go(func() { use(ctx, nodes, w) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// use reads and writes, for another user each time.
func use(ctx context.Context, nodes *stores.Nodes, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		uid := fmt.Sprintf("health-%d-%d", worker, n)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		_ = nodes.Load(ctx, []history.Key{history.UserKey(uid)})
		if n%10 == 0 {
			_ = nodes.Pause(ctx, uid, history.Pause{}, history.Pause{Since: 1})
		}
		cancel()
		time.Sleep(5 * time.Millisecond) // paces the load
	}
}

// await waits until the health of the cluster names the node, or is fine for an empty name.
func (c *clustered) await(t *testing.T, node string) {
	t.Helper()
	for began := time.Now(); !c.names(t, node); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("after 20 s the health is %v, want %q named:\n%s", c.Part("redis")(t.Context()), node, c.log.String())
		}
	}
}

func (c *clustered) names(t *testing.T, node string) bool {
	if err := c.Checks("redis")["redis"](t.Context()); err != nil {
		t.Errorf("the process is not ready: %v", err)
	}
	err := c.Part("redis")(t.Context())
	if node == "" {
		return err == nil && obstest.Sum(t, c.reg, "playhead_engine_degraded") == 0
	}
	return err != nil && strings.Contains(err.Error(), node) && obstest.Sum(t, c.reg, "playhead_engine_degraded") == 1
}

// A master that is frozen or full is named until its users are served again, with one line for each change.
func TestAMasterThatFails(t *testing.T) {
	for name, set := range map[string]func(c *clustered, broken bool) error{
		"frozen": func(c *clustered, broken bool) error {
			return c.masters.Signal(map[bool]syscall.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[broken], 1)
		},
		"full": func(c *clustered, broken bool) error {
			master := goredis.NewClient(&goredis.Options{Addr: c.masters.Nodes[1].Addr()})
			defer master.Close()
			return master.ConfigSet(t.Context(), "maxmemory", map[bool]string{true: "1", false: "0"}[broken]).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t)
			node := c.masters.Nodes[1].Addr()
			c.await(t, "")
			if err := set(c, true); err != nil {
				t.Fatal(err)
			}
			c.await(t, node)
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if !c.names(t, node) {
					t.Fatalf("it reads as healthy:\n%s", c.log.String())
				}
			}
			if err := set(c, false); err != nil {
				t.Fatal(err)
			}
			c.await(t, "")
			if n := strings.Count(c.log.String(), "level=WARN"); n != 1 || strings.Count(c.log.String(), "engine recovered") != 1 {
				t.Errorf("%d warnings, want one and one recovery:\n%s", n, c.log.String())
			}
		})
	}
}
