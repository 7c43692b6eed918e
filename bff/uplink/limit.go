package uplink

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Swift's parameters, see [limit].
const (
	// maxDelay is the target delay, as a share of a caller's time. A Redis that takes 1.2 s of 2 s is below it: waiting
	// beats refusing then. The rest is for waiting at the edge.
	maxDelay = 0.7
	// decrease is beta of the paper, and maxDecrease its max_mdf: the largest cut per answer time.
	decrease, maxDecrease = 0.8, 0.5
	// increase is the additive increase per answer time, as a share of the initial limit. It is small, since all
	// edges and instances of a store grow at once.
	increase = 0.05
	// calmDelay is the longest answer of a healthy store, as a share of a caller's time. A late answer then comes
	// from one slow partition.
	calmDelay = 0.25
	// lastDelays is the number of answers in the expected delay: one slow answer must not look like all.
	lastDelays = 4
)

// limit bounds a queue's heartbeats in flight by the Swift algorithm. It increases additively while answers stay
// below a target delay. At most once per answer time it decreases by the excess. Source: Kumar et al., Swift: Delay is
// Simple and Effective for Congestion Control in the Datacenter, SIGCOMM 2020, algorithm 1.
type limit struct {
	flying int                       // heartbeats in flight.
	factor float64                   // limit, as a multiple of the initial one.
	wanted bool                      // a call has waited for the limit since the last answer.
	cut    time.Time                 // last decrease.
	calm   time.Time                 // last quick answer.
	delays [lastDelays]time.Duration // of the last answers.
	heard  int                       // answers.
}

// most returns the limit, given the initial one.
func (l *limit) most(initial int) int { return max(int(l.factor*float64(initial)), 1) }

// room returns how many heartbeats the next batch may have. After the first decrease it is at most a quarter of the
// limit. A batch is answered as a whole, so larger ones would make the delay swing.
func (l *limit) room(initial int) int {
	most := l.most(initial)
	if l.cut.IsZero() {
		return most - l.flying
	}
	return min(most-l.flying, max(most/window, 1))
}

// expected returns the expected answer time: the shortest of the last answers, zero before.
func (l *limit) expected() time.Duration { return slices.Min(l.delays[:]) }

// answered adapts the limit to the first answer to a batch. Waiting at the edge does not count: fewer heartbeats in
// flight would not shorten it.
func (l *limit) answered(b *batch, now time.Time, initial int, patience time.Duration) {
	all := b.oldest.time(patience)
	target := time.Duration(maxDelay * float64(all))
	delay := now.Sub(b.sent)
	l.delays[l.heard%lastDelays] = delay
	l.heard++
	if delay < time.Duration(calmDelay*float64(all)) {
		l.calm = now
	}
	switch {
	case delay < target:
		if l.wanted {
			l.factor += increase * float64(b.events) / float64(l.most(initial))
		}
		l.wanted = false
	case b.sent.After(l.cut) && b.sent.After(l.calm): // batches sent earlier say nothing about the present limit
		excess := float64(delay-target) / float64(delay)
		l.factor = max(l.factor*max(1-decrease*excess, 1-maxDecrease), increase)
		l.cut = now
	}
}

// Controlled delay, see [codel].
const (
	// codelInterval is how long a queue may stand, in multiples of the patience, before it is a standing queue.
	codelInterval = 1
	// codelTarget is the longest wait in a standing queue, as a share of the patience. With the target delay of the
	// limit it stays below a caller's time.
	codelTarget = 0.25
)

// codel returns how long calls may wait in a queue that was last empty at emptyAt. In a standing queue they may wait
// only shortly, or all answers would be late. Source: Maurer, Fail at Scale, ACM Queue 13/8, 2015, after Controlled
// Delay, RFC 8289.
func codel(emptyAt, now time.Time, patience time.Duration) time.Duration {
	if now.Sub(emptyAt) > codelInterval*patience {
		return time.Duration(codelTarget * float64(patience))
	}
	return patience
}

// budget limits retries to a tenth of the calls, so that an outage of the stores does not multiply the load. gRPC
// calls this retry throttling.
type budget struct{ debt atomic.Int64 } // in tenths of a failure

const (
	// failureCost is the debt of one failure, in tenths: ten successes pay it off.
	failureCost = 10
	// maxRetryDebt is the debt that stops retries: a thousand failures, since so many calls may be in flight to an
	// instance that dies.
	maxRetryDebt = 1000 * failureCost
	// maxDebt bounds the debt, and so the time until retries resume.
	maxDebt = 2 * maxRetryDebt
)

func (b *budget) earn() {
	if b.debt.Load() > 0 {
		b.debt.Add(-1)
	}
}

// refund returns the cost of a successful retry: the stores are well then, and the budget is for their outages.
func (b *budget) refund() { b.debt.Add(-failureCost) }

// spend records a failure and reports whether a retry is allowed.
func (b *budget) spend() bool {
	if b.debt.Load() < maxDebt {
		b.debt.Add(failureCost)
	}
	return b.debt.Load() < maxRetryDebt
}

// clock is an instance's time, as an offset to the time since the client was made. Like a player, it takes the
// least offset that the answers prove. That is too small by the latency of the quickest answer.
type clock struct {
	mu     sync.Mutex
	offset time.Duration // to Unix time
	proved time.Duration // last answer, since the client was made; 0 for never
}

const (
	// maxFirst is the maximum duration of the first answer, and so the maximum initial error.
	maxFirst = 500 * time.Millisecond
	// provedFor is how long an answer is valid: clocks drift.
	provedFor = time.Minute
)

// answered updates the offset. asked and came are the times of request and answer since the client was made.
func (k *clock) answered(nowMS int64, asked, came time.Duration) {
	if nowMS == 0 {
		return
	}
	now := time.Duration(nowMS) * time.Millisecond
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.known(came):
		k.offset = min(max(k.offset, now-came), now-asked)
	case came-asked > maxFirst:
		return
	default:
		k.offset = now - came
	}
	k.proved = came
}

// known reports whether a recent answer told the time. The caller holds k.mu.
func (k *clock) known(age time.Duration) bool { return k.proved > 0 && age-k.proved < provedFor }

// at returns the instance's time in Unix milliseconds at an age of the client, 0 if unknown.
func (k *clock) at(age time.Duration) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known(age) {
		return 0
	}
	return (k.offset + age).Milliseconds()
}
