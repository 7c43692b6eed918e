package redis

import (
	"context"
	_ "embed" // the script
	"errors"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Jobs sweep no mark that a living hold may rely on. How long holds are is a setting of
// the services, of which the jobs know by their word: the longest is kept here, and
// forgotten when nobody has repeated it for a while.
const (
	holdWord   = time.Minute      // how often it is repeated
	holdMemory = 10 * time.Minute // how long it is kept
)

//go:embed lua/hold.lua
var holdLua string

func holdKey() string { return string(append(appendBucket(nil, 0), "hold"...)) }

// Holding tells the jobs how long holds are, again and again, until ctx is done. A word
// that is not heard is repeated soon; that Redis is away, others say.
func (c *Cache) Holding(ctx context.Context, hold time.Duration) error {
	t := time.NewTicker(holdWord)
	defer t.Stop()
	for {
		_ = c.SayHold(ctx, hold)
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// SayHold tells the jobs once. It fails with [history.ErrUnavailable].
func (c *Cache) SayHold(ctx context.Context, hold time.Duration) error {
	err := c.client.Eval(ctx, holdLua, []string{holdKey()}, hold.Milliseconds(), int(holdMemory.Seconds())).Err()
	return unavailable("say hold", err)
}

// LongestHold returns the longest hold of the services that live, 0 when none has
// spoken. It fails with [history.ErrUnavailable].
func (c *Cache) LongestHold(ctx context.Context) (time.Duration, error) {
	text, err := c.client.Get(ctx, holdKey()).Result()
	if errors.Is(err, goredis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, unavailable("ask for the longest hold", err)
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, history.Invalid("hold", "redis holds "+strconv.Quote(text)+", want milliseconds")
	}
	return time.Duration(ms) * time.Millisecond, nil
}
