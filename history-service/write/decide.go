package write

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/state"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history/count"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Delete writes a tombstone for each object, even without a record, since a device may still upload older
// reports. Nothing older can undo it. A wrong etag fails with [history.ErrConflict].
func (w *Writer) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	asked, err := w.past("at", req.GetAtMs())
	if err != nil {
		return nil, err
	}
	if req.GetSummarized() && req.GetAtMs() > 0 {
		asked = max(asked, w.cfg.Rules.SummaryBefore(w.nowMS()))
	}
	var covers int64
	switch latest := w.latestDecision(); {
	case req.GetAtMs() == 0: // covers what the user sees, whatever the clocks
		covers = math.MaxInt64
	case asked > latest:
		covers = asked
	}
	reports, err := report.Deletes(req, min(asked, w.latestDecision()), covers)
	if err != nil {
		return nil, err
	}
	n, err := w.delete(ctx, reports)
	if err != nil {
		return nil, err
	}
	return &historyv1.DeleteResponse{Deleted: uint32(n)}, nil //nolint:gosec // at most MaxBatch
}

// delete deletes objects of one user and returns how many had a visible record.
func (w *Writer) delete(ctx context.Context, reports []report.Report) (int, error) {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	b := &batch{reports: reports}
	w.carryOut(ctx, b)
	w.tellBackend(b)
	n := 0
	for _, g := range b.groups {
		if err := g.deleted(); err != nil {
			return 0, fmt.Errorf("delete %s: %w", g.key.Object, err)
		}
		w.relyOnClear(g)
		if g.visible && g.written != nil {
			n++
		}
	}
	return n, nil
}

// countDeleted publishes what the records say that deletes are about to replace, unless a job has done so. A statement
// is of a content of the cache. So what the archive adds to a partial record is written first. Groups whose statements
// cannot be published fail: nothing would know later what was deleted.
func (w *Writer) countDeleted(ctx context.Context, b *batch) {
	if w.cfg.Counts == nil {
		return
	}
	var statements []count.Statement
	groups := make(map[history.Key]*group)
	for _, g := range b.groups {
		typ := g.key.Object.Type
		if g.done || g.base == nil || g.base.Clean() || g.next.RemovedAt <= max(g.base.RemovedAt, g.user.ClearedAt(typ)) || !w.cfg.Counted.Has(typ) {
			continue
		}
		if s, ok := g.says(); ok {
			statements, groups[g.key] = append(statements, s), g
		}
	}
	if len(statements) == 0 {
		return
	}
	unsent, _ := w.cfg.Counts.Publish(ctx, statements)
	for i := range unsent {
		groups[unsent[i].Key()].fail()
	}
}

// says returns what the cache's record says, if anything. If it lacks something, says sets g.first instead, or fails
// the group.
func (g *group) says() (s count.Statement, ok bool) {
	g.first = nil
	cached := g.cut(g.base)
	if cached == nil {
		return s, false
	}
	all := history.Merge(history.Merge(cached, g.archived), g.older)
	switch s, ok = count.Of(g.key, all); {
	case !ok:
	case g.base.Partial && !g.asked:
		g.fail()
		return s, false
	case all.CellTime > cached.CellTime || !history.Same(all, cached):
		g.first = all
		return s, false
	}
	return s, ok
}

// foldFirst folds the events into a record that was written before them.
func (g *group) foldFirst(r *history.Record) {
	g.base, g.first, g.archived, g.older = r, nil, nil, nil
	g.next = g.cut(r)
	g.fold()
}

func (g *group) deleted() error {
	r := &g.batch.reports[g.reports[0]]
	switch s := r.Status; {
	case s == historyv1.Status_STATUS_UNAVAILABLE:
		return fmt.Errorf("cache: %w", history.ErrUnavailable)
	case s == historyv1.Status_STATUS_CONFLICT, s == historyv1.Status_STATUS_CLEARED && r.IfMatch != 0:
		return fmt.Errorf("%w: the record is another one", history.ErrConflict)
	}
	return nil
}

// relyOnClear remembers the clear that made a delete unnecessary: without a tombstone, this answer may be the
// clear's only acknowledgement.
func (w *Writer) relyOnClear(g *group) {
	if typ := g.key.Object.Type; g.batch.reports[g.reports[0]].Status == historyv1.Status_STATUS_CLEARED {
		w.states.Relied(g.key.UID, history.Clear{Type: typ, Until: g.user.ClearedAt(typ)}, g.batch.begun)
	}
}

