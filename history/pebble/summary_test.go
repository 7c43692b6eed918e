package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
)

func TestSummaries(t *testing.T) {
	for name, c := range map[string]pebble.Config{"plain": {}, "in parts": pebble.Config{}.Compacting(100_000)} {
		t.Run(name, func(t *testing.T) {
			historytest.Summaries(t, func(t *testing.T) historytest.SummaryStore {
				clock := time.Now()
				c.Summary, c.Now = historytest.SummaryTTL, func() time.Time { return clock }
				db := open(t, t.TempDir(), c)
				s := historytest.SummaryStore{Archive: db.Archive(), Summarizer: db.Archive(), Eraser: db, Now: c.Now}
				if c.CompactAbove > 0 {
					s.Archive = compacted{db.Archive(), t}
				}
				s.Pass = func(d time.Duration) {
					clock = clock.Add(d)
					if _, err := db.Sweep(t.Context()); err != nil {
						t.Error(err)
					}
				}
				return s
			})
		})
	}
}

// daysAgo returns times the given days before now, a second apart.
func daysAgo(now time.Time, days ...int) (times []time.Time) {
	for i, d := range days {
		times = append(times, now.Add(-time.Duration(d)*24*time.Hour+time.Duration(i)*time.Second))
	}
	return times
}

