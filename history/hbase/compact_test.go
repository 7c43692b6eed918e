package hbase_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/segment"
)

// testClock is a clock set by tests.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// compacted is an archive that compacts users after each write and advances the clock meanwhile.
type compacted struct {
	*hbase.Archive
	t     *testing.T
	clock *testClock
	time  *sync.RWMutex // blocks the clock while held
}

const compactMargin = time.Minute

func newCompacted(t *testing.T, client gohbase.Client, clock *testClock, c hbase.Config) compacted {
	c.CompactAbove, c.CompactAfter, c.CompactMargin, c.Now = 3, compactMargin, compactMargin, clock.now
	return compacted{hbase.NewCompacting(client, c), t, clock, new(sync.RWMutex)}
}

func (r compacted) Put(ctx context.Context, cells []history.Cell) []error {
	r.time.RLock()
	errs := r.Archive.Put(ctx, cells)
	r.time.RUnlock()
	uids := make(map[string]bool)
	for _, c := range cells {
		if !uids[c.Key.UID] && len(uids) < 10 { // only a few of many users
			uids[c.Key.UID] = true
			r.compact(ctx, c.Key.UID)
		}
	}
	return errs
}

func (r compacted) PutUser(ctx context.Context, uid string, u history.User) error {
	r.time.RLock()
	err := r.Archive.PutUser(ctx, uid, u)
	r.time.RUnlock()
	r.compact(ctx, uid)
	return err
}

func (r compacted) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	r.time.RLock()
	defer r.time.RUnlock()
	return r.Archive.Get(ctx, keys)
}

func (r compacted) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	r.time.RLock()
	defer r.time.RUnlock()
	return r.Archive.Page(ctx, uid, q)
}

// compact compacts until no more records move.
func (r compacted) compact(ctx context.Context, uid string) {
	r.time.Lock()
	defer r.time.Unlock()
	for again := time.Millisecond; again > 0 && again < time.Second; {
		r.clock.pass(3 * compactMargin)
		var err error
		if again, err = r.Compact(ctx, uid); err != nil {
			r.t.Errorf("compact %s: %v", uid, err)
		}
	}
}

// TestArchiveInMemory runs the archive's contract over the fake.
func TestArchiveInMemory(t *testing.T) {
	for name, bulk := range map[string]bool{"cells": false, "rows": true} {
		t.Run(name, func(t *testing.T) {
			s := newStore(time.Now)
			historytest.Archive(t, func(*testing.T) history.Archive { return hbase.Over(s, hbase.Config{Bulk: bulk}) })
		})
	}
}

func TestScanInMemory(t *testing.T) {
	historytest.ArchiveScan(t, hbase.NewWith(newStore(time.Now), nil))
}

func TestRetentionInMemory(t *testing.T) {
	historytest.ArchiveRetention(t, func(_ *testing.T, rules *history.Rulebook) history.Archive {
		s := newStore(time.Now)
		s.TTLs = map[string]int64{"history": rules.Retention().Keep}
		return hbase.Over(s, hbase.Config{Rules: rules})
	})
}

// TestArchiveInSegments runs the contract with nearly everything in segments.
func TestArchiveInSegments(t *testing.T) {
	for name, step := range map[string]int{"in one go": 100_000, "in steps": 700} {
		if testing.Short() && step > 700 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			clock := &testClock{at: time.Now().Add(-time.Hour)}
			s := newStore(clock.now)
			historytest.ArchiveWithSegments(t, func(t *testing.T) history.Archive { return newCompacted(t, s, clock, hbase.Config{}.Stepping(step)) })
		})
	}
}

// compactTest is a user in a store whose clock the test controls.
type compactTest struct {
	*testing.T
	clock        *testClock
	client       gohbase.Client
	compactTable func()
	config       hbase.Config
	uid          string
	*hbase.Archive
}

func newCompactTest(t *testing.T) *compactTest {
	clock := &testClock{at: time.Now().Add(-time.Hour)}
	s := newStore(clock.now)
	return compactTestOver(t, clock, s, s.Compact, "")
}

func compactTestOver(t *testing.T, clock *testClock, client gohbase.Client, compact func(), table string) *compactTest { //nolint:revive // what a test is made of
	c := hbase.Config{Table: table, CompactAbove: 3, CompactAfter: time.Hour, CompactMargin: time.Minute, Now: clock.now, Deadline: time.Minute}
	return &compactTest{t, clock, client, compact, c, fmt.Sprintf("u%d", time.Now().UnixNano()), hbase.NewCompacting(client, c)}
}

// another returns a test of another user.
func (t *compactTest) another() *compactTest {
	return compactTestOver(t.T, t.clock, t.client, t.compactTable, t.config.Table)
}

func (t *compactTest) key(i int) history.Key {
	return history.Key{UID: t.uid, Object: history.Object{ID: fmt.Sprint(i), Type: 1}}
}

func (t *compactTest) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// play applies an event to a base.
func (t *compactTest) play(k history.Key, base *history.Record, ago time.Duration, position int64) history.Cell {
	e := history.Event{Key: k, Kind: history.KindProgress, At: t.clock.now().Add(-ago).UnixMilli(), Position: position}
	return history.Cell{Key: k, Record: history.Merge(base, e.Record()).Successor(nil)}
}

func (t *compactTest) store(cells ...history.Cell) {
	t.Helper()
	t.must(errors.Join(t.Put(t.Context(), cells)...))
}

