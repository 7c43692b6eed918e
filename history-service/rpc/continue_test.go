package rpc_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// film is a heartbeat on an object of one hour, ago milliseconds before start, at a position in seconds.
func film(key string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat {
	hb := beat(key, kind, ago, seconds)
	hb.DurationMs = 3_600_000
	return hb
}

// episode is a film in a series.
func episode(series, key string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat { //nolint:revive // a film and its series
	hb := film(key, kind, ago, seconds)
	hb.Meta = map[string]string{"series": series, "show": "all"}
	return hb
}

// goOn returns the ids of "continue watching", in order.
func goOn(t *testing.T, s *rpc.Server, req *historyv1.ContinueRequest) string {
	t.Helper()
	req.Uid = "ann"
	resp, err := s.Continue(t.Context(), req)
	if err != nil {
		t.Fatalf("continue %v: %v", req, err)
	}
	var ids []string
	for _, it := range resp.GetItems() {
		ids = append(ids, it.GetObject().GetId())
		if next := it.GetNext(); next != nil {
			ids = append(ids, "then "+thenText(next))
		}
	}
	return strings.Join(ids, " ")
}

func thenText(next *historyv1.NextPart) string {
	switch {
	case next.Episode == nil:
		return "?"
	case next.Season == nil:
		return fmt.Sprint(next.GetEpisode())
	}
	return fmt.Sprintf("%d-%d", next.GetSeason(), next.GetEpisode())
}

func TestContinue(t *testing.T) {
	s := newHouse(t).service(t)
	audio, short, unknown := film("ann/audio", stop, 9000, 1000), film("ann/short", stop, 8000, 100), film("ann/live", stop, 7000, 100)
	audio.ObjectType, short.DurationMs, unknown.DurationMs = 3, 299_000, 0
	apply(
		t, s, film("ann/opened", stop, 10_000, 179), film("ann/begun", stop, 20_000, 180), film("ann/middle", pause, 30_000, 1000),
		film("ann/nearly", stop, 40_000, 3239), film("ann/done", stop, 50_000, 3240), film("ann/finished", finish, 60_000, 1000),
		audio, short, unknown, film("ann/seen", finish, 5000, 3600), viewing("again", "ann/seen", 4900, 0),
		film("bob/other", stop, 0, 1000),
	)
	again := film("ann/seen", progress, 4000, 600)
	again.Session = "again"
	apply(t, s, again, film("ann/middle", begin, 1000, 0))
	for _, test := range []struct {
		req  *historyv1.ContinueRequest
		want string
	}{
		{&historyv1.ContinueRequest{}, "middle seen live audio begun nearly"},
		{&historyv1.ContinueRequest{Limit: 2}, "middle seen"},
		{&historyv1.ContinueRequest{Type: 3}, "audio"},
		{&historyv1.ContinueRequest{Type: 4}, ""},
	} {
		if got := goOn(t, s, test.req); got != test.want {
			t.Errorf("%v: got %s, want %s", test.req, got, test.want)
		}
	}
}

// numbered is an episode of series a, named by season and episode, such as 1-2.
func numbered(name string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat {
	hb := episode("a", "ann/a"+name, kind, ago, seconds)
	hb.Meta["season"], hb.Meta["episode"], _ = strings.Cut(name, "-")
	return hb
}

// scene parses reports such as "1-1 done, 1-2 half". They are ten minutes apart, or at the same time after =.
func scene(t *testing.T, uid, text string) (hbs []*historyv1.Heartbeat) {
	t.Helper()
	at := start - 10*86_400_000
	for moment := range strings.SplitSeq(text, ", ") {
		at += 600_000
		for one := range strings.SplitSeq(moment, " = ") {
			i := strings.LastIndex(one, " ")
			hb := numbered(one[:i], finish, start-at, 3600)
			hb.Uid, hb.ObjectId = uid, strings.NewReplacer(" ", "_", "#", "~").Replace(hb.ObjectId)
			switch what := one[i+1:]; what {
			case "done":
			case "again":
				hb.Session = "again"
			case "half":
				hb.Kind, hb.PositionMs = stop, 1_800_000
			case "opened":
				hb.Kind, hb.PositionMs, hb.Session = progress, 1000, "opened"
			default:
				t.Fatalf("%s: what is %s?", text, what)
			}
			hbs = append(hbs, hb)
		}
	}
	return hbs
}

// TestContinueNext: a series shows the episode last left in the middle, or the one after the last completed. The
// order of the reports does not matter.
func TestContinueNext(t *testing.T) {
	s := newHouse(t).service(t)
	for i, test := range []struct{ name, reports, want string }{
		{"in the middle", "1-1 done, 1-2 half", "1-2"},
		{"an older one was left", "1-2 half, 1-3 done", "1-3 then 1-4"},
		{"the next one was begun before", "1-3 half, 1-2 done", "1-3"},
		{"the next one was opened by mistake", "1-2 done, 1-3 opened", "1-3"},
		{"an older one was opened by mistake", "1-2 half, 1-3 done, 1-2 opened", "1-3 then 1-4"},
		{"one that was completed is opened by mistake", "1-2 done, 1-5 done, 1-2 opened", "1-5 then 1-6"},
		{"the last of many", "1-1 done = 1-2 done = 1-10 done = 1-9 done", "1-10 then 1-11"},
		{"in the middle of one moment", "1-1 done = 1-2 half = 1-3 done", "1-2"},

		{"out of order", "1-1 done, 1-2 done, 1-5 done", "1-5 then 1-6"},
		{"back to an older one", "1-7 done, 1-5 done", "1-5 then 1-6"},
		{"what is next was completed before", "1-6 done, 1-5 done", "1-6"},
		{"one left out", "1-4 half, 1-2 done", "1-2 then 1-3"},
		{"watched again", "1-1 done, 1-2 done, 1-3 done, 2-1 done, 1-1 again", "1-2"},
		{"watched again, by a player without sessions", "1-1 done, 1-2 done, 1-3 done, 2-1 done, 1-1 done", "1-2"},
		{"watched again, in the middle", "1-1 done, 1-2 done, 1-3 done, 1-1 again, 1-2 half", "1-2"},

		{"the season's end is not known", "1-8 done", "1-8 then 1-9"},
		{"the next season was begun", "2-1 half, 1-8 done", "2-1"},
		{"the next season was opened by mistake", "1-8 done, 2-1 opened", "2-1"},
		{"a pilot", "2-0 half, 2-1 opened, 1-8 done", "2-0"},
		{"watched again, over a season's end", "1-1 done, 1-2 done, 2-1 done, 2-2 done, 1-1 again, 1-2 again", "2-1"},
		{"seasons out of order", "2-1 done, 2-2 done, 1-1 done", "1-1 then 1-2"},
		{"the season goes on", "1-5 done, 2-1 half, 1-1 done", "1-1 then 1-2"},

		{"a special last", "1-3 done, 0-1 done", "1-3 then 1-4"},
		{"a special last, watched again", "1-1 done, 1-2 done, 1-1 again, 0-1 done", "1-2"},
		{"a special last, and one in the middle before", "1-7 done, 1-8 half, 0-1 done", "1-8"},
		{"a special in the middle", "1-3 done, 0-1 half", "0-1"},
		{"a special in the middle, before", "0-1 half, 1-3 done", "1-3 then 1-4"},
		{"specials alone", "0-1 done, 0-2 done, 1-1 opened", "0-2 then 0-3"},

		{"half an episode", "1-7 done, 1-7.5 done", "1-7.5 then 1-8"},
		{"half an episode next", "1-7.5 half, 1-8 half, 1-7 done", "1-7.5"},
		{"half an episode, and the next one", "1-8 half, 1-7.5 done", "1-8"},
		{"before the first", "1-0 done", "1-0 then 1-1"},
		{"S01 and E05", "S01-E05 done", "S01-E05 then 1-6"},
		{"the same in two ways", "S01-E06 half, 1-05 done", "S01-E06"},
		{"words", "Season 2-Episode 3 done", "Season 2-Episode 3 then 2-4"},
		{"both in one", "-S02E03 done, -1x05 done", "-1x05 then 1-6"},
		{"two episodes", "1-1-2 done", "1-1-2 then 1-3"},
		{"two episodes, in other ways", "1-3 half, S01-E01E02 done", "1-3"},
		{"two episodes next", "1-3-4 half, 1-2 done", "1-3-4"},
		{"two episodes, of which one was seen alone", "1-1-2 half, 1-1 done", "1-1 then 1-2"},
		{"no seasons", "-3 done", "-3 then 4"},
		{"no seasons, and the next one", "-4 half, -3 done", "-4"},
		{"numbers of dates", "2026-20261122 done", "2026-20261122 then 2026-20261123"},

		{"no number", "1-x done", "1-x then ?"},
		{"none at all", "- done", "- then ?"},
		{"no number, in the middle", "1-1 done, 1-x half", "1-x"},
		{"no number last", "1-2 half, 1-x done", "1-2"},
		{"no number last, behind one that is completed", "1-2 done, Finale- done", "1-2 then 1-3"},
		{"no number, and a special", "0-1 done, x-1 done", "0-1 then 0-2"},
		{"a date", "2026-2026-11-22 done", "2026-2026-11-22 then ?"},
		{"too large", "1-4294967296 done", "1-4294967296 then ?"},
		{"the last number", "1-2147483647 done", "1-2147483647 then ?"},
		{"too large a season", "3000000000-1 done", "3000000000-1 then ?"},
		{"nothing was begun", "1-1 opened", ""},
	} {
		for try := range 4 {
			uid := fmt.Sprintf("u%d-%d", i, try)
			hbs := scene(t, uid, test.reports)
			seed := rand.Uint64()
			if try > 0 {
				rand.New(rand.NewPCG(seed, 0)).Shuffle(len(hbs), func(i, j int) { hbs[i], hbs[j] = hbs[j], hbs[i] }) //nolint:gosec // no secret
			}
			for _, hb := range hbs {
				apply(t, s, hb)
			}
			resp, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: uid, Series: "series"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, it := range resp.GetItems() {
				got = append(got, it.GetMeta()["season"]+"-"+it.GetMeta()["episode"])
				if next := it.GetNext(); next != nil {
					got = append(got, "then "+thenText(next))
				}
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("%s: %q, seed %d: got %q, want %q", test.name, test.reports, seed, got, test.want)
			}
		}
	}
}

// TestContinueNextOfSeveral: a series has one type, and its place is its last activity.
func TestContinueNextOfSeveral(t *testing.T) {
	podcast := numbered("1-1", stop, 8000, 1000)
	podcast.ObjectType = 3
	for name, test := range map[string]struct {
		beats []*historyv1.Heartbeat
		want  string
	}{
		"of another type": {[]*historyv1.Heartbeat{numbered("1-3", finish, 9000, 3600), podcast}, "a1-1 a1-3 then 1-4"},
		"in its place": {[]*historyv1.Heartbeat{
			film("ann/old", stop, 9000, 1000), numbered("1-1", finish, 8000, 3600), film("ann/new", stop, 7000, 1000),
		}, "new a1-1 then 1-2 old"},
	} {
		s := newHouse(t).service(t)
		apply(t, s, test.beats...)
		if got := goOn(t, s, &historyv1.ContinueRequest{Series: "series"}); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// TestContinueNextLooksFurther: the last completed episode and the next one may be far back.
func TestContinueNextLooksFurther(t *testing.T) {
	for _, test := range []struct {
		recent, old *historyv1.Heartbeat
		want        string
	}{
		{numbered("0-1", finish, 1000, 3600), numbered("1-7", finish, 900_000, 3600), "a1-7 then 1-8 0"},
		{numbered("1-1", finish, 1000, 3600), numbered("1-2", stop, 900_000, 1000), "a1-2 0"},
	} {
		s := newHouse(t).service(t)
		hbs := []*historyv1.Heartbeat{test.recent, test.old}
		for i := range 200 {
			hbs = append(hbs, film(fmt.Sprint("ann/", i), stop, 2000+int64(i), 1000))
		}
		apply(t, s, hbs...)
		if got := goOn(t, s, &historyv1.ContinueRequest{Series: "series", Limit: 2}); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

// TestContinueSeries: each series appears once.
func TestContinueSeries(t *testing.T) {
	s := newHouse(t).service(t)
	apply(
		t, s, episode("a", "ann/a1", stop, 50_000, 1000), episode("a", "ann/a2", stop, 40_000, 1000), episode("a", "ann/a3", finish, 1000, 3600),
		episode("b", "ann/b1", stop, 30_000, 1000), film("ann/film", stop, 20_000, 1000), film("ann/other", stop, 10_000, 1000),
	)
	for _, test := range []struct {
		series string
		limit  uint32
		want   string
	}{
		{"series", 0, "a3 then ? other film b1"},
		{"", 0, "other film b1 a2 a1"},
		{"none", 0, "other film b1 a2 a1"},
		{"show", 0, "a3 then ? other film"},
		{"series", 3, "a3 then ? other film"},
	} {
		if got := goOn(t, s, &historyv1.ContinueRequest{Series: test.series, Limit: test.limit}); got != test.want {
			t.Errorf("%q, %d: got %s, want %s", test.series, test.limit, got, test.want)
		}
	}
}

// TestContinueLooksAtTheNewest: only the newest thousand records are searched.
func TestContinueLooksAtTheNewest(t *testing.T) {
	s := newHouse(t).service(t)
	var hbs []*historyv1.Heartbeat
	for i := range 1001 {
		kind := finish
		if i == 50 || i == 99 || i == 100 || i >= 998 {
			kind = stop
		}
		hbs = append(hbs, film(fmt.Sprint("ann/", i), kind, int64(i)*1000, 1000))
	}
	for part := range slices.Chunk(hbs, write.MaxBatch) {
		apply(t, s, part...)
	}
	if got := goOn(t, s, &historyv1.ContinueRequest{}); got != "50 99 100 998 999" {
		t.Errorf("got %s", got)
	}
	if got := goOn(t, s, &historyv1.ContinueRequest{Limit: 2}); got != "50 99" {
		t.Errorf("two of them: got %s", got)
	}
}

// TestContinueByRules has a type whose short limit is one minute.
func TestContinueByRules(t *testing.T) {
	book, err := history.ParseRules("", []string{"1:short=1m,done=50"})
	if err != nil {
		t.Fatal(err)
	}
	s := newHouse(t).service(t, func(c *rpc.Config) { c.Rules = book })
	apply(t, s, beat("ann/1", stop, 1000, 49), beat("ann/2", stop, 2000, 50))
	if got := goOn(t, s, &historyv1.ContinueRequest{}); got != "1" {
		t.Errorf("got %s, want 1", got)
	}
}

func TestContinueRefuses(t *testing.T) {
	s := newHouse(t).service(t)
	_, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "a\nb"})
	wantCode(t, "a bad uid", err, codes.InvalidArgument)
	_, err = s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "ann", Limit: 101})
	wantCode(t, "a large limit", err, codes.InvalidArgument)
}

// TestContinueWithoutAStore: the result is an error, never an empty list.
func TestContinueWithoutAStore(t *testing.T) {
	h := newHouse(t)
	a := &gone{Archive: h.db.Archive()}
	a.down.Store(true)
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	resp, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "ann"})
	wantCode(t, fmt.Sprint("of a cold user: ", resp), err, codes.Unavailable)
}
