package rpc_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// export reads the user's whole history, newest first, as an edge does.
func export(t *testing.T, s *rpc.Server, uid string) (all []*historyv1.ImportedRecord) {
	t.Helper()
	req := &historyv1.ListRequest{Uid: uid, Records: true}
	for {
		resp, err := s.List(t.Context(), req)
		if err != nil || len(resp.GetRecords()) != len(resp.GetItems()) {
			t.Fatalf("%d records for %d items: %v", len(resp.GetRecords()), len(resp.GetItems()), err)
		}
		for i, r := range resp.GetRecords() {
			all = append(all, &historyv1.ImportedRecord{Object: resp.GetItems()[i].GetObject(), Record: r})
		}
		if req.Cursor = resp.GetCursor(); !resp.GetHasMore() {
			return all
		}
	}
}

// counts is the number of records per status.
type counts map[historyv1.Status]int

func backupOf(uid string, records ...*historyv1.ImportedRecord) *historyv1.ImportRequest {
	return &historyv1.ImportRequest{Uid: uid, Records: records}
}

func restored(uid string, records ...*historyv1.ImportedRecord) *historyv1.ImportRequest {
	return &historyv1.ImportRequest{Uid: uid, Records: records, Restore: true}
}

func imports(t *testing.T, s *rpc.Server, req *historyv1.ImportRequest) counts {
	t.Helper()
	resp, err := s.Import(t.Context(), req)
	if err != nil {
		t.Fatalf("import: %v", err)
	}
	n := make(counts)
	for _, s := range resp.GetStatuses() {
		n[s]++
	}
	return n
}

func wantCounts(t *testing.T, what string, got, want counts) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// played reports a varied history of ann: completed sessions, watched times, accidental starts, seeks back, and an
// earlier delete.
func played(t *testing.T, s *rpc.Server, objects int) {
	t.Helper()
	for n := range objects {
		id, ago := fmt.Sprintf("ann/%03d", n), int64(n+1)*600_000
		first, second, glance := viewing("s1", id, ago+50_000, 100), beat(id, stop, ago+20_000, 60), beat(id, progress, ago, 3)
		for i, hb := range []*historyv1.Heartbeat{first, second, glance} {
			hb.Session, hb.StartedAtMs, hb.WatchedMs, hb.Meta = fmt.Sprint("s", i), hb.EventTimeMs-[]int64{20_000, 20_000, 5000}[i], int64(i+1)*1000, map[string]string{"title": id, "b": "2", "series": "s", "a": "1", "z": "9"}
		}
		if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", AtMs: start - ago - 90_000, Objects: []*historyv1.Object{{Id: id[4:], Type: 1}}}); err != nil {
			t.Fatal(err)
		}
		apply(t, s, first, second, glance)
	}
}

// items reads the user's items, without the time and etag changes of a restore.
func items(t *testing.T, s *rpc.Server, uid string) (all []*historyv1.Item) {
	t.Helper()
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: uid, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range resp.GetItems() {
		if it.GetPlayedMs() > 0 {
			it.EventTimeMs = it.GetPlayedMs()
		}
		it.PlayedMs, it.Etag = 0, 0
		all = append(all, it)
	}
	return all
}

func wantItems(t *testing.T, what string, got, want []*historyv1.Item) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b *historyv1.Item) bool { return proto.Equal(a, b) }) {
		t.Errorf("%s:\ngot  %v\nwant %v", what, got, want)
	}
}

// ofTheStore lists the record fields that are not exported, with the reason.
var ofTheStore = map[string]string{
	"Revision": "it names the content in one cache",
	"CellTime": "it orders the contents in one archive",
	"Partial":  "it says what one archive may have beside it",
}