// plays puts records of n objects, a second apart, and lets them grow old.
func (t *compactTest) plays(n int) (cells []history.Cell) {
	t.Helper()
	for i := range n {
		cells = append(cells, t.play(t.key(i), nil, time.Duration(n-i)*time.Second, int64(i)))
	}
	t.store(cells...)
	t.clock.pass(2 * time.Hour)
	return cells
}

func (t *compactTest) compact() {
	t.Helper()
	_, err := t.Compact(t.Context(), t.uid)
	t.must(err)
}

func (t *compactTest) process(do func(a *hbase.Archive) error) *process {
	return begin(t.client, t.config, do)
}

func (t *compactTest) compactor() *process {
	return t.process(func(a *hbase.Archive) error {
		_, err := a.Compact(t.Context(), t.uid)
		return err
	})
}

// want checks that all cells are read, by key and as a page.
func (t *compactTest) want(cells ...history.Cell) {
	t.Helper()
	var keys []history.Key
	for _, c := range cells {
		keys = append(keys, c.Key)
	}
	got, err := t.Get(t.Context(), keys)
	t.must(err)
	for i, c := range cells {
		if !history.Same(got[i].Record, c.Record) {
			t.Errorf("get %s: got %+v, want %+v", c.Key, got[i].Record, c.Record)
		}
	}
	page, err := t.Page(t.Context(), t.uid, history.Query{Limit: 10_000})
	t.must(err)
	t.wantPage(page, cells...)
}

func (t *compactTest) wantPage(page history.Page, cells ...history.Cell) {
	t.Helper()
	found := make(map[history.Object]*history.Record)
	for _, it := range page.Items {
		found[it.Object] = it.Record
	}
	if len(page.Items) != len(cells) || len(found) != len(cells) {
		t.Errorf("page of %d records, of %d objects, want %d", len(page.Items), len(found), len(cells))
	}
	for _, c := range cells {
		if got := found[c.Key.Object]; !history.Same(got, c.Record) {
			t.Errorf("%s in its page: got %+v, want %+v", c.Key, got, c.Record)
		}
	}
}

func (t *compactTest) wantForms(live, inSegments int) {
	t.Helper()
	gotLive, gotSegments, err := t.Forms(t.Context(), t.uid)
	t.must(err)
	if gotLive != live || gotSegments != inSegments {
		t.Errorf("%d live columns and %d records in segments, want %d and %d", gotLive, gotSegments, live, inSegments)
	}
}

// TestImportEndsInSegments imports a long old history and compacts only when the previous compaction asked for it.
func TestImportEndsInSegments(t *testing.T) { importEndsInSegments(newCompactTest(t)) }

func importEndsInSegments(t *compactTest) {
	const records, above = 6000, 2000
	c := t.config
	c.CompactAbove = above
	a := hbase.NewCompacting(t.client, c)
	for from := 0; from < records; from += 100 {
		var cells []history.Cell
		for i := from; i < from+100; i++ {
			cells = append(cells, t.play(t.key(i), nil, 30*24*time.Hour+time.Duration(i)*time.Second, int64(i)))
		}
		t.store(cells...)
		t.clock.pass(time.Second)
	}
	recent := t.play(t.key(records), nil, 0, 1) // never old in this test
	t.store(recent)
	began := t.clock.now()
	for again := time.Millisecond; again > 0 && t.clock.now().Sub(began) < 5*compactMargin; t.clock.pass(again) {
		var err error
		again, err = a.Compact(t.Context(), t.uid)
		t.must(err)
	}
	live, inSegments, err := t.Forms(t.Context(), t.uid)
	if t.must(err); live > above || live+inSegments != records+1 {
		t.Errorf("%d live columns and %d records in segments, want %d and the rest", live, inSegments, above)
	}
	t.wantIn(recent)
}

// TestCompactOfWhatIsNotOldYet checks the delay until enough records are old.
func TestCompactOfWhatIsNotOldYet(t *testing.T) {
	r := newCompactTest(t)
	for i := range 6 { // the bound is three
		r.store(r.play(r.key(i), nil, 0, 1))
		r.clock.pass(10 * time.Minute)
	}
	again, err := r.Compact(t.Context(), r.uid)
	r.must(err)
	if want := r.config.CompactAfter + r.config.CompactMargin - 40*time.Minute + time.Millisecond; again != want {
		t.Errorf("again after %v, want %v, when the third is old", again, want)
	}
	r.wantForms(6, 0)
	r.clock.pass(again)
	_, err = r.Compact(t.Context(), r.uid)
	r.must(err)
	r.wantForms(3, 3)
}

// TestLatePutAfterCompact is trap (a): a restored cache makes a second content from an archived base, with the
// first one's cell time. The first was compacted and deleted. A late play keeps its version.
func TestLatePutAfterCompact(t *testing.T) { latePutAfterCompact(newCompactTest(t)) }

func latePutAfterCompact(t *compactTest) {
	cells := t.plays(10)
	base := cells[2]
	late := func(position int64) history.Cell {
		before := t.clock.now().UnixMilli() - base.Record.Version.Time() + time.Hour.Milliseconds()
		return t.play(base.Key, base.Record, time.Duration(before)*time.Millisecond, position)
	}
	first := late(50)
	t.store(first)
	cells[2] = first
	t.want(cells...)
	t.clock.pass(time.Hour)
	t.compact()
	t.wantForms(1, 9)
	for i := range 3 {
		second := late(int64(60 + i))
		if second.Record.CellTime != first.Record.CellTime || second.Record.Version != first.Record.Version {
			t.Fatalf("contents %+v and %+v, want them under one cell time and version", first.Record, second.Record)
		}
		t.store(second)
		cells[2].Record = history.Merge(cells[2].Record, second.Record)
		t.want(cells...)
		t.clock.pass(time.Hour)
		t.compact()
		t.want(cells...)
		t.compactTable()
		t.want(cells...)
	}
}

