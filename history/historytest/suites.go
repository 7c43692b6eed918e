// Package historytest has the contract suites of package history, which every adapter of a store or queue passes.
package historytest

import (
	"bytes"
	"errors"
	"testing"

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

// Queue tests the contracts of [history.Publisher] and [history.Consumer] with one member. Adapters with larger
// groups also pass [QueueGroup].
func Queue(t *testing.T, open OpenQueue) {
	tests := map[string]func(queueCase){
		"what is committed does not come again":        queueCase.committed,
		"what is not committed comes again":            queueCase.uncommitted,
		"a commit covers what was fetched before":      queueCase.commitCovers,
		"a commit out of order takes nothing back":     queueCase.commitLate,
		"a generation that is over commits nothing":    queueCase.commitOver,
		"a job on its way out may still commit":        queueCase.commitLast,
		"a partition keeps its order":                  queueCase.order,
		"one publish is one message per partition":     queueCase.messages,
		"a message that would be too large is divided": queueCase.large,
		"a single member assignments every bucket":     queueCase.buckets,
		"the end of the context is not an error":       queueCase.context,
		"an error of handle comes back":                queueCase.handleError,
		"nothing to publish is no message":             queueCase.empty,
		"nothing is sent without time to send it":      queueCase.noTime,
		"many goroutines publish at once":              queueCase.concurrent,
		"a record travels with its key":                queueCase.records,
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			p, member := open(t)
			run(queueCase{t, p, member(t)})
		})
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
