package pebble_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/segment"
)

// compacted is an archive that compacts users after every write.
type compacted struct {
	*pebble.Archive
	t testing.TB
}

func (r compacted) Put(ctx context.Context, cells []history.Cell) []error {
	errs := r.Archive.Put(ctx, cells)
	uids := make(map[string]bool)
	for _, c := range cells {
		if !uids[c.Key.UID] && len(uids) < 10 { // at most ten users
			uids[c.Key.UID] = true
			r.compact(ctx, c.Key.UID)
		}
	}
	return errs
}

func (r compacted) PutUser(ctx context.Context, uid string, u history.User) error {
	err := r.Archive.PutUser(ctx, uid, u)
	r.compact(ctx, uid)
	return err
}

// compact compacts until the live segment stops shrinking. Concurrent changes may cause conflicts.
func (r compacted) compact(ctx context.Context, uid string) {
	for range 100 {
		n, err := r.Compact(ctx, uid)
		if err != nil && !errors.Is(err, history.ErrConflict) {
			r.t.Errorf("compact %s: %v", uid, err)
		}
		if err == nil && n == 0 {
			return
		}
	}
}

// TestArchiveInSegments runs the contract suite of the archive with nearly all records in segments.
func TestArchiveInSegments(t *testing.T) {
	for name, step := range map[string]int{"in one go": 100_000, "in steps": 700} {
		if testing.Short() && step > 700 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			historytest.ArchiveWithSegments(t, func(t *testing.T) history.Archive {
				return compacted{open(t, t.TempDir(), pebble.Config{}.Compacting(step)).Archive(), t}
			})
		})
	}
}

// longUser puts n viewings of a user, a second apart, and compacts them.
func longUser(t testing.TB, a *pebble.Archive, n int) (uid string, cells []history.Cell) {
	t.Helper()
	uid, start := viewing(1, 0).UID, now()
	for i := range n {
		r := beat(start - int64(n-i)*1000)
		r.Session = fmt.Sprintf("%016x", i)
		cells = append(cells, history.Cell{Key: viewing(1, i), Record: r})
	}
	if errs := (compacted{a, t}).Put(t.Context(), cells); errs != nil {
		t.Fatal(errs)
	}
	return uid, cells
}

// forms counts a user's live records and records in segments.
type forms struct{ live, segments int }

func wantForms(t *testing.T, a *pebble.Archive, uid string, want forms) {
	t.Helper()
	if live, segments := a.Forms(uid); live != want.live || segments != want.segments {
		t.Errorf("%d live records and %d in parts, want %+v", live, segments, want)
	}
}

// TestCompactKeepsTheNewest compacts only a user beyond the bound.
func TestCompactKeepsTheNewest(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{CompactAbove: 100, CompactAfter: time.Millisecond})
	uid, cells := longUser(t, db.Archive(), 100)
	wantForms(t, db.Archive(), uid, forms{100, 0})
	if errs := (compacted{db.Archive(), t}).Put(t.Context(), []history.Cell{{Key: viewing(1, 100), Record: beat(now() - 500)}}); errs != nil {
		t.Fatal(errs)
	}
	wantForms(t, db.Archive(), uid, forms{50, 51})

	// Readers see a rewatched record once. Ten of the 60 leave the live segment and replace their objects' older
	// copies in segments.
	again := []history.Cell{}
	for i, c := range cells[:60] {
		again = append(again, history.Cell{Key: c.Key, Record: beat(now() - 200 + int64(i))})
	}
	if errs := (compacted{db.Archive(), t}).Put(t.Context(), again); errs != nil {
		t.Fatal(errs)
	}
	wantForms(t, db.Archive(), uid, forms{50, 51 + 41})
	page, err := db.Archive().Page(t.Context(), uid, history.Query{Limit: 1000})
	if err != nil || len(page.Items) != 101 {
		t.Errorf("%d records, %v; want each of 101 once", len(page.Items), err)
	}
}