// TestLatePutsOfOnePeriod is trap (a) with two late contents in one column.
func TestLatePutsOfOnePeriod(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(10)
	base := cells[2]
	for i := range 6 {
		c := r.play(base.Key, base.Record, 3*time.Hour+time.Duration(i)*compactMargin/3, int64(50+i))
		r.store(c)
		cells[2].Record = c.Record
		if i > 0 { // which put of one period wins is unspecified
			r.wantIn(c)
		}
		r.compact()
		r.wantIn(c)
		r.clock.pass(compactMargin / 3)
	}
}

// wantIn checks that the stored record includes a content.
func (t *compactTest) wantIn(c history.Cell) {
	t.Helper()
	got, err := t.Get(t.Context(), []history.Key{c.Key})
	t.must(err)
	if r := got[0].Record; !history.Same(r, history.Merge(r, c.Record)) {
		t.Errorf("get %s: got %+v, want %+v in it", c.Key, r, c.Record)
	}
}

// TestDelayedPut is trap (a) for a put whose record was barely recent, applied as late as possible, after a
// compaction.
func TestDelayedPut(t *testing.T) {
	for age := time.Hour - compactMargin; age <= time.Hour+2*compactMargin; age += compactMargin / 4 {
		r := newCompactTest(t)
		var cells []history.Cell
		for i := range 6 {
			cells = append(cells, r.play(r.key(i), nil, time.Duration(i)*time.Minute, 1))
		}
		base := cells[5]
		first := r.play(base.Key, base.Record, time.Hour, 50)
		r.store(cells...)
		r.store(first)
		r.clock.pass(age - 5*time.Minute) // the base's age
		second := r.play(base.Key, base.Record, age+time.Hour, 60)
		slow := r.process(func(a *hbase.Archive) error {
			return errors.Join(a.Put(t.Context(), []history.Cell{second})...)
		})
		r.clock.pass(compactMargin - time.Second)
		r.compact()
		r.must(slow.finish())
		r.wantIn(second)
		r.clock.pass(time.Hour)
		r.compact()
		r.wantIn(second)
	}
}

// TestDelayedPutOfAnother is trap (a) for an object without a cell: the marker of a compaction covers all columns.
func TestDelayedPutOfAnother(t *testing.T) {
	r := newCompactTest(t)
	r.plays(10)
	r.store(r.play(r.key(10), nil, 0, 1))
	barelyRecent := r.play(r.key(11), nil, time.Hour-time.Second, 50)
	slow := r.process(func(a *hbase.Archive) error {
		return errors.Join(a.Put(t.Context(), []history.Cell{barelyRecent})...)
	})
	r.clock.pass(compactMargin - time.Second)
	r.compact()
	r.wantForms(1, 10)
	r.must(slow.finish())
	r.wantIn(barelyRecent)
}

// TestTwoCompactors is trap (b): a compactor stops before each of its calls while another compacts.
func TestTwoCompactors(t *testing.T) { twoCompactors(newCompactTest(t)) }

func twoCompactors(t *compactTest) {
	for _, before := range []bool{false, true} {
		for stop, ended := 0, false; !ended; stop++ {
			r := t.another()
			cells := r.plays(10)
			if before {
				r.compact()
				for i := 3; i < 9; i++ {
					cells[i] = r.play(cells[i].Key, cells[i].Record, 0, 99)
				}
				r.store(cells[3:9]...)
				r.clock.pass(2 * time.Hour)
			}
			slow := r.compactor()
			for range stop {
				slow.next(made)
			}
			ended = slow.ended
			c := r.config
			c.CompactAbove = 8 // keeps more records live
			_, err := hbase.NewCompacting(r.client, c).Compact(t.Context(), r.uid)
			r.must(err)
			r.want(cells...)
			if err := slow.finish(); err != nil && !errors.Is(err, history.ErrConflict) {
				t.Errorf("the slow one, stopped after %d calls: %v", stop, err)
			}
			r.want(cells...)
			r.clock.pass(2 * time.Hour)
			r.compact()
			r.want(cells...)
			r.compactTable()
			r.want(cells...)
			if live, _, err := r.Forms(t.Context(), r.uid); live != 1 || err != nil {
				t.Errorf("stopped after %d calls: %d live records, %v; want 1", stop, live, err)
			}
		}
	}
}

// TestSlowCompactorGivesUp stalls a compactor until another one treats its chunks as abandoned.
func TestSlowCompactorGivesUp(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(10)
	r.compact()
	for i := 3; i < 9; i++ {
		cells[i] = r.play(cells[i].Key, cells[i].Record, 0, 99)
	}
	r.store(cells[3:9]...)
	r.clock.pass(2 * time.Hour)
	for _, removed := range []bool{false, true} {
		slow := r.compactor()
		for len(r.unlisted()) == 0 {
			slow.next(made)
		}
		r.clock.pass(2 * compactMargin)
		if removed {
			c := r.config
			c.CompactAbove = 1000 // moves nothing
			_, err := hbase.NewCompacting(r.client, c).Compact(t.Context(), r.uid)
			r.must(err)
			if names := r.unlisted(); len(names) > 0 {
				t.Errorf("chunks %q stay", names)
			}
		}
		if err := slow.finish(); !errors.Is(err, history.ErrConflict) {
			t.Errorf("the slow one, its chunks removed %v: got %v, want %v", removed, err, history.ErrConflict)
		}
		r.want(cells...)
	}
}

