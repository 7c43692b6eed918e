package redis_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestTrimOfWhatHasMovedUp finds an old record, which is then written and marked clean before the trim. It stays:
// the low watermark rises only above the old place.
func TestTrimOfWhatHasMovedUp(t *testing.T) {
	fake := miniredis.RunT(t)
	var between func()
	sharded(fake, func(_ *server.Peer, cmd string, args ...string) bool {
		if next := between; next != nil && (cmd == "EVALSHA" || cmd == "EVAL") && len(args) > 2 && args[1] == "3" { // list, state, one content
			between = nil
			next()
		}
		return false
	})
	config := redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience, Keep: 1}
	c, other := open(t, config), open(t, config)
	uid, at := user(t, c), hourAgo()
	if err := c.Warm(t.Context(), uid, history.WarmSet{}); err != nil {
		t.Fatal(err)
	}
	old, kept := key(uid, "1"), key(uid, "2")
	put(t, c, history.Write{Key: old, Record: record(at, 1)}, history.Write{Key: kept, Record: record(at+1000, 2)})
	markClean(t, c, old, 1)
	markClean(t, c, kept, 2)
	reached := false
	between = func() {
		reached = true
		put(t, other, history.Write{Key: old, Record: record(at+2000, 3), Base: 1 | history.CleanBit})
		markClean(t, other, old, 3)
	}
	if err := c.Trim(t.Context(), []string{uid}); err != nil {
		t.Fatal(err)
	}
	if !reached {
		t.Fatal("nothing came in between")
	}
	e := c.Load(t.Context(), []history.Key{old})[0]
	if e.Record == nil && e.User.LowWatermark <= history.VersionOf(at+2000, 0) {
		t.Errorf("dropped at %d under a low watermark of %d", history.VersionOf(at+2000, 0), e.User.LowWatermark)
	}
}
