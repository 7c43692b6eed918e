package hbase_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
	"github.com/playhead/playhead/history/historytest"
)

// summarizing returns a store with a test clock, and an archive that keeps summaries.
func summarizing(t *testing.T) (*hbasefake.Store, *testClock, *hbase.Archive) {
	t.Helper()
	clock := &testClock{at: time.Now()}
	store := newStore(clock.now)
	store.TTLs = map[string]int64{"history_summaries": (historytest.SummaryTTL + 24*time.Hour).Milliseconds()}
	a := hbase.Over(store, hbase.Config{Summary: historytest.SummaryTTL, Now: clock.now})
	if err := a.BeginSummaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store, clock, a
}

func TestSummaries(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		historytest.Summaries(t, func(t *testing.T) historytest.SummaryStore {
			_, clock, a := summarizing(t)
			return historytest.SummaryStore{Archive: a, Summarizer: a, Eraser: a, Now: clock.now, Pass: clock.pass}
		})
	})
	t.Run("in parts", func(t *testing.T) {
		historytest.Summaries(t, func(t *testing.T) historytest.SummaryStore {
			store, clock, _ := summarizing(t)
			r := newCompacted(t, store, clock, hbase.Config{})
			return historytest.SummaryStore{Archive: r, Summarizer: r.Archive, Eraser: r.Archive, Now: clock.now, Pass: clock.pass}
		})
	})
}

// summed returns a user with some summaries and more aged records.
func summed(t *testing.T) (store *hbasefake.Store, clock *testClock, c hbase.Config, want int) {
	t.Helper()
	store, clock, a := summarizing(t)
	for i := range 6 {
		r := summedRecord(i, clock.now().Add(-time.Duration(84*24+i)*time.Hour))
		if errs := a.Put(t.Context(), []history.Cell{{Key: summedKey(i), Record: r}}); errs != nil {
			t.Fatal(errs)
		}
		if i == 3 {
			summarizeNow(t, a)
		}
	}
	return store, clock, hbase.Config{Summary: historytest.SummaryTTL, Now: clock.now}, 6
}

func summedRecord(i int, at time.Time) *history.Record {
	e := history.Event{Key: summedKey(i), Kind: history.KindFinish, At: at.UnixMilli(), Position: 1000, Session: "s"}
	r := e.Record()
	r.Partial, r.Revision, r.CellTime = false, history.NewRevision(), e.At
	return r
}

func summedKey(i int) history.Key {
	return history.Key{UID: "ann", Object: history.Object{ID: fmt.Sprint(i), Type: 1}}
}

func summarizeNow(t *testing.T, a *hbase.Archive) {
	t.Helper()
	if err := a.Summarize(t.Context(), "ann", false); err != nil {
		t.Fatal(err)
	}
}

// wantSummed checks that each object has one summary.
func wantSummed(t *testing.T, what string, a *hbase.Archive, want int) {
	t.Helper()
	page, err := a.Summaries(t.Context(), "ann", history.Query{Limit: 100})
	seen := make(map[history.Object]bool)
	for _, s := range page.Items {
		seen[s.Object] = true
		if total := s.Total(); total.Plays != 1 || total.First != total.Last {
			t.Errorf("%s: %+v", what, total)
		}
	}
	if err != nil || len(page.Items) != want || len(seen) != want {
		t.Errorf("%s: %d summaries of %d objects, %v, want %d", what, len(page.Items), len(seen), err, want)
	}
}

// wantTidy checks that no unlisted chunk exists.
func wantTidy(t *testing.T, what string, a *hbase.Archive) {
	t.Helper()
	held, err := a.Held(t.Context(), "ann", 0)
	listed, listErr := a.SummaryChunks(t.Context(), "ann")
	if err != nil || listErr != nil || held["archive: chunks of summaries"] != listed {
		t.Errorf("%s: %d chunks of %d that are listed, %v, %v", what, held["archive: chunks of summaries"], listed, err, listErr)
	}
}