// TestEveryFieldIsExported: every visible field of a record survives an export and import, whichever field differs.
func TestEveryFieldIsExported(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	for n, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		r, uid := everything(), fmt.Sprint("ann", n)
		r.Partial, r.Version = true, history.VersionOf(r.Version.Time(), history.RankProgress)
		switch value := reflect.ValueOf(r).Elem().FieldByIndex(f.Index); f.Name {
		case "Unknown":
			r.Unknown += r.Unknown
		case "Restored": // also changes the fields that conflict with a restore
			r.Restored, r.Original, r.Start, r.Version = false, 0, history.Peak{}, history.VersionOf(r.Version.Time(), history.RankStop)
		case "Original", "Version", "ResumePoint": // versions
			r.Original, r.Version, r.ResumePoint.Version = r.Original-4000, r.Version+4, r.ResumePoint.Version-4
		case "RemovedAt":
			r.RemovedAt++
		case "Completions", "Watches": // not older than the unlisted ones
			r.Completions[0].Viewing++
			r.Watches[0].Watched++
		case "Viewings":
			r.Viewings[0].Viewing++
		case "Early":
			r.Early, r.ResumePoint = false, history.ResumePoint{}
		case "State":
			r.State = history.StateFinished
		case "Partial": // must stay partial without a base
		default:
			revise(value)
		}
		object := history.Object{ID: "film", Type: 1}
		key, other := history.Key{UID: uid, Object: object}, history.Key{UID: "other-" + uid, Object: object}
		if out := h.db.Cache().Write(t.Context(), []history.Write{{Key: key, Record: r}})[0]; out.Status != history.Applied {
			t.Fatalf("%s: %+v", f.Name, out)
		}
		all := export(t, s, uid)
		wantCounts(t, f.Name, imports(t, s, backupOf(other.UID, all...)), counts{stored: 1})
		wantCounts(t, f.Name+" again", imports(t, s, backupOf(other.UID, all...)), counts{unchanged: 1})
		got := h.db.Cache().Load(t.Context(), []history.Key{other})[0].Record
		if got == nil {
			t.Errorf("%s: nothing came", f.Name)
			continue
		}
		for _, f2 := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
			came, left := reflect.ValueOf(*got).FieldByIndex(f2.Index), reflect.ValueOf(*r).FieldByIndex(f2.Index)
			if ofTheStore[f2.Name] == "" && !reflect.DeepEqual(came.Interface(), left.Interface()) {
				t.Errorf("%s: %s is %v, want %v", f.Name, f2.Name, came, left)
			}
		}
	}
}

// TestExportUnderAShortDuration: positions beyond a wrong, short duration are exported as stored. They reappear
// once the duration is correct.
func TestExportUnderAShortDuration(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	unknown := func(hb *historyv1.Heartbeat) *historyv1.Heartbeat { hb.DurationMs = 0; return hb }
	far, near, glance := unknown(viewing("s1", "ann/film", 30_000, 80)), unknown(beat("ann/film", stop, 20_000, 70)), beat("ann/film", progress, 10_000, 3)
	far.Kind, near.Session, glance.Session, glance.DurationMs = stop, "s2", "s3", 5000
	apply(t, s, far, near, glance)
	want(t, s, "film", exact{5, 5, 0})
	backup := export(t, s, "ann")
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.clock.Add(10_000)
	wantCounts(t, "restore", imports(t, s, restored("ann", backup...)), counts{stored: 1})
	want(t, s, "film", exact{5, 5, 0})
	h.clock.Add(10_000)
	right := beat("ann/film", progress, -20_000, 3)
	right.Session = "s3"
	apply(t, s, right)
	want(t, s, "film", exact{70, 80, 0})
}

