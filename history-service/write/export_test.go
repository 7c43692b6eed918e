package write

import (
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
)

// Needs are the names of the needs.
var Needs = map[need]string{nothing: "nothing", cache: "cache", tryArchive: "try archive", needArchive: "need archive"}

// NeedOfHold returns the need of reports of a held record.
func NeedOfHold(held *history.Record, reports []report.Report) string {
	return Needs[groupOf(reports).ofHold(held)]
}

// NeedLoaded returns the need of reports after a load of the cache. lost is the held record that the cache lost.
func NeedLoaded(cached history.Entry, lost *history.Record, reports []report.Report) string {
	g := groupOf(reports)
	g.base, g.user, g.older = cached.Record, cached.User, lost
	g.next = history.Merge(g.base, g.older)
	return Needs[g.need()]
}

func groupOf(reports []report.Report) *group {
	g := &group{batch: &batch{reports: reports}}
	for i := range reports {
		g.reports = append(g.reports, i)
	}
	return g
}
