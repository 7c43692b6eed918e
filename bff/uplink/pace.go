package uplink

import (
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
	flying  int           // heartbeats on their way
	quota   int           // how many there may be
	limited bool          // the quota held something back since the last answer
	pressed time.Time     // when it last did
	cut     time.Time     // when the quota was cut last
	took    time.Duration // how long the last ones were on their way, on average

	least, first, most int
	patience           time.Duration
}

func newPace(cfg *Config) pace {
	first := 5 * cfg.Batch
	return pace{quota: first, least: cfg.Batch, first: first, most: max(cfg.Queue, 2*maxBatch), patience: cfg.Patience}
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

// answered takes the first answer to a batch. When its oldest call has used seven tenths of
// its time, there were too many: six tenths are what the next ones shall take.
func (p *pace) answered(b *batch, now time.Time) {
	p.flying -= b.events
	p.took += (now.Sub(b.sent) - p.took) / 4
	took, all := now.Sub(b.oldest.came), b.oldest.time(p.patience)
	switch {
	case took > all*7/10:
		if b.sent.After(p.cut) { // what left before says nothing about the present quota
			p.quota = max(int(int64(p.quota)*int64(all*6/10)/int64(took)), p.least)
			p.cut = now
		}
	case p.limited && took < all/8: // there may be much more
		p.quota = min(p.quota+b.events, p.most)
	case p.limited:
		p.quota = min(p.quota+max(1, b.events*p.least/p.quota), p.most)
	case p.quota > p.first && p.flying < p.quota/4 && now.Sub(p.pressed) > p.patience:
		p.quota = max(p.quota-p.quota/16, p.first) // after a burst, back to the usual
	}
	if p.limited {
		p.pressed = now
	}
	p.limited = false
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
// nanoseconds, as TCP knows of its round trips. An answer that is lost between two of its methods
// does not matter.
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

// long is what hardly any read takes.
func (u *usual) long(patience time.Duration) time.Duration {
	mean := u.mean.Load()
	if mean == 0 {
		return patience
	}
	return min(max(time.Duration(mean+4*u.deviation.Load()), patience/4), 2*patience)
}
