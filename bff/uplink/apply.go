package uplink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Apply stores heartbeats of one user, in one message with those of other callers.
// The request is not to be changed any more, not even after Apply has returned. The answer
// to one without heartbeats says what time it is.
func (c *Client) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	bytes, err := size(req.GetHeartbeats())
	switch {
	case err != nil:
		return nil, err
	case len(req.GetHeartbeats()) == 0:
		return c.time(ctx)
	}
	return c.batched(newPending(ctx, req, bytes))
}

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

type answer struct {
	resp *historyv1.ApplyResponse
	err  error // errLate: a warning, the answer is still to come
}

// errLate warns a caller that the instance has not answered for long.
var errLate = errors.New("late")

// batched sends a call in a batch with others, and again to another instance when the one that had
// it died. Events that the dead one had stored are found to be stored, and do not count twice.
func (c *Client) batched(p *pending) (resp *historyv1.ApplyResponse, err error) {
	err = c.attempt(p.ctx, history.BucketOf(p.uid()), func(l *link) (again bool, err error) {
		resp, err = c.ask(l, p)
		switch {
		case errors.Is(err, errRetired): // nothing was sent
			return true, err
		case errors.Is(err, errFull):
			c.metrics.refused.Inc()
			return false, err
		case err == nil:
			c.budget.earn()
		}
		return status.Code(err) == codes.Unavailable && c.budget.spend(), err
	})
	if err == nil && unavailable(resp.Statuses) { // the service answers the same to a unary call
		return nil, status.Error(codes.Unavailable, "apply: the cache is unavailable")
	}
	return resp, err
}

// ask waits for an instance's answer to p, until the caller's context is done. When it is
// late, and another instance is not, that one is asked too, and the first answer counts.
func (c *Client) ask(l *link, p *pending) (*historyv1.ApplyResponse, error) {
	if err := l.batcher(p.req).add(p); err != nil {
		return nil, err
	}
	select { // nearly always this is all
	case a := <-p.done:
		if a.err != errLate { //nolint:errorlint // nobody wraps it
			return a.resp, a.err
		}
	case <-p.ctx.Done():
		return nil, status.FromContextError(p.ctx.Err()).Err()
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	return c.hedge(ctx, l, p)
}

// hedge waits for the answer of a late instance, and asks a second one.
func (c *Client) hedge(ctx context.Context, l *link, p *pending) (*historyv1.ApplyResponse, error) {
	first, second := p.done, c.second(ctx, l, p)
	for {
		select {
		case a := <-first:
			if a.err == nil || second == nil {
				return a.resp, a.err
			}
			first = nil
		case a := <-second:
			switch {
			case a.err == errLate: //nolint:errorlint // nobody wraps it
			case a.err == nil:
				l.overtaken(p)
				return a.resp, nil
			case first == nil:
				return nil, a.err
			default:
				second = nil
			}
		case <-p.ctx.Done():
			return nil, status.FromContextError(p.ctx.Err()).Err()
		}
	}
}

// second asks another instance as well, if there is one that is not late and the budget
// allows. It returns where the answer will be, nil when it does not ask.
func (c *Client) second(ctx context.Context, l *link, p *pending) <-chan answer {
	other := c.table.Load().next(history.BucketOf(p.uid()), []*peer{l.peer})
	if other == nil || other.late(time.Now()) || !c.budget.spend() {
		return nil
	}
	again := newPending(ctx, p.req, p.bytes)
	if other.batcher(p.req).add(again) != nil {
		return nil
	}
	c.metrics.hedges.Inc()
	return again.done
}

// time says what time it is for the service, as far as its last answer tells, and asks for
// one where there was none.
func (c *Client) time(ctx context.Context) (resp *historyv1.ApplyResponse, err error) {
	if offset := c.offset.Load(); offset != 0 {
		return &historyv1.ApplyResponse{NowMs: offset + time.Since(c.born).Milliseconds()}, nil
	}
	err = c.attempt(ctx, 0, func(l *link) (again bool, err error) {
		if !l.enter() {
			return true, errRetired
		}
		defer l.peer.links.Done()
		resp, err = l.peer.rpc.Apply(ctx, &historyv1.ApplyRequest{})
		return status.Code(err) == codes.Unavailable && c.budget.spend(), err
	})
	c.told(resp, time.Now())
	return resp, err
}

// told takes note of the time in an answer that came just now. The service's clock is asked
// for and not the machine's own, which may be any: the services agree on one.
func (c *Client) told(resp *historyv1.ApplyResponse, now time.Time) {
	if ms := resp.GetNowMs(); ms != 0 {
		c.offset.Store(ms - now.Sub(c.born).Milliseconds())
	}
}

func unavailable(statuses []historyv1.Status) bool {
	return !slices.ContainsFunc(statuses, func(s historyv1.Status) bool { return s != historyv1.Status_STATUS_UNAVAILABLE })
}

// batch is the calls that leave together.
type batch struct {
	calls         []*pending // nil once answered
	starts        []int      // the index of the first heartbeat of each
	events, bytes int
	oldest        *pending
	sent          time.Time
	left          int  // calls that are not answered yet
	heard         bool // some calls are answered
	warned        bool
}

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

// textFields are the indexes of a heartbeat's texts among its fields. They are looked up, so
// that none is forgotten when there is one more.
var textFields = func() (indexes []int) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[historyv1.Heartbeat]()) {
		if f.IsExported() && f.Type.Kind() == reflect.String {
			indexes = append(indexes, f.Index[0])
		}
	}
	return indexes
}()

