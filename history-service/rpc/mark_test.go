package rpc_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	watchedMark   = historyv1.Mark_MARK_WATCHED
	unwatchedMark = historyv1.Mark_MARK_UNWATCHED
	resetMark     = historyv1.Mark_MARK_RESET
)

// toMark returns objects to mark, without metadata.
func toMark(objects ...*historyv1.Object) (all []*historyv1.MarkedObject) {
	for _, o := range objects {
		all = append(all, &historyv1.MarkedObject{Object: o})
	}
	return all
}

// mark marks ann's objects.
func mark(t *testing.T, s *rpc.Server, m historyv1.Mark, at int64, ids ...string) *historyv1.MarkResponse { //nolint:revive // as the call has it
	t.Helper()
	return marking(t, s, &historyv1.MarkRequest{Mark: m, AtMs: at}, ids)
}

// marking marks ann's objects with the options of req.
func marking(t *testing.T, s *rpc.Server, req *historyv1.MarkRequest, ids []string) *historyv1.MarkResponse {
	t.Helper()
	req.Uid, req.Objects = "ann", toMark(videos(ids...)...)
	resp, err := s.Mark(t.Context(), req)
	if err != nil {
		t.Fatalf("mark %v: %v", ids, err)
	}
	return resp
}

// TestMark: the visible state of an object after each mark, through any service.
func TestMark(t *testing.T) {
	h := newHouse(t)
	s, other := h.service(t), h.service(t)
	apply(t, s, film("ann/1", stop, 9000, 1000), film("ann/2", stop, 8000, 1200))
	resp := mark(t, other, watchedMark, 0, "1", "never")
	wantStatuses(t, "watched", resp.GetStatuses(), stored, stored)
	for i, it := range resp.GetRecords() {
		if !it.GetCompleted() || it.GetResumeMs() != 0 || it.GetPlays() != 1 || it.GetCompletedAtMs() != start {
			t.Errorf("%d, watched: %v", i, it)
		}
	}
	wantGoOn(t, "watched", s, "2")
	if got := fmt.Sprint(list(t, s, &historyv1.ListRequest{Uid: "ann"})); got != "[never 1 2]" && got != "[1 never 2]" {
		t.Errorf("the list is %s, want what was marked first", got)
	}
	wantStatuses(t, "watched again", mark(t, s, watchedMark, 0, "1").GetStatuses(), unchanged)
	if got := apply(t, s, film("ann/1", progress, 5000, 1100)); got[0] != stored && got[0] != stale {
		t.Errorf("a late report: %v", got)
	}
	if it := point(t, s, "ann", "1"); !it.GetCompleted() || it.GetPlays() != 1 || it.GetFurthestMs() != 1_100_000 {
		t.Errorf("after a late report: %v", it)
	}
	wantStatuses(t, "unwatched", mark(t, s, unwatchedMark, 0, "1", "nothing").GetStatuses(), stored, unchanged)
	if it := point(t, s, "ann", "1"); it.GetCompleted() || it.GetPlays() != 0 || it.GetCompletedAtMs() != 0 || it.GetResumeMs() != 0 || it.GetFurthestMs() != 1_100_000 {
		t.Errorf("unwatched in the millisecond of the mark before: %v", it)
	}
	if point(t, s, "ann", "nothing") != nil {
		t.Error("what nobody played is in the history as unwatched")
	}
	h.clock.Add(1000)
	apply(t, s, film("ann/1", finish, -1000, 3600))
	h.clock.Add(1000)
	wantStatuses(t, "reset", mark(t, other, resetMark, 0, "1").GetStatuses(), stored)
	if it := point(t, s, "ann", "1"); it.GetCompleted() || it.GetPlays() != 1 || it.GetResumeMs() != 0 || it.GetState() != historyv1.State_STATE_STOPPED {
		t.Errorf("reset: %v", it)
	}
	wantStatuses(t, "reset again", mark(t, other, resetMark, 0, "1").GetStatuses(), unchanged)
}