// TestRestore: an import does not bring back a cleared or deleted history; a restore does, in the old order. It
// works repeatedly, and through a service that held the old records.
func TestRestore(t *testing.T) {
	for name, remove := range map[string]func(*testing.T, *rpc.Server){
		"clear": func(t *testing.T, s *rpc.Server) {
			if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
				t.Fatal(err)
			}
		},
		"clear of the type": func(t *testing.T, s *rpc.Server) {
			if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: 1}); err != nil {
				t.Fatal(err)
			}
		},
		"delete": func(t *testing.T, s *rpc.Server) { deleteAll(t, s, 30) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			s, other := h.service(t), h.service(t)
			played(t, s, 30)
			before, backup := items(t, s, "ann"), export(t, s, "ann")
			wantCounts(t, "nothing removed", imports(t, other, backupOf("ann", backup...)), counts{unchanged: 30})
			wantCounts(t, "nothing to restore", imports(t, other, restored("ann", backup...)), counts{unchanged: 30})
			for range 2 {
				h.clock.Add(1000)
				remove(t, s)
				wantCounts(t, "import", imports(t, other, backupOf("ann", backup...)), counts{cleared: 30})
				wantItems(t, "after the import", items(t, s, "ann"), nil)
				wantCounts(t, "restore", imports(t, s, restored("ann", backup...)), counts{stored: 30})
				wantItems(t, "restored", items(t, other, "ann"), before)
				wantCounts(t, "restored again", imports(t, other, restored("ann", backup...)), counts{unchanged: 30})
				wantCounts(t, "imported again", imports(t, other, backupOf("ann", backup...)), counts{stale: 30})
				wantItems(t, "restored again", items(t, s, "ann"), before)
			}
			again := export(t, s, "ann")
			wantCounts(t, "the backup of what came back", imports(t, s, backupOf("bob", again...)), counts{stored: 30})
			wantItems(t, "elsewhere", items(t, other, "bob"), before)
			remove(t, s)
			wantCounts(t, "the backup of what came back, restored", imports(t, s, restored("ann", again...)), counts{stored: 30})
			wantItems(t, "come back twice", items(t, other, "ann"), before)
		})
	}
}

// deleteAll deletes the objects of played.
func deleteAll(t *testing.T, s *rpc.Server, n int) {
	t.Helper()
	req := &historyv1.DeleteRequest{Uid: "ann"}
	for i := range n {
		req.Objects = append(req.Objects, &historyv1.Object{Id: fmt.Sprintf("%03d", i), Type: 1})
	}
	if _, err := s.Delete(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreIntoWhatWentOn: reports after a clear stay the latest, and restored plays are added once.
func TestRestoreIntoWhatWentOn(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, viewing("s1", "ann/7", 9000, 100), viewing("s2", "ann/7", 8000, 100), beat("ann/8", stop, 7000, 50))
	backup := export(t, s, "ann")
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.clock.Add(60_000)
	apply(t, s, viewing("s3", "ann/7", -30_000, 100), beat("ann/7", stop, -40_000, 20))
	for range 2 {
		imports(t, s, restored("ann", backup...))
		want(t, s, "7", exact{20, 100, 3})
		want(t, s, "8", exact{50, 50, 0})
	}
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); !slices.Equal(got, []string{"7", "8"}) {
		t.Errorf("listed %v", got)
	}
}

// TestImportIntoWhatWentOn: importing an old backup changes nothing.
func TestImportIntoWhatWentOn(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	played(t, s, 5)
	backup := export(t, s, "ann")
	apply(t, s, viewing("s9", "ann/001", 1000, 100), beat("ann/002", stop, 900, 70))
	want := items(t, s, "ann")
	for range 2 {
		wantCounts(t, "went on", imports(t, s, backupOf("ann", backup...)), counts{stale: 2, unchanged: 3})
		wantItems(t, "went on", items(t, s, "ann"), want)
	}
}

// TestRestoreWhereTheCacheForgot: deletes and clears that are only in the archive also count.
func TestRestoreWhereTheCacheForgot(t *testing.T) {
	h := smallHouse(t, 10)
	s := h.service(t)
	played(t, s, 3)
	before, backup := items(t, s, "ann"), export(t, s, "ann")
	h.clock.Add(1000)
	deleteAll(t, s, 3)
	waitWarm(t, h)
	archive(t, h, "000", "001", "002")
	h.clock.Add(1000)
	deleteMany(t, s, 20) // exceeds the cache's limit of tombstones
	for i := range 20 {
		archive(t, h, fmt.Sprint("never-", i))
	}
	markClean(t, h)
	for _, e := range h.db.Cache().Load(t.Context(), []history.Key{{UID: "ann", Object: history.Object{ID: "000", Type: 1}}}) {
		if e.Record != nil || e.User.Complete() {
			t.Fatalf("the cache has it all: %+v", e)
		}
	}
	other := h.service(t)
	wantCounts(t, "import", imports(t, other, backupOf("ann", backup...)), counts{cleared: 3})
	wantCounts(t, "restore", imports(t, other, restored("ann", backup...)), counts{stored: 3})
	wantItems(t, "restored", items(t, other, "ann"), before)
}

