package rpc_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// session sets a heartbeat's session, its age and watched time in milliseconds.
func session(hb *historyv1.Heartbeat, name string, age, watched int64) *historyv1.Heartbeat {
	hb.Session, hb.StartedAtMs, hb.WatchedMs = name, hb.EventTimeMs-age, watched
	return hb
}

// TestStartGrace restarts a watched object and checks the visible position.
func TestStartGrace(t *testing.T) {
	s := newHouse(t).service(t)
	steps := []struct {
		name string
		hb   *historyv1.Heartbeat
		want int64 // seconds
	}{
		{"half of it", session(beat("ann/7", stop, 100_000, 50), "s1", 60_000, 0), 50},
		{"a start", session(beat("ann/7", begin, 90_000, 0), "s2", 0, 0), 50},
		{"a stop after a second", session(beat("ann/7", stop, 89_000, 1), "s2", 1000, 0), 50},
		{"a late report of before", session(beat("ann/7", pause, 95_000, 60), "s1", 70_000, 0), 60},
		{"another start", session(beat("ann/7", begin, 80_000, 0), "s3", 0, 0), 60},
		{"which goes on", session(beat("ann/7", progress, 70_000, 9), "s3", 10_000, 0), 9},
		{"a start that seeks", session(beat("ann/7", historyv1.Kind_KIND_SEEK, 60_000, 3), "s4", 1000, 0), 3},
		{"and stops", session(beat("ann/7", stop, 59_000, 4), "s4", 2000, 0), 3},
	}
	for _, step := range steps {
		if got := apply(t, s, step.hb); got[0] != stored {
			t.Errorf("%s: got %v", step.name, got)
		}
		if it := point(t, s, "ann", "7"); it.GetPositionMs() != step.want*1000 || it.GetFurthestMs() < step.want*1000 {
			t.Errorf("%s: got %v, want %d s", step.name, it, step.want)
		}
	}
}

// TestGraceAfterADelete: a deleted or cleared position does not survive a new start.
func TestGraceAfterADelete(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, beat("ann/7", stop, 100_000, 50))
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", AtMs: start - 95_000, Objects: []*historyv1.Object{{Id: "7", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	apply(t, s, beat("ann/7", begin, 90_000, 1))
	if it := point(t, s, "ann", "7"); it.GetPositionMs() != 1000 {
		t.Errorf("after a delete: got %v, want 1 s", it)
	}
	apply(t, s, beat("ann/8", stop, 100_000, 50), beat("ann/8", begin, 90_000, 1))
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 95_000}); err != nil {
		t.Fatal(err)
	}
	for _, service := range []*rpc.Server{s, h.service(t)} {
		if it := point(t, service, "ann", "8"); it.GetPositionMs() != 1000 {
			t.Errorf("after a clear: got %v, want 1 s", it)
		}
	}
}

// TestSessionOfAWrongClock: the start of a session is corrected like its events.
func TestSessionOfAWrongClock(t *testing.T) {
	s := newHouse(t).service(t)
	apply(t, s, beat("ann/7", stop, 100_000, 50))
	for _, test := range []struct{ age, want int64 }{{2000, 50}, {20_000, 3}} {
		hb := session(beat("ann/7", progress, 60_000-test.age, 3), "s2", test.age, 30_000)
		for _, ms := range []*int64{&hb.EventTimeMs, &hb.StartedAtMs} {
			*ms -= 3_600_000
		}
		hb.SentAtMs = start - 3_600_000
		apply(t, s, hb)
		it := point(t, s, "ann", "7")
		if it.GetPositionMs() != test.want*1000 || it.GetWatchedMs() != test.age {
			t.Errorf("after %d ms: got %v, want %d s", test.age, it, test.want)
		}
	}
}

