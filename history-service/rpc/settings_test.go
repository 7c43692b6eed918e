package rpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const paused = historyv1.Status_STATUS_PAUSED

// record turns recording on (since 0) or off, and checks the settings.
func record(t *testing.T, s *rpc.Server, uid string, since int64) {
	t.Helper()
	recording := since == 0
	put, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: uid, Recording: recording})
	if err != nil {
		t.Fatalf("put settings: %v", err)
	}
	get, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: uid})
	if err != nil {
		t.Fatalf("get settings: %v", err)
	}
	for _, got := range []*historyv1.Settings{put.GetSettings(), get.GetSettings()} {
		if got.GetRecording() != recording || got.GetPausedMs() != since {
			t.Errorf("%s: got %v, want recording %t, paused at %d", uid, got, recording, since)
		}
	}
}

func wantStatuses(t *testing.T, what string, got []historyv1.Status, want ...historyv1.Status) {
	t.Helper()
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("%s: got %v, want %v", what, got, want)
			return
		}
	}
}

// TestPausedThroughAnother pauses recording through one service while another one holds the viewing, with late
// reports.
func TestPausedThroughAnother(t *testing.T) {
	h := newHouse(t)
	a, b := h.service(t), h.service(t)
	apply(t, a, beat("ann/1", historyv1.Kind_KIND_PROGRESS, 5000, 10), beat("ann/2", historyv1.Kind_KIND_STOP, 5000, 10), beat("bob/1", historyv1.Kind_KIND_PROGRESS, 5000, 10))
	record(t, b, "ann", start)
	h.clock.Store(start + 20_000)
	record(t, b, "ann", start)
	for name, s := range map[string]*rpc.Server{"holds": a, "does not hold": b} {
		wantStatuses(t, name, apply(t, s,
			beat("ann/1", historyv1.Kind_KIND_PROGRESS, -10_000, 20), beat("ann/3", historyv1.Kind_KIND_PROGRESS, -10_000, 20), beat("ann/2", historyv1.Kind_KIND_STOP, -10_000, 20),
		), paused, paused, paused)
		if got := apply(t, s, beat("bob/1", historyv1.Kind_KIND_PROGRESS, -10_000, 20)); got[0] == paused {
			t.Errorf("%s: another user is paused too", name)
		}
	}
	wantStatuses(t, "from before the pause, late", apply(t, a, beat("ann/1", historyv1.Kind_KIND_PROGRESS, 1000, 15), beat("ann/4", historyv1.Kind_KIND_PROGRESS, 0, 15)), stored, stored)
	if it := point(t, a, "ann", "1"); it.GetPositionMs() != 15_000 {
		t.Errorf("record while paused: got %v, want 15 s", it)
	}
	if it := point(t, a, "ann", "3"); it != nil {
		t.Errorf("record of a paused viewing: got %v, want none", it)
	}
	h.clock.Store(start + 60_000)
	record(t, b, "ann", 0)
	h.clock.Store(start + 61_000)
	apply(t, a, beat("ann/4", historyv1.Kind_KIND_PROGRESS, -60_500, 16)) // held from here on
	wantStatuses(t, "late, from the pause, of what is held", apply(t, a, beat("ann/4", historyv1.Kind_KIND_STOP, -30_000, 17)), paused)
	wantStatuses(t, "late, from the pause, the end of it, and since", apply(t, a,
		beat("ann/1", historyv1.Kind_KIND_PROGRESS, -30_000, 30), beat("ann/3", historyv1.Kind_KIND_STOP, -60_000, 30), beat("ann/1", historyv1.Kind_KIND_PROGRESS, -60_001, 40),
	), paused, paused, stored)
	if it := point(t, b, "ann", "1"); it.GetPositionMs() != 40_000 || it.GetFurthestMs() != 40_000 {
		t.Errorf("record after the pause: got %v, want 40 s", it)
	}
}

// TestPausedWithinASession: a session that spans a pause keeps only its earlier watched time. A session after the
// pause counts.
func TestPausedWithinASession(t *testing.T) {
	h := newHouse(t)
	a, b := h.service(t), h.service(t)
	played := func(object string, began, ago, seconds int64) *historyv1.Heartbeat {
		hb := beat("ann/"+object, historyv1.Kind_KIND_PROGRESS, ago, 10)
		hb.Session, hb.StartedAtMs, hb.WatchedMs = object, start+began, seconds*1000
		return hb
	}
	watched := func(what, object string, want int64) {
		t.Helper()
		if it := point(t, b, "ann", object); it.GetWatchedMs() != want*1000 {
			t.Errorf("%s: got %d ms, want %d s", what, it.GetWatchedMs(), want)
		}
	}
	apply(t, a, played("1", -600_000, 0, 600))
	record(t, b, "ann", start)
	h.clock.Store(start + 900_000)
	wantStatuses(t, "while it is off", apply(t, a, played("1", -600_000, -900_000, 1500)), paused)
	record(t, b, "ann", 0)
	h.clock.Store(start + 1_000_000)
	wantStatuses(t, "after", apply(t, a,
		played("1", -600_000, -1_000_000, 1600), played("2", -600_000, -1_000_000, 1600), played("3", 900_001, -1_000_000, 50), played("1", -600_000, 1000, 599),
	), stored, stored, stored, stale)
	watched("after", "1", 600)
	watched("first heard of after it", "2", 0)
	watched("begun after it", "3", 50)
}

