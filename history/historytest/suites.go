// Package historytest has the contract suites of package history, which every adapter of a store or queue passes.
package historytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// CacheStore is a cache with its dirty marks.
type CacheStore interface {
	history.Cache
	history.Ledger
}

// Cache tests the contracts of [history.Cache] and [history.Ledger]. open returns a cache that trims to keep
// records per user, and closes it in a cleanup of its own t. Caches may share data: the suite uses new users and
// removes their records and marks.
func Cache(t *testing.T, open func(t *testing.T, keep int) CacheStore) {
	for _, part := range []struct {
		name string
		test func(*cacheCase)
	}{
		{"ApplyFirst", applyFirst},
		{"ApplyOnBase", applyOnBase},
		{"ApplyStale", applyStale},
		{"ApplyOnGoneBase", applyGone},
		{"ApplyWithoutBase", applyUnbased},
		{"ApplyUnderClear", applyCleared},
		{"ApplyWholeUnderFloor", applyWhole},
		{"ApplyLateEvent", applyLate},
		{"ApplyMany", applyMany},
		{"ApplyConcurrently", applyConcurrently},
		{"MarkForced", markForced},
		{"MarkKept", markKept},
		{"MarkAfterConflict", markConflict},
		{"MarkStands", markStands},
		{"LegalNames", legalObjects},
		{"NeighbouringNames", neighbouringNames},
		{"LoadInOrder", loadInOrder},
		{"LoadUser", loadUser},
		{"LoadWhileWarming", loadWhileWarming},
		{"LoadWhileTrimming", loadWhileTrimming},
		{"Empty", emptyInput},
		{"ListOrder", listOrder},
		{"ListFilters", listFilters},
		{"ListHidden", listHidden},
		{"ListCleared", listCleared},
		{"ListRewritten", listRewritten},
		{"ListWhileWarming", listWhileWarming},
		{"ListWhileTrimming", listWhileTrimming},
		{"PageOneMillisecond", pageTies},
		{"PageFiltered", pageFiltered},
		{"PageHoles", pageHoles},
		{"PageWhileWriting", pageWhileWriting},
		{"ClearAll", clearAll},
		{"ClearOneType", clearType},
		{"ClearOlder", clearOlder},
		{"ClearTwice", clearTwice},
		{"ClearHeldBase", clearHeldBase},
		{"ClearMarks", clearMarks},
		{"ClearCutTime", clearCutTime},
		{"ClearLong", clearLong},
		{"PauseSwitched", pauseSwitched},
		{"PauseTwice", pauseTwice},
		{"PauseHeldBase", pauseHeldBase},
		{"PauseLate", pauseLate},
		{"PauseWithoutBase", pauseUnbased},
		{"PauseWhileWriting", pauseRaced},
		{"PauseAndClear", pauseCleared},
		{"PauseFromTheArchive", pauseWarm},
		{"PauseFromTheArchiveSettled", pauseWarmClean},
		{"PauseOlderInTheArchive", pauseWarmOlder},
		{"PauseOfOneMomentInTheArchive", pauseWarmAlike},
		{"Warm", warmCold},
		{"WarmEmpty", warmEmpty},
		{"WarmTwice", warmTwice},
		{"WarmAll", warmAll},
		{"WarmWritten", warmWritten},
		{"WarmSettled", warmClean},
		{"WarmCleared", warmCleared},
		{"WarmHeld", warmHeld},
		{"WarmKnown", warmKnown},
		{"WarmCutTime", warmCutTime},
		{"WarmHidden", warmHidden},
		{"WarmLong", warmLong},
		{"WarmTrimmed", warmTrimmed},
		{"WarmOlder", warmOlder},
		{"Backlog", backlog},
		{"OverdueByAge", overdueAge},
		{"OverdueInOrder", overdueOrder},
		{"OverdueLimit", overdueLimit},
		{"Settle", markCleanStanding},
		{"SettleOther", markCleanOther},
		{"SettleAbsent", markCleanAbsent},
		{"SettleAgain", markCleanAgain},
		{"SettleUser", markCleanUser},
		{"SettleBesideWrites", markCleanBesideWrites},
		{"SettleBesidePause", markCleanBesidePause},
		{"SettleMany", markCleanMany},
		{"Trim", trimOldest},
		{"TrimDirty", trimDirty},
		{"TrimAllDirty", trimAllDirty},
		{"TrimTombstones", trimTombstones},
		{"TrimManyTombstones", trimManyTombstones},
		{"TrimTies", trimTies},
		{"TrimFew", trimFew},
		{"TrimAgain", trimAgain},
		{"TrimCold", trimCold},
		{"ChangesBegin", changesBegin},
		{"ChangesWritten", changesWritten},
		{"ChangesMany", changesMany},
		{"ChangesEnd", changesEnd},
		{"ChangesTrim", changesTrim},
		{"ChangesFollowed", changesFollowed},
		{"ChangesRaced", changesRaced},
		{"ChangesCleared", changesCleared},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.test(&cacheCase{T: t, CacheStore: open(t, kept), start: hourAgo()})
		})
	}
}

