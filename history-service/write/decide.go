package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Delete writes a tombstone for each object, even without a record, since a device may still upload older
// reports. Nothing older can undo it. A wrong etag fails with [history.ErrConflict].
func (w *Writer) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	reports, err := w.deletions(req)
	if err != nil {
		return nil, err
	}
	return w.delete(ctx, reports)
}

// delete deletes objects of one user.
func (w *Writer) delete(ctx context.Context, reports []report.Report) (*historyv1.DeleteResponse, error) {
	b, uid := &batch{reports: reports}, reports[0].Key.UID
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	w.prepare(b)
	w.load(ctx, b)
	w.store(ctx, b)
	w.cfg.Notify.Changed(b.changes())
	w.tellBackend(b)
	resp := &historyv1.DeleteResponse{}
	for _, g := range b.groups {
		if err := g.deleted(); err != nil {
			return nil, fmt.Errorf("delete %s: %w", g.key.Object, err)
		}
	}
	elsewhere, err := w.deleteElsewhere(ctx, uid, b)
	if err != nil {
		return nil, err
	}
	for _, g := range b.groups {
		w.relyOnClear(g)
		if g.visible && g.written != nil || elsewhere[g.key.Object] {
			resp.Deleted++
		}
	}
	return resp, nil
}

// deleteElsewhere deletes objects from the namespaces other than those of their types. A record left there by a
// move of its type would reappear after a move back. It returns the objects with a visible record there.
func (w *Writer) deleteElsewhere(ctx context.Context, uid string, home *batch) (seen map[history.Object]bool, err error) {
	namespaces := w.cfg.Rules.Namespaces(uid)
	if len(namespaces) == 1 {
		return nil, nil
	}
	seen = make(map[history.Object]bool)
	for _, namespace := range namespaces {
		b := &batch{namespace: namespace}
		for _, r := range home.reports {
			if r.IfMatch = 0; w.cfg.Rules.NamespaceOf(uid, r.Key.Object.Type) != namespace {
				r.Status = 0
				b.reports = append(b.reports, r)
			}
		}
		w.prepare(b)
		w.load(ctx, b)
		w.store(ctx, b)
		w.cfg.Notify.Changed(b.changes())
		for _, g := range b.groups {
			if err := g.deleted(); err != nil {
				return nil, fmt.Errorf("delete %s: %w", g.key.Object, err)
			}
			if g.visible && g.written != nil {
				seen[g.key.Object] = true
			}
			w.relyOnClear(g)
		}
	}
	return seen, nil
}