// withReplacedChunk compacts ten records, replays six, and compacts again. That replaces one chunk.
func withReplacedChunk(t *testing.T) (*compactTest, []history.Cell) {
	t.Helper()
	r := newCompactTest(t)
	cells := r.plays(10)
	r.compact()
	for i := 3; i < 9; i++ {
		cells[i] = r.play(cells[i].Key, cells[i].Record, 0, 99)
	}
	r.store(cells[3:9]...)
	r.clock.pass(2 * time.Hour)
	r.compact()
	return r, cells
}

// TestOldChunksStayForReaders compacts again right after chunks were replaced.
func TestOldChunksStayForReaders(t *testing.T) {
	r, _ := withReplacedChunk(t)
	replaced := r.unlisted()
	r.compact()
	if got := r.unlisted(); len(replaced) != 1 || len(got) != 1 {
		t.Errorf("chunks %q were replaced, and %q of them stay, want one", replaced, got)
	}
	r.clock.pass(2 * compactMargin)
	r.compact()
	if got := r.unlisted(); len(got) > 0 {
		t.Errorf("chunks %q stay", got)
	}
}

// TestDeletedChunksGoAtOnce deletes chunk records, also in a chunk that was just replaced and still waits for
// readers.
func TestDeletedChunksGoAtOnce(t *testing.T) {
	r, cells := withReplacedChunk(t)
	if names := r.unlisted(); len(names) != 1 {
		t.Fatalf("chunks %q were replaced, want one", names)
	}
	gone := history.Event{Kind: history.KindDelete, At: r.clock.now().UnixMilli()}
	r.store(history.Cell{Key: cells[4].Key, Record: history.Merge(cells[4].Record, gone.Record()).Successor(nil)})
	again, err := r.Tidy(t.Context(), r.uid)
	r.must(err)
	if names := r.unlisted(); len(names) > 0 || again > 0 {
		t.Errorf("chunks %q stay, again after %v", names, again)
	}
	r.compactTable()
	for row := range r.client.(*store).Tables["history_segments"] {
		if n := strings.Count(row, "\x00"); n > 0 && r.has(row, cells[4].Key.Object) {
			t.Errorf("row %q has what was deleted", row)
		}
	}
}

// has reports whether a stored chunk contains an object.
func (t *compactTest) has(row string, o history.Object) (found bool) {
	t.Helper()
	for _, versions := range t.client.(*store).Tables["history_segments"][row].Cells {
		for _, b := range versions {
			c, err := segment.Open(b)
			t.must(err)
			for it, err := range c.Items(nil) {
				t.must(err)
				found = found || it.Object == o
			}
		}
	}
	return found
}

// TestClearOfSegments clears contents in all forms with cells later than their events. The next content must get a
// later cell time, even if nothing remains.
func TestClearOfSegments(t *testing.T) {
	for _, typ := range []uint32{0, 1} {
		r := newCompactTest(t)
		var cells []history.Cell
		last := r.clock.now().UnixMilli()
		for i := range 10 {
			c := r.play(r.key(i), nil, time.Duration(i)*time.Millisecond, 1)
			c.Record.CellTime = last + 500 + int64(i)
			cells = append(cells, c)
		}
		r.store(cells...)
		r.clock.pass(2 * time.Hour)
		r.compact()
		late := r.play(r.key(20), nil, 3*time.Hour, 1)
		r.store(late)
		r.wantForms(2, 9)
		r.must(r.PutUser(t.Context(), r.uid, history.User{Cleared: map[uint32]int64{typ: last + 10}}))
		for range 2 {
			got, err := r.Get(t.Context(), []history.Key{cells[0].Key})
			r.must(err)
			page, err := r.Page(t.Context(), r.uid, history.Query{Limit: 10})
			r.must(err)
			if e := got[0]; e.Record != nil || e.User.CutTime < last+509 || page.User.CutTime < last+509 || len(page.Items) > 0 {
				t.Errorf("got %+v, and a page of %d with the cut time %d, want nothing, and the cut time %d", e, len(page.Items), page.User.CutTime, last+509)
			}
			_, err = r.Tidy(t.Context(), r.uid)
			r.must(err)
			r.wantForms(1, 0) // only the one live cell that is later than the mark remains
		}
	}
}

// TestClearOfEverything clears everything, including cells that HBase keeps up to that time.
func TestClearOfEverything(t *testing.T) {
	r := newCompactTest(t)
	r.plays(10)
	r.compact()
	r.clock.pass(time.Hour)
	r.must(r.PutUser(t.Context(), r.uid, history.User{Cleared: map[uint32]int64{0: r.clock.now().UnixMilli()}}))
	r.want()
	again, err := r.Tidy(t.Context(), r.uid)
	r.must(err)
	r.wantForms(0, 0)
	r.clock.pass(again)
	_, err = r.Tidy(t.Context(), r.uid)
	r.must(err)
	if names := r.unlisted(); len(names) > 0 {
		t.Errorf("chunks %q stay", names)
	}
	r.want()
}

// TestReaderBetweenVersions is trap (c): a reader stops before each of its calls while the user is compacted twice
// and the old chunks are deleted.
func TestReaderBetweenVersions(t *testing.T) { readerBetweenVersions(newCompactTest(t)) }