// TestCompactLeavesTheYoung compacts no record with an event time or a cell time younger than CompactAfter.
func TestCompactLeavesTheYoung(t *testing.T) {
	a := open(t, t.TempDir(), pebble.Config{CompactAbove: 2}).Archive()
	old := now() - 25*time.Hour.Milliseconds()
	for i, ages := range [][2]int64{{old, old}, {old - 1, now()}, {now(), now()}, {old - 2, old}, {old - 3, old}} {
		r := beat(ages[0])
		r.CellTime = ages[1]
		if errs := a.Put(t.Context(), []history.Cell{{Key: viewing(1, i), Record: r}}); errs != nil {
			t.Fatal(errs)
		}
	}
	if _, err := a.Compact(t.Context(), viewing(1, 0).UID); err != nil {
		t.Fatal(err)
	}
	wantForms(t, a, viewing(1, 0).UID, forms{2, 3})
}

// TestDeletedBytesAreGone looks for deleted and cleared texts in the bytes of the segments.
func TestDeletedBytesAreGone(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{}.Compacting(1000))
	a := compacted{db.Archive(), t}
	at := now() - 100_000
	var cells []history.Cell
	for i := range 20 {
		r := beat(at + int64(i)*1000)
		r.Device = fmt.Sprintf("device-%02d", i)
		cells = append(cells, history.Cell{Key: viewing(1, i), Record: r})
	}
	uid := cells[0].Key.UID
	has := func(want bool, i int) {
		t.Helper()
		if got := bytes.Contains(db.SegmentBytes(uid), fmt.Appendf(nil, "device-%02d", i)); got != want {
			t.Errorf("device of record %d in the parts: %t, want %t", i, got, want)
		}
	}
	a.Put(t.Context(), cells)
	has(true, 7)
	gone := history.Event{Kind: history.KindDelete, At: now()}
	a.Put(t.Context(), []history.Cell{{Key: cells[7].Key, Record: history.Merge(cells[7].Record, gone.Record()).Successor(nil)}})
	has(false, 7)
	has(true, 3)
	has(true, 12)
	if err := a.PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{0: at + 5000}}); err != nil {
		t.Fatal(err)
	}
	has(false, 3)
	has(true, 12)
	if err := a.PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{0: now()}}); err != nil {
		t.Fatal(err)
	}
	if b := db.SegmentBytes(uid); len(b) > 0 {
		t.Errorf("%d bytes of segments after everything was cleared", len(b))
	}
}

// TestDeletedCopiesAreGone deletes an object with several compacted copies: no chunk keeps any of them. The
// delete itself may be compacted or followed by a viewing.
func TestDeletedCopiesAreGone(t *testing.T) {
	for name, after := range map[string]bool{"deleted": false, "watched after it": true} {
		t.Run(name, func(t *testing.T) {
			db := open(t, t.TempDir(), pebble.Config{}.Compacting(1000))
			a, at, uid := compacted{db.Archive(), t}, now()-100_000, viewing(1, 0).UID
			put := func(i int, later int64, device string) *history.Record {
				r := beat(at + later)
				r.Device = device
				a.Archive.Put(t.Context(), []history.Cell{{Key: viewing(1, i), Record: r}})
				return r
			}
			for i := range 20 {
				put(i, int64(i), fmt.Sprintf("device-%02d", i))
			}
			a.compact(t.Context(), uid)
			last := put(7, 1000, "device-again")
			for i := range 4 {
				put(50+i, 2000+int64(i), "other")
			}
			a.compact(t.Context(), uid)
			e := history.Event{Kind: history.KindDelete, At: at + 3000}
			gone := history.Merge(last, e.Record()).Successor(nil)
			if after {
				gone = history.Merge(gone, beat(at+3001)).Successor(nil)
			}
			a.Put(t.Context(), []history.Cell{{Key: viewing(1, 7), Record: gone}})
			for _, text := range []string{"device-07", "device-again"} {
				if bytes.Contains(db.SegmentBytes(uid), []byte(text)) {
					t.Errorf("%s is in the parts", text)
				}
			}
			if !bytes.Contains(db.SegmentBytes(uid), []byte("device-08")) {
				t.Error("what was not deleted is not in the parts")
			}
		})
	}
}

