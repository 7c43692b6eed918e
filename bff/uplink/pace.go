package uplink

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// window is how many batches of a batcher are on their way without an answer while the
	// instance is quick. The next one grows meanwhile.
	window = 4
	// slowWindow is how many there are when it is not.
	slowWindow = 64
	// lostAfter is after how many times an instance's patience a batch without an answer is
	// given up. The service answers each within its deadline, which is less.
	lostAfter = 10
)

// pace bounds how many heartbeats of a batcher are on their way: as many as are answered in time.
// With more, all would wait longer, until every caller gives up before its answer.
type pace struct {
	flying     int           // heartbeats on their way
	quota      int           // how many there may be
	former     int           // how many there were before the last cut
	limited    bool          // something has waited because of the quota since the last answer
	rejectedAt time.Time     // when an answer last came while limited was set
	cut        time.Time     // when the quota was cut last
	quick      time.Time     // when an answer took less than a quarter of its time last
	took       time.Duration // how long the last ones were on their way, on average
	before     time.Duration // how long the late answer took that led to the last cut; 0 once one was in time
	usual      time.Duration // how long answers take where a cut did not make them quicker; otherwise 0

	least, first, most int
	patience           time.Duration
}

func newPace(first, batch, queue int, patience time.Duration) pace {
	return pace{quota: first, least: max(batch/20, 1), first: first, most: max(queue, 2*maxBatch), patience: patience}
}

// room is how many more may leave. Where time is short they leave in small batches, because all of
// a batch is answered at once.
func (p *pace) room() int {
	left := p.quota - p.flying
	if p.cut.IsZero() || p.quota >= 2*maxBatch {
		return left
	}
	return min(left, max(p.quota/window, p.least))
}

// next is how long the next answer is likely to take: under overload longer than the last ones. Beyond 0.85 of a caller's
// time that guess would refuse all of those whose answers take as long anyway.
func (p *pace) next() time.Duration { return max(p.took, min(p.took*5/4, p.patience*17/10)) }

// answered takes the first answer to a batch. Where one takes more than 0.7 of the time of its oldest call,
// there were too many: the quota is cut so that the next ones take half. The time that the call has waited at
// the edge does not count: it would not get shorter with fewer. A late answer among quick ones comes from a slow part, and changes
// nothing.
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
	case late && b.sent.After(p.quick) && b.sent.After(p.cut): // what left before says nothing about the present quota
		p.cut = now
		p.lessen(b.among, took, all)
	case late:
	case p.limited && took < all/8: // there may be much more
		p.quota = min(p.quota+b.events, p.most)
	case p.limited && took < all*9/20: // as after a cut that was too deep
		p.quota = min(p.quota+max(1, b.events/4), p.most)
	case p.limited && took > all*5/8 && rand.IntN(8) > 0: // more would soon be late, and at all instances that share a store at once
	case p.limited:
		p.quota = min(p.quota+max(1, b.events*p.least/p.quota), p.most)
	case p.quota > p.first && p.flying < p.quota/4 && now.Sub(p.rejectedAt) > p.patience:
		p.quota = max(p.quota-p.quota/16, p.first) // after a burst, back to the usual
	}
	if p.limited {
		p.rejectedAt = now
	}
	p.limited = false
}

// lessen cuts the quota to what is answered in half the time, as the batch shows that left among so many; where
// far more left since then, these count by half. It takes the last cut back where answers take as long as before that cut:
// they do with fewer, too. Of answers that took all of the callers' time that cannot be told.
func (p *pace) lessen(among int, took, all time.Duration) {
	if p.before > 0 && took > p.before*9/10 && took < all*19/20 {
		p.usual, p.quota = took, p.former
		return
	}
	p.before, p.former = took, p.quota
	p.quota = max(int(int64(min(max(among, p.flying/2), p.quota))*int64(all/2)/int64(took)), p.least)
}

// kind is what is read. Some kinds usually take longer than others.
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

// usual is how long reads of a kind take at an instance: their mean and how far they are off it, in
// nanoseconds, as TCP estimates its round trips. Two answers at one moment may count as one: that does
// not matter.
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

// long returns a time that hardly any read takes.
func (u *usual) long(patience time.Duration) time.Duration {
	mean := u.mean.Load()
	if mean == 0 {
		return patience
	}
	return min(max(time.Duration(mean+4*u.deviation.Load()), patience/4), 2*patience)
}

// clock is what an edge knows of an instance's time: by how much it is ahead of the time since the client was made. As
// a player does, it takes the least offset that the answers prove, which is too small by what the
// quickest answer took on its way.
type clock struct {
	mu     sync.Mutex
	offset time.Duration // from 1970
	proved time.Duration // when an answer came last, since the client was made; 0 for never
}

const (
	// suspect is how long the first answer may take, and so how far the offset may be behind then.
	suspect = 500 * time.Millisecond
	// provedFor is for how long an answer proves anything: clocks drift.
	provedFor = time.Minute
)

// answered takes what an answer says of the time. Asked and came are when it was asked for and when it came, since the
// client was made.
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

// known reports whether an answer has told the time lately. The caller holds k.mu.
func (k *clock) known(age time.Duration) bool { return k.proved > 0 && age-k.proved < provedFor }

// at is the instance's time in milliseconds at a moment since the client was made, 0 when it is not known.
func (k *clock) at(age time.Duration) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known(age) {
		return 0
	}
	return (k.offset + age).Milliseconds()
}
