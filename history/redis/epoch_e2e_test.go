//go:build e2e

package redis_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history/redis"
)

// TestEpochOfServers names every master by run id and replication id, and is stable.
func TestEpochOfServers(t *testing.T) {
	for name, tt := range map[string]struct {
		config  redis.Config
		masters int
	}{
		"single":  {noRetry(t), 1},
		"cluster": {cluster(t), len(cluster(t).Addrs)},
	} {
		c := open(t, tt.config)
		first, err := c.Epoch(t.Context())
		if ids := strings.Fields(first); err != nil || len(ids) != tt.masters || strings.Index(ids[0], "/") != 40 || strings.LastIndex(ids[0], "/") != 81 {
			t.Errorf("%s: Life = %q, %v, want %d run and replication ids with what each keeps", name, first, err, tt.masters)
		}
		if again, err := c.Epoch(t.Context()); again != first || err != nil {
			t.Errorf("%s: Life = %q, %v, want %q again", name, again, err, first)
		}
	}
}

// TestFitServers passes until one server becomes unsafe.
func TestFitServers(t *testing.T) {
	for name, config := range map[string]redis.Config{"single": noRetry(t), "cluster": cluster(t)} {
		c := open(t, config)
		if err := c.Fit(t.Context()); err != nil {
			t.Errorf("%s: Fit = %v", name, err)
		}
		last := config.Addrs[len(config.Addrs)-1]
		node := raw(t, redis.Config{Addrs: []string{last}})
		for setting, values := range map[string][2]string{"appendfsync": {"no", "everysec"}, "maxmemory-policy": {"allkeys-lfu", "noeviction"}} {
			must(t, node.ConfigSet(t.Context(), setting, values[0]))
			err := c.Fit(t.Context())
			must(t, node.ConfigSet(t.Context(), setting, values[1]))
			if want := last + " has " + setting + " " + values[0]; !errors.Is(err, redis.ErrVolatile) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Fit = %v, want %q", name, err, want)
			}
		}
	}
}

// TestTimeOfServers is close to this machine's time.
func TestTimeOfServers(t *testing.T) {
	for name, config := range map[string]redis.Config{"single": noRetry(t), "cluster": cluster(t)} {
		before := time.Now().Truncate(time.Microsecond)
		got, err := open(t, config).Time(t.Context())
		if err != nil || got.Before(before) || got.After(time.Now()) {
			t.Errorf("%s: Time = %s, %v; want it after %s", name, got, err, before)
		}
	}
}

// TestEpochOfEmptied deletes what an emptied master would lack.
func TestEpochOfEmptied(t *testing.T) {
	config := cluster(t)
	c := open(t, config)
	before := strings.Fields(epochOf(t, c))
	must(t, raw(t, config).Del(t.Context(), "{b0000}:epoch"))
	after := strings.Fields(epochOf(t, c))
	gone := slices.DeleteFunc(before, func(epoch string) bool { return slices.Contains(after, epoch) })
	if len(gone) != 1 || len(after) != len(config.Addrs) {
		t.Errorf("after one of the masters was emptied, these are gone: %q; want one", gone)
	}
}

func epochOf(t *testing.T, c *redis.Cache) string {
	t.Helper()
	epoch, err := c.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}