// relyOnClear remembers the clear that made a delete unnecessary: without a tombstone, this answer may be the
// clear's only acknowledgement.
func (w *Writer) relyOnClear(g *group) {
	if typ := g.key.Object.Type; g.batch.reports[g.reports[0]].Status == historyv1.Status_STATUS_CLEARED {
		w.remember(decision{uid: g.key.UID, clear: history.Clear{Type: typ, Until: g.user.ClearedAt(typ)}}, g.batch.begun)
	}
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

func (w *Writer) deletions(req *historyv1.DeleteRequest) ([]report.Report, error) {
	if err := countable(req.GetObjects()); err != nil {
		return nil, err
	}
	if req.GetIfMatch() != 0 && len(req.GetObjects()) > 1 {
		return nil, history.Invalid("if_match", "want it for one object")
	}
	asked, err := w.past("at", req.GetAtMs())
	if err != nil {
		return nil, err
	}
	covers := w.covers(asked)
	if req.GetAtMs() == 0 {
		covers = math.MaxInt64
	}
	return reportsOn(req.GetUid(), req.GetObjects(), report.Report{
		Event: history.Event{Kind: history.KindDelete, At: min(asked, w.latestDecision())}, Covers: covers, IfMatch: req.GetIfMatch(),
	})
}

// covers returns the [report.Report.Covers] of deletes up to a time. Beyond the latest time of a removal each delete
// gets the time of its record.
func (w *Writer) covers(until int64) int64 {
	if until <= w.latestDecision() {
		return 0
	}
	return until
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

// countable fails unless a call has 1 to [MaxBatch] objects.
func countable(objects []*historyv1.Object) error {
	if n := len(objects); n == 0 || n > MaxBatch {
		return history.Invalid("objects", fmt.Sprintf("%d of them; want 1 to %d", n, MaxBatch))
	}
	return nil
}

// validate checks an event, or only the key of a decision.
func validate(r *report.Report) error {
	if r.Decision != 0 {
		return cmp.Or(history.ValidateUID(r.Key.UID), r.Key.Object.Validate())
	}
	return r.Validate()
}

// reportsOn returns the same report for each object of a user.
func reportsOn(uid string, objects []*historyv1.Object, same report.Report) ([]report.Report, error) {
	reports := make([]report.Report, len(objects))
	for i, o := range objects {
		r := same
		r.Key = history.Key{UID: uid, Object: report.Object(o)}
		if err := validate(&r); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		reports[i] = r
	}
	return reports, nil
}

// carryOut folds and stores a batch from outside a player, without clock correction or first-of-day detection.
// It notifies the user's devices.
func (w *Writer) carryOut(ctx context.Context, b *batch) {
	w.prepare(b)
	w.load(ctx, b)
	w.store(ctx, b)
	w.cfg.Notify.Changed(b.changes())
}

// Dismiss removes objects from "continue watching", or offers them again. The decision is part of the record
// and archived with it. An object without a visible record is ignored.
func (w *Writer) Dismiss(ctx context.Context, req *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	reports, err := w.decisions(req)
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

func (w *Writer) decisions(req *historyv1.DismissRequest) ([]report.Report, error) {
	if err := countable(req.GetObjects()); err != nil {
		return nil, err
	}
	now, err := w.past("at", 0)
	if err != nil {
		return nil, err
	}
	decision := report.Dismiss
	if req.GetOffer() {
		decision = report.Offer
	}
	return reportsOn(req.GetUid(), req.GetObjects(), report.Report{Event: history.Event{At: now}, Decision: decision})
}

// Mark marks objects as watched or unwatched, or resets them to the start: an event per object, which no older
// report undoes. It returns a status per object.
func (w *Writer) Mark(ctx context.Context, req *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	reports, err := w.marks(req)
	if err != nil {
		return nil, err
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

var markKinds = map[historyv1.Mark]history.Kind{
	historyv1.Mark_MARK_WATCHED:   history.KindWatched,
	historyv1.Mark_MARK_UNWATCHED: history.KindUnwatched,
	historyv1.Mark_MARK_RESET:     history.KindReset,
}

func (w *Writer) marks(req *historyv1.MarkRequest) ([]report.Report, error) {
	objects := make([]*historyv1.Object, len(req.GetObjects()))
	for i, o := range req.GetObjects() {
		objects[i] = o.GetObject()
	}
	if err := countable(objects); err != nil {
		return nil, err
	}
	kind, known := markKinds[req.GetMark()]
	switch {
	case !known:
		return nil, history.Invalid("mark", "want watched, unwatched or reset")
	case req.GetUnlessCompleted() && kind != history.KindWatched:
		return nil, history.Invalid("unless_completed", "want it with watched")
	}
	at, err := w.past("event_time", req.GetAtMs())
	if err != nil {
		return nil, err
	}
	reports, err := reportsOn(req.GetUid(), objects, report.Report{
		Event: history.Event{Kind: kind, At: at}, Latest: req.GetAtMs() == 0, OnlyRecorded: req.GetOnlyRecorded(), UnlessCompleted: req.GetUnlessCompleted(),
	})
	if err != nil {
		return nil, err
	}
	for i := range reports {
		r := &reports[i]
		r.Meta = history.NewMeta(req.GetObjects()[i].GetMeta())
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		if at <= w.nowMS()-w.cfg.Rules.TTL(r.Key.Object.Type) {
			r.Status = historyv1.Status_STATUS_EXPIRED
		}
	}
	return reports, nil
}

// past returns the given time, or now for 0, and at most now. It fails with [history.ErrUnavailable] while the
// clock is unreliable.
func (w *Writer) past(field string, ms int64) (int64, error) {
	if err := w.cfg.ClockErr(); err != nil {
		return 0, err
	}
	now := w.nowMS()
	switch {
	case ms < 0:
		return 0, history.Invalid(field, "want Unix milliseconds")
	case ms == 0:
		return now, nil
	}
	return min(ms, now), nil
}

// Clear removes everything of one type, or of all, up to a time. All readers see it once the default namespace
// is cleared. An answer means that all namespaces are; after an error a retry does the rest.
func (w *Writer) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, err
	}
	until, err := w.past("until", req.GetUntilMs())
	if err != nil {
		return nil, err
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	asked := until
	if req.GetUntilMs() == 0 { // fixed here, so that a repeated clear removes nothing more
		newest, err := w.cfg.Reader.Newest(ctx, req.GetUid(), req.GetType())
		if err != nil {
			return nil, fmt.Errorf("clear: %w", err)
		}
		asked = max(asked, newest)
	}
	if latest := w.latestDecision(); asked <= latest {
		until = asked
	} else {
		until = min(until, latest)
		if err := w.deleteLater(ctx, req, history.Query{Since: until + 1, Until: asked}); err != nil {
			return nil, fmt.Errorf("clear: %w", err)
		}
	}
	begun := w.compare.begun.Load()
	until, err = w.cfg.Cache.Clear(ctx, req.GetUid(), history.Clear{Type: req.GetType(), Until: until})
	if err != nil {
		return nil, fmt.Errorf("clear: %w", err)
	}
	w.remember(decision{uid: req.GetUid(), clear: history.Clear{Type: req.GetType(), Until: until}}, begun)
	w.cfg.Aggregate.MakeDue(req.GetUid())
	w.cfg.Notify.UserChanged(req.GetUid())
	w.tellCleared(req.GetUid(), history.Clear{Type: req.GetType(), Until: until})
	if err := w.follow(ctx, req.GetUid()); err != nil {
		return nil, fmt.Errorf("clear: %w", err)
	}
	return &historyv1.ClearResponse{ClearedMs: until}, nil
}

// deleteLater deletes the records in a clear that are later than its mark may be.
func (w *Writer) deleteLater(ctx context.Context, req *historyv1.ClearRequest, q history.Query) error {
	list := &historyv1.ListRequest{Uid: req.GetUid(), Type: req.GetType(), SinceMs: q.Since, UntilMs: q.Until, Limit: read.MaxPage}
	for {
		page, err := w.cfg.Reader.List(ctx, list)
		if err != nil {
			return err
		}
		if len(page.GetItems()) > 0 {
			objects := make([]*historyv1.Object, len(page.GetItems()))
			for i, it := range page.GetItems() {
				objects[i] = it.GetObject()
			}
			reports, err := reportsOn(req.GetUid(), objects, report.Report{Event: history.Event{Kind: history.KindDelete, At: q.Since}, Covers: q.Until})
			if err != nil {
				return err
			}
			if _, err := w.delete(ctx, reports); err != nil {
				return err
			}
		}
		if !page.GetHasMore() {
			return nil
		}
		list = &historyv1.ListRequest{Uid: list.Uid, Type: list.Type, SinceMs: list.SinceMs, UntilMs: list.UntilMs, Limit: list.Limit, Cursor: page.GetCursor()}
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
	begun := w.compare.begun.Load()
	pause, err := w.switched(ctx, req.GetUid(), req.GetRecording())
	if err != nil {
		return nil, fmt.Errorf("put settings: %w", err)
	}
	w.remember(decision{uid: req.GetUid(), pause: pause}, begun)
	w.cfg.Aggregate.MakeDue(req.GetUid())
	w.cfg.Notify.UserChanged(req.GetUid())
	if err := w.follow(ctx, req.GetUid()); err != nil {
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
		if err := w.cfg.Cache.Pause(ctx, uid, u.Pause, pause); !errors.Is(err, history.ErrConflict) {
			return pause, err
		}
	}
	return history.Pause{}, fmt.Errorf("too many concurrent updates: %w", history.ErrUnavailable)
}

// Erase removes all data of a user from the stores. It first clears all types as of now, so that reports on
// their way, held or queued do not come back. Then each store removes immediately what would otherwise expire;
// an unavailable store does not stop the others. At the end a job has archived the clear mark.
func (w *Writer) Erase(ctx context.Context, req *historyv1.EraseRequest) (*historyv1.EraseResponse, error) {
	uid := req.GetUid()
	if err := history.ValidateUID(uid); err != nil {
		return nil, err
	}
	if w.nowMS() > w.latestDecision() {
		return nil, fmt.Errorf("erase: %w: the clock is more than a day ahead of the trusted time; confirm it, or set it right", history.ErrUnavailable)
	}
	namespaces, err := w.namespacesOf(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("erase: %w", err)
	}
	found, err := w.held(ctx, namespaces, 0)
	if err != nil && req.GetDryRun() {
		return nil, fmt.Errorf("erase: %w", err)
	}
	if req.GetDryRun() {
		return w.erased(ctx, 0, found, found), nil
	}
	cleared, err := w.Clear(ctx, &historyv1.ClearRequest{Uid: uid})
	if err != nil {
		return nil, fmt.Errorf("erase: %w", err)
	}
	var errs []error
	for _, namespace := range namespaces {
		if namespace != uid { // includes removed classes
			begun, c := w.compare.begun.Load(), history.Clear{Until: cleared.GetClearedMs()}
			if _, err := w.cfg.Cache.Clear(ctx, namespace, c); err != nil {
				errs = append(errs, err)
			} else {
				w.remember(decision{uid: namespace, clear: c}, begun)
			}
			w.cfg.Aggregate.MakeDue(namespace)
		}
		for _, store := range w.cfg.Erasers {
			errs = append(errs, store.Erase(ctx, namespace, cleared.GetClearedMs()))
		}
	}
	left, err := w.remaining(ctx, namespaces, cleared.GetClearedMs())
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return w.erased(ctx, cleared.GetClearedMs(), found, left), nil
}

// Deadline and interval of the check that a job has archived the clear marks.
const eraseWait, eraseLook = time.Minute, 100 * time.Millisecond

// remaining returns the data left after an erasure. It waits until a job has archived the clear marks: only the
// archive can return them to a cache that lost them.
func (w *Writer) remaining(ctx context.Context, namespaces []string, until int64) (left map[string]int, err error) {
	for end := time.Now().Add(eraseWait); ; {
		before := w.states(ctx, namespaces)
		if left, err = w.held(ctx, namespaces, until); err != nil {
			return nil, err
		}
		for i, after := range w.states(ctx, namespaces) {
			if after.Err != nil {
				return nil, after.Err
			}
			if after.User.ClearedAt(0) < until || after.User.Revision != before[i].User.Revision {
				left[history.StatePlace]++ // the cache or the state changed during the check
			}
		}
		if left[history.StatePlace] == 0 || !time.Now().Before(end) || !run.Sleep(ctx, eraseLook) {
			return left, nil
		}
	}
}

func (w *Writer) states(ctx context.Context, namespaces []string) []history.Entry {
	keys := make([]history.Key, len(namespaces))
	for i, namespace := range namespaces {
		keys[i] = history.UserKey(namespace)
	}
	return w.cfg.Cache.Load(ctx, keys)
}

// held returns the stores' item counts of a user's namespaces up to a time, also with an error.
func (w *Writer) held(ctx context.Context, namespaces []string, until int64) (map[string]int, error) {
	all := make(map[string]int)
	var errs []error
	for _, store := range w.cfg.Erasers {
		for _, namespace := range namespaces {
			some, err := store.Held(ctx, namespace, until)
			for place, n := range some {
				all[place] += n
			}
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

func (w *Writer) erased(ctx context.Context, until int64, found, left map[string]int) *historyv1.EraseResponse {
	resp := &historyv1.EraseResponse{UntilMs: until}
	for _, place := range slices.Sorted(maps.Keys(left)) {
		resp.Places = append(resp.Places, &historyv1.ErasedPlace{Name: place, Found: int64(found[place]), Left: int64(left[place])})
	}
	for _, store := range w.cfg.Erasers {
		resp.Remains = append(resp.Remains, store.Remains(ctx)...)
	}
	return resp
}
