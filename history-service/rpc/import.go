package rpc

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Import folds whole records into a user's history. See the protocol for what it answers.
func (s *Server) Import(ctx context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	resp, err := s.imported(ctx, req)
	return resp, status(err)
}

func (s *Server) imported(ctx context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, err
	}
	if n := len(req.GetRecords()); n > write.MaxBatch {
		return nil, history.Invalid("records", fmt.Sprintf("%d in one call; want at most %d", n, write.MaxBatch))
	}
	resp := &historyv1.ImportResponse{Statuses: make([]historyv1.Status, len(req.GetRecords()))}
	reports := make([]report.Report, len(req.GetRecords()))
	now := s.cfg.Now().UnixMilli()
	for i, in := range req.GetRecords() {
		var err error
		if reports[i], err = reportOf(req, in, now); err != nil {
			reports[i].Status = historyv1.Status_STATUS_INVALID
			resp.Refusals = append(resp.Refusals, refusal(i, err))
		}
	}
	if err := s.write.Import(ctx, req.GetUid(), reports); err != nil {
		return nil, err
	}
	for i := range reports {
		resp.Statuses[i] = reports[i].Status
	}
	return resp, nil
}

// reportOf makes a report of an imported record. One that the archive would not keep has its
// status decided.
func reportOf(req *historyv1.ImportRequest, in *historyv1.ImportedRecord, now int64) (r report.Report, err error) {
	r.Key, r.Restore = history.Key{UID: req.GetUid(), Object: report.Object(in.GetObject())}, req.GetRestore()
	if err := r.Key.Object.Validate(); err != nil {
		return r, err
	}
	if r.Whole, err = view.Record(in.GetRecord()); err != nil {
		return r, history.Invalid("details", "want a record as exports have it")
	}
	if err := r.Whole.Validate(now); err != nil {
		return r, err
	}
	r.At = r.Whole.Version.Time()
	if r.At <= now-history.ArchiveLife {
		r.Status = historyv1.Status_STATUS_EXPIRED
	}
	return r, nil
}
