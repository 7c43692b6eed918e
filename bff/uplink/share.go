package uplink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// pending is one caller's share of a batch.
type pending struct {
	ctx   context.Context // the caller's
	req   *historyv1.ApplyRequest
	bytes int
	done  chan answer // of capacity 1: who answers does not wait for who has left
}

type answer struct {
	resp *historyv1.ApplyResponse
	err  error
}

// share sends a call in the company of others, and again to another instance when
// the one that had it died: what it stored, it will be found to have stored.
func (c *Client) share(p *pending) (resp *historyv1.ApplyResponse, err error) {
	uid := p.req.Heartbeats[0].GetUid()
	err = c.attempt(p.ctx, history.BucketOf(uid), func(l *link) (again bool, err error) {
		resp, err = l.lane(p.req).apply(p)
		if errors.Is(err, errFull) {
			c.metrics.refused.Inc()
			return false, err
		}
		return status.Code(err) == codes.Unavailable, err
	})
	if err == nil && unavailable(resp.Statuses) { // as the service answers a call of its own
		return nil, status.Error(codes.Unavailable, "apply: the cache is unavailable")
	}
	return resp, err
}

func unavailable(statuses []historyv1.Status) bool {
	return !slices.ContainsFunc(statuses, func(s historyv1.Status) bool { return s != historyv1.Status_STATUS_UNAVAILABLE })
}

// merge returns one request for all the calls, which ask for the same.
func merge(calls []*pending) *historyv1.ApplyRequest {
	if len(calls) == 1 {
		return calls[0].req
	}
	n := 0
	for _, p := range calls {
		n += len(p.req.Heartbeats)
	}
	all := &historyv1.ApplyRequest{
		Heartbeats:    make([]*historyv1.Heartbeat, 0, n),
		ReturnRecords: calls[0].req.ReturnRecords, Ack: calls[0].req.Ack,
	}
	for _, p := range calls {
		all.Heartbeats = append(all.Heartbeats, p.req.Heartbeats...)
	}
	return all
}

// deliver gives each call its part of the response to all.
func deliver(calls []*pending, resp *historyv1.ApplyResponse) {
	from := 0
	for _, p := range calls {
		to := from + len(p.req.Heartbeats)
		own := part(resp, from, to)
		if own.err == nil && !p.req.GetReturnRecords() && !slices.ContainsFunc(own.resp.GetRecords(), isThere) {
			own.resp.Records = nil // those of others are in conflict
		}
		p.done <- own
		from = to
	}
}

// part cuts out what became of the heartbeats from one index to before another.
func part(resp *historyv1.ApplyResponse, from, to int) answer {
	records := resp.GetRecords()
	if len(resp.GetStatuses()) < to || len(records) > 0 && len(records) < to {
		return answer{err: status.Error(codes.Internal, fmt.Sprintf("%d statuses and %d records for %d heartbeats or more",
			len(resp.GetStatuses()), len(records), to))}
	}
	own := &historyv1.ApplyResponse{Statuses: resp.Statuses[from:to:to]}
	if len(records) > 0 {
		own.Records = records[from:to:to]
	}
	for _, r := range resp.GetRefusals() {
		if i := int(r.GetIndex()); from <= i && i < to {
			own.Refusals = append(own.Refusals, &historyv1.Refusal{Index: uint32(i - from), Field: r.Field, Reason: r.Reason}) //nolint:gosec // below 1,000
		}
	}
	for _, d := range resp.GetDays() {
		if i := int(d.GetIndex()); from <= i && i < to {
			own.Days = append(own.Days, &historyv1.DaySeen{Index: uint32(i - from), Date: d.Date, First: d.First}) //nolint:gosec // below 1,000
		}
	}
	return answer{resp: own}
}

func isThere(it *historyv1.Item) bool { return it.GetObject() != nil }

// size returns how many bytes heartbeats take on their way, or a little less than it
// says. A text that protobuf would refuse is refused here, because there it would
// take a whole batch with it.
func size(hs []*historyv1.Heartbeat) (bytes int, err error) {
	const fixed = 64
	for _, h := range hs {
		bytes += fixed + len(h.GetUid()) + len(h.GetObjectId()) + len(h.GetSession()) + len(h.GetDevice()) + len(h.GetDay().GetZone())
		ok := utf8.ValidString(h.GetUid()) && utf8.ValidString(h.GetObjectId()) &&
			utf8.ValidString(h.GetSession()) && utf8.ValidString(h.GetDevice()) && utf8.ValidString(h.GetDay().GetZone())
		for k, v := range h.GetMeta() {
			bytes += fixed/4 + len(k) + len(v)
			ok = ok && utf8.ValidString(k) && utf8.ValidString(v)
		}
		if !ok {
			return 0, status.Error(codes.InvalidArgument, "apply: invalid UTF-8")
		}
	}
	return bytes, nil
}