// TestSentAgainAfterTheNextSwitch: reports are retried after further pauses, even more than are remembered. Paused
// time never counts, through any service.
func TestSentAgainAfterTheNextSwitch(t *testing.T) {
	h := newHouse(t)
	a, b := h.service(t), h.service(t)
	at := func(ms int64) { h.clock.Store(start + ms) }
	report := func(object string, ms int64, kind historyv1.Kind) *historyv1.Heartbeat {
		hb := beat("ann/"+object, kind, -ms, 10)
		hb.StartedAtMs, hb.WatchedMs, hb.SpeedPercent = start, ms, 50
		return hb
	}
	all := []*historyv1.Heartbeat{
		report("within", 900_000, historyv1.Kind_KIND_FINISH), report("hardly", 1_000_001, historyv1.Kind_KIND_PROGRESS),
		report("after", 1_060_000, historyv1.Kind_KIND_PROGRESS),
	}
	apply(t, a, beat("ann/else", historyv1.Kind_KIND_PROGRESS, 0, 10))
	record(t, b, "ann", start)
	at(900_000)
	wantStatuses(t, "while it is off", apply(t, a, all[0]), paused)
	at(1_000_000)
	record(t, b, "ann", 0)
	at(1_060_000)
	wantStatuses(t, "on again", apply(t, a, all...), paused, stored, stored)
	for n := range int64(history.MaxPauses) {
		at(2_000_000 + n*10_000)
		record(t, b, "ann", start+2_000_000+n*10_000)
		at(2_001_000 + n*10_000)
		record(t, b, "ann", 0)
		for _, s := range []*rpc.Server{a, b, h.service(t)} {
			wantStatuses(t, "sent again", apply(t, s, all...), paused, unchanged, unchanged)
		}
		for object, want := range map[string]int64{"within": 0, "hardly": 0, "after": 0} {
			if it := point(t, b, "ann", object); it.GetWatchedMs() != want || it.GetPlays() != 0 {
				t.Fatalf("%s, after %d more pauses: got %v, want %d ms", object, n+1, it, want)
			}
		}
	}
	at(3_000_000) // one more than the remembered pauses
	record(t, b, "ann", start+3_000_000)
	at(3_001_000)
	record(t, b, "ann", 0)
	wantStatuses(t, "sent again after many", apply(t, a, all[1:]...), unchanged, unchanged)
	for object, want := range map[string]int64{"hardly": 0, "after": 0} {
		if it := point(t, b, "ann", object); it.GetWatchedMs() != want {
			t.Errorf("%s, after more pauses than are remembered: got %v, want %d ms", object, it, want)
		}
	}
}

// TestPausedDeletes deletes and clears while recording is paused.
func TestPausedDeletes(t *testing.T) {
	h := newHouse(t)
	a, b := h.service(t), h.service(t)
	apply(t, a, beat("ann/1", historyv1.Kind_KIND_PROGRESS, 5000, 10), beat("ann/2", historyv1.Kind_KIND_PROGRESS, 5000, 10))
	record(t, b, "ann", start)
	h.clock.Store(start + 1000)
	resp, err := a.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "1", Type: 1}, {Id: "9", Type: 1}}})
	if err != nil || resp.GetDeleted() != 1 || point(t, b, "ann", "1") != nil {
		t.Errorf("delete: got %v, %v; want one deleted", resp, err)
	}
	wantStatuses(t, "seen before the delete", apply(t, b, beat("ann/9", historyv1.Kind_KIND_STOP, 100, 10)), historyv1.Status_STATUS_STALE)
	if _, err := a.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil || point(t, b, "ann", "2") != nil {
		t.Errorf("clear: %v", err)
	}
	record(t, a, "ann", start)
}

// TestSettingsOfAColdUser: an archived pause stays in force until a later change.
func TestSettingsOfAColdUser(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	for _, uid := range []string{"ann", "bob", "cid"} {
		if err := h.db.Archive().PutUser(t.Context(), uid, history.User{Pause: history.Pause{Since: start - 1000}}); err != nil {
			t.Fatal(err)
		}
	}
	record(t, s, "ann", start-1000)
	record(t, s, "bob", 0)
	wantStatuses(t, "from the pause", apply(t, s, beat("ann/1", historyv1.Kind_KIND_STOP, 500, 1), beat("bob/1", historyv1.Kind_KIND_STOP, 500, 1)), paused, paused)
	get, err := s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "cid"})
	if err != nil || get.GetSettings().GetPausedMs() != start-1000 {
		t.Errorf("settings of a cold user: got %v, %v", get, err)
	}
}

