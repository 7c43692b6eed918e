package rpc

import (
	"errors"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// maxSkew is how far a device's clock may be off before its times are corrected.
// Below it the correction would be mostly the time on the way, and would give a
// repeated upload new times.
const maxSkew = 5000 // milliseconds

// decode turns heartbeats into events. Those that will not be stored have their
// status decided, and those that are not valid a refusal in resp.
func (s *Server) decode(hbs []*historyv1.Heartbeat, resp *historyv1.ApplyResponse) ([]history.Event, []historyv1.Status) {
	now := s.nowMS()
	events := make([]history.Event, len(hbs))
	statuses := make([]historyv1.Status, len(hbs))
	for i, hb := range hbs {
		events[i] = event(hb)
		correct(&events[i], hb.GetSentAtMs(), now)
		if err := s.admit(&events[i], hb); err != nil {
			statuses[i] = historyv1.Status_STATUS_INVALID
			resp.Refusals = append(resp.Refusals, refusal(i, err))
			continue
		}
		statuses[i] = normalise(&events[i], hb, now)
	}
	return events, statuses
}

func (s *Server) admit(e *history.Event, hb *historyv1.Heartbeat) error {
	if k := hb.GetKind(); k < historyv1.Kind_KIND_START || k > historyv1.Kind_KIND_FINISH {
		return history.Invalid("kind", "want start, progress, pause, seek, stop or finish")
	}
	return e.Validate()
}

// correct takes the offset of the device's clock off its times, before anybody judges them:
// a device that takes the year for 1970 says so of what it sends as well.
func correct(e *history.Event, sentAt, now int64) {
	skew := now - sentAt
	if sentAt <= 0 || sentAt > 2*now || max(skew, -skew) <= maxSkew {
		return
	}
	e.At += skew
	if e.StartedAt > 0 {
		e.StartedAt = max(e.StartedAt+skew, 1)
	}
}

// normalise brings a time to come to now, and decides what is not stored at all.
func normalise(e *history.Event, hb *historyv1.Heartbeat, now int64) historyv1.Status {
	e.At = min(e.At, now)
	e.Clamp()
	switch {
	case hb.GetIncognito():
		return historyv1.Status_STATUS_PAUSED
	case e.At <= now-history.ArchiveLife:
		return historyv1.Status_STATUS_EXPIRED
	case hb.GetFailed(): // where a broken playback stood is not worth resuming
		return historyv1.Status_STATUS_UNCHANGED
	}
	return historyv1.Status_STATUS_UNSPECIFIED
}

func event(hb *historyv1.Heartbeat) history.Event {
	return history.Event{
		Key: history.Key{
			UID:    hb.GetUid(),
			Object: history.Object{ID: hb.GetObjectId(), Type: hb.GetObjectType()},
		},
		Kind: history.Kind(hb.GetKind()), At: hb.GetEventTimeMs(), //nolint:gosec // admit has the bound
		Position: hb.GetPositionMs(), Duration: hb.GetDurationMs(),
		Session: hb.GetSession(), Device: hb.GetDevice(), Meta: hb.GetMeta(),
		StartedAt: hb.GetStartedAtMs(), Watched: hb.GetWatchedMs(), Speed: int64(hb.GetSpeedPercent()),
	}
}

func refusal(i int, err error) *historyv1.Refusal {
	r := &historyv1.Refusal{Index: uint32(i), Reason: err.Error()} //nolint:gosec // at most MaxBatch
	if field, ok := errors.AsType[*history.FieldError](err); ok {
		r.Field, r.Reason = field.Field, field.Reason
	}
	return r
}