// TestRestoreOfAColdUser: the archive's clears and deletes are loaded before a restore.
func TestRestoreOfAColdUser(t *testing.T) {
	from := newHouse(t)
	played(t, from.service(t), 3)
	before, backup := items(t, from.service(t), "ann"), export(t, from.service(t), "ann")
	h := newHouse(t)
	gone := history.Event{Key: history.Key{UID: "ann", Object: history.Object{ID: "001", Type: 1}}, Kind: history.KindDelete, At: start - 2000}
	if err := h.db.Archive().PutUser(t.Context(), "ann", history.User{Cleared: map[uint32]int64{1: start - 2000}}); err != nil {
		t.Fatal(err)
	}
	for _, err := range h.db.Archive().Put(t.Context(), []history.Cell{{Key: gone.Key, Record: whole(gone.Record()).Successor(nil)}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	wantCounts(t, "import", imports(t, h.service(t), backupOf("ann", backup...)), counts{cleared: 3})
	wantCounts(t, "restore", imports(t, h.service(t), restored("ann", backup...)), counts{stored: 3})
	wantItems(t, "restored", items(t, h.service(t), "ann"), before)
}

// between calls next before the next write.
type between struct {
	history.Cache
	next func()
}

func (b *between) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	if next := b.next; next != nil {
		b.next = nil
		next()
	}
	return b.Cache.Write(ctx, writes)
}

// TestRestoreBesideAClear: a concurrent clear comes before or after the whole restore.
func TestRestoreBesideAClear(t *testing.T) {
	h := newHouse(t)
	b := &between{Cache: h.db.Cache()}
	s, other := h.service(t, func(c *rpc.Config) { c.Cache = b }), h.service(t)
	played(t, s, 3)
	before, backup := items(t, s, "ann"), export(t, s, "ann")
	clearAll := func() {
		h.clock.Add(5000)
		if _, err := other.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
			t.Error(err)
		}
	}
	clearAll()
	b.next = clearAll
	wantCounts(t, "restore", imports(t, s, restored("ann", backup...)), counts{stored: 3})
	wantItems(t, "restored", items(t, other, "ann"), before)
	b.next = clearAll
	got := imports(t, s, restored("ann", backup...))
	if left := len(items(t, other, "ann")); left != 0 && left != 3 || left == 3 && got[stored] != 3 {
		t.Errorf("%d are left, answered %v", left, got)
	}
}

