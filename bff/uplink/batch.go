package uplink

import (
	"context"
	"errors"
	"slices"
	"time"

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
	user   *user       // in its batcher.
	first  user        // target of user for a user's only call there: saves an allocation.
	done   chan answer // capacity 2, for a warning and the answer: departed callers block nothing.
}

func (p *pending) uid() string { return p.req.Heartbeats[0].GetUid() }

// time returns the caller's maximum wait.
func (p *pending) time(patience time.Duration) time.Duration {
	if deadline, ok := p.ctx.Deadline(); ok {
		return deadline.Sub(p.came)
	}
	return 2 * patience
}

type answer struct {
	resp *historyv1.ApplyResponse
	err  error // errLate: a warning before the answer
}

// errLate warns a caller of a late instance.
var errLate = errors.New("late")

func fail(calls []*pending, err error) {
	for _, p := range calls {
		p.done <- answer{err: err}
	}
}

// user is a user's calls in a batcher, guarded by the batcher's mutex.
type user struct {
	uid       string
	calls     int        // waiting or sent.
	flying    int        // sent.
	batch     *batch     // the latest with any of them.
	postponed []*pending // waiting for the answer to the sent ones.
}

// batch is the calls sent together.
type batch struct {
	calls         []*pending // nil once answered.
	starts        []int      // index of each call's first heartbeat.
	events, bytes int
	oldest        *pending
	sent          time.Time
	among         int  // heartbeats in flight at that time, including its own.
	left          int  // unanswered calls.
	heard         bool // has an answer, or no waiting callers: its place is free.
	warned        bool
}

const (
	// maxBatch and maxBytes limit a batch; in bytes to half of the service's limit. A larger single call
	// bypasses the stream, which the service would end.
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

// rest returns the unanswered calls.
func (b *batch) rest() []*pending {
	return slices.DeleteFunc(slices.Clone(b.calls), func(p *pending) bool { return p == nil })
}
