package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/count"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// counters are counters in memory whose reads take a millisecond, or as long as hang says.
type counters struct {
	*count.Memory
	mu     sync.Mutex
	reads  [][]history.Object
	fault  error
	panics any
	hang   time.Duration
}

func (c *counters) Totals(ctx context.Context, objects []history.Object) ([]count.Totals, error) {
	c.mu.Lock()
	c.reads = append(c.reads, slices.Clone(objects))
	fault, p, hang := c.fault, c.panics, max(c.hang, time.Millisecond)
	c.mu.Unlock()
	select {
	case <-time.After(hang):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case p != nil:
		panic(p)
	case fault != nil:
		return nil, fault
	}
	return c.Memory.Totals(ctx, objects)
}

// behave says how reads go on.
func (c *counters) behave(fault error, panics any, hang time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.panics, c.hang = fault, panics, hang
}

// play counts a play of a user, ago milliseconds before start.
func (c *counters) play(t *testing.T, uid, object string, ago int64) {
	t.Helper()
	at := start - ago
	s := count.Statement{
		UID: uid, Object: history.Object{ID: object, Type: 1}, CellTime: at,
		Played: []history.Played{{At: at, Plays: 1, Watched: 60_000}},
	}
	if r := c.Count(t.Context(), []count.Statement{s}); r[0].Err != nil || !r[0].Counted {
		t.Fatalf("count %v: %+v", s, r[0])
	}
}

// countingService is a service that counts type 1, in a bubble whose clock begins at start.
func countingService(t *testing.T) (*rpc.Server, *counters) {
	t.Helper()
	began := time.Now()
	now := func() time.Time { return time.UnixMilli(start).Add(time.Since(began)) }
	types, err := count.ParseTypes([]string{"1"})
	if err != nil {
		t.Fatal(err)
	}
	c := &counters{Memory: count.NewMemory(new(history.Rulebook), now)}
	return servicetest.New(t, rpc.Config{Cache: &slowList{}, Archive: void{}, Counters: c, Counted: types, Now: now}), c
}

func countsOf(ids ...string) *historyv1.CountsRequest {
	req := &historyv1.CountsRequest{}
	for _, id := range ids {
		req.Objects = append(req.Objects, &historyv1.Object{Id: id, Type: 1})
	}
	return req
}

// totals are the totals of a response as "id plays/viewers/seconds", with the days behind.
func totals(t *testing.T, s *rpc.Server, req *historyv1.CountsRequest) string {
	t.Helper()
	resp, err := s.Counts(t.Context(), req)
	if err != nil {
		t.Fatalf("counts %v: %v", req, err)
	}
	text := func(s *historyv1.CountsSum) string {
		return fmt.Sprint(s.GetPlays(), "/", s.GetViewers(), "/", s.GetWatchedMs()/1000)
	}
	var all []string
	for _, it := range resp.GetItems() {
		if !it.GetCounted() {
			all = append(all, it.GetObject().GetId()+" not counted")
			continue
		}
		one := it.GetObject().GetId() + " " + text(it.GetTotal())
		for _, d := range it.GetDays() {
			one += fmt.Sprint(" ", d.GetDay(), ":", text(d.GetSum()))
		}
		all = append(all, one)
	}
	return strings.Join(all, ", ")
}

// TestCounts: start is on September 21, 2026.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := countingService(t)
		c.play(t, "ann", "film", 2*dayOf)
		c.play(t, "bob", "film", 1000)
		req := countsOf("film", "unknown", "film")
		req.Objects = append(req.Objects, &historyv1.Object{Id: "song", Type: 3})
		const without = "film 2/2/120, unknown 0/0/0, film 2/2/120, song not counted"
		if got := totals(t, s, req); got != without {
			t.Errorf("got %s", got)
		}
		req.SinceDay, req.Objects = 20260901, req.Objects[:1]
		if got, want := totals(t, s, req), "film 2/2/120 20260919:1/1/60 20260921:1/1/60"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		req.UntilDay = 20260920
		if got, want := totals(t, s, req), "film 2/2/120 20260919:1/1/60"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		resp, err := s.Counts(t.Context(), req)
		if at := resp.GetItems()[0].GetThroughMs(); err != nil || at < start || at > start+10 {
			t.Errorf("counted up to %d, %v", at, err)
		}
		none := servicetest.New(t, rpc.Config{Cache: &slowList{}, Archive: void{}})
		if got := totals(t, none, countsOf("film")); got != "film not counted" {
			t.Errorf("got %s from a service that counts nothing", got)
		}
	})
}

func TestCountsRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := countingService(t)
		with := func(since, until uint32) *historyv1.CountsRequest {
			req := countsOf("film")
			req.SinceDay, req.UntilDay = since, until
			return req
		}
		for name, tt := range map[string]struct {
			req   *historyv1.CountsRequest
			field string
		}{
			"no objects":           {&historyv1.CountsRequest{}, "objects"},
			"101 objects":          {countsOf(slices.Repeat([]string{"film"}, 101)...), "objects"},
			"a wrong id":           {countsOf(".."), "object.id"},
			"a type 0":             {&historyv1.CountsRequest{Objects: []*historyv1.Object{{Id: "film"}}}, "object.type"},
			"no such day":          {with(20260230, 0), "since"},
			"a day before 1970":    {with(19691231, 0), "since"},
			"no such last day":     {with(20260901, 20261301), "until"},
			"until without since":  {with(0, 20260901), "until"},
			"since after until":    {with(20260902, 20260901), "since"},
			"since after today":    {with(20260922, 0), "since"},
			"more than 366 days":   {with(20250901, 20260902), "since"},
			"more days than today": {with(20250920, 0), "since"},
		} {
			_, err := s.Counts(t.Context(), tt.req)
			wantCode(t, name, err, codes.InvalidArgument)
			if got := field(err); got != tt.field {
				t.Errorf("%s: field %q of %v, want %q", name, got, err, tt.field)
			}
		}
		if len(c.reads) > 0 {
			t.Errorf("the store was asked for %v", c.reads)
		}
		totals(t, s, with(20250901, 20260901)) // 366 days
	})
}

// TestCountsAreShared: an object is read once a second at most, in any mix of requests.
func TestCountsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := countingService(t)
		c.play(t, "ann", "a", 1000)
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				if got := totals(t, s, countsOf("a", fmt.Sprint("b", n%2))); !strings.HasPrefix(got, "a 1/1/60, ") {
					t.Errorf("got %s", got)
				}
			})
		}
		all.Wait()
		read := make(map[string]int)
		for _, objects := range c.reads {
			for _, o := range objects {
				read[o.ID]++
			}
		}
		if len(read) != 3 || read["a"] != 1 || read["b0"] != 1 || read["b1"] != 1 {
			t.Errorf("read %v, want each once", read)
		}
		c.play(t, "bob", "a", 500)
		if got := totals(t, s, countsOf("a")); got != "a 1/1/60" {
			t.Errorf("within the second: got %s", got)
		}
		time.Sleep(time.Second)
		if got := totals(t, s, countsOf("a")); got != "a 2/2/120" {
			t.Errorf("after the second: got %s", got)
		}
	})
}

// TestCountsFail: a failed read is an error for all who wait, and is not kept. Who leaves spoils no read of others.
func TestCountsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := countingService(t)
		c.play(t, "ann", "a", 1000)
		c.behave(errDown, nil, 0)
		_, err := s.Counts(t.Context(), countsOf("a"))
		wantCode(t, "unavailable", err, codes.Unavailable)
		c.behave(errors.Join(history.ErrPermanent, errors.New("damaged")), nil, 0)
		_, err = s.Counts(t.Context(), countsOf("a"))
		wantCode(t, "damaged", err, codes.Internal)
		c.behave(nil, "a read", 0)
		_, err = s.Counts(t.Context(), countsOf("a"))
		wantCode(t, "panic", err, codes.Internal)
		c.behave(nil, nil, 0)

		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		_, err = s.Counts(ctx, countsOf("a"))
		wantCode(t, "impatient", err, codes.DeadlineExceeded)
		if got := totals(t, s, countsOf("a")); got != "a 1/1/60" {
			t.Errorf("got %s", got)
		}
		c.behave(nil, nil, time.Hour)
		_, err = s.Counts(t.Context(), countsOf("b"))
		wantCode(t, "hung", err, codes.DeadlineExceeded)
		c.behave(nil, nil, 0)
		if got := totals(t, s, countsOf("b")); got != "b 0/0/0" {
			t.Errorf("got %s", got)
		}
	})
}