func readerBetweenVersions(t *compactTest) {
	for reads, n := range map[int]int{1: 10, 2: 2600} { // 2600 columns take more than one call
		step := 1 // calls between the reader's stops
		if testing.Short() && n > 1000 {
			step = 3
		}
		for stop, ended := 0, false; !ended; stop += step {
			r := t.another()
			cells := r.plays(n)
			again := func() {
				for i := 1; i < n; i++ {
					cells[i] = r.play(cells[i].Key, cells[i].Record, time.Duration(n-i)*time.Second, 99)
				}
				r.store(cells[1:]...)
				r.clock.pass(2 * time.Hour)
			}
			r.compact()
			again()
			var page history.Page
			reader := r.process(func(a *hbase.Archive) (err error) {
				for range reads { // the first read caches the metadata
					if page, err = a.Page(t.Context(), r.uid, history.Query{Limit: 10_000}); err != nil {
						break
					}
				}
				return err
			})
			for range stop {
				reader.next(made)
			}
			ended = reader.ended
			r.compact()
			r.clock.pass(2 * compactMargin)
			r.compact() // deletes unlisted chunks
			if err := reader.finish(); err != nil {
				t.Errorf("stopped after %d calls: %v", stop, err)
			}
			r.wantPage(page, cells...)
			if names := r.unlisted(); len(names) > 0 {
				t.Errorf("stopped after %d calls: chunks %q stay", stop, names)
			}
		}
	}
}

// TestReaderBesideRemovals stops a reader before each of its later calls while deletions remove chunks.
func TestReaderBesideRemovals(t *testing.T) {
	for stop, ended := 0, false; !ended; stop++ {
		r := newCompactTest(t)
		cells := r.plays(10)
		r.compact()
		var page history.Page
		reader := r.process(func(a *hbase.Archive) (err error) {
			page, err = a.Page(t.Context(), r.uid, history.Query{Limit: 10_000})
			return err
		})
		for range stop {
			reader.next(made)
		}
		ended = reader.ended
		for i := range 4 {
			gone := history.Event{Kind: history.KindDelete, At: r.clock.now().UnixMilli()}
			r.store(history.Cell{Key: cells[i].Key, Record: history.Merge(cells[i].Record, gone.Record()).Successor(nil)})
			r.clock.pass(time.Second)
			_, err := r.Tidy(t.Context(), r.uid)
			r.must(err)
			reader.next(made)
		}
		if err := reader.finish(); err != nil {
			t.Errorf("stopped after %d calls: %v", stop, err)
		}
		for _, c := range cells[4:] {
			if !slices.ContainsFunc(page.Items, func(it history.Item) bool { return it.Object == c.Key.Object && history.Same(it.Record, c.Record) }) {
				t.Errorf("stopped after %d calls: %s is not in its page", stop, c.Key)
			}
		}
	}
}

func (t *compactTest) unlisted() []string {
	t.Helper()
	i, err := t.Inspect(t.Context(), t.uid, true)
	t.must(errors.Join(append(i.Wrong, err)...))
	return i.Unlisted
}

