package redis_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/obs/obstest"
)

// TestMemory has a gauge of each server's memory. Without maxmemory the machine is the limit.
func TestMemory(t *testing.T) {
	for info, limit := range map[string]float64{
		"used_memory:300\r\nmaxmemory:1000\r\ntotal_system_memory:5000\r\n": 1000,
		"used_memory:300\r\nmaxmemory:0\r\ntotal_system_memory:5000\r\n":    5000,
	} {
		reg := prometheus.NewRegistry()
		addr := saying(t, info, "always")
		c := open(t, redis.Config{Addrs: []string{addr}, Timeout: patience, Registry: reg})
		if err := c.Fit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]float64{"used": 300, "limit": limit} {
			if got := obstest.Sum(t, reg, "playhead_redis_memory_"+name+"_bytes", addr); got != want {
				t.Errorf("%q: %s %v, want %v", info, name, got, want)
			}
		}
	}
}
