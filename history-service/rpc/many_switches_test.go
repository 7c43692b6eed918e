package rpc_test

import (
	"context"
	"testing"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// A user has switched recording off and on many times, and the cache comes back without it:
// one Confirm brings back the last switch, and what is held of others.
func TestManySwitchesAreOne(t *testing.T) {
	h := newHouse(t)
	cache, life := &reborn{h.db.Cache()}, "a"
	s := h.service(t, func(c *rpc.Config) {
		c.Cache = cache
		c.Life = func(context.Context) (string, error) { return life, nil }
	})
	apply(t, s, beat("u/lost", historyv1.Kind_KIND_PROGRESS, 0, 10))
	if err := s.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	const n = 100
	for i := range n {
		if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "w", Recording: i%2 == 1}); err != nil {
			t.Fatal(err)
		}
	}
	point(t, s, "u", "none") // waits until the users are warm, so that nobody reads meanwhile
	point(t, s, "w", "none")
	cache.Cache, life = h.older(t).Cache(), "b"
	if err := s.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	if it := point(t, s, "u", "lost"); it == nil {
		t.Error("what somebody else reported is not shown")
	}
	got, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "w"})
	if err != nil || !got.GetSettings().GetRecording() {
		t.Errorf("settings are %v, error %v; want recording on", got, err)
	}
}
