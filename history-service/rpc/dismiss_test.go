package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// dismiss dismisses ann's objects, or offers them again, and returns the number found.
func dismiss(t *testing.T, s *rpc.Server, offer bool, ids ...string) uint32 {
	t.Helper()
	resp, err := s.Dismiss(t.Context(), &historyv1.DismissRequest{Uid: "ann", Offer: offer, Objects: videos(ids...)})
	if err != nil {
		t.Fatalf("dismiss %v: %v", ids, err)
	}
	return resp.GetFound()
}

// videos are objects of type 1.
func videos(ids ...string) (objects []*historyv1.Object) {
	for _, id := range ids {
		objects = append(objects, &historyv1.Object{Id: id, Type: 1})
	}
	return objects
}

func wantGoOn(t *testing.T, what string, s *rpc.Server, want string) {
	t.Helper()
	if got := goOn(t, s, &historyv1.ContinueRequest{Series: "series"}); got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestDismiss: a dismissed object leaves "continue watching", otherwise unchanged, until it is played or offered
// again.
func TestDismiss(t *testing.T) {
	h := newHouse(t)
	s, other := h.service(t), h.service(t)
	apply(t, s, film("ann/1", stop, 9000, 1000), film("ann/2", stop, 8000, 1000), film("ann/3", stop, 7000, 1000))
	before := point(t, s, "ann", "1")
	if n := dismiss(t, other, false, "1", "2", "never", "1"); n != 2 {
		t.Errorf("got %d objects, want 2", n)
	}
	wantGoOn(t, "dismissed", s, "3")
	after := point(t, s, "ann", "1")
	if after.GetDismissedMs() != start || after.Etag == before.Etag || after.Etag>>32 != before.Etag>>32 {
		t.Errorf("dismissed at %d under etag %x, want %d and another lower half than that of %x", after.GetDismissedMs(), after.Etag, start, before.Etag)
	}
	if after.DismissedMs, after.Etag = 0, before.Etag; after.String() != before.String() {
		t.Errorf("got  %v\nwant %v", after, before)
	}
	if dismiss(t, s, true, "1"); point(t, s, "ann", "1").GetDismissedMs() != 0 {
		t.Error("offered again, and yet dismissed")
	}
	wantGoOn(t, "offered again in the same millisecond", s, "3 1")
	dismiss(t, s, false, "1")
	apply(t, s, film("ann/1", progress, 500, 1100)) // in transit during the dismissal
	wantGoOn(t, "a report of before", s, "3")
	h.clock.Add(1000)
	apply(t, other, film("ann/1", progress, -1000, 1200))
	wantGoOn(t, "played again", s, "1 3")
}

// TestDismissedTwice: a repeated dismissal is stored with its own time.
func TestDismissedTwice(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, film("ann/1", stop, 9000, 1000))
	dismiss(t, s, false, "1")
	h.clock.Add(1000)
	if n := dismiss(t, s, false, "1"); n != 1 || point(t, s, "ann", "1").GetDismissedMs() != start+1000 {
		t.Errorf("got %d objects, dismissed at %d, want 1 and %d", n, point(t, s, "ann", "1").GetDismissedMs(), start+1000)
	}
	if n := dismiss(t, s, true, "1"); n != 1 {
		t.Errorf("offered %d objects, want 1", n)
	}
	etag := point(t, s, "ann", "1").GetEtag()
	if dismiss(t, s, true, "1"); point(t, s, "ann", "1").GetEtag() != etag {
		t.Error("what is offered already is offered again")
	}
}

// TestDismissedSeries: dismissing a part hides the series until any part is played again.
func TestDismissedSeries(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, numbered("1-1", finish, 9000, 3600), numbered("1-3", progress, 8000, 600), numbered("1-2", finish, 7000, 3600), film("ann/film", stop, 9500, 1000))
	wantGoOn(t, "the part that comes next", s, "a1-3 film")
	dismiss(t, s, false, "a1-1")
	wantGoOn(t, "a part that is not shown", s, "film")
	dismiss(t, s, true, "a1-1")
	wantGoOn(t, "taken back", s, "a1-3 film")
	dismiss(t, s, false, "a1-3")
	wantGoOn(t, "the part that is shown", s, "film")
	if got := goOn(t, s, &historyv1.ContinueRequest{Series: "series", Limit: 1}); got != "film" {
		t.Errorf("one at most: got %q, want film", got)
	}
	h.clock.Add(2000)
	apply(t, s, numbered("1-2", finish, -1000, 3600))
	wantGoOn(t, "another part again", s, "a1-3 film")
	dismiss(t, s, false, "a1-3")
	wantGoOn(t, "dismissed again", s, "film")
	h.clock.Add(2000)
	apply(t, s, numbered("1-3", finish, -3000, 3600))
	wantGoOn(t, "the last one completed", s, "a1-3 then 1-4 film")
	dismiss(t, s, false, "a1-3")
	wantGoOn(t, "what comes next dismissed", s, "film")
	apply(t, s, numbered("1-4", stop, -1500, 1000), numbered("1-5", finish, -1200, 3600))
	wantGoOn(t, "what was played before, and came late", s, "film")
	h.clock.Add(2000)
	apply(t, s, numbered("1-6", stop, -5000, 1000))
	wantGoOn(t, "played again", s, "a1-6 film")
}

