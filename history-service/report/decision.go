package report

import (
	"cmp"
	"fmt"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxBatch is the maximum number of reports per call.
const MaxBatch = 1000

// Decision is a change of a record other than by an event.
type Decision uint8

// The decisions. 0 is none. Dismiss and Offer are about "continue watching". Rebase moves a record from the future to
// the report's time.
const (
	Dismiss Decision = iota + 1
	Offer
	Rebase
)

// Deletes decodes a delete of objects at a time.
func Deletes(req *historyv1.DeleteRequest, at, covers int64) ([]Report, error) {
	if req.GetIfMatch() != 0 && len(req.GetObjects()) > 1 {
		return nil, history.Invalid("if_match", "want it for one object")
	}
	return Each(req.GetUid(), req.GetObjects(), Report{
		Event: history.Event{Kind: history.KindDelete, At: at}, Covers: covers, IfMatch: req.GetIfMatch(),
	})
}

// Dismissals decodes a decision about "continue watching" at a time.
func Dismissals(req *historyv1.DismissRequest, at int64) ([]Report, error) {
	decision := Dismiss
	if req.GetOffer() {
		decision = Offer
	}
	return Each(req.GetUid(), req.GetObjects(), Report{Event: history.Event{At: at}, Decision: decision})
}

var markKinds = map[historyv1.Mark]history.Kind{
	historyv1.Mark_MARK_WATCHED:   history.KindWatched,
	historyv1.Mark_MARK_UNWATCHED: history.KindUnwatched,
	historyv1.Mark_MARK_RESET:     history.KindReset,
}

// Marks decodes marks of objects at a time.
func Marks(req *historyv1.MarkRequest, at int64) ([]Report, error) {
	objects := make([]*historyv1.Object, len(req.GetObjects()))
	for i, o := range req.GetObjects() {
		objects[i] = o.GetObject()
	}
	kind, known := markKinds[req.GetMark()]
	switch {
	case !known:
		return nil, history.Invalid("mark", "want watched, unwatched or reset")
	case req.GetUnlessCompleted() && kind != history.KindWatched:
		return nil, history.Invalid("unless_completed", "want it with watched")
	}
	reports, err := Each(req.GetUid(), objects, Report{
		Event: history.Event{Kind: kind, At: at}, Latest: req.GetAtMs() == 0, OnlyRecorded: req.GetOnlyRecorded(), UnlessCompleted: req.GetUnlessCompleted(),
	})
	if err != nil {
		return nil, err
	}
	for i := range reports {
		reports[i].Meta = history.NewMeta(req.GetObjects()[i].GetMeta())
		if err := reports[i].Validate(); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	return reports, nil
}

// Each returns the same report for each object of a user: 1 to [MaxBatch].
func Each(uid string, objects []*historyv1.Object, same Report) ([]Report, error) {
	if n := len(objects); n == 0 || n > MaxBatch {
		return nil, history.Invalid("objects", fmt.Sprintf("%d of them; want 1 to %d", n, MaxBatch))
	}
	reports := make([]Report, len(objects))
	for i, o := range objects {
		reports[i] = same
		reports[i].Key = history.Key{UID: uid, Object: Object(o)}
		if err := reports[i].validate(); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	return reports, nil
}

// validate checks an event, or only the key of a decision.
func (r *Report) validate() error {
	if r.Decision != 0 {
		return cmp.Or(history.ValidateUID(r.Key.UID), r.Key.Object.Validate())
	}
	return r.Validate()
}
