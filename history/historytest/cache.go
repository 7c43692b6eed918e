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
		{"Warm", warmCold},
		{"WarmEmpty", warmEmpty},
		{"WarmTwice", warmTwice},
		{"WarmWritten", warmWritten},
		{"WarmSettled", warmSettled},
		{"WarmCleared", warmCleared},
		{"WarmCutTime", warmCutTime},
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
	} {
		t.Run(part.name, func(t *testing.T) {
			part.test(&cacheCase{T: t, Cache: open(t, kept), start: hourAgo()})
		})
	}
}

// kept is how many records per user the caches under test keep.
const kept = 10

// cacheCase is one test of the suite.
type cacheCase struct {
	*testing.T
	history.Cache
	start int64 // Unix milliseconds; the tests' times are relative to it
}

// apply makes one write that must get an answer.
func (c *cacheCase) apply(w history.Write) history.Outcome {
	c.Helper()
	out := c.Apply(c.Context(), []history.Write{w})
	if len(out) != 1 {
		c.Fatalf("Apply of one write: got %d outcomes, want 1", len(out))
	}
	if out[0].Status == history.Unknown || out[0].Err != nil {
		c.Fatalf("Apply(%s): got status %d, error %v; want an answer", w.Key, out[0].Status, out[0].Err)
	}
	return out[0]
}

// applied makes one write that must succeed.
func (c *cacheCase) applied(w history.Write) history.Outcome {
	c.Helper()
	out := c.apply(w)
	if out.Status != history.Applied {
		c.Fatalf("Apply(%s, base %x): got status %d, want applied", w.Key, w.Base, out.Status)
	}
	return out
}

// conflicts makes one write that must find other content.
func (c *cacheCase) conflicts(w history.Write) history.Entry {
	c.Helper()
	out := c.apply(w)
	if out.Status != history.Conflict {
		c.Fatalf("Apply(%s, base %x): got status %d, want a conflict", w.Key, w.Base, out.Status)
	}
	return out.Current
}

// put stores a first record and returns it.
func (c *cacheCase) put(k history.Key, r *history.Record) *history.Record {
	c.Helper()
	c.applied(history.Write{Key: k, Record: r, Pause: c.load(k).User.Pause})
	return r
}

// archive stores a first record, settles it, and returns it as the cache has it then.
func (c *cacheCase) archive(k history.Key, r *history.Record) *history.Record {
	c.Helper()
	c.settle(content(k, c.put(k, r)))
	return settled(r)
}

// load reads one key.
func (c *cacheCase) load(k history.Key) history.Entry {
	c.Helper()
	got := c.Load(c.Context(), []history.Key{k})
	if len(got) != 1 {
		c.Fatalf("Load of one key: got %d entries, want 1", len(got))
	}
	if got[0].Err != nil {
		c.Fatalf("Load(%s): %v", k, got[0].Err)
	}
	return got[0]
}

// holds checks the record that the cache has of a key.
func (c *cacheCase) holds(k history.Key, want *history.Record) {
	c.Helper()
	c.same("Load("+k.String()+")", c.load(k).Record, want)
}
