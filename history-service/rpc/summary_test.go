package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const dayMs = 24 * 3600 * 1000

// summing is a house with summaries in its archive.
func summing(t testing.TB, keep int) (*house, *rpc.Server) {
	h := houseOf(t, pebble.Config{Keep: keep, Summary: 43800 * time.Hour})
	return h, h.service(t, func(c *rpc.Config) { c.Summaries = h.db.Archive() })
}

// archived archives a completed viewing of the given hours ago.
func (h *house) archived(t *testing.T, uid, id string, hours int64) {
	t.Helper()
	h.archivedOf(t, uid, history.Object{ID: id, Type: 1}, hours)
}

func (h *house) archivedOf(t *testing.T, namespace string, o history.Object, hours int64) {
	t.Helper()
	h.put(t, h.viewing(namespace, o, hours))
}

// viewing is the cell of a completed viewing.
func (h *house) viewing(namespace string, o history.Object, hours int64) history.Cell {
	e := history.Event{
		Key: history.Key{UID: namespace, Object: o}, Kind: history.KindFinish,
		At: h.clock.Load() - hours*3_600_000, Position: 50_000, Duration: 100_000, Session: o.ID,
	}
	r := e.Record()
	r.Partial, r.Revision, r.CellTime = false, history.NewRevision(), e.At
	return history.Cell{Key: e.Key, Record: r}
}

func (h *house) put(t testing.TB, cells ...history.Cell) {
	t.Helper()
	if errs := h.db.Archive().Put(t.Context(), cells); errs != nil {
		t.Fatal(errs)
	}
}

func (h *house) summarize(t testing.TB) {
	t.Helper()
	if err := h.db.Archive().Summarize(t.Context(), "ann", false); err != nil {
		t.Fatal(err)
	}
}

// stitched reads the whole history page by page, and calls between after each page.
func stitched(t *testing.T, s *rpc.Server, req *historyv1.ListRequest, between func()) (ids []string, summaries int) {
	t.Helper()
	req.Summaries = true
	for {
		resp, err := s.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(resp.Items) + len(resp.Summaries); n > int(req.Limit) || n == 0 && resp.HasMore {
			t.Fatalf("%d on a page of %d, more %v", n, req.Limit, resp.HasMore)
		}
		if len(resp.Items) > 0 && summaries > 0 {
			t.Error("records behind summaries")
		}
		for _, it := range resp.Items {
			ids = append(ids, it.Object.Id)
		}
		for _, x := range resp.Summaries {
			ids = append(ids, x.Object.Id)
			if summaries++; x.Plays != 1 || !x.Completed || x.FurthestMs != 50_000 || x.DurationMs != 100_000 || x.FirstMs != x.LastMs {
				t.Errorf("summary %v", x)
			}
		}
		if !resp.HasMore {
			return ids, summaries
		}
		if resp.Cursor == "" || resp.Cursor == req.Cursor {
			t.Fatal("the cursor stands still")
		}
		req.Cursor = resp.Cursor
		between()
	}
}