// TestSummarizeStopsAnywhere kills a process before and after each call of Summarize. Readers see the old or the
// new state; the next run repairs the rest.
func TestSummarizeStopsAnywhere(t *testing.T) {
	for _, f := range []fate{lost, forgotten} {
		for calls := 0; ; calls++ {
			store, clock, c, want := summed(t)
			p := begin(store, c, func(a *hbase.Archive) error { return a.Summarize(t.Context(), "ann", false) })
			for range calls {
				p.next(made)
			}
			ended := p.ended
			if !ended {
				p.next(f)
				_ = p.finish() // it was killed
			}
			what := fmt.Sprintf("fate %d of call %d", f, calls)
			if page, err := hbase.Over(store, c).Summaries(t.Context(), "ann", history.Query{Limit: 100}); err != nil || len(page.Items) != 4 && len(page.Items) != want {
				t.Errorf("%s: %d summaries, %v", what, len(page.Items), err)
			}
			clock.pass(time.Minute)
			a := hbase.Over(store, c) // a new record, otherwise nothing would be written
			if errs := a.Put(t.Context(), []history.Cell{{Key: summedKey(9), Record: summedRecord(9, clock.now().Add(-85*24*time.Hour))}}); errs != nil {
				t.Fatal(errs)
			}
			summarizeNow(t, a)
			wantSummed(t, what, hbase.Over(store, c), want+1)
			wantTidy(t, what, hbase.Over(store, c))
			if ended {
				break
			}
		}
	}
}

