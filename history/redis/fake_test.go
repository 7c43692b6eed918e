//go:build !e2e

package redis_test

import (
	"testing"

	"github.com/playhead/playhead/history/redis"
)

func addReal(map[string]func(testing.TB) redis.Config) {}