// TestBrief lists recent and expired records in one form, and in the same again when all have expired.
func TestBrief(t *testing.T) {
	h, s := summing(t, 5)
	var want []string
	for i := range 12 {
		id := fmt.Sprintf("o%02d", i)
		h.archived(t, "ann", id, 78*24+int64(i)*24)
		want = append(want, id)
	}
	h.summarize(t)
	h.clock.Add(4 * dayMs) // ages of 82 to 93 days
	before := brief(t, s)
	h.clock.Add(3 * dayMs)
	h.summarize(t)
	h.clock.Add(10 * dayMs)
	after := brief(t, s)
	if !slices.EqualFunc(before, after, func(a, b *historyv1.Summary) bool { return proto.Equal(a, b) }) {
		t.Errorf("of records %v, of summaries %v", before, after)
	}
	var got []string
	for _, x := range after {
		got = append(got, x.Object.Id)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// brief lists ann's history in pages of five.
func brief(t *testing.T, s *rpc.Server) (all []*historyv1.Summary) {
	t.Helper()
	req := &historyv1.ListRequest{Uid: "ann", Limit: 5, Summaries: true, Brief: true}
	for {
		resp, err := s.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Items) > 0 {
			t.Errorf("items in the small form: %v", resp.Items)
		}
		all = append(all, resp.Summaries...)
		if !resp.HasMore {
			return all
		}
		req.Cursor = resp.Cursor
	}
}

// TestSummariesBehindRecords reads across the border with pages of every size, while records expire.
func TestSummariesBehindRecords(t *testing.T) {
	for _, cold := range []bool{true, false} {
		h, s := summing(t, 5)
		var want []string
		for i := range 30 {
			id := fmt.Sprintf("o%02d", i)
			h.archived(t, "ann", id, 83*24+1+int64(i)*5)
			want = append(want, id)
		}
		h.archived(t, "anna", "other", 88*24)
		h.summarize(t)
		h.clock.Add(3 * dayMs)
		if !cold {
			list(t, s, &historyv1.ListRequest{Uid: "ann"})
		}
		for limit := uint32(1); limit <= 32; limit++ {
			hours := int64(0)
			if limit%2 == 0 {
				hours = 1
			}
			ids, n := stitched(t, s, &historyv1.ListRequest{Uid: "ann", Limit: limit}, func() { h.clock.Add(hours * 3_600_000) })
			if !slices.Equal(ids, want) {
				t.Errorf("cold %v, pages of %d: %v, want %v", cold, limit, ids, want)
			}
			if n == 0 {
				t.Errorf("cold %v, pages of %d: no summary", cold, limit)
			}
		}
	}
}

// TestSummaryQueries filters by time and type, for records, summaries and both.
func TestSummaryQueries(t *testing.T) {
	h, s := summing(t, 0)
	for i := range int64(10) {
		h.archived(t, "ann", fmt.Sprint(i), 84*24+i*12)
	}
	h.summarize(t)
	h.clock.Add(4 * dayMs)
	at := func(i int64) int64 { return start - (84*24+i*12)*3_600_000 }
	for name, c := range map[string]struct {
		req  *historyv1.ListRequest
		want int
	}{
		"all":        {&historyv1.ListRequest{}, 10},
		"since":      {&historyv1.ListRequest{SinceMs: at(7)}, 8},
		"until":      {&historyv1.ListRequest{UntilMs: at(7)}, 3},
		"both":       {&historyv1.ListRequest{SinceMs: at(8), UntilMs: at(2)}, 7},
		"recent":     {&historyv1.ListRequest{SinceMs: at(1)}, 2},
		"other type": {&historyv1.ListRequest{Type: 2}, 0},
		"type":       {&historyv1.ListRequest{Type: 1}, 10},
	} {
		c.req.Uid = "ann"
		for limit := uint32(1); limit < 12; limit++ {
			c.req.Limit, c.req.Cursor = limit, ""
			if ids, _ := stitched(t, s, c.req, func() {}); len(ids) != c.want {
				t.Errorf("%s, pages of %d: %v, want %d", name, limit, ids, c.want)
			}
		}
	}
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 9})
	if err != nil || len(resp.Summaries) > 0 {
		t.Errorf("not asked for: %v, %v", resp, err)
	}
	first, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 1, Summaries: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 1, Cursor: first.Cursor}); err == nil {
		t.Error("a cursor of a list with summaries is taken for one without")
	}
}

// TestSummaryOfWhatComesBack: a record of the object, cached or archived, hides a summary, and so do deletes and
// clears before archiving.
func TestSummaryOfWhatComesBack(t *testing.T) {
	h, s := summing(t, 0)
	for i := range 6 {
		h.archived(t, "ann", fmt.Sprint(i), 85*24+int64(i))
	}
	h.summarize(t)
	h.clock.Add(10 * dayMs)
	want := func(what string, n int, ids ...string) {
		t.Helper()
		for _, limit := range []uint32{1, 2, 3, 100} {
			got, summaries := stitched(t, s, &historyv1.ListRequest{Uid: "ann", Limit: limit}, func() {})
			if !slices.Equal(got, ids) || summaries != n {
				t.Errorf("%s, pages of %d: %v, %d of them summaries; want %v, %d", what, limit, got, summaries, ids, n)
			}
		}
	}
	want("all have ended", 6, "0", "1", "2", "3", "4", "5")
	wantEver(t, s, "1 1 1 1 1 1 -")
	again := beat("ann/3", stop, -10*dayMs+5000, 50)
	wantStatuses(t, "watched again", apply(t, s, again), stored)
	want("one is watched again", 5, "3", "0", "1", "2", "4", "5")
	finished := beat("ann/3", finish, -10*dayMs+20_000, 100)
	finished.Session = "again"
	wantStatuses(t, "finished again", apply(t, s, finished), stored)
	wantEver(t, s, "1 1 1 2 1 1 -")
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "1", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	want("one is deleted", 4, "3", "0", "2", "4", "5")
	wantEver(t, s, "1 - 1 2 1 1 -")
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	want("cleared", 0)
	wantEver(t, s, "- - - - - - -")
}