// TestNoLongHistory: for users with short histories, compaction costs no extra calls.
func TestNoLongHistory(t *testing.T) {
	counts := make(map[bool]map[string]int)
	for _, compacting := range []bool{false, true} {
		s := newStore(time.Now)
		a := hbase.NewWith(s, nil)
		if compacting {
			a = hbase.NewCompacting(s, hbase.Config{CompactAbove: 2000})
		}
		now := time.Now().UnixMilli()
		for i := range 50 {
			k := key("ann", fmt.Sprintf("%d_1", i))
			mustPutIn(t, a, k, now-int64(i)*3_600_000)
			if _, err := a.Get(t.Context(), []history.Key{k}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.Page(t.Context(), "ann", history.Query{Limit: 20}); err != nil {
			t.Fatal(err)
		}
		if err := a.PutUser(t.Context(), "ann", history.User{Cleared: map[uint32]int64{0: now - 3_600_000}}); err != nil {
			t.Fatal(err)
		}
		counts[compacting] = s.Calls
	}
	if !maps.Equal(counts[false], counts[true]) {
		t.Errorf("calls without compacting %v, with it %v", counts[false], counts[true])
	}
}

func mustPutIn(t *testing.T, a *hbase.Archive, k history.Key, at int64) {
	t.Helper()
	if errs := a.Put(t.Context(), []history.Cell{{Key: k, Record: record(at)}}); errs != nil {
		t.Fatal(errs)
	}
}

// TestWithoutCompactingNothingIsLate puts old records into a table without compaction.
func TestWithoutCompactingNothingIsLate(t *testing.T) {
	s := newStore(time.Now)
	a := hbase.NewWith(s, nil)
	k := key("ann", "1_1")
	mustPutIn(t, a, k, time.Now().Add(-48*time.Hour).UnixMilli())
	for c := range s.Tables["history"][history.RowKey("ann")].Cells {
		if c.Family != "info" || c.Qualifier != "1_1" {
			t.Errorf("column %+v, want info:1_1", c)
		}
	}
	if again, err := a.Compact(t.Context(), "ann"); again != 0 || err != nil || len(s.Tables) > 1 {
		t.Errorf("compact: %v, %v, tables %d", again, err, len(s.Tables))
	}
}

// TestCompactingBegins enables compaction while other processes still believe it is disabled.
func TestCompactingBegins(t *testing.T) {
	r := newCompactTest(t)
	other := hbase.Over(r.client, hbase.Config{Now: r.clock.now})
	blind := hbase.Over(away{r.client}, hbase.Config{Now: r.clock.now})
	r.config.CompactAfter, r.config.CompactMargin = 2*time.Hour, time.Hour
	compactor := hbase.Over(r.client, r.config)
	steps := 0
	step := func(late, compactions bool) {
		t.Helper()
		old := r.play(r.key(100+steps), nil, 3*time.Hour, 1)
		steps++
		r.must(errors.Join(other.Put(t.Context(), []history.Cell{old})...))
		row := r.client.(*store).Tables["history"][history.RowKey(r.uid)]
		if _, ok := row.Cells[column{Family: "info", Qualifier: old.Key.Object.String()}]; ok == late {
			t.Errorf("step %d: an old record is put into info: %v, want it late: %v", steps, ok, late)
		}
		again, err := compactor.Compact(t.Context(), r.uid)
		r.must(err)
		if _, compacted, err := compactor.Forms(t.Context(), r.uid); err != nil || (compacted > 0) != compactions || again == 0 {
			t.Errorf("step %d: compacted %d, %v, want some: %v; again after %v", steps, compacted, err, compactions, again)
		}
		page, err := other.Page(t.Context(), r.uid, history.Query{Limit: 100})
		if r.must(err); len(page.Items) != steps {
			t.Errorf("step %d: page of %d", steps, len(page.Items))
		}
	}
	for range 5 {
		step(false, false)
	}
	for range 2 {
		r.must(compactor.BeginCompacting(t.Context()))
	}
	step(false, false) // the mark was read just now
	r.clock.pass(6 * time.Minute)
	step(false, false) // the mark is known
	r.clock.pass(time.Hour - 6*time.Minute)
	step(true, false)
	r.clock.pass(2 * time.Hour)
	step(true, true)

	// A new threshold leaves the rest unchanged.
	r.config.CompactAbove, r.config.CompactAfter = 50, time.Minute
	changed := hbase.Over(r.client, r.config)
	r.must(changed.BeginCompacting(t.Context()))
	if got, want := changed.Mark(), other.Mark(); got.Above != 50 || got.After != want.After || got.Since != want.Since || want.Above != 3 {
		t.Errorf("got %+v, others know %+v", got, want)
	}

	// An archive that cannot read the mark refuses calls.
	k := []history.Key{r.key(100)}
	if _, err := blind.Get(t.Context(), k); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("get: %v, want ErrUnavailable", err)
	}
	for _, err := range blind.Put(t.Context(), []history.Cell{r.play(k[0], nil, 0, 1)}) {
		if !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("put: %v, want ErrUnavailable", err)
		}
	}
}

// TestMarkOfALaterVersion has a mark in a newer format. An archive that cannot parse it refuses calls before
// compaction begins, even if it found no mark earlier.
func TestMarkOfALaterVersion(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(1)
	c := hbase.Config{Now: r.clock.now, CompactMargin: time.Hour}
	running := hbase.Over(r.client, c)
	page := func(a *hbase.Archive) error {
		_, err := a.Page(t.Context(), r.uid, history.Query{Limit: 1})
		return err
	}
	r.must(page(running))
	put, err := hrpc.NewPutStr(t.Context(), "history", "##", map[string]map[string][]byte{"info": {"#compacting": []byte("v2 1 3 1 1")}})
	r.must(err)
	_, err = r.client.Put(put)
	r.must(err)
	r.clock.pass(time.Hour/2 + time.Second)
	for name, a := range map[string]*hbase.Archive{"runs": running, "starts": hbase.Over(r.client, c)} {
		if err := page(a); !errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), "mark of compacting") {
			t.Errorf("page of one that %s: %v, want it refused for the mark", name, err)
		}
		if err := errors.Join(a.Put(t.Context(), cells)...); !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("put of one that %s: %v, want ErrUnavailable", name, err)
		}
	}
}

// away is an HBase whose region with the mark does not answer.
type away struct{ gohbase.Client }

// Get implements [gohbase.Client].
func (away) Get(*hrpc.Get) (*hrpc.Result, error) { return nil, errKilled }

// TestDamagedSegment damages or removes a chunk or a list. Reads that need it fail and are counted; no page is
// short.
func TestDamagedSegment(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"gone":    func([]byte) []byte { return nil },
		"cut off": func(b []byte) []byte { return b[:len(b)-1] },
		"changed": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		for _, list := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, list %v", name, list), func(t *testing.T) {
				r := newCompactTest(t)
				cells := r.plays(20)
				r.compact()
				for row, cells := range r.client.(*store).Tables["history_segments"] {
					if strings.Contains(row, "\x00") == list {
						continue
					}
					for _, versions := range cells.Cells {
						for at, b := range versions {
							if versions[at] = spoil(b); versions[at] == nil {
								delete(versions, at)
							}
						}
					}
				}
				registry := prometheus.NewPedanticRegistry()
				r.config.Registry = registry
				a := hbase.NewCompacting(r.client, r.config)
				if _, err := a.Page(t.Context(), r.uid, history.Query{Limit: 20}); !errors.Is(err, history.ErrUnavailable) {
					t.Errorf("page: got %v, want ErrUnavailable", err)
				}
				other := r.another()
				whole := other.play(history.Key{UID: r.uid + "x", Object: cells[3].Key.Object}, nil, 0, 7)
				other.store(whole)
				got, err := a.Get(t.Context(), []history.Key{cells[3].Key, whole.Key})
				if err != nil || !errors.Is(got[0].Err, history.ErrUnavailable) || errors.Is(got[0].Err, history.ErrPermanent) || got[1].Err != nil || !history.Same(got[1].Record, whole.Record) {
					t.Errorf("get: got %+v, %v, want that another user is served", got, err)
				}
				if n := counted(t, registry, "playhead_segments_damaged_total"); n != 2 {
					t.Errorf("%v damaged chunks counted, want 2", n)
				}
			})
		}
	}
}