// TestDismissedAndMarked: a mark is not a play, so dismissed objects and series stay hidden.
func TestDismissedAndMarked(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, numbered("1-1", finish, 9000, 3600), numbered("1-2", progress, 8000, 600), film("ann/film", stop, 9500, 1000))
	dismiss(t, s, false, "a1-2", "film")
	for _, m := range []historyv1.Mark{historyv1.Mark_MARK_WATCHED, historyv1.Mark_MARK_UNWATCHED, historyv1.Mark_MARK_RESET} {
		h.clock.Add(1000)
		mark(t, s, m, 0, "a1-1", "a1-2", "a1-3", "film")
		wantGoOn(t, m.String(), s, "")
		if it := point(t, s, "ann", "film"); it.GetDismissedMs() != start {
			t.Errorf("%s: dismissed at %d, want %d", m, it.GetDismissedMs(), start)
		}
	}
	h.clock.Add(2000)
	apply(t, s, numbered("1-2", progress, -4000, 700), film("ann/film", stop, -4500, 1100))
	wantGoOn(t, "played again", s, "film a1-2")
}

// TestContinueBesideARestore: a restored episode is first in the list, although a later episode was played after
// it. "Continue watching" is unchanged, and an ended dismissal stays ended.
func TestContinueBesideARestore(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, numbered("1-1", stop, 9000, 1000), numbered("1-2", stop, 8000, 1000))
	dismiss(t, s, false, "a1-1")
	backup := export(t, s, "ann")
	h.clock.Add(60_000)
	apply(t, s, numbered("1-2", stop, -50_000, 1200))
	wantGoOn(t, "played since", s, "a1-2")
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "a1-1", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, "restore", imports(t, s, restored("ann", backup...)), counts{stored: 1, stale: 1})
	wantGoOn(t, "with an older part that was brought back", s, "a1-2")
}

// TestContinueBehindARestore: restored records do not hide records that were played later.
func TestContinueBehindARestore(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	var clips []*historyv1.Heartbeat
	for n := range 150 {
		clips = append(clips, film(fmt.Sprintf("ann/clip%03d", n), stop, 100_000+int64(n), 1000))
	}
	apply(t, s, clips...)
	for n := range 3 {
		later := film(fmt.Sprint("ann/film", n), stop, 1000+int64(n), 1000)
		later.ObjectType = 2
		apply(t, s, later)
	}
	const first = "film0 film1 film2 clip000 clip001"
	got := func() string { return goOn(t, s, &historyv1.ContinueRequest{Limit: 5}) }
	if got := got(); got != first {
		t.Fatalf("got %s", got)
	}
	backup := export(t, s, "ann")
	h.clock.Add(60_000)
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: 1}); err != nil {
		t.Fatal(err)
	}
	imports(t, s, restored("ann", backup...))
	if got := got(); got != first {
		t.Errorf("got %s, want %s, which was played in this order", got, first)
	}
}

// TestDismissWhatTheArchiveHas: a dismissal of a record that is only in the archive is stored with the whole
// record. It fails without the archive.
func TestDismissWhatTheArchiveHas(t *testing.T) {
	s, a := trimmed(t)
	a.down.Store(true)
	_, err := s.Dismiss(t.Context(), &historyv1.DismissRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "old", Type: 1}}})
	wantCode(t, "without the archive", err, codes.Unavailable)
	a.down.Store(false)
	if n := dismiss(t, s, false, "old", "never"); n != 1 {
		t.Fatalf("got %d objects, want 1", n)
	}
	it := point(t, s, "ann", "old")
	if it.GetDismissedMs() != start || it.GetPlays() != 2 || it.GetPositionMs() != 20_000 {
		t.Errorf("got %v, want it dismissed and all of it", it)
	}
}

// TestDecideWhatTheArchiveClears: the cache may have a cold user's records that the archive's clear marks hide.
// They cannot be dismissed or marked.
func TestDecideWhatTheArchiveClears(t *testing.T) {
	h, emptied := newHouse(t), newHouse(t)
	if err := h.db.Archive().PutUser(t.Context(), "ann", history.User{Cleared: map[uint32]int64{0: start - 5000}, Revision: 1}); err != nil {
		t.Fatal(err)
	}
	s := emptied.idle(t, func(c *rpc.Config) { c.Archive = h.db.Archive() })
	apply(t, s, film("ann/1", stop, 9000, 1000), film("ann/2", stop, 4000, 1000))
	if n := dismiss(t, s, false, "1", "2"); n != 1 {
		t.Errorf("dismissed %d objects, want 1", n)
	}
	wantStatuses(t, "reset", mark(t, s, resetMark, 0, "1", "2").GetStatuses(), unchanged, stored)
}