// TestTwoSummarize runs a second Summarize at each call of the first, with another record.
func TestTwoSummarize(t *testing.T) {
	for calls := 0; ; calls++ {
		store, clock, c, want := summed(t)
		p := begin(store, c, func(a *hbase.Archive) error { return a.Summarize(t.Context(), "ann", false) })
		for range calls {
			p.next(made)
		}
		what := fmt.Sprintf("at call %d", calls)
		other := hbase.Over(store, c)
		if errs := other.Put(t.Context(), []history.Cell{{Key: summedKey(9), Record: summedRecord(9, clock.now().Add(-85*24*time.Hour))}}); errs != nil {
			t.Fatal(errs)
		}
		summarizeNow(t, other)
		wantSummed(t, what, hbase.Over(store, c), want+1)
		ended := p.ended
		if err := p.finish(); err != nil && !errors.Is(err, history.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
		wantSummed(t, what+", in the end", hbase.Over(store, c), want+1)
		wantTidy(t, what, hbase.Over(store, c))
		if ended {
			return
		}
	}
}

// TestEraseWhileSummarizing erases at each call of a Summarize, with and without existing summaries.
func TestEraseWhileSummarizing(t *testing.T) {
	for _, uid := range []string{"ann", "bob"} {
		for calls, ended := 0, false; !ended; calls++ {
			store, clock, c, _ := summed(t)
			old := history.Cell{Key: history.Key{UID: "bob", Object: history.Object{ID: "1", Type: 1}}, Record: summedRecord(1, clock.now().Add(-85*24*time.Hour))}
			if errs := hbase.Over(store, c).Put(t.Context(), []history.Cell{old}); errs != nil {
				t.Fatal(errs)
			}
			p := begin(store, c, func(a *hbase.Archive) error { return a.Summarize(t.Context(), uid, false) })
			for range calls {
				p.next(made)
			}
			ended = p.ended
			if err := hbase.Over(store, c).Erase(t.Context(), uid, clock.now().UnixMilli()); err != nil {
				t.Fatal(err)
			}
			_ = p.finish() // it may lose
			held, err := hbase.Over(store, c).Held(t.Context(), uid, 0)
			for place, n := range held {
				if n != 0 || err != nil {
					t.Errorf("%s at call %d: %s: %d left, %v", uid, calls, place, n, err)
				}
			}
		}
	}
}

// TestAging finds users with aging records in both forms, and users with summaries, each in one share.
func TestAging(t *testing.T) {
	store, clock, a := summarizing(t)
	compactions := newCompacted(t, store, clock, hbase.Config{})
	put := func(to history.Archive, uid string, days int, objects int) {
		t.Helper()
		var cells []history.Cell
		for i := range objects {
			at := clock.now().Add(-time.Duration(days)*24*time.Hour - time.Duration(i)*time.Minute).UnixMilli()
			e := history.Event{Key: history.Key{UID: uid, Object: history.Object{ID: fmt.Sprint(i), Type: 1}}, Kind: history.KindStop, At: at, Position: 1000}
			r := e.Record()
			r.Partial, r.Revision, r.CellTime = false, history.NewRevision(), at
			cells = append(cells, history.Cell{Key: e.Key, Record: r})
		}
		if errs := to.Put(t.Context(), cells); errs != nil {
			t.Fatal(errs)
		}
	}
	put(a, "young", 80, 2)
	put(a, "old", 85, 2)
	put(a, "u", 85, 1)
	put(a, "u1", 20, 1)
	put(compactions, "long", 85, 20)
	put(a, "was", 88, 1)
	if err := a.Summarize(t.Context(), "was", false); err != nil {
		t.Fatal(err)
	}
	clock.pass(3 * 24 * time.Hour)
	var all []string
	for share := range hbase.Shares {
		uids, err := compactions.Aging(t.Context(), share)
		if err != nil {
			t.Fatal(err)
		}
		for _, uid := range uids {
			if !strings.HasPrefix(history.RowKey(uid), fmt.Sprintf("%02x", share)) {
				t.Errorf("%s in share %d", uid, share)
			}
		}
		all = append(all, uids...)
	}
	slices.Sort(all)
	if want := []string{"long", "old", "u", "was", "young"}; !slices.Equal(all, want) {
		t.Errorf("got %q, want %q", all, want)
	}
}

// TestNoSummaries costs nothing without summaries.
func TestNoSummaries(t *testing.T) {
	clock := &testClock{at: time.Now()}
	store := newStore(clock.now)
	a := hbase.Over(store, hbase.Config{Now: clock.now})
	page, err := a.Summaries(t.Context(), "ann", history.Query{Limit: 10})
	if err != nil || len(page.Items) > 0 || page.More {
		t.Errorf("got %v, %v", page, err)
	}
	for _, err := range []error{a.Summarize(t.Context(), "ann", false), a.Summarize(t.Context(), "ann", true), a.Erase(t.Context(), "ann", 1)} {
		if err != nil {
			t.Error(err)
		}
	}
	if uids, err := a.Aging(t.Context(), 1); err != nil || len(uids) > 0 {
		t.Errorf("got %v, %v", uids, err)
	}
	if rows := len(store.Tables["history_summaries"]); rows > 0 {
		t.Errorf("%d rows", rows)
	}
	if _, err := hbase.New(hbase.Config{ZooKeeper: "127.0.0.1:1", Summary: time.Hour}); !errors.Is(err, history.ErrInvalid) {
		t.Errorf("an hour: %v, want ErrInvalid", err)
	}
}

// TestSummaryChunkIsLost fails calls that need a missing chunk, and no others, until the user is erased.
func TestSummaryChunkIsLost(t *testing.T) {
	store, clock, c, _ := summed(t)
	registry := prometheus.NewRegistry()
	c.Registry = registry
	a := hbase.Over(store, c)
	summarizeNow(t, a)
	store.Lock()
	for row := range store.Tables["history_summaries"] {
		if strings.HasPrefix(row, history.RowKey("ann")+"\x00") {
			delete(store.Tables["history_summaries"], row)
		}
	}
	store.Unlock()
	for range 2 {
		if _, err := a.Summaries(t.Context(), "ann", history.Query{Limit: 10}); !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("a page: %v, want ErrUnavailable", err)
		}
		if errs := a.Put(t.Context(), []history.Cell{{Key: summedKey(3), Record: summedRecord(3, clock.now().Add(-83*24*time.Hour-time.Minute))}}); errs != nil {
			t.Fatal(errs)
		}
		if err := a.Summarize(t.Context(), "ann", false); !errors.Is(err, history.ErrUnavailable) || errors.Is(err, history.ErrConflict) {
			t.Errorf("summarize: %v, want ErrUnavailable", err)
		}
	}
	if n := counted(t, registry, "playhead_segments_damaged_total"); n != 4 {
		t.Errorf("%v damaged, want 4", n)
	}
	if page, err := a.Summaries(t.Context(), "bob", history.Query{Limit: 10}); err != nil || len(page.Items) != 0 {
		t.Errorf("of another one: %v, %v", page, err)
	}
	if err := a.Erase(t.Context(), "ann", clock.now().UnixMilli()); err != nil {
		t.Fatal(err)
	}
	wantSummed(t, "erased", a, 0)
}