// TestImportIsJudged: each invalid record is refused by itself, with its field.
func TestImportIsJudged(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	played(t, s, 1)
	good := export(t, s, "ann")[0]
	changed := func(change func(*historyv1.ImportedRecord)) *historyv1.ImportedRecord {
		r := proto.CloneOf(good)
		change(r)
		return r
	}
	for i, tt := range []struct {
		field  string
		status historyv1.Status
		change func(*historyv1.ImportedRecord)
	}{
		{"object.id", invalid, func(r *historyv1.ImportedRecord) { r.Object.Id = "a\nb" }},
		{"object.id", invalid, func(r *historyv1.ImportedRecord) { r.Object = nil }},
		{"state", invalid, func(r *historyv1.ImportedRecord) { r.Record = nil }},
		{"state", invalid, func(r *historyv1.ImportedRecord) { r.Record.State = historyv1.State_STATE_DELETED }},
		{"event_time", invalid, func(r *historyv1.ImportedRecord) { r.Record.Version += 4 * 3_600_000 }},
		{"details.position_ms", invalid, func(r *historyv1.ImportedRecord) {
			r.Record.PositionMs = history.MaxPosition + 1
			r.Record.Peaks = nil
		}},
		{"details", invalid, func(r *historyv1.ImportedRecord) { r.Record.ProtoReflect().SetUnknown([]byte{0xe8, 0x3f}) }},
		{"meta", invalid, func(r *historyv1.ImportedRecord) {
			for i := range 40 {
				r.Record.Meta = append(r.Record.Meta, &historyv1.MetaEntry{Key: fmt.Sprint(39 - i), Value: new("v")})
			}
		}},
		{"meta", invalid, func(r *historyv1.ImportedRecord) {
			r.Record.Meta = append(r.Record.Meta, &historyv1.MetaEntry{Key: "long", Value: new(strings.Repeat("v", history.MaxMetaBytes))})
		}},
		{"", expired, func(r *historyv1.ImportedRecord) {
			r.Record = &historyv1.Record{State: 1, Version: (start - history.DefaultRetention) << 2}
		}},
		{"", stored, func(r *historyv1.ImportedRecord) { r.Object.Id = "good" }},
	} {
		resp, err := s.Import(t.Context(), &historyv1.ImportRequest{Uid: "bob", Records: []*historyv1.ImportedRecord{good, changed(tt.change)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetStatuses(); got[0] != stored && got[0] != unchanged || got[1] != tt.status {
			t.Errorf("%d: got %v, want %v", i, got, tt.status)
		}
		if tt.status == invalid && (len(resp.GetRefusals()) != 1 || resp.GetRefusals()[0].GetField() != tt.field || resp.GetRefusals()[0].GetIndex() != 1) {
			t.Errorf("%d: refusals %v, want %s", i, resp.GetRefusals(), tt.field)
		}
	}
	_, err := s.Import(t.Context(), &historyv1.ImportRequest{Uid: "a\nb"})
	wantCode(t, "no user", err, codes.InvalidArgument)
	_, err = s.Import(t.Context(), &historyv1.ImportRequest{Uid: "ann", Records: make([]*historyv1.ImportedRecord, 1001)})
	wantCode(t, "too many", err, codes.InvalidArgument)
}

// TestImportWhilePaused imports records from before and during a pause.
func TestImportWhilePaused(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	played(t, s, 1)
	backup := export(t, s, "ann")
	h.clock.Add(-600_500)
	record(t, s, "bob", start-600_500)
	h.clock.Store(start)
	wantCounts(t, "from inside the pause", imports(t, s, restored("bob", backup[0])), counts{paused: 1})
	record(t, s, "ann", start)
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, "from before the pause", imports(t, s, restored("ann", backup[0])), counts{stored: 1})

	backup = export(t, s, "ann") // records restored at a time within the next pause
	h.clock.Add(-500)
	record(t, s, "eve", start-500)
	h.clock.Store(start + 10_000)
	wantCounts(t, "restored during the pause, played before it", imports(t, s, backupOf("eve", backup...)), counts{stored: 1})
}

// TestImportInOutage: an import fails if a store is unavailable.
func TestImportInOutage(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	played(t, s, 2)
	backup := export(t, s, "ann")
	away := h.service(t, func(c *rpc.Config) { c.Cache = deaf{h.db.Cache()} })
	resp, err := away.Import(t.Context(), &historyv1.ImportRequest{Uid: "ann", Records: backup})
	wantCode(t, fmt.Sprint(resp), err, codes.Unavailable)
	cold := h.service(t, func(c *rpc.Config) { c.Archive = noArchive{h.db.Archive()} })
	resp, err = cold.Import(t.Context(), &historyv1.ImportRequest{Uid: "cold", Records: backup})
	wantCode(t, fmt.Sprint(resp), err, codes.Unavailable)
}

// deaf is a cache whose reads fail.
type deaf struct{ history.Cache }

func (deaf) Load(_ context.Context, keys []history.Key) []history.Entry {
	return slices.Repeat([]history.Entry{{Err: errDown}}, len(keys))
}

// TestImportTakesNothingAway: both histories have watched an object, and one has deleted it before. The import
// takes nothing from the other history, and brings back nothing deleted.
func TestImportTakesNothingAway(t *testing.T) {
	for _, restore := range []bool{false, true} {
		t.Run(fmt.Sprint("restore ", restore), func(t *testing.T) {
			h := newHouse(t)
			s := h.service(t)
			watched := func(key, session string, ago, ms int64) *historyv1.Heartbeat {
				hb := beat(key, finish, ago, 100)
				hb.Session, hb.StartedAtMs, hb.WatchedMs = session, hb.EventTimeMs-100_000, ms
				return hb
			}
			apply(t, s, watched("ann/film", "a1", 5_000_000, 90_000), watched("ann/film", "a2", 4_000_000, 80_000))
			apply(t, s, watched("bob/film", "b1", 3_000_000, 70_000))
			if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "bob", Objects: []*historyv1.Object{{Id: "film", Type: 1}}, AtMs: start - 2_050_000}); err != nil {
				t.Fatal(err)
			}
			apply(t, s, watched("bob/film", "b2", 2_000_000, 60_000)) // begun before the delete
			if got := point(t, s, "bob", "film"); got.GetPlays() != 1 || got.GetWatchedMs() != 50_000 {
				t.Fatalf("bob has %v", got)
			}
			lines := export(t, s, "bob")
			req := func() *historyv1.ImportRequest {
				req := backupOf("ann", lines...)
				req.Restore = restore
				return req
			}
			wantCounts(t, "import", imports(t, s, req()), counts{stored: 1})
			if got := point(t, s, "ann", "film"); got.GetPlays() != 3 || got.GetWatchedMs() != 220_000 {
				t.Errorf("ann has %v, want 3 plays and 220 s", got)
			}
			wantCounts(t, "again", imports(t, s, req()), counts{unchanged: 1})
			wantCounts(t, "into another history", imports(t, s, &historyv1.ImportRequest{Uid: "eve", Records: lines, Restore: restore}), counts{stored: 1})
			if got := apply(t, s, watched("eve/film", "late", 2_100_000, 60_000)); got[0] != historyv1.Status_STATUS_STALE && got[0] != historyv1.Status_STATUS_CLEARED {
				t.Errorf("what is from before the delete came after the import: %v", got)
			}
			if got := point(t, s, "eve", "film"); got.GetPlays() != 1 {
				t.Errorf("eve has %v, want a play", got)
			}
		})
	}
}

