package uplink

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// window is the number of unanswered batches per batcher with a quick instance. The next batch grows
	// meanwhile.
	window = 4
	// slowWindow is the number with a slow instance.
	slowWindow = 64
	// lostAfter is the age at which an unanswered batch is given up, in multiples of the patience. It exceeds
	// the service's deadline.
	lostAfter = 10
)

// pace limits a batcher's heartbeats in flight to the number answered in time. With more, all would wait
// longer, until every caller times out.
type pace struct {
	flying     int           // heartbeats in flight.
	quota      int           // limit of flying.
	former     int           // quota before the last cut.
	limited    bool          // a call has waited for the quota since the last answer.
	rejectedAt time.Time     // last answer with limited set.
	cut        time.Time     // last cut of the quota.
	quick      time.Time     // last answer in less than a quarter of its time.
	took       time.Duration // moving average of answer times.
	before     time.Duration // answer time before the last cut; 0 after an answer in time.
	usual      time.Duration // answer time that a cut did not reduce; otherwise 0.

	least, first, most int
	patience           time.Duration
}

func newPace(first, batch, queue int, patience time.Duration) pace {
	return pace{quota: first, least: max(batch/20, 1), first: first, most: max(queue, 2*maxBatch), patience: patience}
}

// room returns the free part of the quota. Under time pressure batches are small, since a batch is answered as
// a whole.
func (p *pace) room() int {
	left := p.quota - p.flying
	if p.cut.IsZero() || p.quota >= 2*maxBatch {
		return left
	}
	return min(left, max(p.quota/window, p.least))
}

// next returns the expected time of the next answer: under overload longer than the last ones. Beyond 0.85 of a
// caller's time the factor would refuse callers whose answers take that long anyway.
func (p *pace) next() time.Duration { return max(p.took, min(p.took*5/4, p.patience*17/10)) }

// answered handles the first answer to a batch. If it took more than 0.7 of the time of its oldest call, too
// many were in flight. The quota is then cut to halve the answer time. Waiting at the edge does not count:
// fewer heartbeats would not shorten it. One late answer among quick ones comes from a slow partition and
// changes nothing.
func (p *pace) answered(b *batch, now time.Time) {
	took, all := now.Sub(b.sent), b.oldest.time(p.patience)
	p.took += (took - p.took) / 4
	late := took > max(all*14/20, p.usual*11/10)
	if took <= all*14/20 {
		p.usual, p.before = 0, 0
	}
	if took < all/4 {
		p.quick = now
	}
	switch {
	case late && b.sent.After(p.quick) && b.sent.After(p.cut): // batches sent earlier say nothing about the present quota
		p.cut = now
		p.lessen(b.among, took, all)
	case late:
	case p.limited && took < all/8: // probably far below the limit
		p.quota = min(p.quota+b.events, p.most)
	case p.limited && took < all*9/20: // after too deep a cut
		p.quota = min(p.quota+max(1, b.events/4), p.most)
	case p.limited && took > all*5/8 && rand.IntN(8) > 0: // more would soon be late, at all instances of a shared store at once
	case p.limited:
		p.quota = min(p.quota+max(1, b.events*p.least/p.quota), p.most)
	case p.quota > p.first && p.flying < p.quota/4 && now.Sub(p.rejectedAt) > p.patience:
		p.quota = max(p.quota-p.quota/16, p.first) // after a burst, back to the initial quota
	}
	if p.limited {
		p.rejectedAt = now
	}
	p.limited = false
}

// lessen cuts the quota to the number answered in half the time, judging by the batch and its heartbeats in
// flight. If far more were sent since, they count half. If answers are as slow as before the last cut, it
// reverts that cut: fewer heartbeats did not help. Answers that took all of the callers' time do not allow that
// conclusion.
func (p *pace) lessen(among int, took, all time.Duration) {
	if p.before > 0 && took > p.before*9/10 && took < all*19/20 {
		p.usual, p.quota = took, p.former
		return
	}
	p.before, p.former = took, p.quota
	p.quota = max(int(int64(min(max(among, p.flying/2), p.quota))*int64(all/2)/int64(took)), p.least)
}

// kind is a kind of read. Kinds differ in their usual duration.
type kind uint8

const (
	lists kind = iota
	points
	offers
	searches
	settings
	times
	kinds
)

// usual is the usual duration of a kind of read at an instance: mean and deviation in nanoseconds, like TCP's
// estimate of the round trip. Concurrent updates may lose one, which is harmless.
type usual struct{ mean, deviation atomic.Int64 }

func (u *usual) took(d time.Duration) {
	mean, took := u.mean.Load(), int64(d)
	if mean == 0 {
		u.mean.Store(took)
		u.deviation.Store(took / 2)
		return
	}
	deviation := u.deviation.Load()
	u.mean.Store(mean + (took-mean)/8)
	u.deviation.Store(deviation + (max(took-mean, mean-took)-deviation)/4)
}

// long returns a duration that hardly any read exceeds.
func (u *usual) long(patience time.Duration) time.Duration {
	mean := u.mean.Load()
	if mean == 0 {
		return patience
	}
	return min(max(time.Duration(mean+4*u.deviation.Load()), patience/4), 2*patience)
}

// clock is an instance's time, as an offset to the time since the client was made. Like a player, it takes the
// least offset that the answers prove. That is too small by the latency of the quickest answer.
type clock struct {
	mu     sync.Mutex
	offset time.Duration // to Unix time
	proved time.Duration // last answer, since the client was made; 0 for never
}

const (
	// suspect is the maximum duration of the first answer, and so the maximum initial error.
	suspect = 500 * time.Millisecond
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
	case came-asked > suspect:
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