// TestMarkAsOfATime: a mark with a time is ordered among the reports.
func TestMarkAsOfATime(t *testing.T) {
	s := newHouse(t).service(t)
	apply(t, s, film("ann/1", stop, 9000, 1000), viewing("seen", "ann/2", 9000, 3600), film("ann/2", progress, 3000, 500))
	wantStatuses(t, "before the latest report", mark(t, s, resetMark, start-9500, "1").GetStatuses(), stale)
	wantStatuses(t, "as unwatched, in between", mark(t, s, unwatchedMark, start-5000, "2").GetStatuses(), stored)
	if it := point(t, s, "ann", "2"); it.GetPlays() != 0 || it.GetResumeMs() != 500_000 {
		t.Errorf("got %v, want no play, and the position of the report after the mark", it)
	}
	wantStatuses(t, "the same again", mark(t, s, unwatchedMark, start-5000, "2").GetStatuses(), stale)
	wantStatuses(t, "to come", mark(t, s, watchedMark, start+90_000, "2").GetStatuses(), stored)
	if it := point(t, s, "ann", "2"); it.GetEventTimeMs() != start {
		t.Errorf("marked at %d, want now", it.GetEventTimeMs())
	}
	wantStatuses(t, "of long ago", mark(t, s, watchedMark, start-91*86_400_000, "2").GetStatuses(), historyv1.Status_STATUS_EXPIRED)
}

// TestMarkWhatTheArchiveHas: a mark applies to the whole record, cached or archived.
func TestMarkWhatTheArchiveHas(t *testing.T) {
	s, a := trimmed(t)
	a.down.Store(true)
	for _, m := range []historyv1.Mark{watchedMark, unwatchedMark, resetMark} {
		_, err := s.Mark(t.Context(), &historyv1.MarkRequest{Uid: "ann", Mark: m, Objects: toMark(videos("old")...)})
		wantCode(t, "without the archive", err, codes.Unavailable)
	}
	a.down.Store(false)
	wantStatuses(t, "reset", mark(t, s, resetMark, 0, "old").GetStatuses(), stored)
	want(t, s, "old", exact{0, 100, 2})
	wantStatuses(t, "unwatched", mark(t, s, unwatchedMark, 0, "old", "never").GetStatuses(), stored, unchanged)
	want(t, s, "old", exact{0, 100, 0})
}

// TestMarkUnderDecisions: a mark does not restore cleared records, and marks nothing while recording is paused.
func TestMarkUnderDecisions(t *testing.T) {
	h := newHouse(t)
	holder, s := h.service(t), h.service(t)
	apply(t, holder, film("ann/1", stop, 9000, 1000))
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "reset of what was cleared", mark(t, holder, resetMark, 0, "1").GetStatuses(), unchanged)
	wantStatuses(t, "watched before the clear", mark(t, holder, watchedMark, start-1000, "1").GetStatuses(), cleared)
	wantStatuses(t, "watched", mark(t, holder, watchedMark, 0, "1").GetStatuses(), stored)
	if it := point(t, s, "ann", "1"); it.GetFurthestMs() != 0 || !it.GetCompleted() {
		t.Errorf("watched after the clear: %v", it)
	}
	h.clock.Add(1000)
	if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.clock.Add(1000)
	wantStatuses(t, "while recording is paused", mark(t, s, unwatchedMark, 0, "1").GetStatuses(), paused)
}

