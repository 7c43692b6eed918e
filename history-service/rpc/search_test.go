package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// search reads all results for ann and returns the ids in order.
func search(t *testing.T, s *rpc.Server, req *historyv1.SearchRequest) (ids []string) {
	t.Helper()
	req.Uid = "ann"
	for range 1000 {
		resp, err := s.Search(t.Context(), req)
		if err != nil {
			t.Fatalf("search %v: %v", req, err)
		}
		for _, it := range resp.GetItems() {
			ids = append(ids, it.GetObject().GetId())
		}
		if req.Cursor = resp.GetCursor(); !resp.GetHasMore() {
			return ids
		}
	}
	t.Fatal("a search without end")
	return nil
}

// named is a stop with the metadata "title/series".
func named(id, meta string, ago int64) *historyv1.Heartbeat {
	hb := beat("ann/"+id, stop, ago, 20)
	title, series, _ := strings.Cut(meta, "/")
	hb.Meta = map[string]string{"title": title, "series": series}
	return hb
}

func TestSearch(t *testing.T) {
	s := newHouse(t).service(t)
	audio := named("a", "Low Water", 5000)
	audio.ObjectType = 3
	apply(t, s, named("1", "Low Tide", 1000), named("2", "Die Große Flut", 2000), named("3", "Fog/Harbour Lights", 3000), named("4", "ÉTUDE at low tide", 4000),
		audio, beat("ann/plain.id", stop, 6000, 20), named("gone", "Low Tide, deleted", 7000), beat("bob/low-tide", stop, 0, 20))
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "gone", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		req  *historyv1.SearchRequest
		want string
	}{
		{&historyv1.SearchRequest{Text: "low"}, "1 4 a"},
		{&historyv1.SearchRequest{Text: "LOW", Limit: 1}, "1 4 a"},
		{&historyv1.SearchRequest{Text: " tide  Low "}, "1 4"},
		{&historyv1.SearchRequest{Text: "low", Type: 3}, "a"},
		{&historyv1.SearchRequest{Text: "GROSSE"}, "2"},
		{&historyv1.SearchRequest{Text: "große"}, "2"},
		{&historyv1.SearchRequest{Text: "étude"}, "4"},
		{&historyv1.SearchRequest{Text: "lights fog"}, "3"},
		{&historyv1.SearchRequest{Text: "Plain.I"}, "plain.id"},
		{&historyv1.SearchRequest{Text: "title"}, ""},
		{&historyv1.SearchRequest{Text: "e\u0301tude"}, "4"},
		{&historyv1.SearchRequest{Text: strings.Repeat("ß", read.MaxSearch)}, ""},
	} {
		if got := strings.Join(search(t, s, test.req), " "); got != test.want {
			t.Errorf("%v: got %q, want %q", test.req, got, test.want)
		}
	}
}

