package rpc_test

import (
	"context"
	"testing"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestFirstLife: what was stored before the cache could name its life is compared once it can.
func TestFirstLife(t *testing.T) {
	h := newHouse(t)
	cache, life, fails := &reborn{h.db.Cache()}, "a", true
	s := h.service(t, func(c *rpc.Config) {
		c.Cache = cache
		c.Life = func(context.Context) (string, error) {
			if fails {
				return "", errDown
			}
			return life, nil
		}
	})
	apply(t, s, beat("u/lost", historyv1.Kind_KIND_PROGRESS, 0, 10))
	point(t, s, "u", "none") // waits until the user is warm
	if s.Confirm(t.Context()) == nil {
		t.Fatal("confirmed without an answer")
	}
	cache.Cache, life, fails = h.older(t).Cache(), "b", false // one master was restarted without its end
	if err := s.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it := point(t, s, "u", "lost"); it.GetPositionMs() != 10_000 {
		t.Errorf("got %v, want the 10 s that were acknowledged and are held", it)
	}
}

// TestFirstLifeOfADecision: so is what a user decided, without any record that is held.
func TestFirstLifeOfADecision(t *testing.T) {
	h := newHouse(t)
	cache := &reborn{h.db.Cache()}
	s := h.service(t, func(c *rpc.Config) {
		c.Cache = cache
		c.Life = func(context.Context) (string, error) { return "b", nil }
	})
	if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "u"}); err != nil {
		t.Fatal(err)
	}
	cache.Cache = h.older(t).Cache()
	if err := s.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "u"}); err != nil || got.Settings.Recording {
		t.Errorf("got %v, %v; want recording switched off as it was", got, err)
	}
}
