package faults

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/playhead/playhead/e2e/process"
)

// volatile switches settings on with which Redis may lose what it acknowledged. Each process
// must say so, by its readiness and its gauge, and start on such a Redis only when told to.
func volatile(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	c := t.stack.redisClient()
	defer c.Close()
	set := func(ctx context.Context, name, value string) error { return c.ConfigSet(ctx, name, value).Err() }
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for _, s := range []struct{ name, bad, good string }{{"maxmemory-policy", "allkeys-lru", "noeviction"}, {"appendonly", "no", "yes"}} {
			began := time.Now()
			if err := errors.Join(set(ctx, s.name, s.bad), t.fit(ctx, false)); err != nil {
				return fmt.Errorf("%s %s: %w", s.name, s.bad, err)
			}
			t.res.note("%s %s: all processes say so after %v", s.name, s.bad, time.Since(began).Round(100*time.Millisecond))
			if s.name == "maxmemory-policy" {
				if err := t.startsOn(ctx); err != nil {
					return err
				}
			}
			if err := errors.Join(set(ctx, s.name, s.good), t.fit(ctx, true)); err != nil {
				return fmt.Errorf("%s %s: %w", s.name, s.good, err)
			}
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, set(context.WithoutCancel(ctx), "maxmemory-policy", "noeviction"), set(context.WithoutCancel(ctx), "appendonly", "yes"))
	}
	return t.settle(ctx)
}

// fit waits until every service and job says that Redis is fit, or is not.
func (t *trial) fit(ctx context.Context, want bool) error {
	return process.Await(ctx, 30*time.Second, "the settings to be noticed", func(ctx context.Context) error {
		for _, u := range t.stack.units()[:len(t.stack.services)+len(t.stack.jobs)] {
			gauge, err := u.metric(ctx, "playhead_engine_unfit")
			if err != nil {
				return err
			}
			if ready := u.readyNow(ctx); (ready == nil) != want || (gauge == 0) != want {
				return fmt.Errorf("%s: readiness %w, gauge %v", u.name, ready, gauge)
			}
		}
		return nil
	})
}

// startsOn starts a service on a Redis that is not fit, which it refuses, and with the flag
// that allows it.
func (t *trial) startsOn(ctx context.Context) error {
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	s := t.stack
	argv := append(s.cacheFlags(), "--listen", "127.0.0.1:0", "--admin", admin, "--kafka", s.es["kafka"].Addr(), "--hbase", s.es["hbase"].Addr(),
		"--kafka-topic", s.name, "--kafka-group", s.name, "--hbase-table", s.name)
	p, err := process.Start(filepath.Join(t.Bin, "history-service"), argv...)
	if err != nil {
		return err
	}
	defer p.Kill()
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		return errors.New("a service starts on a Redis that evicts")
	}
	if !strings.Contains(p.Log(), "maxmemory-policy allkeys-lru") {
		return fmt.Errorf("a service that refuses Redis says %q", p.Log())
	}
	allowed, err := process.Start(filepath.Join(t.Bin, "history-service"), append(argv, "--redis-allow-volatile")...)
	if err != nil {
		return err
	}
	defer allowed.Kill()
	return process.Await(ctx, 20*time.Second, "a service that may use a Redis that evicts", func(ctx context.Context) error { return allowed.Ready(ctx, admin) })
}