// TestClearedBeforeTheCompact puts records that are already cleared: compaction drops them and keeps their cell
// time as the cut time.
func TestClearedBeforeTheCompact(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{}.Compacting(1000))
	at, uid := now()-100_000, viewing(1, 0).UID
	a := compacted{db.Archive(), t}
	if err := a.PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{0: at + 10}}); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		r := beat(at + int64(i))
		r.CellTime = at + 500 - int64(i)
		a.Archive.Put(t.Context(), []history.Cell{{Key: viewing(1, i), Record: r}})
	}
	a.compact(t.Context(), uid)
	wantForms(t, db.Archive(), uid, forms{1, 0})
	got, err := a.Get(t.Context(), []history.Key{viewing(1, 0)})
	if err != nil || got[0].User.CutTime != at+500 {
		t.Errorf("got %+v, %v; want the cut time %d", got[0].User, err, at+500)
	}
}

// TestDamagedChunk reads around a damaged or missing chunk. Reads of its records fail and are counted; no page
// is silently short.
func TestDamagedChunk(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"gone":    func([]byte) []byte { return nil },
		"cut off": func(b []byte) []byte { return b[:len(b)-1] },
		"changed": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			registry, dir := prometheus.NewPedanticRegistry(), t.TempDir()
			db := open(t, dir, pebble.Config{}.Compacting(10_000))
			uid, cells := longUser(t, db.Archive(), 4500)
			db.SpoilChunk(uid, 0, spoil)
			closed(t, db)
			db = open(t, dir, pebble.Config{Registry: registry}.Compacting(10_000))
			a := db.Archive()
			if i, err := a.Inspect(t.Context(), uid, true); err != nil || len(i.Wrong) != 1 || !errors.Is(i.Wrong[0], segment.ErrCorrupt) {
				t.Errorf("inspect: got %v, %v; want one damaged chunk", i.Wrong, err)
			}
			_, err := a.Page(t.Context(), uid, history.Query{Limit: 20})
			if !errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), "chunk") {
				t.Errorf("page: got %v, want an error that names the chunk", err)
			}
			if _, err := a.Get(t.Context(), []history.Key{cells[4400].Key}); !errors.Is(err, history.ErrUnavailable) {
				t.Errorf("get: got %v, want ErrUnavailable", err)
			}
			page, err := a.Page(t.Context(), uid, history.Query{Limit: 20, Until: cells[19].Record.Version.Time()})
			if err != nil || len(page.Items) != 20 || page.More {
				t.Errorf("page of another chunk: got %d items, %v, %v", len(page.Items), page.More, err)
			}
			if n := counted(t, registry, "playhead_segments_damaged_total"); n != 2 {
				t.Errorf("%v damaged chunks counted, want 2", n)
			}

			// A clear of everything removes it.
			must(t, a.PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{0: now()}}))
			if page, err := a.Page(t.Context(), uid, history.Query{Limit: 20}); err != nil || len(page.Items) != 0 {
				t.Errorf("page after a clear: got %d items, %v", len(page.Items), err)
			}
			if _, err := a.Compact(t.Context(), uid); err != nil {
				t.Errorf("roll after a clear: %v", err)
			}
			wantForms(t, a, uid, forms{0, 0})
		})
	}
}

// TestRun: a page of a long live segment and the sweep each schedule a compaction.
func TestRun(t *testing.T) {
	// The compressor is global to the process: start it outside the synctest bubble.
	longUser(t, open(t, t.TempDir(), pebble.Config{}.Compacting(1000)).Archive(), 100)
	for name, look := range map[string]func(db *pebble.DB, uid string){
		"page": func(db *pebble.DB, uid string) {
			_, err := db.Archive().Page(t.Context(), uid, history.Query{Limit: 1})
			must(t, err)
		},
		"sweep": func(*pebble.DB, string) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := open(t, "store", pebble.Config{CompactAbove: 50, CompactAfter: time.Hour}.On(vfs.NewMem()))
				uid, other := viewing(1, 0).UID, viewing(2, 0).UID
				for i := range 60 {
					r := beat(now() - int64(i+1)*1000)
					a := db.Archive()
					errs := a.Put(t.Context(), []history.Cell{{Key: viewing(1, i), Record: r}, {Key: viewing(2, i%50), Record: r}})
					if errs != nil {
						t.Fatal(errs)
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- db.Run(ctx) }()
				time.Sleep(2 * time.Hour)
				look(db, uid)
				time.Sleep(time.Minute)
				wantForms(t, db.Archive(), uid, forms{25, 35})
				wantForms(t, db.Archive(), other, forms{50, 0})
				stop()
				must(t, <-ended)
				closed(t, db)
			})
		})
	}
}