// TestSilentSegment: unavailable segments delay only their own user.
func TestSilentSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCompactTest(t)
		silent := r.plays(20)[3].Key
		r.compact()
		a := hbase.NewCompacting(r.client.(*store).Through(func(ctx context.Context, x *hbasefake.Exchange) {
			for i := range x.Calls {
				row, _, _ := strings.Cut(x.Calls[i].Row, "\x00")
				if x.Calls[i].Table == "history_segments" && row == history.RowKey(silent.UID) {
					<-ctx.Done()
					x.Fail(i, ctx.Err())
					continue
				}
				x.Make(i)
			}
		}), r.config)
		keys := []history.Key{silent}
		for i := range 3 * hbase.UsersAtOnce {
			other := r.another()
			other.uid = fmt.Sprint(r.uid, i)
			keys = append(keys, other.plays(20)[3].Key)
			other.compact()
		}
		got, err := a.Get(t.Context(), keys)
		if err != nil || !errors.Is(got[0].Err, history.ErrUnavailable) {
			t.Fatalf("got %v, %v, want no answer of the silent one", got[0].Err, err)
		}
		for i, e := range got[1:] {
			if e.Err != nil || e.Record == nil {
				t.Errorf("user %d: got %v, %v", i, e.Record, e.Err)
			}
		}
	})
}

func counted(t *testing.T, registry *prometheus.Registry, name string) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestExpiredSegmentsGo lets all records of segments expire.
func TestExpiredSegmentsGo(t *testing.T) {
	r := newCompactTest(t)
	r.plays(20)
	r.compact()
	r.wantForms(1, 19)
	r.clock.pass(history.DefaultRetention * time.Millisecond)
	r.want()
	r.compactTable()
	r.want()
	r.compact()
	r.clock.pass(time.Hour)
	r.compact()
	if live, inSegments, err := r.Forms(t.Context(), r.uid); live != 0 || inSegments != 0 || err != nil {
		t.Errorf("%d live records and %d in parts, %v; want none", live, inSegments, err)
	}
	r.clock.pass(history.DefaultRetention * time.Millisecond) // the last compaction has expired too
	key := history.Key{UID: r.uid, Object: history.Object{ID: "1", Type: 1}}
	if got, err := r.Get(t.Context(), []history.Key{key}); err != nil || got[0].Err != nil || got[0].Record != nil {
		t.Errorf("got %v, %v, want no record", got, err)
	}
}

// TestExpiredInASegment lets some records of a chunk expire, and a tombstone that hid one of them.
func TestExpiredInASegment(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(20)
	r.compact()
	r.wantForms(1, 19)
	gone := history.Event{Key: r.key(3), Kind: history.KindDelete, At: cells[3].Record.Version.Time() + 1}
	r.store(history.Cell{Key: gone.Key, Record: history.Merge(cells[3].Record, gone.Record()).Successor(nil)})
	r.clock.pass(time.Duration(cells[10].Record.Version.Time()-r.clock.now().UnixMilli()+history.DefaultRetention+1) * time.Millisecond)
	r.want(cells[11:]...)
	for i := range 11 {
		got, err := r.Get(t.Context(), []history.Key{r.key(i)})
		if err != nil || got[0].Err != nil || got[0].Record != nil {
			t.Errorf("get %d: %+v, %v, want no record", i, got, err)
		}
	}
}

// TestLongIsToldOf reads a long row.
func TestLongIsToldOf(t *testing.T) {
	r := newCompactTest(t)
	var told []string
	r.config.Long = func(_ context.Context, uid string) error {
		told = append(told, uid)
		return nil
	}
	a := hbase.NewCompacting(r.client, r.config)
	for n, want := range map[int]int{3: 0, 4: 1} {
		told = nil
		r.plays(n)
		if _, err := a.Page(t.Context(), r.uid, history.Query{Limit: 1}); err != nil || len(told) != want {
			t.Errorf("%d records: told of %v, %v", n, told, err)
		}
		r.uid += "x"
	}
}

// TestDelayedLatePut is trap (a) for an old put at the end of its period, applied as late as possible, after a
// compaction.
func TestDelayedLatePut(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(10)
	base := cells[2]
	now := r.clock.now()
	r.clock.pass(now.Truncate(compactMargin).Add(compactMargin - time.Second).Sub(now))
	first := r.play(base.Key, base.Record, 3*time.Hour, 50)
	second := r.play(base.Key, base.Record, 4*time.Hour, 60)
	if first.Record.CellTime != second.Record.CellTime {
		t.Fatalf("contents %+v and %+v, want them under one cell time", first.Record, second.Record)
	}
	r.store(first)
	slow := r.process(func(a *hbase.Archive) error {
		return errors.Join(a.Put(t.Context(), []history.Cell{second})...)
	})
	r.clock.pass(compactMargin - time.Millisecond)
	r.compact()
	r.must(slow.finish())
	r.wantIn(second)
}

