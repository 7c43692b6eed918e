package redis_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/redis"
)

func TestCache(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		historytest.Cache(t, func(t *testing.T, keep int) history.Cache {
			config := config
			config.Keep = keep
			return open(t, config)
		})
	})
}