// Archive tests the contract of [history.Archive]. Each part opens a store; open closes it in a cleanup of its
// own t. Stores may share data: the suite uses new users.
func Archive(t *testing.T, open func(t *testing.T) history.Archive) {
	testArchive(t, archive{}, open)
}

// ArchiveWithSegments is Archive for a store that compacts records into segments during use, which changes
// their revisions.
func ArchiveWithSegments(t *testing.T, open func(t *testing.T) history.Archive) {
	testArchive(t, archive{renews: true}, open)
}

func testArchive(t *testing.T, a archive, open func(t *testing.T) history.Archive) {
	for _, part := range []struct {
		name string
		test func(a archive)
	}{
		{"RoundTrip", archive.roundTrip},
		{"NewestWins", archive.newestWins},
		{"EqualCellTimes", archive.equalTime},
		{"LateContents", archive.lateContents},
		{"CellTimeBeforeEventTime", archive.cellTimeFirst},
		{"OneKeyTwiceInOneCall", archive.twiceInOneCall},
		{"Tombstones", archive.tombstones},
		{"ManyUsers", archive.manyUsers},
		{"OneUser", archive.oneUser},
		{"Missing", archive.missing},
		{"Empty", archive.empty},
		{"LegalNames", archive.legalNames},
		{"NeighbouringNames", archive.neighbouringNames},
		{"LongRow", archive.longRow},
		{"Expired", archive.expired},
		{"ClearAll", archive.clearAll},
		{"ClearOneType", archive.clearOneType},
		{"ClearSeveral", archive.clearSeveral},
		{"ClearInAnyOrder", archive.clearInAnyOrder},
		{"ClearBeforeAnything", archive.clearBeforeAnything},
		{"ClearThenLatePut", archive.clearThenLatePut},
		{"ClearCutsTheFold", archive.clearCutsTheFold},
		{"ClearLongRow", archive.clearLongRow},
		{"ClearLongAgo", archive.clearLongAgo},
		{"ClearHidesLateCells", archive.clearHidesLateCells},
		{"ClearMarksOfAKey", archive.clearMarksOfAKey},
		{"Pauses", archive.pauses},
		{"PausesOfOneMoment", archive.pausesOfOneMoment},
		{"PauseForever", archive.pauseForever},
		{"Pages", archive.pages},
		{"PagesOfAChangingRow", archive.changingPages},
		{"PagesOfManyUsers", archive.pagesOfMany},
		{"Concurrent", archive.concurrent},
		{"ConcurrentClear", archive.concurrentClear},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(archive{t, open(t), a.renews}) })
	}
}