// TestCompactOnAFullDisk compacts without room for the journal, which ends the store, or with little room. A
// restart reads all records.
func TestCompactOnAFullDisk(t *testing.T) {
	for name, fill := range map[string]func(d *disk){
		"no room": func(d *disk) { d.fill(".log") }, "little room": func(d *disk) { d.free.Store(20 << 20) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			db, err := pebble.Open("store", pebble.Config{}.Compacting(1000).On(d))
			must(t, err)
			at, uid := now()-100_000, viewing(1, 0).UID
			var cells []history.Cell
			for i := range 100 {
				cells = append(cells, history.Cell{Key: viewing(1, i), Record: beat(at + int64(i))})
			}
			if errs := db.Archive().Put(t.Context(), cells); errs != nil {
				t.Fatal(errs)
			}
			fill(d)
			_, err = db.Archive().Compact(t.Context(), uid)
			if name == "no room" { // a compaction is not synced: the next write reports the error
				err = errors.Join(db.Archive().Put(t.Context(), cells[:1])...)
			}
			if !errors.Is(err, history.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable for want of room", err)
			}
			all := func(db *pebble.DB) {
				t.Helper()
				page, err := db.Archive().Page(t.Context(), uid, history.Query{Limit: 1000})
				if err != nil || len(page.Items) != len(cells) {
					t.Errorf("%d records, %v; want %d", len(page.Items), err, len(cells))
				}
			}
			if name == "little room" {
				all(db)
			}
			_ = db.Close()
			d.clean()
			all(open(t, "store", pebble.Config{}.Compacting(1000).On(d.mem.CrashClone(vfs.CrashCloneCfg{}))))
		})
	}
}

// TestExpiredChunksGo lets the records of segments expire.
func TestExpiredChunksGo(t *testing.T) {
	clock := time.Now()
	db := open(t, t.TempDir(), pebble.Config{Now: func() time.Time { return clock }}.Compacting(10_000))
	uid, _ := longUser(t, db.Archive(), 100)
	clock = clock.Add(history.DefaultRetention*time.Millisecond + time.Minute)
	if page, err := db.Archive().Page(t.Context(), uid, history.Query{Limit: 10}); err != nil || len(page.Items) != 0 {
		t.Errorf("%d records, %v; want none after their TTL", len(page.Items), err)
	}
	compacted{db.Archive(), t}.compact(t.Context(), uid)
	if b := db.SegmentBytes(uid); len(b) > 0 {
		t.Errorf("%d bytes of segments after the TTL of all", len(b))
	}
}

// TestPromoteBesideSegments promotes records whose objects are in segments: later ones and new objects are
// promoted, an earlier one is left to its readers.
func TestPromoteBesideSegments(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("opened again %v", again), func(t *testing.T) { promoteBesideSegments(t, again) })
	}
}

func promoteBesideSegments(t *testing.T, again bool) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{}.Compacting(1000))
	uid, cells := longUser(t, db.Archive(), 50)
	if again {
		closed(t, db)
		db = open(t, dir, pebble.Config{}.Compacting(1000))
	}
	must(t, db.Cache().Warm(t.Context(), uid, history.WarmSet{}))
	earlier, later, other := cells[10].Key, cells[20].Key, viewing(1, 1000)
	contents := map[history.Key]*history.Record{earlier: beat(cells[10].Record.CellTime - 1), later: beat(now()), other: beat(cells[10].Record.CellTime - 1)}
	keys := []history.Key{earlier, later, other}
	for _, k := range keys {
		contents[k].Partial = false
		mustApply(t, db.Cache(), []history.Write{{Key: k, Record: contents[k], BeginsHold: true}})
	}
	put, left, err := db.Promote(t.Context(), keys)
	if err != nil || put != 2 || len(left) != 1 || left[0] != earlier {
		t.Errorf("carried %d, left %v, %v; want %v left", put, left, err, earlier)
	}
	entries, err := db.Archive().Get(t.Context(), keys)
	must(t, err)
	for i, want := range []*history.Record{cells[10].Record, contents[later], contents[other]} {
		if !history.Same(entries[i].Record, want) {
			t.Errorf("%s: got %+v, want %+v", keys[i], entries[i].Record, want)
		}
	}
}
