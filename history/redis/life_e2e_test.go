//go:build e2e

package redis_test

import (
	"strings"
	"testing"

	"github.com/playhead/playhead/history/redis"
)

// TestLifeOfServers names every master by its run id, and the same ones each time.
func TestLifeOfServers(t *testing.T) {
	for name, tt := range map[string]struct {
		config  redis.Config
		masters int
	}{
		"single":  {single(t), 1},
		"cluster": {cluster(t), 3},
	} {
		c := open(t, tt.config)
		first, err := c.Life(t.Context())
		if ids := strings.Fields(first); err != nil || len(ids) != tt.masters || len(ids[0]) != 40 {
			t.Errorf("%s: Life = %q, %v, want %d run ids", name, first, err, tt.masters)
		}
		if again, err := c.Life(t.Context()); again != first || err != nil {
			t.Errorf("%s: Life = %q, %v, want %q again", name, again, err, first)
		}
	}
}
