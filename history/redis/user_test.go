package redis_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestTrimmedWhileCold warms a user from an archive that was read before the
// dropped records reached it: the floor must not deny them.
func TestTrimmedWhileCold(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.Keep = 1
		c, ctx := open(t, config), t.Context()
		uid := user(t, c)
		at := fill(t, c, uid, 3)
		if err := c.Trim(ctx, []string{uid}); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			name  string
			floor history.Version
			want  history.Version
		}{
			{"the archive had nothing", 0, history.VersionOf(at+1, 1)},
			{"again", history.MaxVersion, history.VersionOf(at+1, 1)},
		} {
			if err := c.Warm(ctx, uid, history.Warmth{Floor: test.floor}); err != nil {
				t.Fatal(err)
			}
			u := c.Load(ctx, []history.Key{history.UserKey(uid)})[0].User
			if !u.Warm || u.Floor != test.want {
				t.Errorf("%s: got user %+v, want floor %d", test.name, u, test.want)
			}
		}
	})
}

// TestFloorAboveAll has an archive of which nothing is certain.
func TestFloorAboveAll(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, ctx := open(t, config), t.Context()
		uid := user(t, c)
		if err := c.Warm(ctx, uid, history.Warmth{Floor: history.MaxVersion}); err != nil {
			t.Fatal(err)
		}
		u := c.Load(ctx, []history.Key{history.UserKey(uid)})[0].User
		if !u.Warm || u.Floor != history.MaxVersion {
			t.Errorf("user: got %+v, want warm with floor %d", u, history.MaxVersion)
		}
	})
}