// TestCellTimeAhead has a cell far later than its record. It stays live, so a put with its cell time is visible.
func TestCellTimeAhead(t *testing.T) {
	r := newCompactTest(t)
	at := r.clock.now().Add(4 * time.Hour).UnixMilli()
	ahead := func(position int64) history.Cell {
		c := r.play(r.key(0), nil, 0, position)
		c.Record.CellTime = at
		return c
	}
	r.store(ahead(10))
	r.clock.pass(time.Minute)
	r.plays(10)
	r.compact()
	second := ahead(20)
	r.store(second)
	r.wantIn(second)
}

// TestFewMarkers: one marker deletes all that moves, unless an earlier cell stays. That one survives, for each column has
// a marker then.
func TestFewMarkers(t *testing.T) {
	const moved = 9 // of 10: the newest half of the bound stays
	tests := map[string]struct {
		column         string
		value          []byte
		markers, lives int
	}{
		"no earlier cell":      {"", nil, 1, 1},
		"a foreign column":     {"#later", nil, moved, 1},
		"an unreadable record": {"x_1", []byte("?"), moved, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newCompactTest(t)
			s, row := r.client.(*hbasefake.Store), history.RowKey(r.uid)
			cells, in := r.plays(10), hbasefake.Column{Family: "info", Qualifier: test.column}
			if test.column != "" {
				s.Tables["history"][row].Cells[in] = map[uint64][]byte{uint64(cells[0].Record.CellTime): test.value} //nolint:gosec // a time
			}
			r.compact()
			if got := s.Markers("history", row); got != test.markers {
				t.Errorf("%d delete markers, want %d", got, test.markers)
			}
			r.wantForms(test.lives, moved)
			get, err := hrpc.NewGetStr(t.Context(), "history", row, hrpc.Families(map[string][]string{"info": {test.column}}))
			r.must(err)
			if got, err := s.Get(get); test.column != "" && (err != nil || len(got.Cells) != 1) {
				t.Errorf("cells of column %s: %v, %v, want one", test.column, got, err)
			}
		})
	}
}

// TestClockThatIsOff refuses compactions and puts while the clock is wrong.
func TestClockThatIsOff(t *testing.T) {
	r := newCompactTest(t)
	r.plays(10)
	off := errors.New("clock is off")
	r.config.ClockErr = func() error { return off }
	a := hbase.NewCompacting(r.client, r.config)
	c := r.play(r.key(1), nil, 0, 1)
	if err := errors.Join(a.Put(t.Context(), []history.Cell{c})...); !errors.Is(err, off) {
		t.Errorf("put: got %v, want %v", err, off)
	}
	if _, err := a.Compact(t.Context(), r.uid); !errors.Is(err, off) {
		t.Errorf("compact: got %v, want %v", err, off)
	}
	r.must(errors.Join(hbase.Over(r.client, r.config).Put(t.Context(), []history.Cell{c})...))
	r.wantForms(10, 0)
}

// TestChunkThatIsNotReadBack deletes no record of a chunk that was corrupted in transit.
func TestChunkThatIsNotReadBack(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(10)
	compactor := r.compactor()
	for len(r.unlisted()) == 0 {
		compactor.next(made)
	}
	for row, cells := range r.client.(*store).Tables["history_segments"] {
		for _, versions := range cells.Cells {
			for at, b := range versions {
				if strings.Contains(row, "\x00") {
					versions[at] = b[:len(b)-1]
				}
			}
		}
	}
	if err := compactor.finish(); err == nil {
		t.Error("the roll succeeds")
	}
	r.wantForms(10, 0)
	r.want(cells...)
}

// TestDamageBesideAReadableCell: the next content needs a later cell time than a damaged cell, even if another cell
// is readable.
func TestDamageBesideAReadableCell(t *testing.T) {
	r := newCompactTest(t)
	c := r.play(r.key(0), nil, 0, 10)
	r.store(c)
	at := c.Record.CellTime + 1000
	row := r.client.(*store).Tables["history"][history.RowKey(r.uid)]
	row.Cells[column{Family: "late", Qualifier: c.Key.Object.String() + "\x001"}] = map[uint64][]byte{uint64(at): []byte("\xff")}
	got, err := r.Get(t.Context(), []history.Key{c.Key})
	r.must(err)
	if e := got[0]; e.User.CutTime != at || !errors.As(e.Err, new(*history.DamageError)) || !history.Same(e.Record, c.Record) {
		t.Errorf("get: got %+v, want the record, the damage, and the cut time %d", e, at)
	}
	page, err := r.Page(t.Context(), r.uid, history.Query{Limit: 9})
	r.must(err)
	if r.wantPage(page, c); page.User.CutTime != at || len(page.Damaged) != 1 {
		t.Errorf("page: got cut time %d and %d damaged cells, want %d and one", page.User.CutTime, len(page.Damaged), at)
	}
}

// TestDamageBesideASegment: a damaged cell is reported, even if a segment has the object.
func TestDamageBesideASegment(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(10)
	r.compact()
	at := r.clock.now().UnixMilli()
	row := r.client.(*store).Tables["history"][history.RowKey(r.uid)]
	row.Cells[column{Family: "info", Qualifier: cells[2].Key.Object.String()}] = map[uint64][]byte{uint64(at): []byte("\xff")}
	got, err := r.Get(t.Context(), []history.Key{cells[2].Key})
	r.must(err)
	damage, told := errors.AsType[*history.DamageError](got[0].Err)
	if !told || string(damage.Bytes) != "\xff" || got[0].User.CutTime != at || !history.Same(got[0].Record, cells[2].Record) {
		t.Errorf("get: got %+v, want the record of the part, the damage, and the cut time %d", got[0], at)
	}
}