// CacheDamage tests that a damaged record affects no other and does not count as absent. spoil stores bytes as
// the record of an existing key, bypassing the cache.
func CacheDamage(t *testing.T, store CacheStore, spoil func(k history.Key, value []byte)) {
	for name, value := range map[string][]byte{
		"garbage": []byte("\xff\xff"), "no event": {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, "torn": {0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x42, 100},
	} {
		t.Run(name, func(t *testing.T) {
			(&cacheCase{T: t, CacheStore: store, start: hourAgo()}).damage(spoil, value)
		})
	}
}

func (c *cacheCase) damage(spoil func(k history.Key, value []byte), value []byte) {
	uid := c.user()
	spoiled := key(uid, 1, 2)
	newest, before := c.item(key(uid, 1, 3), c.record(3)), c.put(spoiled, c.record(2))
	oldest := c.item(key(uid, 1, 1), c.record(1))
	spoil(spoiled, value)

	c.holds(key(uid, 1, 3), newest.Record)
	e := c.load(spoiled)
	if !saysNothing(e.Record) {
		c.Fatalf("Load: got %+v, want a partial record without a state", e.Record)
	}
	for limit := 1; limit <= 3; limit++ {
		c.damagedPages(uid, limit, spoiled.Object, newest, oldest)
	}
	if page := c.list(uid, history.Query{Limit: 3, Type: 2}); len(page.Items) != 0 {
		c.Errorf("list of another type: got %v, want none", objects(page.Items))
	}

	w := history.Write{Key: spoiled, Record: history.Merge(e.Record, before).Successor(nil), Base: e.Record.Revision}
	c.applied(w)
	c.lists(uid, history.Query{Limit: 3}, newest, history.Item{Object: spoiled.Object, Record: w.Record}, oldest)
}

// damagedPages reads all pages: each object is on one, including the damaged one.
func (c *cacheCase) damagedPages(uid string, limit int, spoiled history.Object, others ...history.Item) {
	c.Helper()
	var all []history.Item
	for q := (history.Query{Limit: limit}); ; {
		page := c.list(uid, q)
		all = append(all, page.Items...)
		if !page.More || len(all) > 3 {
			break
		}
		q.After = cursor(all[len(all)-1])
	}
	var sound, damaged []history.Item
	for _, item := range all {
		if item.Object == spoiled {
			damaged = append(damaged, item)
		} else {
			sound = append(sound, item)
		}
	}
	c.items("beside damage", sound, others)
	if len(damaged) != 1 || !saysNothing(damaged[0].Record) {
		c.Errorf("pages of %d: got %+v for what is damaged, want one partial record without a state", limit, damaged)
	}
}

// ArchiveDamage tests that a damaged cell affects no other. spoil stores bytes as a key's cell with a cell
// time, bypassing the archive.
func ArchiveDamage(t *testing.T, store history.Archive, spoil func(k history.Key, at int64, value []byte)) {
	torn := append(wire.AppendRecord(nil, cellAt(freshKey(), hourAgo()-1000, 1).Record), 0x42, 100) // with a readable head
	for name, value := range map[string][]byte{"garbage": []byte("\xff\xff"), "no record": {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, "torn": torn} {
		t.Run(name, func(t *testing.T) { archive{t: t, store: store}.damage(spoil, value) })
	}
}

func (a archive) damage(spoil func(k history.Key, at int64, value []byte), value []byte) {
	uid, now := freshUID(), hourAgo()
	first, last := cellAt(keyOf(uid, "a_1"), now, 1), cellAt(keyOf(uid, "c_1"), now, 3)
	spoiled := keyOf(uid, "b_1")
	a.put(first, last)
	spoil(spoiled, now, value)

	a.wantRow(uid, []history.Cell{first, last})
	damaged := a.row(uid).Damaged
	if len(damaged) != 1 || damaged[0].Object != spoiled.Object || !bytes.Equal(damaged[0].Bytes, value) || !errors.Is(damaged[0].Err, history.ErrPermanent) {
		a.t.Errorf("row: got damage %+v, want %s with its bytes", damaged, spoiled)
	}
	got := a.entries(first.Key, spoiled, last.Key)
	for i, want := range map[int]*history.Record{0: first.Record, 2: last.Record} {
		if got[i].Err != nil || !a.same(got[i].Record, want) {
			a.t.Errorf("beside damage: got %+v, want %+v", got[i], want)
		}
	}
	var e *history.DamageError
	if !errors.As(got[1].Err, &e) || !errors.Is(e, history.ErrPermanent) || e.Key != spoiled || !bytes.Equal(e.Bytes, value) {
		a.t.Errorf("damage: got %v, want the key %s and its bytes", got[1].Err, spoiled)
	}

	// Even an earlier event replaces a damaged cell, whatever its user was warmed with.
	row := a.row(uid)
	for at, u := range []*history.User{&row.User, &got[1].User} {
		spoil(spoiled, now+int64(at)*10, value)
		late := history.Cell{Key: spoiled, Record: cellAt(spoiled, now-100, 2).Record.Successor(u)}
		if at > 0 {
			late.Record.CellTime += 10
		}
		a.put(late)
		a.want(spoiled, late.Record)
		if left := a.row(uid).Damaged; len(left) != 0 {
			a.t.Errorf("row: got damage %+v after it was replaced", left)
		}
	}
}

func saysNothing(r *history.Record) bool { return r != nil && r.Partial && r.State == 0 }

// retentions are lifetimes other than the default, each with an age that is within it and one beyond, 0 for none.
var retentions = []struct {
	keep         string
	within, gone time.Duration
}{
	{"2h", time.Hour, 2*time.Hour + time.Second},
	{"400d", 399 * 24 * time.Hour, 401 * 24 * time.Hour},
	{"forever", 30 * 365 * 24 * time.Hour, 0},
}

// ArchiveRetention tests how long an archive keeps records and tombstones. open returns an empty archive under the
// rules.
func ArchiveRetention(t *testing.T, open func(t *testing.T, rules *history.Rulebook) history.Archive) {
	for _, r := range retentions {
		t.Run(r.keep, func(t *testing.T) {
			rules := rulesFor(t, r.keep)
			a := archive{t: t, store: open(t, rules)}
			now := time.Now().UnixMilli()
			within, gone := now-r.within.Milliseconds(), now-r.gone.Milliseconds()
			a.kept(within)
			if r.gone > 0 {
				a.expiredAt(gone)
			}
			a.expiredOnce(rules, within)
		})
	}
}

func rulesFor(t *testing.T, keep string) *history.Rulebook {
	t.Helper()
	rules, err := history.ParseRules(keep, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// kept puts a record and a tombstone, which later puts of older cells do not replace.
func (a archive) kept(at int64) {
	a.t.Helper()
	uid := freshUID()
	cells := []history.Cell{cellAt(keyOf(uid, "1_1"), at, 1), deletedAt(keyOf(uid, "2_1"), at)}
	a.put(cells...)
	a.put(cellAt(cells[0].Key, at-1, 2), cellAt(cells[1].Key, at-1, 2))
	a.wantRow(uid, cells)
	a.wantCells(cells)
}

func (a archive) expiredAt(at int64) {
	a.t.Helper()
	uid := freshUID()
	cells := []history.Cell{cellAt(keyOf(uid, "1_1"), at, 1), deletedAt(keyOf(uid, "2_1"), at)}
	a.put(cells...)
	a.wantRow(uid, nil)
	a.wantCells([]history.Cell{{Key: cells[0].Key}, {Key: cells[1].Key}})
}

// expiredOnce changes the rules as after a shorter retention: what had expired then does not come back. It matters
// neither what the store still has, nor who puts it again.
func (a archive) expiredOnce(rules *history.Rulebook, at int64) {
	a.t.Helper()
	uid := freshUID()
	old, kept := cellAt(keyOf(uid, "1_1"), at, 1), cellAt(keyOf(uid, "2_1"), at+2, 2)
	a.put(old, kept)
	r := rules.Retention()
	r.Since = at + 1
	if _, err := rules.Agree(r); err != nil {
		a.t.Fatal(err)
	}
	for range 2 {
		a.wantRow(uid, []history.Cell{kept})
		a.wantCells([]history.Cell{{Key: old.Key}, kept})
		a.put(old)
	}
}

// CacheRetention tests that a cache serves records of any age within the retention. open returns a cache under the
// rules.
func CacheRetention(t *testing.T, open func(t *testing.T, rules *history.Rulebook) CacheStore) {
	for _, r := range retentions {
		t.Run(r.keep, func(t *testing.T) {
			c := &cacheCase{T: t, CacheStore: open(t, rulesFor(t, r.keep)), start: time.Now().Add(-r.within).UnixMilli()}
			uid := c.user()
			k := key(uid, 1, 1)
			it := c.item(k, c.record(5))
			c.holds(k, it.Record)
			c.lists(uid, history.Query{Limit: 3}, it)
		})
	}
}

// Users is a store that lists its users and namespaces in a fixed order.
type Users interface {
	Users(ctx context.Context, from string) iter.Seq2[string, error]
}

// CacheScan tests the scan of a cache: its users, and the keys of each.
func CacheScan(t *testing.T, cache interface {
	CacheStore
	Users
	Keys(ctx context.Context, uid string) ([]history.Key, error)
},
) {
	c := &cacheCase{T: t, CacheStore: cache, start: hourAgo()}
	users := newUsers()
	objects := []history.Object{{ID: "a", Type: 1}, {ID: "b_c", Type: 2}}
	for _, uid := range users {
		for i, o := range objects {
			e := history.Event{Key: history.Key{UID: uid, Object: o}, Kind: history.KindProgress, At: c.start, Position: 1}
			if i == 1 {
				e = history.Event{Key: e.Key, Kind: history.KindDelete, At: c.start}
			}
			c.put(e.Key, e.Record().Successor(nil))
		}
	}
	testUsers(t, cache, users)
	for _, uid := range users {
		keys, err := cache.Keys(t.Context(), uid)
		slices.SortFunc(keys, func(a, b history.Key) int { return int(a.Object.Type) - int(b.Object.Type) })
		if want := []history.Key{{UID: uid, Object: objects[0]}, {UID: uid, Object: objects[1]}}; err != nil || !slices.Equal(keys, want) {
			t.Errorf("keys of %q: %v, %v, want %v", uid, keys, err, want)
		}
	}
	if keys, err := cache.Keys(t.Context(), "nobody"); len(keys) > 0 || err != nil {
		t.Errorf("keys of nobody: %v, %v", keys, err)
	}
}

// ArchiveScan tests the scan of an archive.
func ArchiveScan(t *testing.T, store interface {
	history.Archive
	Users
},
) {
	a := archive{t: t, store: store}
	users := newUsers()
	for _, uid := range users {
		e := history.Event{Key: history.Key{UID: uid, Object: history.Object{ID: "a", Type: 1}}, Kind: history.KindProgress, At: hourAgo(), Position: 1}
		a.put(history.Cell{Key: e.Key, Record: e.Record().Successor(nil)})
	}
	testUsers(t, store, users)
}

// newUsers returns users of several buckets, some with difficult names, and a namespace.
func newUsers() (users []string) {
	base := freshUID()
	for i := range 300 { // more than one step of a scan
		users = append(users, fmt.Sprintf("%s-%d", base, i))
	}
	return append(users, base+"/ü%*", history.NamespaceUID(base+"-1", "short"))
}

// testUsers: every user is listed once, in the same order each time, and a scan goes on behind any of them.
func testUsers(t *testing.T, store Users, users []string) {
	t.Helper()
	own := func(from string) []string { // other tests may have users too
		return slices.DeleteFunc(listed(t, store, from), func(uid string) bool { return !slices.Contains(users, uid) })
	}
	all := own("")
	for _, uid := range users {
		if i := slices.Index(all, uid); i < 0 || slices.Contains(all[i+1:], uid) {
			t.Fatalf("user %q is missing or listed twice", uid)
		}
	}
	if again := own(""); !slices.Equal(again, all) {
		t.Errorf("another order in the second scan: %d and %d users", len(again), len(all))
	}
	for _, i := range []int{0, len(all) / 2, len(all) - 1} {
		if rest := own(all[i]); !slices.Equal(rest, all[i+1:]) {
			t.Errorf("behind user %d of %d: %d users", i, len(all), len(rest))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for uid, err := range store.Users(ctx, "") {
		if err == nil {
			t.Errorf("a cancelled scan yields %q", uid)
		}
		break
	}
}

func listed(t *testing.T, store Users, from string) (all []string) {
	t.Helper()
	for uid, err := range store.Users(t.Context(), from) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, uid)
	}
	return all
}
