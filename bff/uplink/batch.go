package uplink

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// pending is one caller's share of a batch.
type pending struct {
	ctx    context.Context // the caller's.
	req    *historyv1.ApplyRequest
	bucket history.Bucket
	bytes  int
	came   time.Time   // arrival.
	ready  time.Time   // ready to leave.
	user   *user       // in its queue.
	first  user        // target of user for a user's only call there: saves an allocation.
	done   chan answer // capacity 1: departed callers block nothing.
	trace  string      // traceparent of a sampled call, otherwise empty.
}

type answer struct {
	resp *historyv1.ApplyResponse
	err  error
}

func newPending(ctx context.Context, req *historyv1.ApplyRequest, bytes int) *pending {
	return &pending{ctx: ctx, req: req, bucket: history.BucketOf(req.Heartbeats[0].GetUid()), bytes: bytes, done: make(chan answer, 1)}
}

func (p *pending) uid() string { return p.req.Heartbeats[0].GetUid() }

// time returns the caller's maximum wait.
func (p *pending) time(patience time.Duration) time.Duration {
	if deadline, ok := p.ctx.Deadline(); ok {
		return deadline.Sub(p.came)
	}
	return 2 * patience
}

func fail(calls []*pending, err error) {
	for _, p := range calls {
		p.done <- answer{err: err}
	}
}

// size returns an upper bound for the encoded size of heartbeats. It rejects invalid UTF-8, since protobuf
// would reject the whole batch for it.
func size(hs []*historyv1.Heartbeat) (bytes int, err error) {
	const fixed, field = 64, 16 // bytes of numbers and tags, of a heartbeat and of a metadata entry
	ok := true
	add := func(overhead int, texts ...string) {
		bytes += overhead
		for _, text := range texts {
			bytes += len(text)
			ok = ok && utf8.ValidString(text)
		}
	}
	for _, h := range hs {
		texts := codec.Texts(h)
		add(fixed, texts[:]...)
		for k, v := range h.GetMeta() {
			add(field, k, v)
		}
		for _, k := range h.GetRemovedMeta() {
			add(field, k)
		}
	}
	if !ok {
		return 0, status.Error(codes.InvalidArgument, "apply: invalid UTF-8")
	}
	return bytes, nil
}

// batch is the calls sent together. They have the same options.
type batch struct {
	calls         []*pending // nil once answered.
	starts        []int      // index of each call's first heartbeat.
	events, bytes int
	oldest        *pending
	sent          time.Time
	left          int  // unanswered calls.
	heard         bool // has an answer: its place is free.
	giveUp        *time.Timer
	traced        []*historyv1.TracedHeartbeat // first heartbeats of sampled calls.
}

const (
	// maxBatch and maxBytes limit a batch; in bytes to a quarter of the service's limit.
	maxBatch = 1000
	maxBytes = 512 << 10
)

func (b *batch) add(p *pending) {
	if b.oldest == nil || p.came.Before(b.oldest.came) {
		b.oldest = p
	}
	if p.trace != "" {
		b.traced = append(b.traced, &historyv1.TracedHeartbeat{Index: uint32(b.events), Traceparent: p.trace}) //nolint:gosec // below 1,000
	}
	b.calls = append(b.calls, p)
	b.starts = append(b.starts, b.events)
	b.events += len(p.req.Heartbeats)
	b.bytes += p.bytes
	b.left++
}

// fits reports whether a call may join a batch of at most room heartbeats. A batch may be one call of more.
func (b *batch) fits(p *pending, room int) bool {
	return len(b.calls) == 0 || b.events+len(p.req.Heartbeats) <= room && b.bytes+p.bytes <= maxBytes
}

// takes reports whether a call has the batch's options.
func (b *batch) takes(p *pending) bool {
	if len(b.calls) == 0 {
		return true
	}
	other := b.calls[0].req
	return p.req.ReturnRecords == other.ReturnRecords && p.req.Ack == other.Ack
}

// rest returns the unanswered calls.
func (b *batch) rest() []*pending {
	return slices.DeleteFunc(slices.Clone(b.calls), func(p *pending) bool { return p == nil })
}

// merge returns one request for all calls.
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

// answered returns the calls in a response and the index of each call's first heartbeat in it. A call's heartbeats
// are always answered together.
func (b *batch) answered(resp *historyv1.ApplyStreamResponse) (calls []*pending, starts []int) {
	if len(resp.GetIndexes()) == 0 && b.left == len(b.calls) {
		b.left = 0
		return b.calls, b.starts
	}
	for at, index := range resp.GetIndexes() {
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

// own returns a call's part of a response; its heartbeats start at index from.
func own(p *pending, resp *historyv1.ApplyResponse, from int) answer {
	to := from + len(p.req.Heartbeats)
	records := resp.GetRecords()
	if len(resp.GetStatuses()) < to || len(records) > 0 && len(records) < to {
		return answer{err: status.Error(codes.Internal, fmt.Sprintf("%d statuses and %d records for %d heartbeats or more",
			len(resp.GetStatuses()), len(records), to))}
	}
	own := &historyv1.ApplyResponse{Statuses: resp.Statuses[from:to:to], NowMs: resp.NowMs}
	if unavailable(own.Statuses) { // as the service answers a unary call
		return answer{err: errCache}
	}
	if len(records) > 0 && (p.req.ReturnRecords || slices.ContainsFunc(records[from:to], isThere)) {
		own.Records = records[from:to:to] // otherwise only records of other calls' conflicts
	}
	own.Refusals = within(resp.GetRefusals(), from, to, func(r *historyv1.Refusal, i uint32) *historyv1.Refusal {
		return &historyv1.Refusal{Index: i, Field: r.Field, Reason: r.Reason}
	})
	own.Stale = within(resp.GetStale(), from, to, func(s *historyv1.Stale, i uint32) *historyv1.Stale {
		return &historyv1.Stale{Index: i, EventTimeMs: s.EventTimeMs, RecordTimeMs: s.RecordTimeMs}
	})
	own.Days = within(resp.GetDays(), from, to, func(d *historyv1.DaySeen, i uint32) *historyv1.DaySeen {
		return &historyv1.DaySeen{Index: i, Date: d.Date, First: d.First}
	})
	return answer{resp: own}
}

// within returns copies of the entries about the heartbeats in [from, to), with indexes from 0.
func within[T interface{ GetIndex() uint32 }](all []T, from, to int, renumbered func(T, uint32) T) (own []T) {
	for _, e := range all {
		if i := int(e.GetIndex()); from <= i && i < to {
			own = append(own, renumbered(e, uint32(i-from))) //nolint:gosec // below 1,000
		}
	}
	return own
}

var errCache = status.Error(codes.Unavailable, "apply: the cache is unavailable")

func unavailable(statuses []historyv1.Status) bool {
	return !slices.ContainsFunc(statuses, func(s historyv1.Status) bool { return s != historyv1.Status_STATUS_UNAVAILABLE })
}

func isThere(it *historyv1.Item) bool { return it.GetObject() != nil }
