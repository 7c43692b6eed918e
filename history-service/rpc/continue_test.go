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

// TestContinueSeries: one of each series, the newest of those that go on.
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
		{"series", 0, "other film b1 a2"},
		{"", 0, "other film b1 a2 a1"},
		{"none", 0, "other film b1 a2 a1"},
		{"show", 0, "other film b1"},
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
