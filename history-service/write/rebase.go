package write

import (
	"context"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Rebase moves records with a future latest event to the present, in their current order; see
// [history.Record.Rebase]. It writes by compare-and-set. An earlier copy in another service or a job may be
// merged later and bring the future times back; another call finds them again.
func (w *Writer) Rebase(ctx context.Context, req *historyv1.RebaseRequest) (*historyv1.RebaseResponse, error) {
	uid := req.GetUid()
	if err := history.ValidateUID(uid); err != nil {
		return nil, err
	}
	if err := w.cfg.ClockErr(); err != nil {
		return nil, fmt.Errorf("rebase: %w", err)
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	u, err := w.cfg.Reader.User(ctx, uid) // warms a cold user, as for an import
	if err != nil {
		return nil, fmt.Errorf("rebase: %w", err)
	}
	resp := &historyv1.RebaseResponse{NowMs: w.nowMS()}
	for _, until := range u.Cleared {
		resp.ClearedMs = max(resp.ClearedMs, later(until, resp.NowMs))
	}
	resp.SwitchedMs = later(u.Pause.Changed(), resp.NowMs)
	namespaces, err := w.namespacesOf(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("rebase: %w", err)
	}
	for _, namespace := range namespaces {
		if err := w.rebaseNamespace(ctx, namespace, req.GetDryRun(), resp); err != nil {
			return nil, fmt.Errorf("rebase: %w", err)
		}
	}
	return resp, nil
}

// later returns at if it is in the future beyond clock skew, otherwise 0.
func later(at, now int64) int64 {
	if at > now+history.ClockError {
		return at
	}
	return 0
}

func (w *Writer) rebaseNamespace(ctx context.Context, namespace string, dry bool, resp *historyv1.RebaseResponse) error {
	found, err := w.ahead(ctx, namespace, resp.NowMs)
	if err != nil || len(found) == 0 {
		return err
	}
	b := &batch{namespace: namespace}
	for i, c := range found {
		at := resp.NowMs - int64(len(resp.Records)+i)
		b.reports = append(b.reports, report.Report{Event: history.Event{Key: history.Key{UID: namespace, Object: c.Object}, At: at}, Decision: report.Rebase})
	}
	w.prepare(b)
	w.load(ctx, b)
	if !dry {
		w.store(ctx, b)
		w.cfg.Notify.Changed(b.changes())
	}
	for _, g := range b.groups {
		i := g.reports[0]
		switch {
		case g.failed:
			return fmt.Errorf("%s: %w", g.key.Object, history.ErrUnavailable)
		case b.reports[i].Status == historyv1.Status_STATUS_STORED:
			resp.Records = append(resp.Records, &historyv1.RebasedRecord{
				Object:      &historyv1.Object{Id: g.key.Object.ID, Type: g.key.Object.Type},
				EventTimeMs: found[i].Version.Time(), Deleted: g.next.Deleted(),
			})
		}
	}
	return nil
}

// ahead returns the places of future records in the cache or the archive, newest first, at most [MaxBatch].
func (w *Writer) ahead(ctx context.Context, namespace string, now int64) ([]history.Cursor, error) {
	q := history.Query{Limit: MaxBatch, Since: now + history.ClockError + 1}
	cached, err := w.cfg.Cache.List(ctx, namespace, q)
	if err != nil {
		return nil, err
	}
	archived, err := w.cfg.Archive.Page(ctx, namespace, q)
	if err != nil {
		return nil, err
	}
	var found []history.Cursor
	for _, it := range slices.Concat(cached.Items, archived.Items) {
		found = append(found, it.Place())
	}
	slices.SortFunc(found, history.Cursor.Compare)
	seen := make(map[history.Object]bool, len(found))
	found = slices.DeleteFunc(found, func(c history.Cursor) bool {
		known := seen[c.Object]
		seen[c.Object] = true
		return known
	})
	return found[:min(len(found), MaxBatch)], nil
}

// rebase moves a future record to the time of the report.
func (g *group) rebase(i int) historyv1.Status {
	if g.next == nil || later(g.next.Version.Time(), g.batch.now) == 0 {
		return historyv1.Status_STATUS_UNCHANGED
	}
	g.next, g.ended = g.next.Rebase(g.batch.reports[i].At), true
	return historyv1.Status_STATUS_STORED
}