// oldOnes puts viewings at the given times.
func oldOnes(t *testing.T, a *pebble.Archive, uid string, times []time.Time) {
	t.Helper()
	for _, when := range times {
		at := when.UnixMilli()
		e := history.Event{Key: history.Key{UID: uid, Object: history.Object{ID: fmt.Sprint(at), Type: 1}}, Kind: history.KindFinish, At: at, Session: "s"}
		r := e.Record()
		r.Partial, r.Revision, r.CellTime = false, history.NewRevision(), at
		if errs := a.Put(t.Context(), []history.Cell{{Key: e.Key, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
	}
}

func wantSummaries(t *testing.T, a *pebble.Archive, uid string, want int) {
	t.Helper()
	page, err := a.Summaries(t.Context(), uid, history.Query{Limit: 1000})
	if err != nil || len(page.Items) != want {
		t.Errorf("%d summaries, %v, want %d", len(page.Items), err, want)
	}
	for _, s := range page.Items {
		if total := s.Total(); total.Plays != 1 || total.First != total.Last {
			t.Errorf("summary %+v", total)
		}
	}
}

// TestSummariesAfterAPause counts the records that expired while the process was down, live and in segments.
// The next sweep drops them.
func TestSummariesAfterAPause(t *testing.T) {
	clock, dir := time.Now(), t.TempDir()
	c := pebble.Config{Summary: historytest.SummaryTTL, Now: func() time.Time { return clock }}.Compacting(100_000)
	db := open(t, dir, c)
	oldOnes(t, db.Archive(), "long", daysAgo(clock, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39))
	if compacted, err := db.Archive().Compact(t.Context(), "long"); compacted == 0 || err != nil {
		t.Fatal(compacted, err)
	}
	oldOnes(t, db.Archive(), "short", daysAgo(clock, 35, 40))
	oldOnes(t, db.Archive(), "never", daysAgo(clock, 35))
	if err := db.Archive().PutUser(t.Context(), "never", history.User{Cleared: map[uint32]int64{0: clock.UnixMilli()}}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(75 * 24 * time.Hour)
	c.Summary = 0 // a store with summaries continues them
	db = open(t, dir, c)
	for i := range 3 {
		if _, err := db.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Archive().Compact(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		wantSummaries(t, db.Archive(), "long", 10)
		wantSummaries(t, db.Archive(), "short", 2)
		wantSummaries(t, db.Archive(), "never", 0)
		held, err := db.Held(t.Context(), "short", 0)
		if want := map[bool]int{true: 2, false: 0}[i == 0]; err != nil || held["archive: live records"] != want {
			t.Errorf("behind sweep %d: %d records, %v, want %d", i, held["archive: live records"], err, want)
		}
		clock = clock.Add(time.Hour)
	}
}

// TestSummariesOfWhatIsLeftInSegments deletes a record in a segment that is never compacted again. After the
// delete has expired, the record is still not counted.
func TestSummariesOfWhatIsLeftInSegments(t *testing.T) {
	clock := time.Now()
	db := open(t, t.TempDir(), pebble.Config{Summary: historytest.SummaryTTL, Now: func() time.Time { return clock }}.Compacting(100_000))
	a, times := db.Archive(), daysAgo(clock, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39)
	oldOnes(t, a, "ann", times)
	if compacted, err := a.Compact(t.Context(), "ann"); compacted == 0 || err != nil {
		t.Fatal(compacted, err)
	}
	e := history.Event{Key: history.Key{UID: "ann", Object: history.Object{ID: fmt.Sprint(times[9].UnixMilli()), Type: 1}}, Kind: history.KindDelete, At: times[9].UnixMilli() + 1000}
	r := e.Record()
	r.Partial, r.Revision, r.CellTime = false, history.NewRevision(), e.At
	if errs := a.Put(t.Context(), []history.Cell{{Key: e.Key, Record: r}}); errs != nil {
		t.Fatal(errs)
	}
	for range 100 {
		clock = clock.Add(24 * time.Hour)
		if _, err := db.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if held, err := db.Held(t.Context(), "ann", 0); err != nil || held["archive: live records"] != 0 || held["archive: records in segments"] == 0 {
		t.Fatalf("held %v, %v: this says nothing", held, err)
	}
	wantSummaries(t, a, "ann", 9)
}

// TestSummariesAreOff: without Summary, nothing is counted and expired records are dropped at once.
func TestSummariesAreOff(t *testing.T) {
	clock := time.Now()
	db := open(t, t.TempDir(), pebble.Config{Now: func() time.Time { return clock }})
	oldOnes(t, db.Archive(), "ann", daysAgo(clock, 85))
	if err := db.Archive().Summarize(t.Context(), "ann", false); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(10 * 24 * time.Hour)
	if n, err := db.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	wantSummaries(t, db.Archive(), "ann", 0)
	if ttl, err := db.Archive().SummaryTTL(t.Context()); ttl != 0 || err != nil {
		t.Errorf("kept for %d ms, %v", ttl, err)
	}
	if _, err := pebble.Open(t.TempDir(), pebble.Config{Summary: time.Hour}); err == nil || !strings.Contains(err.Error(), "2160h") {
		t.Errorf("an hour: %v", err)
	}
}

// TestDamagedSummaries: damaged summaries fail their reads, keep the expired records of that user only, and are
// removed by an erasure.
func TestDamagedSummaries(t *testing.T) {
	clock := time.Now()
	db := open(t, t.TempDir(), pebble.Config{Summary: historytest.SummaryTTL, Now: func() time.Time { return clock }})
	a := db.Archive()
	for _, uid := range []string{"ann", "bob"} {
		oldOnes(t, a, uid, daysAgo(clock, 85))
		if err := a.Summarize(t.Context(), uid, false); err != nil {
			t.Fatal(err)
		}
		oldOnes(t, a, uid, daysAgo(clock, 88))
	}
	db.SpoilSummaries("ann")
	clock = clock.Add(10 * 24 * time.Hour)
	for range 2 {
		if _, err := db.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock = clock.Add(time.Hour)
	}
	if _, err := a.Summaries(t.Context(), "ann", history.Query{Limit: 10}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("a page of what is damaged: %v, want ErrUnavailable", err)
	}
	wantSummaries(t, a, "bob", 2)
	for uid, want := range map[string]int{"ann": 2, "bob": 0} {
		held, err := db.Held(t.Context(), uid, 0)
		if err != nil || held["archive: live records"] != want {
			t.Errorf("%s: %d records, %v, want %d", uid, held["archive: live records"], err, want)
		}
	}
	if err := db.Erase(t.Context(), "ann", clock.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	wantSummaries(t, a, "ann", 0)
}

// TestSummariesInRun: Run summarizes at its start and removes the summaries of deleted records soon after.
func TestSummariesInRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, t.TempDir(), pebble.Config{Summary: historytest.SummaryTTL})
		a := db.Archive()
		oldOnes(t, a, "ann", daysAgo(time.Now(), 85, 86))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- db.Run(ctx) }()
		time.Sleep(time.Second)
		wantSummaries(t, a, "ann", 2)
		oldOnes(t, a, "bob", daysAgo(time.Now(), 89))
		time.Sleep(time.Minute + time.Second)
		wantSummaries(t, a, "bob", 1)
		page, err := a.Summaries(t.Context(), "ann", history.Query{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().UnixMilli()
		e := history.Event{Key: history.Key{UID: "ann", Object: page.Items[0].Object}, Kind: history.KindDelete, At: at}
		r := e.Record()
		r.Partial, r.Revision, r.CellTime = false, history.NewRevision(), at
		if errs := a.Put(t.Context(), []history.Cell{{Key: e.Key, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
		time.Sleep(time.Minute + time.Second)
		wantSummaries(t, a, "ann", 1)
		page, err = a.Summaries(t.Context(), "bob", history.Query{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		e = history.Event{Key: history.Key{UID: "bob", Object: page.Items[0].Object}, Kind: history.KindDelete, At: time.Now().UnixMilli()}
		again := history.Event{Key: e.Key, Kind: history.KindStop, At: e.At + 1, Position: 1000}
		r = history.Merge(e.Record(), again.Record()).Successor(nil) // both are archived together
		r.Partial = false
		if errs := a.Put(t.Context(), []history.Cell{{Key: e.Key, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
		time.Sleep(time.Minute + time.Second)
		wantSummaries(t, a, "bob", 0)
		if err := a.PutUser(t.Context(), "ann", history.User{Cleared: map[uint32]int64{0: time.Now().UnixMilli()}}); err != nil {
			t.Fatal(err)
		}
		wantSummaries(t, a, "ann", 0)
		time.Sleep(time.Minute + time.Second)
		if held, err := db.Held(t.Context(), "ann", 0); err != nil || held["archive: chunks of summaries"] != 0 {
			t.Errorf("held %v, %v", held, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
