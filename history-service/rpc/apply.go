package rpc

import (
	"context"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Apply stores a batch of heartbeats. See the protocol for what it answers.
func (s *Server) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	resp, err := s.apply(ctx, report.Of(req))
	if err != nil {
		return nil, status(err)
	}
	failed := func(s historyv1.Status) bool { return s == historyv1.Status_STATUS_UNAVAILABLE }
	if len(resp.Statuses) > 0 && !slices.ContainsFunc(resp.Statuses, func(s historyv1.Status) bool { return !failed(s) }) {
		return nil, status(fmt.Errorf("apply: cache: %w", history.ErrUnavailable))
	}
	return resp, nil
}

func (s *Server) apply(ctx context.Context, b *report.Batch) (*historyv1.ApplyResponse, error) {
	reports := b.Reports
	if n := len(reports); n > write.MaxBatch {
		return nil, history.Invalid("heartbeats", fmt.Sprintf("%d in one batch; want at most %d", n, write.MaxBatch))
	}
	refusals := admitAll(reports, s.cfg.Now().UnixMilli(), s.cfg.Rules)
	result, err := s.write.Apply(ctx, reports, b.Ack == historyv1.Ack_ACK_QUEUED)
	if err != nil {
		return nil, err
	}
	defer s.write.Free(result)
	resp := &historyv1.ApplyResponse{
		Statuses: make([]historyv1.Status, len(reports)), Refusals: refusals, Days: result.Days, Records: result.Items(b.ReturnRecords),
		NowMs: s.cfg.Now().UnixMilli(),
	}
	for i := range reports {
		resp.Statuses[i] = reports[i].Status
	}
	return resp, nil
}

// admitAll corrects and checks reports. One that will not be stored gets its status here, an
// invalid one also a refusal.
func admitAll(reports []report.Report, now int64, rules *history.Rulebook) (refusals []*historyv1.Refusal) {
	for i := range reports {
		r := &reports[i]
		correct(&r.Event, r.SentAt, received(r, now))
		if err := admit(&r.Event); err != nil {
			r.Status = historyv1.Status_STATUS_INVALID
			refusals = append(refusals, refusal(i, err))
			continue
		}
		r.Status = normalise(r, now, rules)
	}
	return refusals
}

// maxBehind and maxAhead are how far a device's clock may be off before its times are corrected, in
// milliseconds. The time on the way looks like a clock that is behind. A correction by it
// would make a report that was long on its way later than the next one. It never looks like
// a clock that is ahead: that one is corrected, or its reports would all be of now. Some milliseconds are
// within what the service knows of its own clock.
const (
	maxBehind = 120_000
	maxAhead  = 50
)

// maxClock bounds what a device's clock may show: far beyond any date, before and after 1970.
const maxClock = 1 << 52

// received is when the edge received a report, so that the way from there does not look like a
// clock that is wrong: now where the edge does not say, or cannot be right.
func received(r *report.Report, now int64) int64 {
	if r.ReceivedAt > now || r.ReceivedAt < now-maxBehind {
		return now
	}
	return r.ReceivedAt
}

// correct takes the offset of the device's clock off its times, before they are validated: a device
// whose clock shows 1970 gives all its times from 1970, that of sending included.
func correct(e *history.Event, sentAt, received int64) {
	skew := received - sentAt
	if sentAt == 0 || max(sentAt, -sentAt) > maxClock || -maxAhead <= skew && skew <= maxBehind {
		return
	}
	e.At += skew
	if e.StartedAt > 0 {
		e.StartedAt = max(e.StartedAt+skew, 1)
	}
}

func admit(e *history.Event) error {
	if e.Kind == 0 {
		return history.Invalid("kind", "want start, progress, pause, seek, stop or finish")
	}
	return e.Validate()
}

// normalise moves a time in the future to now, and decides which events are not stored at all.
func normalise(r *report.Report, now int64, rules *history.Rulebook) historyv1.Status {
	r.At = min(r.At, now)
	r.Clamp()
	switch {
	case r.Incognito:
		return historyv1.Status_STATUS_PAUSED
	case r.At <= now-rules.Life(r.Key.Object.Type):
		return historyv1.Status_STATUS_EXPIRED
	case r.Failed: // where a broken playback stood is not worth resuming
		return historyv1.Status_STATUS_UNCHANGED
	case rules.Brief(&r.Event):
		return historyv1.Status_STATUS_BRIEF
	}
	return historyv1.Status_STATUS_UNSPECIFIED
}