// TestImportAcrossAForeignDelete: a session spans the time of a delete in the imported history. It keeps its full
// watched time, however often the import is repeated.
func TestImportAcrossAForeignDelete(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	played := func(key, session string, seconds, ago, ms int64) *historyv1.Heartbeat {
		hb := beat(key, historyv1.Kind_KIND_PROGRESS, ago, seconds)
		hb.Session, hb.StartedAtMs, hb.WatchedMs, hb.Meta = session, start-8_000_000, ms, map[string]string{"title": "Low Tide"}
		return hb
	}
	apply(t, s, played("bob/film", "b1", 10, 5_000_000, 0))
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "bob", Objects: []*historyv1.Object{{Id: "film", Type: 1}}, AtMs: start - 4_000_000}); err != nil {
		t.Fatal(err)
	}
	apply(t, s, played("bob/film", "b2", 80, 1_000_000, 0))
	lines := export(t, s, "bob")
	first, second := played("ann/film", "a", 20, 7_900_000, 0), played("ann/film", "a", 30, 3_000_000, 4_200_000)
	second.DurationMs, second.Meta = 0, nil
	apply(t, s, first, second)
	for _, want := range []counts{{stored: 1}, {unchanged: 1}, {unchanged: 1}} {
		wantCounts(t, "import", imports(t, s, backupOf("ann", lines...)), want)
		if got := point(t, s, "ann", "film"); got.GetWatchedMs() != 4_200_000 {
			t.Errorf("ann has watched %d ms, want 4,200,000", got.GetWatchedMs())
		}
	}
	late := beat("ann/film", finish, 6_000_000, 100)
	late.Session = "late"
	apply(t, s, late)
	if got := point(t, s, "ann", "film"); got.GetPlays() != 1 {
		t.Errorf("what comes late from before the foreign delete is lost: %v", got)
	}
}

