package hbase_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/region"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/internal/breaker"
	"github.com/playhead/playhead/internal/obs/obstest"
)

// servers simulates region servers behind the client. A row's first digit selects its server.
type servers struct {
	fake
	mu   sync.Mutex
	home func(row string) string
	dead map[string]bool
}

// server is a stub region server for a call.
type server struct {
	hrpc.RegionClient
	addr string
}

func (s server) Addr() string { return s.addr }

// newServers returns two servers, for even and odd digits.
func newServers() *servers {
	s := &servers{dead: map[string]bool{}, home: func(row string) string {
		if strings.ContainsAny(row[:1], "02468ace") {
			return "even:1"
		}
		return "odd:1"
	}}
	s.answer = s.batch
	return s
}

// batch behaves like the client: it sends nothing while any row's server is dead.
func (s *servers) batch(ctx context.Context, batch []hrpc.Call) []error {
	errs, waits := make([]error, len(batch)), false
	s.mu.Lock()
	for _, call := range batch {
		addr := s.home(row(call))
		if waits = waits || s.dead[addr]; s.dead[addr] {
			continue
		}
		info := region.NewInfo(1, nil, []byte("t"), nil, nil, nil)
		info.SetClient(server{addr: addr})
		call.SetRegion(info)
	}
	s.mu.Unlock()
	if !waits {
		return errs
	}
	<-ctx.Done()
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

func (s *servers) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// put returns how many cells each server stored, and how long the put took.
func (s *servers) put(t *testing.T, a *hbase.Archive) (stored map[string]int, took time.Duration) {
	t.Helper()
	start, all := time.Now(), cells(1000)
	errs := a.Put(t.Context(), all)
	stored = map[string]int{}
	for i, c := range all {
		if errs == nil || errs[i] == nil {
			stored[s.home(history.RowKey(c.Key.UID))]++
		} else if !errors.Is(errs[i], history.ErrUnavailable) {
			t.Errorf("put %s: %v", c.Key, errs[i])
		}
	}
	return stored, time.Since(start)
}

// TestDeadServerHoldsUpOnlyItsOwn kills one of two servers and moves its regions to the other. The other's own rows
// are stored throughout.
func TestDeadServerHoldsUpOnlyItsOwn(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "from the start": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServers()
				var out bytes.Buffer
				a := hbase.NewUnknowing(s, slog.New(slog.NewTextHandler(&out, nil)))
				if known {
					s.put(t, a)
				}
				s.change(func() { s.dead["odd:1"] = true })
				for i := range 5 {
					got, took := s.put(t, a)
					if got["even:1"] < 450 || got["odd:1"] != 0 {
						t.Errorf("put %d: stored %v, want all of the server that is there", i, got)
					}
					if i > 3 && took > 0 {
						t.Errorf("put %d took %v, want none: the breaker is open", i, took)
					}
				}
				s.change(func() { s.home = func(string) string { return "even:1" } })
				time.Sleep(time.Second)
				s.put(t, a)
				if got, took := s.put(t, a); got["even:1"] != 1000 || took != 0 {
					t.Errorf("after the regions moved: stored %v in %v, want all at once", got, took)
				}
				if text := out.String(); known && strings.Count(text, "breaker opened") != 1 || !strings.Contains(text, "breaker closed") {
					t.Errorf("log %q, want one line when the server goes and one when it is back", text)
				}
			})
		})
	}
}

// TestDeadServerTakesNoTurns reads rows of a dead server. Reads of other rows do not wait.
func TestDeadServerTakesNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		a := hbase.NewUnknowing(s, nil)
		s.put(t, a)
		s.change(func() { s.dead["odd:1"] = true })
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, c := range cells(200) {
			if s.home(history.RowKey(c.Key.UID)) == "odd:1" {
				wg.Go(func() { _, _ = a.Get(t.Context(), []history.Key{c.Key}) })
			}
		}
		synctest.Wait()
		for _, c := range cells(20) {
			if s.home(history.RowKey(c.Key.UID)) != "even:1" {
				continue
			}
			start := time.Now()
			if errs := a.Put(t.Context(), []history.Cell{c}); errs != nil || time.Since(start) > 0 {
				t.Errorf("put %s: %v after %v, want it stored at once", c.Key, errs, time.Since(start))
			}
		}
	})
}