// Dismiss removes objects from "continue watching", or offers them again. The decision is part of the record
// and archived with it. An object without a visible record is ignored.
func (w *Writer) Dismiss(ctx context.Context, req *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	now, err := w.past("at", 0)
	if err != nil {
		return nil, err
	}
	reports, err := report.Dismissals(req, now)
	if err != nil {
		return nil, err
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	b := &batch{reports: reports}
	w.carryOut(ctx, b)
	resp := &historyv1.DismissResponse{}
	for _, g := range b.groups {
		if g.failed {
			return nil, fmt.Errorf("dismiss %s: %w", g.key.Object, history.ErrUnavailable)
		}
		if g.visible {
			resp.Found++
		}
	}
	return resp, nil
}

// Mark marks objects as watched or unwatched, or resets them to the start: an event per object, which no older
// report undoes. It returns a status per object.
func (w *Writer) Mark(ctx context.Context, req *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	at, err := w.past("event_time", req.GetAtMs())
	if err != nil {
		return nil, err
	}
	reports, err := report.Marks(req, at)
	if err != nil {
		return nil, err
	}
	for i := range reports {
		if at <= w.cfg.Rules.Expired(reports[i].Key.Object.Type, w.nowMS()) {
			reports[i].Status = historyv1.Status_STATUS_EXPIRED
		}
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	b := &batch{reports: reports}
	w.carryOut(ctx, b)
	w.tellBackend(b)
	resp := &historyv1.MarkResponse{Records: Result{batch: b}.Items(true)}
	for i := range reports {
		resp.Statuses = append(resp.Statuses, reports[i].Status)
	}
	if !slices.ContainsFunc(resp.Statuses, func(s historyv1.Status) bool { return s != historyv1.Status_STATUS_UNAVAILABLE }) {
		return nil, fmt.Errorf("mark: %w", history.ErrUnavailable)
	}
	return resp, nil
}

// Import folds whole records into a user's history and decides the statuses of undecided reports. It warms a
// cold user first, since the archive may know clears that the cache lacks.
//
// A record removed after its latest event stays removed, unless it is to be restored. Its version is then just
// after the removal. A concurrent delete or clear causes a conflict, and the retry moves the version after
// that.
func (w *Writer) Import(ctx context.Context, uid string, reports []report.Report) error {
	if err := w.cfg.ClockErr(); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	if _, err := w.cfg.Reader.User(ctx, uid); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	for _, namespace := range w.cfg.Rules.Namespaces(uid)[1:] {
		if _, err := w.cfg.Reader.Namespace(ctx, namespace); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	w.carryOut(ctx, &batch{reports: reports})
	w.metrics.count(reports)
	return nil
}

// Warmed returns the present, and a user's state after the warm-up of a cold user.
func (w *Writer) Warmed(ctx context.Context, uid string) (now int64, u history.User, err error) {
	if err := w.cfg.ClockErr(); err != nil {
		return 0, history.User{}, err
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	u, err = w.cfg.Reader.User(ctx, uid)
	return w.nowMS(), u, err
}

// Rebase decides the statuses of reports to rebase records of a namespace. It moves the records unless dry.
func (w *Writer) Rebase(ctx context.Context, namespace string, reports []report.Report, dry bool) error {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	b := &batch{reports: reports, namespace: namespace}
	w.prepare(b)
	w.load(ctx, b)
	if !dry {
		w.store(ctx, b)
		w.cfg.Notify.Changed(b.changes())
	}
	for _, g := range b.groups {
		if g.failed {
			return fmt.Errorf("%s: %w", g.key.Object, history.ErrUnavailable)
		}
	}
	return nil
}

// carryOut folds and stores a batch from outside a player, without clock correction or first-of-day detection.
// It notifies the user's devices.
func (w *Writer) carryOut(ctx context.Context, b *batch) {
	w.prepare(b)
	w.load(ctx, b)
	w.store(ctx, b)
	w.cfg.Notify.Changed(b.changes())
}

// past returns the given time, or now for 0, and at most now. It fails with [history.ErrUnavailable] while the
// clock is unreliable.
func (w *Writer) past(field string, ms int64) (int64, error) {
	if err := w.cfg.ClockErr(); err != nil {
		return 0, err
	}
	switch now := w.nowMS(); {
	case ms < 0:
		return 0, history.Invalid(field, "want Unix milliseconds")
	case ms > 0:
		return min(ms, now), nil
	default:
		return now, nil
	}
}

// decisionAhead is how far a removal or a switch of recording may be ahead of the trusted time, in
// milliseconds. A decision dated further ahead would refuse playback for weeks once the clock is right.
const decisionAhead = 24 * 3600 * 1000

// latestDecision returns the latest time of a removal or a switch, except for removals of later records.
func (w *Writer) latestDecision() int64 {
	if trusted := w.cfg.Horizon().UnixMilli(); trusted > 0 {
		return trusted + decisionAhead
	}
	return math.MaxInt64
}

// ClockAhead reports whether the clock is ahead of the latest time of a removal.
func (w *Writer) ClockAhead() bool { return w.nowMS() > w.latestDecision() }

// Clear removes everything of one type, or of all, up to a time. All readers see it once the default namespace
// is cleared. An answer means that all namespaces are; after an error a retry does the rest.
func (w *Writer) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	uid := req.GetUid()
	if err := history.ValidateUID(uid); err != nil {
		return nil, err
	}
	until, err := w.past("until", req.GetUntilMs())
	if err != nil {
		return nil, err
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	if until, err = w.clearUntil(ctx, req, until); err != nil {
		return nil, fmt.Errorf("clear: %w", err)
	}
	c := history.Clear{Type: req.GetType(), Until: until}
	if c.Until, err = w.states.Clear(ctx, uid, c); err != nil {
		return nil, fmt.Errorf("clear: %w", err)
	}
	w.cfg.Notify.UserChanged(uid)
	w.cfg.Webhook.Tell(webhook.Cleared(uid, c))
	if err := w.states.Follow(ctx, uid); err != nil {
		return nil, fmt.Errorf("clear: %w", err)
	}
	return &historyv1.ClearResponse{ClearedMs: c.Until}, nil
}

// clearUntil returns the time of a clear. Without a time it covers the newest record. That is fixed here, so that a
// repeated clear removes nothing more. Records after the latest time of a removal are deleted one by one.
func (w *Writer) clearUntil(ctx context.Context, req *historyv1.ClearRequest, until int64) (int64, error) {
	asked := until
	if req.GetUntilMs() == 0 {
		newest, err := w.cfg.Reader.Newest(ctx, req.GetUid(), req.GetType())
		if err != nil {
			return 0, err
		}
		asked = max(asked, newest)
	}
	latest := w.latestDecision()
	if asked <= latest {
		return asked, nil
	}
	until = min(until, latest)
	return until, w.deleteLater(ctx, req, until+1, asked)
}

// deleteLater deletes the records of a clear that are later than its mark may be.
func (w *Writer) deleteLater(ctx context.Context, req *historyv1.ClearRequest, since, until int64) error {
	cursor := ""
	for {
		page, err := w.cfg.Reader.List(ctx, &historyv1.ListRequest{
			Uid: req.GetUid(), Type: req.GetType(), SinceMs: since, UntilMs: until, Limit: read.MaxPage, Cursor: cursor,
		})
		if err != nil {
			return err
		}
		var reports []report.Report
		for _, it := range page.GetItems() {
			reports = append(reports, report.Report{
				Event:  history.Event{Key: history.Key{UID: req.GetUid(), Object: report.Object(it.GetObject())}, Kind: history.KindDelete, At: since},
				Covers: until,
			})
		}
		if _, err := w.delete(ctx, reports); err != nil {
			return err
		}
		if cursor = page.GetCursor(); !page.GetHasMore() {
			return nil
		}
	}
}

// PutSettings switches recording off or on, first in the default namespace, which readers see. An answer means
// that all namespaces have the pause. It warms a cold user first, since an archived pause could otherwise undo
// the switch.
func (w *Writer) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	if err := w.cfg.ClockErr(); err != nil {
		return nil, fmt.Errorf("put settings: %w", err)
	}
	pause, err := w.switched(ctx, req.GetUid(), req.GetRecording())
	if err != nil {
		return nil, fmt.Errorf("put settings: %w", err)
	}
	w.cfg.Notify.UserChanged(req.GetUid())
	if err := w.states.Follow(ctx, req.GetUid()); err != nil {
		return nil, fmt.Errorf("put settings: %w", err)
	}
	return &historyv1.PutSettingsResponse{Settings: read.Settings(pause)}, nil
}

// switched switches recording and retries after a concurrent switch.
func (w *Writer) switched(ctx context.Context, uid string, recording bool) (history.Pause, error) {
	for range read.MaxTries {
		u, err := w.cfg.Reader.User(ctx, uid)
		if err != nil {
			return history.Pause{}, err
		}
		played, err := w.cfg.Reader.LastPlayed(ctx, uid)
		if err != nil {
			return history.Pause{}, err
		}
		pause := u.Pause.Switched(recording, min(w.nowMS(), w.latestDecision()), played)
		if err := w.states.Pause(ctx, uid, u.Pause, pause); !errors.Is(err, history.ErrConflict) {
			return pause, err
		}
	}
	return history.Pause{}, state.ErrConcurrent
}

// ClearNamespace clears one namespace of a user, also of a removed class.
func (w *Writer) ClearNamespace(ctx context.Context, namespace string, c history.Clear) error {
	_, err := w.states.Clear(ctx, namespace, c)
	return err
}