func TestSearchRefuses(t *testing.T) {
	s := newHouse(t).service(t)
	apply(t, s, named("1", "Low Tide", 1000), named("2", "Low Water", 2000))
	first, err := s.Search(t.Context(), &historyv1.SearchRequest{Uid: "ann", Text: "low", Limit: 1})
	if err != nil || !first.GetHasMore() {
		t.Fatal(first, err)
	}
	for name, req := range map[string]*historyv1.SearchRequest{
		"no words": {Uid: "ann", Text: " "}, "long": {Uid: "ann", Text: strings.Repeat("a", 129)}, "limit": {Uid: "ann", Text: "a", Limit: 101},
		"nobody": {Text: "a"}, "cursor": {Uid: "ann", Text: "a", Cursor: "x"},
		"other words": {Uid: "ann", Text: "lo", Cursor: first.GetCursor()}, "other user": {Uid: "bob", Text: "low", Cursor: first.GetCursor()},
		"other type": {Uid: "ann", Text: "low", Type: 1, Cursor: first.GetCursor()},
	} {
		_, err := s.Search(t.Context(), req)
		wantCode(t, name, err, codes.InvalidArgument)
		if strings.HasPrefix(name, "other") && !strings.Contains(err.Error(), "another list: user, q, type") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// putNamed archives n records with titles, every 997th a tide, and returns the tides' ids.
func putNamed(t testing.TB, h *house, n int) (tides []string) {
	t.Helper()
	var cells []history.Cell
	for i := range n {
		k := history.Key{UID: "ann", Object: history.Object{ID: fmt.Sprintf("%05d", i), Type: 1}}
		title := fmt.Sprintf("The Long Winter Road, Part %d", i)
		if i%997 == 996 {
			title, tides = "Low Tide", append(tides, k.Object.ID)
		}
		e := history.Event{Key: k, Kind: history.KindStop, At: start - 1000 - int64(i)*1000, Position: 200_000, Duration: 600_000, Session: "s1", Device: "Living room"}
		e.Meta = history.NewMeta(map[string]string{"title": title, "series": "Harbour Lights", "season": "1"})
		cells = append(cells, history.Cell{Key: k, Record: whole(e.Record()).Successor(nil)})
	}
	for _, err := range h.db.Archive().Put(t.Context(), cells) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return tides
}

// TestSearchAll finds archived records, whatever is cached, and uses newer cached titles.
func TestSearchAll(t *testing.T) {
	for _, keep := range []int{0, 30, 1000} {
		h := smallHouse(t, 1000)
		want := putNamed(t, h, 12_500)
		if keep > 0 {
			warmUp(t, h, keep)
		}
		s := h.idle(t, func(c *rpc.Config) { c.Deadline = time.Minute })
		if got := search(t, s, &historyv1.SearchRequest{Text: "tide"}); !slices.Equal(got, want) {
			t.Errorf("%d in the cache: got %v, want %v", keep, got, want)
		}
		resp, err := s.Search(t.Context(), &historyv1.SearchRequest{Uid: "ann", Text: "nothing"})
		if err != nil || len(resp.GetItems()) > 0 || !resp.GetHasMore() || resp.GetSearched() < 10_000 || resp.GetSearched() > 12_100 {
			t.Errorf("%d in the cache: got %v, %v", keep, resp, err)
		}
		if keep == 0 {
			continue
		}
		apply(t, s, named(want[2], "High Water", 500), named("12000", "Spring Tide", 400))
		if got, want := search(t, s, &historyv1.SearchRequest{Text: "tide"}), slices.Concat([]string{"12000"}, want[:2], want[3:]); !slices.Equal(got, want) {
			t.Errorf("%d in the cache, with other titles: got %v, want %v", keep, got, want)
		}
	}
}

// TestSearchOfAnOlderCache: a restarted cache has older content than the archive. A search finds the listed title.
func TestSearchOfAnOlderCache(t *testing.T) {
	h := smallHouse(t, 3)
	s := h.service(t)
	point(t, s, "ann", "none") // warms up the user
	ids := fill(t, s, 10, 1000)
	apply(t, s, named("old", "Working Title", 50_000))
	archive(t, h, ids...)
	k := history.Key{UID: "ann", Object: history.Object{ID: "old", Type: 1}}
	e := history.Event{Key: k, Kind: history.KindStop, At: start - 30_000, Position: 90_000, Session: "s1", Meta: history.NewMeta(map[string]string{"title": "Low Tide"})}
	cached := h.db.Cache().Load(t.Context(), []history.Key{k})[0].Record
	newer := history.Merge(cached, whole(e.Record())).Successor(nil)
	if errs := h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: newer}}); errs != nil {
		t.Fatal(errs)
	}
	markCleanAll(t, h, ids)
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann"})
	if err != nil || len(resp.GetItems()) != 11 || resp.GetItems()[10].GetMeta()["title"] != "Low Tide" {
		t.Fatal(resp, err)
	}
	if got := search(t, s, &historyv1.SearchRequest{Text: "tide"}); !slices.Equal(got, []string{"old"}) {
		t.Errorf("listed as %q, and searched for that: got %q", "Low Tide", got)
	}
}

// BenchmarkSearch searches ten thousand records, a thousand of them cached, for absent and for frequent words. On a
// busy machine, compare the CPU time.
func BenchmarkSearch(b *testing.B) {
	h := smallHouse(b, 1000)
	putNamed(b, h, 10_000)
	warmUp(b, h, 1000)
	s := h.idle(b)
	for _, text := range []string{"nothing", "tide", "winter road"} {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			before := cpuTime(b)
			for b.Loop() {
				began := time.Now()
				if _, err := s.Search(b.Context(), &historyv1.SearchRequest{Uid: "ann", Text: text}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(len(took)), "cpu-ms/op")
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
		})
	}
}

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
