package uplink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// pending is one caller's share of a batch.
type pending struct {
	ctx   context.Context // the caller's
	req   *historyv1.ApplyRequest
	bytes int
	came  time.Time   // when it came
	ready time.Time   // when it was free to leave
	user  *user       // of the batcher that it waits in
	first user        // memory for user, where the user has no other call there
	done  chan answer // capacity 2, for a warning and the answer: callers that have left block nobody
}

func newPending(ctx context.Context, req *historyv1.ApplyRequest, bytes int) *pending {
	return &pending{ctx: ctx, req: req, bytes: bytes, done: make(chan answer, 2)}
}

func (p *pending) uid() string { return p.req.Heartbeats[0].GetUid() }

// time is how long the caller waits at most.
func (p *pending) time(patience time.Duration) time.Duration {
	if deadline, ok := p.ctx.Deadline(); ok {
		return deadline.Sub(p.came)
	}
	return 2 * patience
}

type answer struct {
	resp *historyv1.ApplyResponse
	err  error // errLate: a warning, the answer is still to come
}

// errLate warns a caller that the instance has not answered for long.
var errLate = errors.New("late")

var errFull = status.Error(codes.Unavailable, "too many heartbeats wait for history-service")

// user is the calls of one user in a batcher. The batcher's mutex guards it.
type user struct {
	uid       string
	calls     int        // calls that wait or are on their way
	flying    int        // of those, the ones on their way
	batch     *batch     // the last one that has any of them
	postponed []*pending // calls that wait for the answer to those on their way
}

// batch is the calls that leave together.
type batch struct {
	calls         []*pending // nil once answered
	starts        []int      // the index of the first heartbeat of each
	events, bytes int
	oldest        *pending
	sent          time.Time
	among         int  // heartbeats that were on their way then, its own included
	left          int  // calls that are not answered yet
	heard         bool // some calls are answered, or nobody waits any more: its place is free
	warned        bool
}

const (
	// maxBatch and maxBytes bound a batch, by half of what the service takes in bytes. A
	// single call that is larger does not travel on the stream, which the service would end.
	maxBatch = 1000
	maxBytes = 512 << 10
)

func (b *batch) add(p *pending) {
	if b.oldest == nil || p.came.Before(b.oldest.came) {
		b.oldest = p
	}
	b.calls = append(b.calls, p)
	b.starts = append(b.starts, b.events)
	b.events += len(p.req.Heartbeats)
	b.bytes += p.bytes
	b.left++
}

// merge returns one request for all the calls, which have the same options.
func (b *batch) merge() *historyv1.ApplyRequest {
	if len(b.calls) == 1 {
		return b.calls[0].req
	}
	all := &historyv1.ApplyRequest{
		Heartbeats:    make([]*historyv1.Heartbeat, 0, b.events),
		ReturnRecords: b.calls[0].req.ReturnRecords, Ack: b.calls[0].req.Ack,
	}
	for _, p := range b.calls {
		all.Heartbeats = append(all.Heartbeats, p.req.Heartbeats...)
	}
	return all
}

// answered returns the calls that a response answers, and where in it the heartbeats of each
// begin.
func (b *batch) answered(resp *historyv1.ApplyStreamResponse) (calls []*pending, starts []int) {
	indexes := resp.GetIndexes()
	if len(indexes) == 0 && b.left == len(b.calls) {
		b.left = 0
		return b.calls, b.starts
	}
	if len(indexes) == 0 {
		for i := range b.events {
			indexes = append(indexes, uint32(i)) //nolint:gosec // at most maxBatch
		}
	}
	return b.partly(indexes)
}

// partly is answered for a response about some of the heartbeats. Those of one call are
// always answered together.
func (b *batch) partly(indexes []uint32) (calls []*pending, starts []int) {
	for at, index := range indexes {
		i, ok := slices.BinarySearch(b.starts, int(index))
		if !ok || b.calls[i] == nil {
			continue
		}
		calls, starts = append(calls, b.calls[i]), append(starts, at)
		b.calls[i] = nil
		b.left--
	}
	return calls, starts
}

// rest returns the calls that are not answered.
func (b *batch) rest() []*pending {
	return slices.DeleteFunc(slices.Clone(b.calls), func(p *pending) bool { return p == nil })
}

// deserted reports whether nobody waits for an answer any more.
func (b *batch) deserted() bool {
	return !slices.ContainsFunc(b.calls, func(p *pending) bool { return p != nil && p.ctx.Err() == nil })
}

// warn tells the callers that the instance answers nothing.
func (b *batch) warn() {
	if b.warned || b.heard {
		return
	}
	b.warned = true
	for _, p := range b.calls {
		p.done <- answer{err: errLate}
	}
}

// own returns a call's part of a response. Its heartbeats begin at an index.
func own(p *pending, resp *historyv1.ApplyResponse, from int) answer {
	a := part(resp, from, from+len(p.req.Heartbeats))
	if a.err == nil && !p.req.GetReturnRecords() && !slices.ContainsFunc(a.resp.GetRecords(), isThere) {
		a.resp.Records = nil // those of others are in conflict
	}
	return a
}

// part returns the part of a response about the heartbeats from one index to before another.
func part(resp *historyv1.ApplyResponse, from, to int) answer {
	records := resp.GetRecords()
	if len(resp.GetStatuses()) < to || len(records) > 0 && len(records) < to {
		return answer{err: status.Error(codes.Internal, fmt.Sprintf("%d statuses and %d records for %d heartbeats or more",
			len(resp.GetStatuses()), len(records), to))}
	}
	own := &historyv1.ApplyResponse{Statuses: resp.Statuses[from:to:to], NowMs: resp.NowMs}
	if unavailable(own.Statuses) { // the service answers the same to a unary call
		return answer{err: errCache}
	}
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

var errCache = status.Error(codes.Unavailable, "apply: the cache is unavailable")

func unavailable(statuses []historyv1.Status) bool {
	return !slices.ContainsFunc(statuses, func(s historyv1.Status) bool { return s != historyv1.Status_STATUS_UNAVAILABLE })
}

func isThere(it *historyv1.Item) bool { return it.GetObject() != nil }

func fail(calls []*pending, err error) {
	for _, p := range calls {
		p.done <- answer{err: err}
	}
}

func set(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// moved turns the error that ended a stream into the answer to its calls: Unavailable, which sends
// them to the next instance, unless that one would refuse them as well.
func moved(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return err
	}
	return status.Errorf(codes.Unavailable, "the instance broke off: %v", err)
}