// TestMarkOnlyRecorded: such a mark creates no record for unknown, deleted or cleared objects. It fails if only the
// unavailable archive may have a record.
func TestMarkOnlyRecorded(t *testing.T) {
	only := func(s *rpc.Server, at int64, ids ...string) []historyv1.Status {
		t.Helper()
		return marking(t, s, &historyv1.MarkRequest{Mark: watchedMark, AtMs: at, OnlyRecorded: true}, ids).GetStatuses()
	}
	h := newHouse(t)
	s, other := h.service(t), h.service(t)
	apply(t, s, film("ann/1", stop, 9000, 1000), film("ann/2", stop, 8000, 1200), film("ann/3", stop, 7000, 1200))
	deleteIDs(t, other, "2")
	wantStatuses(t, "there, deleted, and never there", only(s, 0, "1", "2", "never"), stored, unchanged, unchanged)
	wantStatuses(t, "as of a time", only(s, start-500, "3", "2", "never"), stored, unchanged, unchanged)
	if it := point(t, s, "ann", "1"); !it.GetCompleted() || point(t, s, "ann", "2") != nil || point(t, s, "ann", "never") != nil {
		t.Errorf("got %v, want that alone", it)
	}
	if _, err := other.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "cleared", only(s, 0, "1", "3"), unchanged, unchanged)
	cold, a := trimmed(t)
	a.down.Store(true)
	_, err := cold.Mark(t.Context(), &historyv1.MarkRequest{Uid: "ann", Mark: watchedMark, OnlyRecorded: true, Objects: toMark(videos("old")...)})
	wantCode(t, "without the archive", err, codes.Unavailable)
	a.down.Store(false)
	wantStatuses(t, "with it", only(cold, 0, "old", "never"), stored, unchanged)
}

// TestMarksOfOneMoment: of two marks in one millisecond one wins, and the other is stale.
func TestMarksOfOneMoment(t *testing.T) {
	s := newHouse(t).service(t)
	wantStatuses(t, "watched", mark(t, s, watchedMark, start-1000, "1").GetStatuses(), stored)
	wantStatuses(t, "reset then", mark(t, s, resetMark, start-1000, "1").GetStatuses(), stale)
	wantStatuses(t, "watched again", mark(t, s, watchedMark, start-1000, "1").GetStatuses(), unchanged)
}

func TestMarkRefusals(t *testing.T) {
	s := newHouse(t).service(t)
	one := toMark(videos("1")...)
	for name, req := range map[string]*historyv1.MarkRequest{
		"nothing":          {Uid: "ann", Mark: watchedMark},
		"no mark":          {Uid: "ann", Objects: one},
		"an unknown mark":  {Uid: "ann", Objects: one, Mark: 7},
		"an illegal user":  {Uid: "a\nb", Objects: one, Mark: watchedMark},
		"unless completed": {Uid: "ann", Objects: one, Mark: resetMark, UnlessCompleted: true},
		"illegal metadata": {Uid: "ann", Objects: []*historyv1.MarkedObject{{Object: one[0].Object, Meta: map[string]string{"a": "\xff"}}}, Mark: watchedMark},
		"an illegal time":  {Uid: "ann", Objects: one, Mark: watchedMark, AtMs: -1},
		"too many":         {Uid: "ann", Objects: make([]*historyv1.MarkedObject, 1001), Mark: watchedMark},
	} {
		_, err := s.Mark(t.Context(), req)
		wantCode(t, name, err, codes.InvalidArgument)
	}
}

// season returns a season's episodes with metadata.
func season(number, episodes int) (all []*historyv1.MarkedObject) {
	for i := range episodes {
		meta := map[string]string{"series": "a", "season": fmt.Sprint(number), "episode": fmt.Sprint(i + 1), "title": fmt.Sprint("Part ", i+1)}
		all = append(all, &historyv1.MarkedObject{Object: &historyv1.Object{Id: fmt.Sprintf("a%d-%d", number, i+1), Type: 1}, Meta: meta})
	}
	return all
}

