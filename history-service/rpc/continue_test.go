package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// film is a heartbeat about an object of an hour, so many milliseconds before start, at a
// position in seconds.
func film(key string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat {
	hb := beat(key, kind, ago, seconds)
	hb.DurationMs = 3_600_000
	return hb
}

// episode is a film of a series.
func episode(series, key string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat { //nolint:revive // a film and its series
	hb := film(key, kind, ago, seconds)
	hb.Meta = map[string]string{"series": series, "show": "all"}
	return hb
}

// goOn returns the ids of what is to be continued, in order.
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
			ids = append(ids, fmt.Sprintf("then %d-%d", next.GetSeason(), next.GetEpisode()))
		}
	}
	return strings.Join(ids, " ")
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

// numbered is a part of the series a, named by its numbers, such as 1-2.
func numbered(part string, kind historyv1.Kind, ago, seconds int64) *historyv1.Heartbeat {
	hb := episode("a", "ann/a"+part, kind, ago, seconds)
	hb.Meta["season"], hb.Meta["episode"], _ = strings.Cut(part, "-")
	return hb
}

// TestContinueNext: of a series there is the part that comes next, never an older abandoned one.
func TestContinueNext(t *testing.T) {
	podcast := numbered("1-1", stop, 8000, 1000)
	podcast.ObjectType = 3
	for name, test := range map[string]struct {
		beats []*historyv1.Heartbeat
		want  string
	}{
		"watching": {[]*historyv1.Heartbeat{numbered("1-1", finish, 9000, 3600), numbered("1-2", stop, 1000, 1000)}, "a1-2"},
		"an older abandoned one": {[]*historyv1.Heartbeat{
			numbered("1-2", stop, 9000, 1000), numbered("1-3", finish, 8000, 3600),
		}, "a1-3 then 1-4"},
		"begun before": {[]*historyv1.Heartbeat{
			numbered("1-3", stop, 9000, 1000), numbered("1-2", finish, 8000, 3600),
		}, "a1-3"},
		"opened by mistake": {[]*historyv1.Heartbeat{
			numbered("1-2", finish, 9000, 3600), numbered("1-3", stop, 8000, 20),
		}, "a1-3"},
		"an older one again": {[]*historyv1.Heartbeat{
			numbered("1-5", finish, 9000, 3600), numbered("1-1", finish, 8000, 3600),
		}, "a1-5 then 1-6"},
		"in the middle of an older one": {[]*historyv1.Heartbeat{
			numbered("1-5", finish, 9000, 3600), numbered("1-1", stop, 8000, 1000),
		}, "a1-1"},
		"one left out": {[]*historyv1.Heartbeat{
			numbered("1-4", stop, 9000, 1000), numbered("1-2", finish, 8000, 3600),
		}, "a1-2 then 1-3"},
		"ten after nine": {[]*historyv1.Heartbeat{
			numbered("1-10", finish, 9000, 3600), numbered("1-9", finish, 8000, 3600),
		}, "a1-10 then 1-11"},
		"the next season": {[]*historyv1.Heartbeat{
			numbered("2-1", stop, 9000, 1000), numbered("1-8", finish, 8000, 3600),
		}, "a2-1"},
		"dates":              {[]*historyv1.Heartbeat{numbered("2026-20261122", finish, 8000, 3600)}, "a2026-20261122 then 2026-20261123"},
		"too many":           {[]*historyv1.Heartbeat{numbered("1-4294967296", finish, 8000, 3600)}, ""},
		"the last number":    {[]*historyv1.Heartbeat{numbered("1-2147483647", finish, 8000, 3600)}, ""},
		"too large a season": {[]*historyv1.Heartbeat{numbered("3000000000-1", finish, 8000, 3600)}, ""},
		"no season":          {[]*historyv1.Heartbeat{numbered("-3", finish, 8000, 3600)}, "a-3 then 0-4"},
		"no number":          {[]*historyv1.Heartbeat{numbered("1-2", stop, 9000, 1000), numbered("1-x", finish, 8000, 3600)}, ""},
		"a special without a number": {[]*historyv1.Heartbeat{
			numbered("1-2", stop, 9500, 1000), numbered("1-3", finish, 9000, 3600), numbered("-", finish, 8000, 3600),
		}, "a1-3 then 1-4"},
		"a special of season 0": {[]*historyv1.Heartbeat{numbered("1-3", finish, 9000, 3600), numbered("0-1", finish, 8000, 3600)}, "a1-3 then 1-4"},
		"half an episode": {[]*historyv1.Heartbeat{
			numbered("1-8", progress, 9500, 1000), numbered("1-7", finish, 9000, 3600), numbered("1-7.5", finish, 8000, 3600),
		}, "a1-8"},
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

// TestContinueNextLooksFurther: the furthest completed part may be far back.
func TestContinueNextLooksFurther(t *testing.T) {
	s := newHouse(t).service(t)
	hbs := []*historyv1.Heartbeat{numbered("1-1", finish, 1000, 3600), numbered("1-7", finish, 900_000, 3600)}
	for i := range 200 {
		hbs = append(hbs, film(fmt.Sprint("ann/", i), stop, 2000+int64(i), 1000))
	}
	apply(t, s, hbs...)
	if got := goOn(t, s, &historyv1.ContinueRequest{Series: "series", Limit: 2}); got != "a1-7 then 1-8 0" {
		t.Errorf("got %s", got)
	}
}

// TestContinueSeries: one of each series, the newest if it goes on.
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
		{"series", 0, "other film b1"},
		{"", 0, "other film b1 a2 a1"},
		{"none", 0, "other film b1 a2 a1"},
		{"show", 0, "other film"},
		{"series", 3, "other film b1"},
	} {
		if got := goOn(t, s, &historyv1.ContinueRequest{Series: test.series, Limit: test.limit}); got != test.want {
			t.Errorf("%q, %d: got %s, want %s", test.series, test.limit, got, test.want)
		}
	}
}

// TestContinueLooksAtTheNewest: among a thousand records, and no more.
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

// TestContinueByRules has a type of which less than a minute is short.
func TestContinueByRules(t *testing.T) {
	book, err := history.ParseRules([]string{"1:short=1m,done=50"})
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
	_, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "a/b"})
	wantCode(t, "a bad uid", err, codes.InvalidArgument)
	_, err = s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "ann", Limit: 101})
	wantCode(t, "a large limit", err, codes.InvalidArgument)
}

// TestContinueWithoutAStore: an error, never an empty list.
func TestContinueWithoutAStore(t *testing.T) {
	h := newHouse(t)
	a := &gone{Archive: h.db.Archive()}
	a.down.Store(true)
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	resp, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "ann"})
	wantCode(t, fmt.Sprint("of a cold user: ", resp), err, codes.Unavailable)
}