// TestSettingsInOutage: a failed read never means "recording".
func TestSettingsInOutage(t *testing.T) {
	for name, wrap := range map[string]func(*rpc.Config){
		"archive": func(c *rpc.Config) { c.Archive = noArchive{c.Archive} },
		"cache":   func(c *rpc.Config) { c.Cache = noPause{c.Cache} },
	} {
		s := newHouse(t).service(t, wrap)
		_, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann"})
		wantCode(t, "put settings without the "+name, err, codes.Unavailable)
		if name == "archive" {
			_, err = s.GetSettings(t.Context(), &historyv1.GetSettingsRequest{Uid: "ann"})
			wantCode(t, "get settings without the "+name, err, codes.Unavailable)
		}
		_, err = s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "a\nb"})
		wantCode(t, "put settings of nobody", err, codes.InvalidArgument)
	}
}

type (
	noArchive struct{ history.Archive }
	noPause   struct{ history.Cache }
)

func (noArchive) Page(context.Context, string, history.Query) (history.Page, error) {
	return history.Page{}, errDown
}

func (noPause) Pause(context.Context, string, history.Pause, history.Pause) error { return errDown }

// TestRecordFromInsideAPause: an archived record is later than the start of a pause, due to a fast clock or a late
// pause. An event from before the pause is still stored.
func TestRecordFromInsideAPause(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	old := history.Event{Key: history.Key{UID: "ann", Object: history.Object{ID: "1", Type: 1}}, Kind: history.KindProgress, At: start - 1000, Position: 40_000}
	if errs := h.db.Archive().Put(t.Context(), []history.Cell{{Key: old.Key, Record: old.Record().Successor(nil)}}); errs != nil {
		t.Fatal(errs)
	}
	w := history.WarmSet{LowWatermark: history.VersionOf(start, 0), Pause: history.Pause{Since: start - 5000}}
	if err := h.db.Cache().Warm(t.Context(), "ann", w); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "from before the pause", apply(t, s, beat("ann/1", historyv1.Kind_KIND_PROGRESS, 6000, 70)), stored)
	wantStatuses(t, "from inside", apply(t, s, beat("ann/1", historyv1.Kind_KIND_PROGRESS, 500, 80)), paused)
	if it := point(t, s, "ann", "1"); it.GetPositionMs() != 40_000 || it.GetFurthestMs() != 70_000 {
		t.Errorf("got %v, want position 40 s, furthest 70 s", it)
	}
}

// TestSwitchAfterARestore: a pause right after a restore takes effect at once, although restored versions are
// ahead.
func TestSwitchAfterARestore(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	played(t, s, 30)
	backup := export(t, s, "ann")
	h.clock.Add(1000)
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, "restore", imports(t, s, restored("ann", backup...)), counts{stored: 30})
	record(t, s, "ann", start+1000)
	h.clock.Add(1)
	wantStatuses(t, "a millisecond later", apply(t, s, beat("ann/new", historyv1.Kind_KIND_PROGRESS, -1001, 1)), paused)
	record(t, s, "ann", 0)
	h.clock.Add(10_000)
	wantStatuses(t, "of a clock that is ahead", apply(t, s, beat("ann/new", historyv1.Kind_KIND_PROGRESS, -3000, 1)), stored)
	h.clock.Add(-9_000)
	record(t, s, "ann", start+3000)
}

// TestDecisionsCoverClocksAhead: a clear without a time covers records of a clock that was ahead. A clear of one
// type considers only that type.
func TestDecisionsCoverClocksAhead(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	other := beat("ann/2", historyv1.Kind_KIND_PROGRESS, -90_000, 10)
	other.ObjectType = 2
	h.clock.Store(start + 100_000)
	apply(t, s, beat("ann/1", historyv1.Kind_KIND_PROGRESS, -60_000, 10), other)
	h.clock.Store(start)
	for _, want := range []struct {
		typ   uint32
		until int64
	}{{7, start}, {1, start + 60_000}, {0, start + 90_000}} {
		resp, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: want.typ})
		if err != nil || resp.GetClearedMs() != want.until {
			t.Errorf("clear of type %d: got %v, %v; want up to %d", want.typ, resp, err, want.until)
		}
	}
	h.clock.Store(start + 100_000)
	apply(t, s, beat("bob/1", historyv1.Kind_KIND_PROGRESS, -60_000, 10))
	h.clock.Store(start)
	record(t, s, "bob", start) // a pause is not moved: later plays are after it
	h.clock.Store(start + 10)
	wantStatuses(t, "after the switch", apply(t, s, beat("bob/2", historyv1.Kind_KIND_PROGRESS, -1, 10)), paused)
}

// TestSwitchesRace: with concurrent changes of the settings, the last one wins.
func TestSwitchesRace(t *testing.T) {
	h := newHouse(t)
	s := h.service(t, func(c *rpc.Config) { c.Cache = &racedPause{Cache: c.Cache, others: 3} })
	record(t, s, "ann", start+2)
	record(t, s, "ann", 0)
}

// racedPause is a cache in which other changes come first.
type racedPause struct {
	history.Cache
	others int
}

func (c *racedPause) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	if c.others--; c.others >= 0 {
		if err := c.Cache.Pause(ctx, uid, from, from.Switched(from.On(), start, 0)); err != nil {
			return err
		}
	}
	return c.Cache.Pause(ctx, uid, from, to)
}
