package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Rebase moves records with a future latest event to the present, in their current order; see
// [history.Record.Rebase]. It writes by compare-and-set. An earlier copy in another service or a job may be
// merged later and bring the future times back; another call finds them again.
func (a *Admin) Rebase(ctx context.Context, req *historyv1.RebaseRequest) (*historyv1.RebaseResponse, error) {
	uid := req.GetUid()
	if err := history.ValidateUID(uid); err != nil {
		return nil, err
	}
	now, u, err := a.cfg.Writer.Warmed(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("rebase: %w", err)
	}
	resp := &historyv1.RebaseResponse{NowMs: now, SwitchedMs: later(u.Pause.Changed(), now)}
	for _, until := range u.Cleared {
		resp.ClearedMs = max(resp.ClearedMs, later(until, now))
	}
	namespaces, err := a.namespaces(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("rebase: %w", err)
	}
	for _, namespace := range namespaces {
		if err := a.rebase(ctx, namespace, req.GetDryRun(), resp); err != nil {
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

// rebase adds a namespace's records to the response, and moves them unless dry.
func (a *Admin) rebase(ctx context.Context, namespace string, dry bool, resp *historyv1.RebaseResponse) error {
	found, err := a.ahead(ctx, namespace, resp.NowMs)
	if err != nil || len(found) == 0 {
		return err
	}
	reports := make([]report.Report, len(found))
	for i, it := range found {
		at := resp.NowMs - int64(len(resp.Records)+i)
		reports[i] = report.Report{Event: history.Event{Key: history.Key{UID: namespace, Object: it.Object}, At: at}, Decision: report.Rebase}
	}
	if err := a.cfg.Writer.Rebase(ctx, namespace, reports, dry); err != nil {
		return err
	}
	for i, it := range found {
		if reports[i].Status == historyv1.Status_STATUS_STORED {
			resp.Records = append(resp.Records, &historyv1.RebasedRecord{
				Object:      &historyv1.Object{Id: it.Object.ID, Type: it.Object.Type},
				EventTimeMs: it.Record.Version.Time(), Deleted: it.Record.Deleted(),
			})
		}
	}
	return nil
}

// ahead returns the future records in the cache or the archive, newest first, at most [write.MaxBatch].
func (a *Admin) ahead(ctx context.Context, namespace string, now int64) ([]history.Item, error) {
	q := history.Query{Limit: write.MaxBatch, Since: now + history.ClockError + 1}
	cached, err := a.cfg.Cache.List(ctx, namespace, q)
	if err != nil {
		return nil, err
	}
	archived, err := a.cfg.Archive.Page(ctx, namespace, q)
	if err != nil {
		return nil, err
	}
	found := slices.Concat(cached.Items, archived.Items)
	slices.SortStableFunc(found, history.NewestFirst)
	seen := make(map[history.Object]bool, len(found))
	found = slices.DeleteFunc(found, func(it history.Item) bool {
		known := seen[it.Object]
		seen[it.Object] = true
		return known
	})
	return found[:min(len(found), write.MaxBatch)], nil
}