// TestImportAcrossDeletes: an object was deleted here, and later in the imported history. A late report from
// between the deletes still counts.
func TestImportAcrossDeletes(t *testing.T) {
	for _, restore := range []bool{false, true} {
		h := newHouse(t)
		s := h.service(t)
		for uid, ago := range map[string]int64{"ann": 5_000_000, "bob": 3_000_000} {
			apply(t, s, beat(uid+"/film", stop, 6_000_000, 10))
			if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: uid, Objects: []*historyv1.Object{{Id: "film", Type: 1}}, AtMs: start - ago}); err != nil {
				t.Fatal(err)
			}
		}
		apply(t, s, beat("bob/film", stop, 1_000_000, 20))
		req := backupOf("ann", export(t, s, "bob")...)
		req.Restore = restore
		wantCounts(t, "import", imports(t, s, req), counts{stored: 1})
		late := beat("ann/film", finish, 4_000_000, 100)
		late.Session = "late"
		apply(t, s, late)
		want(t, s, "film", exact{20, 100, 1})
		wantCounts(t, "again", imports(t, s, req), counts{unchanged: 1})
	}
}

// TestRestoreOfWhatIsLeft: restoring a record that continues after a clear only restores the time before it. A late
// report from just after the clear still counts.
func TestRestoreOfWhatIsLeft(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, viewing("s1", "bob/film", 5_000_000, 100), beat("bob/film", stop, 2_000_000, 20))
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 3_000_000}); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, "restore", imports(t, s, restored("ann", export(t, s, "bob")...)), counts{stored: 1})
	want(t, s, "film", exact{20, 100, 1})
	apply(t, s, viewing("s2", "ann/film", 3_000_000-1000, 100))
	want(t, s, "film", exact{20, 100, 2})
}

// TestImportOfWhatWasRestoredElsewhere: a record restored in another history keeps its original age in an import.
// It is not newer than later local reports, and a local removal stays.
func TestImportOfWhatWasRestoredElsewhere(t *testing.T) {
	clearUntil := func(t *testing.T, s *rpc.Server, uid string, ago int64) {
		t.Helper()
		if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: uid, UntilMs: start - ago}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		act  func(*testing.T, *rpc.Server)
		want counts
		at   int64 // final position, 0 for no record
	}{
		"newer here":   {func(t *testing.T, s *rpc.Server) { apply(t, s, beat("bob/film", stop, 2_000_000, 40)) }, counts{stored: 1}, 40_000},
		"cleared here": {func(t *testing.T, s *rpc.Server) { clearUntil(t, s, "bob", 3_000_000) }, counts{cleared: 1}, 0},
		"cleared here, newer since": {func(t *testing.T, s *rpc.Server) {
			clearUntil(t, s, "bob", 3_000_000)
			apply(t, s, beat("bob/film", stop, 2_000_000, 40))
		}, counts{cleared: 1}, 40_000},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			s := h.service(t)
			apply(t, s, beat("ann/film", stop, 5_000_000, 70))
			backup := export(t, s, "ann")
			clearUntil(t, s, "ann", 1000)
			wantCounts(t, "restore", imports(t, s, restored("ann", backup...)), counts{stored: 1})
			lines := export(t, s, "ann")
			tt.act(t, s)
			wantCounts(t, "import", imports(t, s, backupOf("bob", lines...)), tt.want)
			if got := point(t, s, "bob", "film"); got.GetPositionMs() != tt.at {
				t.Errorf("bob has %v, want it at %d", got, tt.at)
			}
			if tt.at != 0 {
				return
			}
			wantCounts(t, "restore here", imports(t, s, restored("bob", lines...)), counts{stored: 1})
			if got := point(t, s, "bob", "film"); got.GetPositionMs() != 70_000 || got.GetPlayedMs() != start-5_000_000 {
				t.Errorf("bob has %v", got)
			}
		})
	}
}