// wantEver checks the plays of ann's objects from 0 on, over all ages. A dash is an object never played.
func wantEver(t *testing.T, s *rpc.Server, want string) {
	t.Helper()
	words := strings.Fields(want)
	req := &historyv1.PointsRequest{Uid: "ann", Brief: true}
	for i := range words {
		req.Objects = append(req.Objects, &historyv1.Object{Id: fmt.Sprint(i), Type: 1})
	}
	resp, err := s.Points(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range resp.Summaries {
		if x.Object == nil {
			got = append(got, "-")
		} else {
			got = append(got, fmt.Sprint(x.Plays))
		}
	}
	if !slices.Equal(got, words) || len(resp.Items) > 0 {
		t.Errorf("plays %v, want %v; items %v", got, words, resp.Items)
	}
}

// summed is a house with summaries of many expired viewings of ann.
func summed(t testing.TB, n int64) *rpc.Server {
	h, s := summing(t, 0)
	var cells []history.Cell
	for i := range n {
		cells = append(cells, h.viewing("ann", history.Object{ID: fmt.Sprint(i), Type: 1}, 86*24-i%5))
	}
	h.put(t, cells...)
	h.summarize(t)
	h.clock.Add(10 * dayMs)
	return s
}

// TestEverOfMany finds the oldest and a newest of several chunks.
func TestEverOfMany(t *testing.T) {
	s := summed(t, 1100)
	req := &historyv1.PointsRequest{Uid: "ann", Brief: true, Objects: []*historyv1.Object{{Id: "0", Type: 1}, {Id: "4", Type: 1}}}
	resp, err := s.Points(t.Context(), req)
	if err != nil || resp.Summaries[0].GetPlays() != 1 || resp.Summaries[1].GetPlays() != 1 {
		t.Errorf("the oldest and a newest: %v, %v", resp, err)
	}
}

// BenchmarkEver asks whether a user with many summaries ever played 100 objects: none, or each.
func BenchmarkEver(b *testing.B) {
	for _, n := range []int64{1000, 100_000} {
		s := summed(b, n)
		for name, first := range map[string]int64{"none": n, "each": 0} {
			req := &historyv1.PointsRequest{Uid: "ann", Brief: true}
			for i := range int64(100) {
				req.Objects = append(req.Objects, &historyv1.Object{Id: fmt.Sprint(first + i*n/100), Type: 1})
			}
			b.Run(fmt.Sprintf("summaries=%d/%s", n, name), func(b *testing.B) {
				for b.Loop() {
					resp, err := s.Points(b.Context(), req)
					if err != nil || resp.Summaries[99].GetPlays() != uint64((n-first)/n) { //nolint:gosec // 0 or 1
						b.Fatal(resp.GetSummaries()[99], err)
					}
				}
			})
		}
	}
}

// TestSummaryBesideTheArchive: the newer record of a cold user is in the archive.
func TestSummaryBesideTheArchive(t *testing.T) {
	h, s := summing(t, 1)
	for i := range 4 {
		h.archived(t, "ann", fmt.Sprint(i), 85*24+int64(i))
	}
	h.summarize(t)
	h.clock.Add(10 * dayMs)
	h.archived(t, "ann", "2", 24)
	h.archived(t, "ann", "3", 25)
	for _, what := range []string{"cold", "warm"} {
		for limit := uint32(1); limit < 6; limit++ {
			ids, n := stitched(t, s, &historyv1.ListRequest{Uid: "ann", Limit: limit}, func() {})
			if !slices.Equal(ids, []string{"2", "3", "0", "1"}) || n != 2 {
				t.Errorf("%s, pages of %d: %v", what, limit, ids)
			}
		}
	}
}

// TestSummariesInAnyOrder reads pages of any size while time passes and the history changes. An unchanged object is
// listed once, in order; one watched again at least once. A deleted or cleared one is not listed afterwards.
func TestSummariesInAnyOrder(t *testing.T) {
	t.Run("one list", func(t *testing.T) { summariesInAnyOrder(t) })
	t.Run("classes", func(t *testing.T) { summariesInAnyOrder(t, "a: types=2,4", "b: types=3 list=2") })
}

func summariesInAnyOrder(t *testing.T, texts ...string) {
	rules := rulesOf(t, texts...)
	h := houseOf(t, pebble.Config{Keep: 5, Rules: rules, Summary: 43800 * time.Hour})
	s := h.service(t, func(c *rpc.Config) { c.Rules, c.Summaries = rules, h.db.Archive() })
	users := 0
	rapid.Check(t, func(rt *rapid.T) {
		users++
		uid := fmt.Sprintf("u%d", users)
		began := h.clock.Load()
		stays := make(map[string]bool)
		var order []string
		for i := range rapid.IntRange(1, 30).Draw(rt, "objects") {
			id := fmt.Sprintf("o%02d", i)
			typ := 1 + uint32(i)%4
			h.archivedOf(t, rules.NamespaceOf(uid, typ), history.Object{ID: id, Type: typ}, 83*24+1+int64(i)*rapid.Int64Range(0, 5).Draw(rt, "gap"))
			stays[id] = true
			order = append(order, id)
		}
		for _, namespace := range rules.Namespaces(uid) {
			if err := h.db.Archive().Summarize(t.Context(), namespace, false); err != nil {
				rt.Fatal(err)
			}
		}
		h.clock.Add(rapid.Int64Range(0, 8*24).Draw(rt, "hours") * 3_600_000)
		seen := make(map[string]int)
		gone := make(map[string]bool)
		req := &historyv1.ListRequest{Uid: uid, Summaries: true}
		last := history.MaxVersion.Time()
		for more := true; more; {
			req.Limit = rapid.Uint32Range(1, 9).Draw(rt, "limit")
			resp, err := s.List(t.Context(), req)
			if err != nil {
				rt.Fatal(err)
			}
			if n := len(resp.Items) + len(resp.Summaries); n > int(req.Limit) || n == 0 && resp.HasMore {
				rt.Fatalf("%d on a page of %d, more %v", n, req.Limit, resp.HasMore)
			}
			note := func(id string, at int64) {
				if seen[id]++; gone[id] || stays[id] && (seen[id] > 1 || at > last) { // changed ones may appear in a later pass
					rt.Fatalf("%s: listed %d times, gone %v, at %d behind %d", id, seen[id], gone[id], at, last)
				}
				last = at
			}
			for _, it := range resp.Items {
				note(it.Object.Id, it.EventTimeMs)
			}
			for _, x := range resp.Summaries {
				note(x.Object.Id, x.LastMs)
			}
			req.Cursor, more = resp.Cursor, resp.HasMore
			h.clock.Add(rapid.SampledFrom([]int64{0, 1, 3600, 24 * 3600}).Draw(rt, "seconds") * 1000)
			n := rapid.IntRange(0, len(order)-1).Draw(rt, "object")
			id, object := order[n], &historyv1.Object{Id: order[n], Type: 1 + uint32(n)%4} //nolint:gosec // a few
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				again := typed(fmt.Sprintf("%s/%s_%d", uid, id, object.Type), stop, 0, 50)
				again.EventTimeMs = h.clock.Add(1) // an identical report would change nothing
				if !gone[id] {
					wantStatuses(t, "watched again", apply(t, s, again), stored)
					stays[id] = false
				}
			case 1:
				if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: uid, Objects: []*historyv1.Object{object}}); err != nil {
					rt.Fatal(err)
				}
				stays[id], gone[id] = false, true
			case 2:
				if rapid.IntRange(0, 5).Draw(rt, "clear") > 0 {
					break
				}
				typ := rapid.Uint32Range(0, 4).Draw(rt, "type")
				if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: uid, Type: typ}); err != nil {
					rt.Fatal(err)
				}
				for n, id := range order {
					if typ == 0 || typ == 1+uint32(n)%4 { //nolint:gosec // a few
						stays[id], gone[id] = false, true
					}
				}
			}
		}
		for id, stay := range stays {
			if stay && seen[id] != 1 || !gone[id] && seen[id] == 0 {
				rt.Errorf("%s: listed %d times", id, seen[id])
			}
		}
		h.clock.Store(began)
	})
}