// TestMarkSeason: marked episodes have titles, and the next episode is known, whatever was played before.
func TestMarkSeason(t *testing.T) {
	for name, test := range map[string]struct {
		beats []*historyv1.Heartbeat
		marks [][]*historyv1.MarkedObject
		want  string
	}{
		"all":              {nil, [][]*historyv1.MarkedObject{season(1, 10)}, "a1-10 then 1-11"},
		"a part of it":     {nil, [][]*historyv1.MarkedObject{season(1, 10)[:4]}, "a1-4 then 1-5"},
		"two":              {nil, [][]*historyv1.MarkedObject{season(1, 3), season(2, 2)}, "a2-2 then 2-3"},
		"some were played": {[]*historyv1.Heartbeat{numbered("1-1", finish, 9000, 3600), numbered("1-3", finish, 8000, 3600)}, [][]*historyv1.MarkedObject{season(1, 3)}, "a1-3 then 1-4"},
		"one in the middle": {
			[]*historyv1.Heartbeat{numbered("1-4", stop, 9000, 1000), numbered("1-2", stop, 8000, 1000)}, [][]*historyv1.MarkedObject{season(1, 3)}, "a1-4",
		},
		"all but one": {
			[]*historyv1.Heartbeat{numbered("1-1", finish, 9000, 3600), numbered("1-3", finish, 8000, 3600), numbered("1-4", finish, 7000, 3600)},
			[][]*historyv1.MarkedObject{season(1, 4)},
			"a1-4 then 1-5",
		},
	} {
		h := newHouse(t)
		s := h.service(t)
		apply(t, s, test.beats...)
		for _, objects := range test.marks {
			h.clock.Add(1000)
			resp, err := s.Mark(t.Context(), &historyv1.MarkRequest{Uid: "ann", Mark: watchedMark, Objects: objects, UnlessCompleted: true})
			if err != nil {
				t.Fatal(err)
			}
			for i, it := range resp.GetRecords() {
				if it.GetPlays() != 1 || !it.GetCompleted() || resp.GetStatuses()[i] == stored && it.GetMeta()["title"] != objects[i].GetMeta()["title"] {
					t.Errorf("%s: %d: got %v", name, i, it)
				}
			}
		}
		if got := goOn(t, s, &historyv1.ContinueRequest{Series: "series"}); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// TestMarkUnlessCompleted: repeated marks by a syncing bridge do not change completed records, even if they are
// being watched again.
func TestMarkUnlessCompleted(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	again := viewing("again", "ann/again", 3000, 600)
	again.Kind, again.DurationMs = stop, 3_600_000
	apply(t, s, film("ann/done", finish, 9000, 3600), film("ann/half", stop, 8000, 1000), film("ann/again", finish, 7000, 3600), again, film("ann/reset", finish, 6000, 3600))
	mark(t, s, resetMark, 0, "reset")
	ids := []string{"done", "half", "again", "reset", "never"}
	var first []string
	for i := range 10 {
		h.clock.Add(1000)
		req := &historyv1.MarkRequest{Mark: watchedMark, UnlessCompleted: true}
		if i%2 == 1 {
			req.AtMs = h.clock.Load()
		}
		resp := marking(t, s, req, ids)
		if i == 0 {
			wantStatuses(t, "the first time", resp.GetStatuses(), unchanged, stored, unchanged, unchanged, stored)
		} else {
			wantStatuses(t, "later", resp.GetStatuses(), unchanged, unchanged, unchanged, unchanged, unchanged)
		}
		for j, it := range resp.GetRecords() {
			if i == 0 {
				first = append(first, it.String())
			}
			if it.GetPlays() != 1 || it.String() != first[j] {
				t.Errorf("%d, %s: got %v, want %v", i, ids[j], it, first[j])
			}
		}
	}
	if it := point(t, s, "ann", "again"); it.GetResumeMs() != 600_000 {
		t.Errorf("who watches again goes on at %d", it.GetResumeMs())
	}
	mark(t, s, unwatchedMark, 0, "done")
	wantStatuses(t, "what is not watched", marking(t, s, &historyv1.MarkRequest{Mark: watchedMark, UnlessCompleted: true}, ids[:1]).GetStatuses(), stored)
}

// TestDeleteSummarized: a tombstone for summaries is young enough to reach them.
func TestDeleteSummarized(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	const day = 86_400_000
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "film", Type: 1}}, AtMs: start - 200*day, Summarized: true}); err != nil {
		t.Fatal(err)
	}
	got := apply(t, s, beat("ann/film", stop, 84*day, 9), beat("ann/film", stop, 82*day, 10))
	wantStatuses(t, "around the tombstone", got, historyv1.Status_STATUS_STALE, historyv1.Status_STATUS_STORED)
}