// silent never answers, as the client while it cannot reach a server.
func silent(ctx context.Context, batch []hrpc.Call) []error {
	<-ctx.Done()
	errs := make([]error, len(batch))
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

// gated is an archive over a fake. put returns the duration of a Put.
type gated struct {
	*fake
	a   *hbase.Archive
	out bytes.Buffer
}

func newGated(answer func(context.Context, []hrpc.Call) []error) *gated {
	g := &gated{fake: &fake{answer: answer}}
	g.a = hbase.NewWith(g.fake, slog.New(slog.NewTextHandler(&g.out, nil)))
	return g
}

func (g *gated) put(ctx context.Context, t *testing.T, ok bool) time.Duration {
	t.Helper()
	start := time.Now()
	errs := g.a.Put(ctx, cells(1))
	if ok && errs != nil || !ok && !errors.Is(errs[0], history.ErrUnavailable) {
		t.Errorf("put: got %v, want stored %v", errs, ok)
	}
	return time.Since(start)
}

func TestOutageCostsFewDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, reg := newGated(silent), prometheus.NewRegistry()
		reg.MustRegister(breaker.NewNodes("hbase", g.a.Silent))
		for i := range 3 {
			if took := g.put(t.Context(), t, false); took != 10*time.Second {
				t.Errorf("call %d into the outage took %v, want the deadline of 10s", i, took)
			}
		}
		for range 100 {
			if took := g.put(t.Context(), t, false); took != 0 {
				t.Errorf("took %v, want none: the breaker is open", took)
			}
		}
		time.Sleep(time.Second)
		if took := g.put(t.Context(), t, false); took != 10*time.Second {
			t.Errorf("took %v, want 10s: one call a second goes through", took)
		}
		if got := obstest.Sum(t, reg, "playhead_engine_node_degraded"); got != 1 {
			t.Errorf("%v servers are shown as silent, want 1", got)
		}
		g.answer = stored
		for range 3 {
			g.put(t.Context(), t, true)
		}
		if got := obstest.Sum(t, reg, "playhead_engine_node_degraded"); got != 0 {
			t.Errorf("%v servers are shown as silent after the outage", got)
		}
		want := []string{"server unavailable; breaker opened", "server recovered; breaker closed"}
		if got := strings.Split(strings.TrimSpace(g.out.String()), "\n"); len(got) != 2 || !strings.Contains(got[0], want[0]) || !strings.Contains(got[1], want[1]) {
			t.Errorf("log %q, want %q", got, want)
		}
	})
}

func TestImpatientCallersSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(silent)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			if took := g.put(ctx, t, false); took != time.Second/2 {
				t.Errorf("took %v, want the caller's 500ms", took)
			}
			cancel()
		}
		if g.out.Len() > 0 {
			t.Errorf("log %q, want none", &g.out)
		}
	})
}

func TestRefusalsAreAnswers(t *testing.T) {
	g := newGated(func(_ context.Context, batch []hrpc.Call) []error {
		errs := make([]error, len(batch))
		for i := range errs {
			errs[i] = java("org.apache.hadoop.hbase.RegionTooBusyException", "over memstore limit")
		}
		return errs
	})
	for range 10 {
		g.put(t.Context(), t, false)
	}
	if len(g.batches) != 10 || g.out.Len() > 0 {
		t.Errorf("%d batches of 10, log %q", len(g.batches), &g.out)
	}
}

// TestTurns puts more batches than may be in flight.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, most := 0, 0
		g := newGated(nil)
		g.answer = func(_ context.Context, batch []hrpc.Call) []error {
			g.mu.Lock()
			now++
			most = max(most, now)
			g.mu.Unlock()
			time.Sleep(time.Second)
			g.mu.Lock()
			now--
			g.mu.Unlock()
			return make([]error, len(batch))
		}
		if errs := g.a.Put(t.Context(), cells(20*500)); errs != nil || most != 3 {
			t.Errorf("20 batches: got %v, %d at once, want 3", errs, most)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		errs := g.a.Put(ctx, cells(20*500)) // the third round misses the deadline
		if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }) {
			t.Error("no deadline exceeded")
		}
	})
}

// TestRegionIsAway has a server with one region offline. The other regions' cells are stored, soon without waiting.
// Once the region is back, it is used again.
func TestRegionIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		away := func(call hrpc.Call) bool { return row(call)[0] == '3' && !back.Load() }
		g := newGated(func(ctx context.Context, batch []hrpc.Call) []error {
			errs := make([]error, len(batch))
			if slices.ContainsFunc(batch, away) {
				<-ctx.Done()
			}
			for i, call := range batch {
				if away(call) {
					errs[i] = ctx.Err()
				}
			}
			return errs
		})
		for i := range 100 {
			start, all := time.Now(), cells(400)
			errs := g.a.Put(t.Context(), all)
			for n, err := range errs {
				if gone := history.RowKey(all[n].Key.UID)[0] == '3'; gone != errors.Is(err, history.ErrUnavailable) {
					t.Fatalf("put %d of %s: %v", i, all[n].Key, err)
				}
			}
			if took := time.Since(start); i > 3 && took > 0 {
				t.Fatalf("put %d took %v, want none: the breaker of the region is open", i, took)
			}
		}
		back.Store(true)
		time.Sleep(time.Second)
		for range 2 {
			if errs := g.a.Put(t.Context(), cells(400)); errs != nil {
				t.Error("after the region is back not all is stored")
			}
		}
		if g.out.Len() > 0 {
			t.Errorf("log %q, want nothing said of the server", &g.out)
		}
	})
}
