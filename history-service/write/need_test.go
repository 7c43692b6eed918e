package write_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/write"
)

// shape is a report with what a reader of the API knows of it.
type shape struct {
	name   string
	report report.Report
	// reads means that the answer depends on the existing record. exact means that all its content must be known.
	reads, exact bool
	deletes      bool
}

var shapes = []shape{
	{name: "play", report: report.Report{Event: history.Event{Kind: history.KindProgress}}},
	{name: "play with etag", report: report.Report{Event: history.Event{Kind: history.KindProgress}, IfMatch: 1}, reads: true},
	{name: "mark", report: report.Report{Event: history.Event{Kind: history.KindWatched}}, reads: true},
	{name: "dismissal", report: report.Report{Decision: report.Dismiss}, reads: true},
	{name: "offer", report: report.Report{Decision: report.Offer}, reads: true},
	{name: "delete", report: report.Report{Event: history.Event{Kind: history.KindDelete}, Covers: 1 << 60}, deletes: true},
	{name: "timed delete", report: report.Report{Event: history.Event{Kind: history.KindDelete}}, deletes: true},
	{name: "delete with etag", report: report.Report{Event: history.Event{Kind: history.KindDelete}, IfMatch: 1}, reads: true, exact: true, deletes: true},
	{name: "rebase", report: report.Report{Decision: report.Rebase}, reads: true, exact: true},
	{name: "import", report: report.Report{Whole: &history.Record{}}, reads: true, exact: true},
}

// The times of the reports, around the low watermark.
const below, watermark, above = 10, 50, 100

func record(at int64, partial bool) *history.Record {
	return &history.Record{Version: history.VersionOf(at, 1), State: history.StatePlaying, CellTime: at, Partial: partial}
}

func removed(at, removal int64) *history.Record {
	r := record(at, false)
	r.RemovedAt = removal
	return r
}

// eachPair calls fn with every report, alone and after a plain one, at both times.
func eachPair(fn func(s shape, at int64, reports []report.Report)) {
	for _, s := range shapes {
		for _, at := range []int64{below, above} {
			r, plain := s.report, shapes[0].report
			r.At, plain.At = at, above
			fn(s, at, []report.Report{r})
			fn(s, at, []report.Report{plain, r})
		}
	}
}

// A held record suffices unless all content is needed, or archived content that the hold lacks. A delete covers
// what the user sees, which another service may have written.
func TestNeedOfHold(t *testing.T) {
	for _, isPartial := range []bool{false, true} {
		eachPair(func(s shape, at int64, reports []report.Report) {
			want := "nothing"
			if s.exact || s.deletes || isPartial && s.reads {
				want = "cache"
			}
			if got := write.NeedOfHold(record(above, isPartial), reports); got != want {
				t.Errorf("%d reports, last a %s at %d, held record partial %v: got %q, want %q", len(reports), s.name, at, isPartial, got, want)
			}
		})
	}
}

// The archive is asked if it may have more of the record and the reports depend on that. Without its answer they
// are unavailable, except for plays and deletes that a job can merge later.
func TestNeedLoaded(t *testing.T) {
	records := map[string]*history.Record{
		"none": nil, "whole": record(above, false), "partial": record(above, true), "damaged": {Partial: true},
	}
	users := map[string]history.User{
		"cold": {}, "complete": {Warm: true}, "trimmed": {Warm: true, LowWatermark: history.VersionOf(watermark, 0)},
	}
	lost := map[string]*history.Record{"none": nil, "playing": record(above, false), "played again": removed(below, above)}
	for cached, r := range records {
		for state, u := range users {
			for held, l := range lost {
				eachPair(func(s shape, at int64, reports []report.Report) {
					isDamaged := cached == "damaged"
					archiveMayHaveMore := r == nil && state != "complete" || r != nil && r.Partial
					cacheMayHaveDropped := r == nil && state == "trimmed" && (at == below || held == "playing")
					want := "nothing"
					switch {
					case !archiveMayHaveMore:
					case s.reads, cacheMayHaveDropped, isDamaged && s.deletes:
						want = "need archive"
					case s.deletes, isDamaged:
						want = "try archive"
					}
					if got := write.NeedLoaded(history.Entry{Record: r, User: u}, l, reports); got != want {
						t.Errorf("%d reports, last a %s at %d, cached record %s of a %s user, lost record %s: got %q, want %q",
							len(reports), s.name, at, cached, state, held, got, want)
					}
				})
			}
		}
	}
}