// TestDismissAfterTheCacheIsLost: a held record can be dismissed after the cache has lost it.
func TestDismissAfterTheCacheIsLost(t *testing.T) {
	h, emptied := newHouse(t), newHouse(t)
	cache := &outrun{Cache: h.db.Cache()}
	s := h.idle(t, func(c *rpc.Config) { c.Cache = cache })
	apply(t, s, film("ann/1", stop, 9000, 1000))
	cache.Cache = emptied.db.Cache()
	if n := dismiss(t, s, false, "1"); n != 1 {
		t.Errorf("dismissed %d objects, want 1", n)
	}
}

// TestDismissIsArchived: the archived record has the dismissal, and so do readers and warm-ups of another cache.
func TestDismissIsArchived(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, film("ann/1", stop, 9000, 1000))
	dismiss(t, s, false, "1")
	archive(t, h, "1")
	emptied := newHouse(t)
	reader := emptied.service(t, func(c *rpc.Config) { c.Archive = h.db.Archive() })
	wantGoOn(t, "a cache that has lost everything", reader, "")
	if it := point(t, reader, "ann", "1"); it.GetDismissedMs() != start {
		t.Errorf("got %v, want it dismissed", it)
	}
	key := history.Key{UID: "ann", Object: history.Object{ID: "1", Type: 1}}
	got, err := h.db.Archive().Get(t.Context(), []history.Key{key})
	if err != nil || got[0].Record.DismissedAt() != start {
		t.Errorf("the archive has %+v, %v", got[0].Record, err)
	}
}

// TestDismissOfWhatIsCleared: a dismissal does not restore a cleared record.
func TestDismissOfWhatIsCleared(t *testing.T) {
	h := newHouse(t)
	holder, s := h.service(t), h.service(t)
	apply(t, holder, film("ann/1", stop, 9000, 1000), film("ann/2", stop, 9000, 1000))
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	if n := dismiss(t, holder, false, "1"); n != 0 {
		t.Errorf("a service that holds what was cleared: got %d objects, want none", n)
	}
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(got) != 0 {
		t.Errorf("%v came back", got)
	}
}

func TestDismissRefusals(t *testing.T) {
	s := newHouse(t).service(t)
	for name, req := range map[string]*historyv1.DismissRequest{
		"nothing":         {Uid: "ann"},
		"an illegal user": {Uid: "a\nb", Objects: []*historyv1.Object{{Id: "1", Type: 1}}},
		"an illegal type": {Uid: "ann", Objects: []*historyv1.Object{{Id: "1"}}},
		"too many":        {Uid: "ann", Objects: make([]*historyv1.Object, 1001)},
	} {
		_, err := s.Dismiss(t.Context(), req)
		wantCode(t, name, err, codes.InvalidArgument)
	}
}

// TestOfferOfAPartialRecord offers an object whose dismissal is only in the archive, while a later upload is in the
// cache.
func TestOfferOfAPartialRecord(t *testing.T) {
	h := smallHouse(t, 3)
	first := h.service(t)
	apply(t, first, film("ann/old", stop, 60_000, 1000))
	if n := dismiss(t, first, false, "old"); n != 1 {
		t.Fatal(n)
	}
	ids := []string{"old"}
	for i, id := range []string{"1", "2", "3", "4", "5", "6"} {
		apply(t, first, film("ann/"+id, stop, int64(i+1)*1000, 1000))
		ids = append(ids, id)
	}
	waitWarm(t, h)
	archive(t, h, ids...)
	markClean(t, h) // the trim leaves "old" only in the archive
	s := h.service(t)
	h.clock.Add(1000)
	apply(t, s, film("ann/old", progress, 500, 1100)) // played before the dismissal, uploaded after it
	h.clock.Add(1000)
	n := dismiss(t, s, true, "old")
	if got := goOn(t, s, &historyv1.ContinueRequest{}); !strings.Contains(got, "old") {
		t.Errorf("offered again (found %d): continue has %q, want old in it; dismissed_ms %d", n, got, point(t, s, "ann", "old").GetDismissedMs())
	}
}

// TestDecisionsOnAPartialTombstone dismisses and marks a visible object although the cache has an older tombstone.
func TestDecisionsOnAPartialTombstone(t *testing.T) {
	h := newHouse(t)
	put(t, h, 3, 1000)
	s := h.idle(t)
	if err := deleteAt(t, s, []string{"0000"}, start-50_000); err != nil { // before it was played
		t.Fatal(err)
	}
	if n := dismiss(t, s, false, "0000"); n != 1 {
		t.Errorf("dismiss: found %d, want 1", n)
	}
	if got := mark(t, s, historyv1.Mark_MARK_RESET, 0, "0000").GetStatuses()[0]; got != stored {
		t.Errorf("mark: got %v, want stored", got)
	}
}
