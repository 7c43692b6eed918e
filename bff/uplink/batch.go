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
	ctx    context.Context // the caller's
	req    *historyv1.ApplyRequest
	bucket history.Bucket
	bytes  int
	came   time.Time   // when it came
	ready  time.Time   // when it was free to leave
	user   *user       // of the batcher that it waits in
	first  user        // what user points to where the user has no other call there: it saves an allocation
	done   chan answer // capacity 2, for a warning and the answer: callers that have left block nobody
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

func fail(calls []*pending, err error) {
	for _, p := range calls {
		p.done <- answer{err: err}
	}
}

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

// rest returns the calls that are not answered.
func (b *batch) rest() []*pending {
	return slices.DeleteFunc(slices.Clone(b.calls), func(p *pending) bool { return p == nil })
}
