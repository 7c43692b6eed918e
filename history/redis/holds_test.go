package redis_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/playhead/playhead/history/redis"
)

// TestLongestHold: of several services the longest hold counts, until its service has
// not been heard of for a while.
func TestLongestHold(t *testing.T) {
	fake := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	check := func(when string, want time.Duration) {
		t.Helper()
		if got, err := c.LongestHold(t.Context()); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", when, got, err, want)
		}
	}
	say := func(holds ...time.Duration) {
		for _, hold := range holds {
			if err := c.SayHold(t.Context(), hold); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("nobody has spoken", 0)
	say(2*time.Minute, 5*time.Minute, time.Minute)
	check("three have", 5*time.Minute)
	for range 11 {
		fake.FastForward(time.Minute)
		say(2 * time.Minute)
	}
	check("the one with the longest is gone", 2*time.Minute)
	if err := fake.Set("{b0000}:hold", "long"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.LongestHold(t.Context()); err == nil {
		t.Errorf("what is no number: got %v, want an error", got)
	}
}