// size returns a bound for the bytes that heartbeats take on their way. A text that is no UTF-8 is
// refused here, because protobuf would refuse the whole batch for it.
func size(hs []*historyv1.Heartbeat) (bytes int, err error) {
	const fixed = 64
	for _, h := range hs {
		bytes += fixed + len(h.GetDay().GetZone())
		ok := utf8.ValidString(h.GetDay().GetZone())
		fields := reflect.ValueOf(h).Elem()
		for _, i := range textFields {
			text := fields.Field(i).String()
			bytes += len(text)
			ok = ok && utf8.ValidString(text)
		}
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

var (
	errClosed = status.Error(codes.Canceled, "the client is closed")
	errShed   = status.Error(codes.Unavailable, "reads wait until the heartbeats before them are written")
)

// maxAttempts bounds how many instances one call is made to.
const maxAttempts = 3

// call makes one RPC for one user. One that reached nobody, or whose instance died or
// could not answer, is made again to the next instance.
func call[Q interface{ GetUid() string }, A any](
	ctx context.Context, c *Client, req Q, rpc func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error),
) (resp *A, err error) {
	err = c.attempt(ctx, history.BucketOf(req.GetUid()), func(l *link) (again bool, err error) {
		if !l.enter() {
			return true, errRetired
		}
		defer l.peer.links.Done()
		resp, err = rpc(l.peer.rpc, ctx, req)
		if err == nil {
			c.budget.earn()
			l.alive()
		}
		return status.Code(err) == codes.Unavailable && !later(err) && c.budget.spend(), err
	})
	return resp, err
}

// later reports whether an instance says when to try again: then another one is not asked at once.
func later(err error) bool {
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		_, ok := d.(*errdetails.RetryInfo)
		return ok
	})
}

// read is call for reads, which are refused while heartbeats wait for long: devices that read again
// after a missed change must not keep others from reporting.
func read[Q interface{ GetUid() string }, A any](
	ctx context.Context, c *Client, req Q, rpc func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error),
) (*A, error) {
	if l := c.table.Load().owners[history.BucketOf(req.GetUid())]; l != nil && l.crowded() {
		c.metrics.refused.Inc()
		return nil, errShed
	}
	return call(ctx, c, req, rpc)
}

// attempt has fn try the instances for a bucket, best first, until it says not again.
func (c *Client) attempt(ctx context.Context, b history.Bucket, fn func(*link) (again bool, err error)) error {
	var tried []*peer
	for {
		l, err := c.pick(ctx, b, tried)
		if err != nil {
			return err
		}
		again, err := fn(l)
		switch {
		case errors.Is(err, errRetired): // nothing was sent
			continue
		case !again || len(tried) == maxAttempts-1:
			return err
		}
		c.metrics.retries.Inc()
		if slices.Contains(tried, l.peer) || c.alone(l.peer) {
			run.Sleep(ctx, 10*time.Millisecond+rand.N(20*time.Millisecond))
		}
		tried = append(tried, l.peer)
	}
}

// budget bounds retries, so that an outage of the stores does not multiply the load of the
// instances: a call is sent again, or to a second instance, only while fewer than one in ten have
// failed lately. gRPC calls it retry throttling.
type budget struct{ debt atomic.Int64 } // tenths of a failure

// maxDebt is two thousand failures. The first thousand are the calls that may be on their
// way to an instance that dies.
const maxDebt = 20_000

func (b *budget) earn() {
	if b.debt.Load() > 0 {
		b.debt.Add(-1)
	}
}

// spend notes a failure and reports whether the call may be made again.
func (b *budget) spend() bool {
	if b.debt.Load() < maxDebt {
		b.debt.Add(10)
	}
	return b.debt.Load() < maxDebt/2
}
