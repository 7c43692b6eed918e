// Package historytest holds the contract suites of package history: what every
// adapter of a store or queue passes, whatever it is made of.
package historytest

import (
	"testing"

	"github.com/playhead/playhead/history"
)

// Cache tests every sentence of the contract of [history.Cache]. The function open
// returns a cache that keeps so many records per user when it trims, and closes it
// in a cleanup of its own t. The caches may share their data: the suite makes its
// own users, and leaves no records and no marks of them behind.
func Cache(t *testing.T, open func(t *testing.T, keep int) history.Cache) {
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
		{"MarkReplaced", markReplaced},
		{"LegalNames", legalNames},
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
		{"PauseFromTheArchiveSettled", pauseWarmSettled},
		{"PauseOlderInTheArchive", pauseWarmOlder},
		{"PauseOfOneMomentInTheArchive", pauseWarmAlike},
		{"Warm", warmCold},
		{"WarmEmpty", warmEmpty},
		{"WarmTwice", warmTwice},
		{"WarmWritten", warmWritten},
		{"WarmSettled", warmSettled},
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
		{"Settle", settleStanding},
		{"SettleOther", settleOther},
		{"SettleAbsent", settleAbsent},
		{"SettleAgain", settleAgain},
		{"SettleUser", settleUser},
		{"SettleBesideWrites", settleBesideWrites},
		{"SettleBesidePause", settleBesidePause},
		{"SettleMany", settleMany},
		{"Trim", trimOldest},
		{"TrimDirty", trimDirty},
		{"TrimUnsettled", trimUnsettled},
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
			part.test(&cacheCase{T: t, Cache: open(t, kept), start: hourAgo()})
		})
	}
}

// Archive tests every promise of [history.Archive]. It opens a store for each of
// its parts; open closes what it opened in a cleanup of its own t. The stores may
// share their data: every user of the suite has a name that was never used before.
func Archive(t *testing.T, open func(t *testing.T) history.Archive) {
	testArchive(t, archive{}, open)
}

// ArchiveWithParts does what Archive does for a store that moves records to parts as it is used, and
// gives them revisions of their own when it does.
func ArchiveWithParts(t *testing.T, open func(t *testing.T) history.Archive) {
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
		{"Concurrent", archive.concurrent},
		{"ConcurrentClear", archive.concurrentClear},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(archive{t, open(t), a.renews}) })
	}
}

// Queue is what every [history.Publisher] and [history.Consumer] does, with one
// member in the group. An adapter whose groups have several members also passes
// [QueueGroup].
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
		"a single member claims every bucket":          queueCase.buckets,
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