// TestRestoreOfAViewingThatGoesOn: a session spans a delete and a restore. It adds nothing after a pause of
// recording.
func TestRestoreOfAViewingThatGoesOn(t *testing.T) {
	for _, off := range []bool{false, true} {
		h := newHouse(t)
		s := h.service(t)
		said := int64(60_000)
		play := func(ms int64) {
			t.Helper()
			h.clock.Add(ms)
			said += ms
			hb := beat("ann/film", historyv1.Kind_KIND_PROGRESS, start-h.clock.Load(), 50)
			hb.StartedAtMs, hb.WatchedMs = start-60_000, said
			if got := apply(t, s, hb); got[0] != historyv1.Status_STATUS_STORED {
				t.Fatalf("got %v", got)
			}
		}
		record := func(on bool) {
			t.Helper()
			if _, err := s.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: "ann", Recording: on}); err != nil {
				t.Fatal(err)
			}
		}
		play(300)
		lines := export(t, s, "ann")
		h.clock.Add(10)
		if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "film", Type: 1}}}); err != nil {
			t.Fatal(err)
		}
		h.clock.Add(10)
		said += 20
		if off {
			record(false)
			h.clock.Add(2000)
			record(true)
		}
		play(300)
		wantCounts(t, "restore", imports(t, s, restored("ann", lines...)), counts{stored: 1})
		wantCounts(t, "restore again", imports(t, s, restored("ann", lines...)), counts{stale: 1})
		for range 3 {
			play(1000)
			want := said
			if off {
				want = 60_300
			}
			if got := point(t, s, "ann", "film").GetWatchedMs(); got != want {
				t.Errorf("off %t: %d ms were watched, want %d", off, got, want)
			}
		}
	}
}

// TestRestoreOfWhatWasCutInTwo: a restore brings back a session's cleared part, even while the session continues.
func TestRestoreOfWhatWasCutInTwo(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	played := func(ms int64) {
		t.Helper()
		hb := beat("ann/film", historyv1.Kind_KIND_PROGRESS, 60_000-ms, 50)
		hb.StartedAtMs, hb.WatchedMs = start-60_000, ms
		apply(t, s, hb)
	}
	wants := func(want int64) {
		t.Helper()
		if got := point(t, s, "ann", "film").GetWatchedMs(); got != want {
			t.Errorf("%d ms were watched, want %d", got, want)
		}
	}
	played(50_000)
	lines := export(t, s, "ann")
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 40_000}); err != nil {
		t.Fatal(err)
	}
	wants(30_000)
	wantCounts(t, "restore", imports(t, s, restored("ann", lines...)), counts{stored: 1})
	wants(50_000)
	played(60_000)
	wants(60_000)
}

// TestImportOfWhatWasRestored: a restored record is imported whole, whatever the other history has removed and
// played.
func TestImportOfWhatWasRestored(t *testing.T) {
	for _, own := range []int64{0, 4_000_000, 2_000_000} { // ago, after the own delete
		h := newHouse(t)
		s := h.service(t)
		remove := func(uid string, ago int64) {
			t.Helper()
			if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: uid, AtMs: start - ago, Objects: []*historyv1.Object{{Id: "film", Type: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		apply(t, s, beat("bob/film", finish, 6_000_000, 100))
		lines := export(t, s, "bob")
		remove("bob", 3_000_000)
		wantCounts(t, "bob restores", imports(t, s, restored("bob", lines...)), counts{stored: 1})
		lines = export(t, s, "bob")
		apply(t, s, beat("ann/film", finish, 7_000_000, 100))
		remove("ann", 5_000_000)
		plays := uint64(1)
		if own > 0 {
			hb := beat("ann/film", finish, own, 100)
			hb.Session = "own"
			apply(t, s, hb)
			plays++
		}
		wantCounts(t, "ann imports", imports(t, s, restored("ann", lines...)), counts{stored: 1})
		if got := point(t, s, "ann", "film").GetPlays(); got != plays {
			t.Errorf("own %d ago: %d plays, want %d", own, got, plays)
		}
		again := export(t, s, "ann")
		wantCounts(t, "into an empty one", imports(t, s, restored("eve", again...)), counts{stored: 1})
		if got := point(t, s, "eve", "film").GetPlays(); got != plays {
			t.Errorf("own %d ago: eve has %d plays, want %d", own, got, plays)
		}
	}
}
