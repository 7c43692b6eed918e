package write

import (
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
)

// A group is folded into the held or the cached record. The table needs is the whole rule of what it needs before
// its result can be stored.

// known is the source of a group's record.
type known uint8

const (
	held        known = iota // The service's last write. Clears and other services' writes may be missing.
	heldPartial              // A held record without archived content.
	whole                    // The cache's record, or certainly no record.
	partial                  // The archive may have more, or the only record.
	damaged                  // Partial; the cached record is unreadable.
	dropped                  // Partial; the archive may have a record newer than the oldest report, or a later delete.
)

// want is how much of the record the reports of a group depend on.
type want uint8

const (
	plays    want = iota // Nothing: a late merge has the same result.
	deletes              // The latest event, which a delete covers.
	compares             // The record: an etag, a mark, a decision.
	rewrites             // All content: an import, a rebase, a delete with an etag.
)

// need is what a group needs before its result can be stored.
type need uint8

const (
	nothing     need = iota
	cache            // Load the key from the cache.
	tryArchive       // Ask the archive. Without an answer store a partial record, which a job completes.
	needArchive      // Ask the archive. Without an answer the reports are unavailable.
)

var needs = [...][4]need{
	//            plays        deletes      compares     rewrites
	held:        {nothing, cache, nothing, cache},
	heldPartial: {nothing, cache, cache, cache},
	whole:       {nothing, nothing, nothing, nothing},
	partial:     {nothing, tryArchive, needArchive, needArchive},
	damaged:     {tryArchive, needArchive, needArchive, needArchive},
	dropped:     {needArchive, needArchive, needArchive, needArchive},
}

// wants returns the most that any of the reports wants.
func (g *group) wants() (most want) {
	for _, i := range g.reports {
		most = max(most, wantOf(&g.batch.reports[i]))
	}
	return most
}

func wantOf(r *report.Report) want {
	switch remove := r.Kind == history.KindDelete; {
	case r.Whole != nil, r.Decision == report.Rebase, remove && r.IfMatch != 0:
		return rewrites
	case r.IfMatch != 0, r.NeedsRecord():
		return compares
	case remove:
		return deletes
	}
	return plays
}

// ofHold returns the need of a group whose record is held.
func (g *group) ofHold(r *history.Record) need {
	if r.Partial {
		return needs[heldPartial][g.wants()]
	}
	return needs[held][g.wants()]
}

// need returns the need of a group loaded from the cache.
func (g *group) need() need { return needs[g.known()][g.wants()] }

func (g *group) known() known {
	switch {
	case view.Damaged(g.base):
		return damaged
	case g.base != nil && g.base.Partial:
		return partial
	case g.base != nil, g.user.Complete():
		return whole
	case g.user.Warm && g.maybeDropped(): // for a cold user the warm-up reads the archive anyway
		return dropped
	}
	return partial
}

// maybeDropped reports whether the cache may have dropped a record newer than the oldest report, or a delete of
// the held one. A report must not replace such a record, nor count a play twice.
func (g *group) maybeDropped() bool {
	if g.older != nil && g.next.RemovedAt < g.older.Version.Time() {
		return true
	}
	for _, i := range g.reports {
		if history.VersionOf(g.batch.reports[i].At, 0) < g.user.LowWatermark {
			return true
		}
	}
	return false
}

// mayLack reports whether a record made without the archive may lack archived content. A complete user rules that
// out, unless the cache's own record is partial: then the user became complete after the cache lost its data.
func mayLack(u *history.User, cached *history.Record) bool {
	return !u.Complete() || cached != nil && cached.Partial
}