// TestWatched adds up sessions, each limited to its elapsed time.
func TestWatched(t *testing.T) {
	s := newHouse(t).service(t)
	fast := session(beat("ann/7", progress, 50_000, 60), "s3", 10_000, 90_000)
	fast.SpeedPercent = 200
	silent := beat("ann/7", progress, 45_000, 60)
	silent.WatchedMs = 99_000
	wrong := session(beat("ann/7", progress, 5000, 60), "s5", -60_000, 5000) // starts in the future
	steps := []struct {
		name string
		hb   *historyv1.Heartbeat
		want int64 // milliseconds
	}{
		{"the first report", session(beat("ann/7", progress, 90_000, 20), "s1", 10_000, 8000), 8000},
		{"the next", session(beat("ann/7", progress, 80_000, 30), "s1", 20_000, 18_000), 18_000},
		{"the first comes again", session(beat("ann/7", progress, 90_000, 20), "s1", 10_000, 8000), 18_000},
		{"paused", session(beat("ann/7", pause, 70_000, 30), "s1", 30_000, 18_000), 18_000},
		{"another session", session(beat("ann/7", progress, 60_000, 40), "s2", 20_000, 5000), 23_000},
		{"too fast", fast, 43_000},
		{"a session of unknown age", silent, 43_000},
		{"more than has passed", session(beat("ann/7", progress, 40_000, 60), "s4", 1000, 90_000), 44_000},
		{"a session to come", wrong, 44_000},
	}
	for _, step := range steps {
		apply(t, s, step.hb)
		if it := point(t, s, "ann", "7"); it.GetWatchedMs() != step.want {
			t.Errorf("%s: got %v, want %d ms", step.name, it, step.want)
		}
	}
}

// TestRulesByType has an audio type with a later done limit and a shorter grace than video.
func TestRulesByType(t *testing.T) {
	book, err := history.ParseRules("", []string{"3:done=98,grace=2s"})
	if err != nil {
		t.Fatal(err)
	}
	s := newHouse(t).service(t, func(c *rpc.Config) { c.Rules = book })
	for typ, want := range map[uint32]exact{1: {position: 95, furthest: 95, plays: 1}, 3: {position: 5, furthest: 95}} {
		most, again := beat("ann/7", stop, 5000, 95), beat("ann/7", progress, 4000, 5)
		most.ObjectType, again.ObjectType = typ, typ
		apply(t, s, most, again)
		resp, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "7", Type: typ}}})
		if err != nil {
			t.Fatal(err)
		}
		it := resp.GetItems()[0]
		if got := (exact{it.GetPositionMs() / 1000, it.GetFurthestMs() / 1000, int64(it.GetPlays())}); got != want { //nolint:gosec // few
			t.Errorf("type %d: got %+v, want %+v", typ, got, want)
		}
	}
}

// TestIncognito: incognito reports are validated but not stored.
func TestIncognito(t *testing.T) {
	s := newHouse(t).service(t)
	hb, wrong := beat("ann/7", finish, 0, 100), beat("ann/8", progress, 0, -1)
	hb.Incognito, wrong.Incognito = true, true
	got := apply(t, s, hb, wrong)
	if got[0] != historyv1.Status_STATUS_PAUSED || got[1] != invalid {
		t.Errorf("got %v, want it paused and invalid", got)
	}
	if it := point(t, s, "ann", "7"); it != nil {
		t.Errorf("it was kept: %v", it)
	}
}

// TestETag: the etag changes exactly when the visible record changes.
func TestETag(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	seen := map[uint64]string{0: "no etag"}
	steps := []struct {
		name    string
		hb      *historyv1.Heartbeat
		visible bool
	}{
		{"the first", session(beat("ann/7", progress, 60_000, 50), "s1", 20_000, 0), true},
		{"the same again", session(beat("ann/7", progress, 60_000, 50), "s1", 20_000, 0), false},
		{"a lower one of before", session(beat("ann/7", progress, 70_000, 40), "s1", 10_000, 0), false},
		{"a higher one of before", session(beat("ann/7", progress, 65_000, 60), "s1", 15_000, 0), true},
		{"a peak that nobody sees", session(beat("ann/7", progress, 62_000, 55), "s1", 18_000, 0), false},
		{"some played", session(beat("ann/7", progress, 60_000, 50), "s1", 20_000, 7), true},
		{"a later one", session(beat("ann/7", progress, 50_000, 50), "s1", 30_000, 0), true},
		{"paused", session(beat("ann/7", pause, 49_000, 50), "s1", 31_000, 0), true},
		{"a play", viewing("s2", "ann/7", 80_000, 30), true},
	}
	last := uint64(0)
	for _, step := range steps {
		apply(t, s, step.hb)
		it := point(t, s, "ann", "7")
		if other, known := seen[it.GetEtag()]; step.visible && known {
			t.Errorf("%s: has the etag of %s", step.name, other)
		}
		if !step.visible && it.GetEtag() != last {
			t.Errorf("%s: got another etag for %v", step.name, it)
		}
		last = it.GetEtag()
		seen[last] = step.name
	}
	if got := point(t, h.service(t), "ann", "7").GetEtag(); got != last {
		t.Errorf("another service: got %x, want %x", got, last)
	}
}
