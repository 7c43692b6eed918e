package redis_test

import (
	"testing"
	"time"

	"github.com/playhead/playhead/history/redis"
)

// TestTrustedTime: processes save the latest time; only an operator sets an earlier one.
func TestTrustedTime(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		defer client.Del(ctx, "playhead:trusted") // other tests share the server
		if err := client.Del(ctx, "playhead:trusted").Err(); err != nil {
			t.Fatal(err)
		}
		if at, err := c.LoadTrusted(ctx); err != nil || !at.IsZero() {
			t.Errorf("at first: got %v, %v, want none", at, err)
		}
		for _, step := range []struct {
			save      int64
			confirmed bool
			want      int64
		}{{5000, false, 5000}, {4000, false, 5000}, {1791000000000, false, 1791000000000}, {4000, true, 4000}, {1791000000001, false, 1791000000001}} {
			if err := c.SaveTrusted(ctx, time.UnixMilli(step.save), step.confirmed); err != nil {
				t.Fatal(err)
			}
			if at, err := c.LoadTrusted(ctx); err != nil || at.UnixMilli() != step.want {
				t.Errorf("save %d, confirmed %v: got %d, %v, want %d", step.save, step.confirmed, at.UnixMilli(), err, step.want)
			}
		}
		if ttl := client.TTL(ctx, "playhead:trusted").Val(); ttl >= 0 {
			t.Errorf("the trusted time ends after %v", ttl)
		}
	})
}

// TestClockAhead compares with a process whose clock is behind.
func TestClockAhead(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c := open(t, config)
		now := func() time.Time { return time.Now().Add(-time.Hour) }
		if got, err := c.ClockAhead(t.Context(), now); err != nil || (got-time.Hour).Abs() > time.Minute {
			t.Errorf("got %v, %v, want an hour", got, err)
		}
	})
}
